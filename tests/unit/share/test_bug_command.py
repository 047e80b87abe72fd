"""`dynadiag bug` from its command line: of a run, of what `minify` left, and bad input in one line."""

import io
import json
import re
import zipfile
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from dynadiag.errors import DynadiagError
from dynadiag.masking import masked_text
from dynadiag.render import document_json
from dynadiag.render.document import Block, Column, Document, Headline, Part, Section, cells
from dynadiag_cli.app import app
from tests.unit.gate.test_check_command import record
from tests.unit.trace.test_ranks import GUARDS, write

TOKEN = "hf_" + "aB3dE5gH" * 4
DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9"><title>t</title><desc>d</desc><text x="1">/home/alice/x ' + TOKEN + "</text></svg>"
)
TOLD = Document(
    title=f"RuntimeError: bad {TOKEN}",
    headlines=(Headline(word="proven", said="3 of 3", tone="good"),),
    sections=(
        Section(title="Describe the bug", lines=("It fails in /home/alice/x.py @torvalds <b>",)),
        Section(
            title="Which part", columns=(Column("backend"), Column("static")), items=[cells(Part("inductor", code=True), "fails")], depth=3
        ),
        Section(title="Error logs", block=Block(text=f"/home/alice/x.py: {TOKEN}\n" * 3000)),
        Section(title="Pictures", pictures=((DRAWING, "after"),)),
    ),
    name="minify.json",
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a run, and with the folder of a reduction."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text('import torch\n\ndef f(x):\n    x = x + 1\n    print("x")\n    return x\n')
    record(tmp_path, tmp_path / "run")
    folder = tmp_path / "min"
    folder.mkdir()
    facts = {"kind": "crash", "guilty": {"layer": "inductor"}, "error": f'  File "/home/alice/x.py"\n{TOKEN}'}
    (folder / "minify.json").write_text(json.dumps(facts))
    (folder / "form.json").write_text(document_json.dumps(TOLD))
    (folder / "repro_min.py").write_text(f"# /home/alice/x.py\nKEY = '{TOKEN}'\n")
    return tmp_path


def bug(*words):
    found = CliRunner().invoke(app, ["bug", *map(str, words)])
    if isinstance(found.exception, DynadiagError):
        return found.exception.exit_code, found.exception.message, ""
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout, found.stderr


def members(bundle):
    with zipfile.ZipFile(io.BytesIO(bundle.read_bytes())) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_run_becomes_a_form_and_a_bundle(here):
    status, out, err = bug("--out", "b", "run")
    assert status == 0 and out.split() == ["b/issue.md", "b/bundle.zip"]
    form, packed = (here / "b/issue.md").read_text(), members(here / "b/bundle.zip")
    assert form.startswith("# \\[GB0059\\] Graph break") and packed["issue.md"] == form
    for heading in ("## Describe the bug", "### Which part of the compiler", "### Minimal reproducer", "## Error logs", "## Versions"):
        assert heading in form
    assert {"report.json", "report.html", "removed.json", "graphs/source.svg"} <= packed.keys()
    assert "to be filed in your own project" in err and "read both files" in err
    assert bug("--out", "b", "run")[0] == 2 and bug("--out", "b", "--force", "-q", "run")[2] == ""
    assert members(here / "b/bundle.zip") == packed


def test_what_minify_left_is_said_again_without_secrets_and_names(here):
    status, _, err = bug("--out", "b", "min")
    form, packed = (here / "b/issue.md").read_text(), members(here / "b/bundle.zip")
    assert status == 0 and len(form) <= 65_536
    assert [name for name, text in packed.items() if TOKEN in text or "alice" in text] == []
    user = re.search(r"/home/(user\d+)/x", packed["repro_min.py"])[1]
    assert f"/home/{user}/x" in packed["pictures/0.svg"] and f"/home/{user}/x.py" in form
    assert "pytorch/pytorch: the guilty layer is inductor" in form and "module: inductor" in form
    assert "@\N{ZERO WIDTH SPACE}torvalds" in form and "\\<b>" in form
    assert "| Hugging Face token |" in form and "removed Hugging Face token" in err


def test_a_healthy_run_is_nothing_to_file(here):
    record(here, here / "fine", broken=False)
    _, _, err = bug("--out", "b", "fine")
    form = (here / "b/issue.md").read_text()
    assert form.startswith("# torch.compile: nothing found\n") and "\nnothing to file: this run has no error and no warning.\n" in form
    assert "dynadiag: nothing to file: this run" in err


def test_no_redact_leaves_all_in_and_says_so(here):
    _, _, err = bug("--no-redact", "--out", "b", "min")
    assert TOKEN in members(here / "b/bundle.zip")["repro_min.py"] and "NOT redacted" in err
    assert "## Not redacted" in (here / "b/issue.md").read_text()
    bug("--no-redact", "--out", "c", "run")
    assert json.loads(members(here / "c/bundle.zip")["removed.json"])["redacted"] is False


def test_a_form_survives_its_json():
    again = document_json.loads(document_json.dumps(TOLD))
    assert again.title.startswith("RuntimeError") and again.headlines == TOLD.headlines
    assert [tuple(one.items) for one in again.sections] == [tuple(one.items) for one in TOLD.sections]
    assert [replace(one, items=()) for one in again.sections] == [replace(one, items=()) for one in json_safe(TOLD).sections]


def json_safe(told):
    """JSON is never written with a token in it."""
    return replace(told, sections=(*told.sections[:2], *(masked(one) for one in told.sections[2:])))


def masked(one):
    block = one.block and Block(text=masked_text(one.block.text))
    return replace(one, block=block, pictures=tuple((masked_text(svg), alt) for svg, alt in one.pictures))


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (None, ["nothing"], "no such file or folder: nothing (a run, a log, or the folder of minify or bench was expected)"),
        (lambda here: (here / "min/form.json").unlink(), ["min"], "min has no form.json: it was made by an older dynadiag or did not end"),
        (lambda here: (here / "min/form.json").write_text("[1]"), ["min"], "min/form.json is damaged (not a form of this version)"),
        (lambda here: (here / "min/form.json").write_text("[" * 99999), ["min"], "min/form.json is damaged"),
        (lambda here: (here / "min/minify.json").write_text("{"), ["min"], "min/minify.json is damaged"),
        (lambda here: (here / "x").mkdir(), ["x"], "no logs in"),
        (None, ["--out", "train.py", "run"], "train.py is a file, not a folder"),
    ],
)
def test_bad_input_is_one_line(here, change, words, message):
    if change is not None:
        change(here)
    before = sorted(here.rglob("*"))
    status, said, _ = bug(*words)
    assert status == 2 and said.startswith(message) and "\n" not in said
    assert sorted(here.rglob("*")) == before, "a folder was left behind"


@pytest.mark.parametrize("odd", [{}, {"r5": {"guards": GUARDS.replace("size=[8, 64]", "size=[7, 64]")}}])
def test_of_many_ranks_only_the_logs_read_in_full_are_packed_and_the_report_tells_of_all(tmp_path, monkeypatch, odd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs", range(20), **odd)
    assert bug("--out", "out", "logs")[0] == 0
    bundle = zipfile.ZipFile(tmp_path / "out" / "bundle.zip")
    logs = [name for name in bundle.namelist() if name.startswith("trace/")]
    assert [re.search(r"rank_(\d+)_", name)[1] for name in logs] == (["0", "5"] if odd else ["0"])
    report = json.loads(bundle.read("report.json"))
    assert report["rank_groups"]["ranks"] == 20 and len(report["rank_groups"]["groups"][0]["ranks"]) == (19 if odd else 20)
    assert not any(one["kind"] == "missing" for one in report["rank_groups"]["troubles"])
    assert any(f"the logs of {18 if odd else 19} ranks are not packed" in note for note in report["notes"])
