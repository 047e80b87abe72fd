"""Every string of a report of any verb is text in every format: nothing is live, no control character and no secret is left."""

import dataclasses
import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping

import pytest
from markdown_it import MarkdownIt

from dynadiag.bench import json_result, picture
from dynadiag.bench.judging import compare_arms, summarise
from dynadiag.bench.outcome import ArmResult, BenchResult, Correctness
from dynadiag.bench.show import document_of as bench_document
from dynadiag.model.run import RunInfo
from dynadiag.parity.result import ParityResult, findings_of
from dynadiag.parity.showing import document_of as parity_document
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.reproducer import bug_report
from dynadiag.reduce.reproducer.ablation import SIZES, Cell
from dynadiag.reduce.reproducer.proving import headline
from dynadiag.render import finite_json, json_report, markdown, markdown_text, pictures
from dynadiag.render.document import Document
from dynadiag.render.html import result_page
from dynadiag.render.page import text_of
from dynadiag.trace.sources import find_sources
from tests.unit.render.page_samples import Page

HOSTILE = [
    "@torvalds #12 GH-7 https://evil.example www.evil.example <img src=x onerror=a> [x](javascript:a) ![x](http://e)",
    "<script>a</script> </details> <details><summary>x",
    "\x1b[31m\x1b]8;;http://evil\x07x\x1b]8;;\x07 \x07\x00\x9b31m",
    "\u202eevil\u2066 \u200f\ufeff",
    "a\n# heading\n- list\n> quote\n| a | b |\n```\nx\n```\n---",
    "`@a` ``` | \\| \\` __x__ **y** ~~z~~ $a$ &lt;b&gt;",
    "[red]markup[/red] [link=http://evil]x[/link] :bomb:",
    "]]> --> <!-- <?xml <![CDATA[ &#x41; \ud800",
]
# What the templates of a result may contain besides what every page has.
TAGS = {"article", "b", "code", "div", "figure", "h2", "h3", "img", "li", "p", "pre", "span"}
TAGS |= {"table", "tbody", "td", "th", "thead", "tr", "ul"}
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def filled(value, text, but=()):
    """The same data with `text` in place of each string (also of keys that are no field names) that no field in `but` holds."""
    if isinstance(value, str):
        return text
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init and field.name not in but]
        return dataclasses.replace(value, **{name: filled(getattr(value, name), text, but) for name in fields})
    if isinstance(value, Mapping):
        items = enumerate(value.items())
        return {f"{text}{number}" if isinstance(key, str) else key: filled(item, text, but) for number, (key, item) in items}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(filled(item, text, but) for item in value))
    if isinstance(value, tuple | list | frozenset | set):
        return type(value)(filled(item, text, but) for item in value)
    return value


@pytest.fixture(params=range(len(HOSTILE)))
def hostile(request, samples):
    text, report = HOSTILE[request.param], samples.sample_report()
    info = RunInfo(
        **{field.name: text for field in dataclasses.fields(RunInfo) if "str" in str(field.type) and "tuple" not in str(field.type)}
    )
    info = dataclasses.replace(info, command=(text, text), exit_status=1)
    made = filled(report, text)
    return text, dataclasses.replace(made, run=dataclasses.replace(made.run, info=info))


def tokens(text):
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def test_markdown(hostile):
    text = markdown.render(hostile[1])
    found = list(tokens(text))
    html = [token.content for token in found if token.type in ("html_block", "html_inline")]
    assert all(re.fullmatch(r"(<details>\n<summary>[\w '-]+ \([\d,]+\)</summary>|</details>)\n?", one) for one in html)
    assert not [token for token in found if token.type in ("link_open", "image", "em_open", "s_open", "hr", "blockquote_open")]
    prose = " ".join(token.content for token in found if token.type == "text")
    assert not re.search(r"@\w|#\d|GH-\d|https?:|www\.e|mailto:", prose)
    assert_plain(text)


@pytest.mark.parametrize("options", [{}, {"limit": None, "show_free": True}, {"mutations_only": True}])
def test_terminal(hostile, show, options):
    assert_plain(show(hostile[1], **options))


def test_json(hostile):
    text = json_report.dumps(hostile[1])
    json.loads(text)
    assert_plain(text)


def test_pictures(hostile, tmp_path):
    _, _ = pictures.write(hostile[1], tmp_path, renderer="svg")
    for path in tmp_path.rglob("*"):
        if path.is_file():
            text = path.read_text("utf-8")
            assert_plain(text)
            assert not re.search(r"<script|<img|<a[ >]|xlink|onerror=\w+>|<!\[CDATA", text.partition("<svg")[2])
    assert {path.parent for path in tmp_path.rglob("*") if path.is_file()} <= {tmp_path / "graphs"}


@pytest.mark.parametrize("signal", HOSTILE)
def test_the_markers_fields_are_text(signal, tmp_path, samples):
    facts = dict.fromkeys(("dynadiag", "cwd", "started_at", "ended_at", "signal", "directory"), signal) | {
        "format": 1,
        "command": [signal],
    }
    (tmp_path / "dynadiag-run.json").write_text(json.dumps(facts | {"exit_status": 1}))
    info = find_sources(tmp_path).info
    report = samples.empty_report()
    text = markdown.render(dataclasses.replace(report, run=dataclasses.replace(report.run, info=info)))
    ended = list(tokens(next(line for line in text.splitlines() if line.startswith("- ended"))))
    assert {token.type for token in ended} <= {
        *(f"{kind}_{end}" for kind in ("bullet_list", "list_item", "paragraph") for end in ("open", "close"))
    } | {"inline", "text", "code_inline", "text_special"}
    assert not re.search(r"@\w|https?:|#\d", "".join(token.content for token in ended if token.type == "text"))
    assert_plain(text)


def assert_plain(text):
    """No control and no format character but line breaks and the zero-width space that we put in ourselves; all of it can be encoded."""
    text.encode("utf-8")
    wrong = {char for char in text if char not in "\n\u200b" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not wrong


KEY = "hf_" + "aB3dE5gH" * 4
SECRETS = f"401 for https://me:pw1234@host/x: password='pw1234', {KEY}"


def assert_dead(text):
    """Markdown in which nothing from outside is HTML, a link, an image, a mention or a reference."""
    found = list(tokens(text))
    assert not [one for one in found if one.type in ("html_block", "html_inline", "link_open", "image", "s_open", "hr", "blockquote_open")]
    prose = " ".join(one.content for one in found if one.type == "text")
    assert not re.search(r"@\w|#\d|GH-\d|https?:|www\.e|mailto:", prose)
    assert_plain(text)


def told(document):
    """A document in each format."""
    return markdown_text.document(document), text_of(document), result_page.render(document)


def assert_told(document):
    """Nothing of it is live in any format."""
    markdown_shown, text, page = told(document)
    assert_dead(markdown_shown)
    assert_plain(text)
    assert_page(page)


def assert_page(text):
    """A page whose only elements are those of our templates, with our scripts alone."""
    assert_plain(re.sub(r"[\t\r]", "", text))
    found, ordinary = Page(text), Page(result_page.render(Document(title="x")))
    assert found.raw == ordinary.raw
    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in ordinary.tags} | TAGS
    assert not [href for href in found.all("href") if not href.startswith("#")]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on") or name == "style"]
    assert not [name for name in found.all("src") if not name.startswith("data:image/svg+xml;base64,")]
    anchors = found.all("id")
    assert len(anchors) == len(set(anchors)) and {href[1:] for href in found.all("href")} <= set(anchors)


def bug_document(text, *, detail=True, source=True):
    failure = Failure(kind="compile_error", phase="compile", exceptions=("a.Outer", text), message=text, frames=(text,), detail=text)
    return bug_report.document_of(
        bug_report.BugReport(
            failure=failure,
            about=bug_report.about_graph(failure, text),
            story=text,
            source=f"x = 1  # {text}" if source else None,
            source_why=text,
            cells=[Cell(backend=text, sizes=sizes, said=text) for sizes in SIZES],
            facts={"torch": text, "GPU": text},
            notes=[text, text],
            other_failures={text: 2},
            error=None if detail else text,
            proof=headline({"reproduced": 2, "runs": 3}),
            figures=[(text, text)],
        )
    )


def bench_result(text):
    arms = [ArmResult(name=name, samples_ms=[ms] * 30, notes=[text], reason=text) for name, ms in (("eager", 10.0), (text, 5.0))]
    broken = ArmResult(name=f"{text}2", status="crashed", reason=text, notes=[text], cudagraph_skips=2, cudagraph_skip_reasons=[text])
    result = BenchResult(target=text, unit=text, arms=[*arms, broken], same_again=ArmResult(name="A/A", samples_ms=[10.0] * 30), rounds=30)
    result.environment, result.notes = {"device": text, "torch": text, "other": text}, [text]
    result.correctness = [
        Correctness(arm=one.name, status="WRONG", worst=text, detail=text, error=1.0, allowed=0.1, compared=4) for one in result.arms
    ]
    for row in (*result.arms, result.same_again):
        summarise(row, result.arms[0])
    compare_arms(result, in_process=False)
    return result


def parity_result(text):
    tried = {"kind": "overlap_later", "calls": ["recorded", "overlap"], "pair": [text, text], "shift": 2, "outcome": "differs"}
    tried |= {"why_not": None, "gradients_why_not": text, "values_compared": False}
    lost = {**tried, "kind": "same_tensor", "outcome": "not_judged", "why_not": text}
    difference = {
        "scenario": 0,
        "call": 1,
        "layer": text,
        "where": "output",
        "position": 0,
        "name": text,
        "aspect": "values",
        "eager": text,
    }
    difference |= {"compiled": text, "elements": 4, "wrong_elements": 2, "source": text}
    difference["line"] = {"file": text, "line": 8, "function": text, "code": text}
    graph = {"graph": "g0", "frame": "f0", "function": text, "file": text, "first_line": 7, "status": "compared", "why_not": None}
    graph |= {"backend": text, "notes": [text], "skipped": [{"kind": "disk_cache", "reason": text}], "tried": [tried, lost]}
    graphs = ({**graph, "differences": [difference]}, {**graph, "status": "skipped", "why_not": text, "differences": []})
    where = {"file": text, "line": 3, "function": text, "code": text}
    happened = {"verdict": text, "calls_compared": 2, "notes": [text]}
    happened["findings"] = [{"code": "DM40", "severity": "error", "title": text, "why": text, "where": where}]
    found = tuple(dataclasses.replace(one, test=text) for one in findings_of(graphs))
    return ParityResult(recording=text, torch=text, recorded_torch=(text,), graphs=graphs, findings=found, notes=(text,), happened=happened)


@pytest.mark.parametrize("text", HOSTILE)
def test_the_bug_report_of_minify(text):
    for options in ({}, {"detail": False}, {"source": False}):
        assert_told(bug_document(text, **options))


@pytest.mark.parametrize("text", HOSTILE)
def test_bench(text):
    result = bench_result(text)
    assert_told(bench_document(result, text))
    document = json_result.dumps(result)
    json.loads(document)
    assert_plain(document)
    drawn = picture.draw(result)
    assert_plain(drawn)
    names = {one.tag.rpartition("}")[2] for one in ElementTree.fromstring(drawn).iter()}
    assert names <= {"svg", "style", "title", "desc", "rect", "text", "line"}


@pytest.mark.parametrize("text", HOSTILE)
def test_parity(text):
    result = parity_result(text)
    assert_told(parity_document(result, text))
    assert_plain(finite_json.dumps(result.to_json("0")))


def test_secrets_are_masked_in_each_report(samples, show, tmp_path):
    """As an exception's message brings them, or a source line."""
    ids = {"id", "frame"}  # ours, such as "f0"
    report = filled(samples.sample_report(), SECRETS, but=ids)
    pictures.write(report, tmp_path, renderer="svg")
    bench, parity = bench_result(SECRETS), parity_result(SECRETS)
    texts = [json_report.dumps(report), markdown.render(report), show(report), *(one.read_text() for one in tmp_path.rglob("*.svg"))]
    texts += [
        *told(bug_document(SECRETS)),
        *told(bug_document(SECRETS, detail=False)),
        *told(bench_document(bench)),
        json_result.dumps(bench),
        picture.draw(bench),
    ]
    texts += [*told(parity_document(parity, SECRETS)), finite_json.dumps(parity.to_json("0"))]
    for text in texts:
        assert "401" in text and not [line for line in text.splitlines() if re.search("pw1234|hf_aB3d", line)]
