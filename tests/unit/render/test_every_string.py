"""Every string of a report, whichever field holds it, is text in every rendered format: nothing is live, no control character is left."""

import dataclasses
import json
import re
import unicodedata
from collections.abc import Mapping

import pytest
from markdown_it import MarkdownIt

from dynadiag.model.run import RunInfo
from dynadiag.render import json_report, markdown, pictures
from dynadiag.trace.sources import find_sources

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
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def filled(value, text):
    """The same data with `text` in place of each string (also of keys that are no field names); what is no string stays."""
    if isinstance(value, str):
        return text
    if dataclasses.is_dataclass(value):
        return dataclasses.replace(
            value, **{field.name: filled(getattr(value, field.name), text) for field in dataclasses.fields(value) if field.init}
        )
    if isinstance(value, Mapping):
        return {f"{text}{number}" if isinstance(key, str) else key: filled(item, text) for number, (key, item) in enumerate(value.items())}
    if isinstance(value, tuple | list | frozenset | set):
        return type(value)(filled(item, text) for item in value)
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
    _, _ = pictures.write(hostile[1], tmp_path, renderer="plain")
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
