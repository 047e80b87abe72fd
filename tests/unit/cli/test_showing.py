"""What our own part does when it fails: the script's exit status stays, and no half of a file is left."""

import json
import os

import pytest
from typer.testing import CliRunner

from dynadiag.errors import UnreadableInputError
from dynadiag.model.run import Run, RunInfo, SourceFunction
from dynadiag.record import RecordResult
from dynadiag.render import json_report
from dynadiag.render.html import report_page
from dynadiag_cli import showing
from dynadiag_cli.app import app


@pytest.fixture
def ran(tmp_path):
    (tmp_path / "dynadiag-run.json").write_text('{"format": 1}')
    return RecordResult(directory=tmp_path, exit_status=7)


@pytest.mark.parametrize("error", [ZeroDivisionError("ours"), UnreadableInputError("no log")])
def test_a_failure_of_ours_leaves_the_exit_status_of_the_script(ran, monkeypatch, capsys, error):
    def fail(run, path):
        raise error

    monkeypatch.setattr(showing, "_build", fail)
    assert showing.explain_run(ran, options=showing.ShowOptions(renderer=None)) == 7
    assert str(error) in capsys.readouterr().err


def test_a_file_that_cannot_be_finished_is_not_there(tmp_path, monkeypatch):
    target = tmp_path / "report.json"
    target.write_text("whole")

    def full(*arguments, **keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        showing._write(None, tmp_path, "report.json", lambda report: "new")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert target.read_text() == "whole"


def test_what_a_folder_does_not_take_is_said_in_one_line(ran, monkeypatch, capsys):
    def refused(folder, name, text):
        raise OSError(30, "Read-only file system", ".1f.part")

    monkeypatch.setattr(showing, "write_inside", refused)
    assert showing.explain_run(ran, options=showing.ShowOptions(renderer=None)) == 7
    told = capsys.readouterr().err
    assert told.startswith("dynadiag: report.md, report.html, report.json could not be written: Read-only file system\n")
    assert ".part" not in told and "Files in" not in told


@pytest.mark.parametrize("verb", ["explain", "graph", "minify", "parity"])
def test_latest_as_a_text_file_is_a_recording_for_every_verb(tmp_path, monkeypatch, verb):
    run = tmp_path / "0001-x"
    run.mkdir()
    (run / "dynadiag-run.json").write_text('{"format": 1, "dynadiag": "0", "command": ["x"], "exit_status": 0}')
    (tmp_path / "latest").write_text("0001-x\n")
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(
        app, [verb, *(["--no-pictures"] if verb == "explain" else []), "latest" if verb == "explain" else "latest#g3"]
    )
    if verb == "explain":
        assert (found.exit_code, (run / "report.json").exists()) == (0, True)
    else:
        assert "0001-x" in str(found.exception)
        assert "graph" in str(found.exception)


def test_quiet_verbose_and_color(tmp_path):
    (tmp_path / "dynadiag-run.json").write_text('{"format": 1, "dynadiag": "0", "command": ["x"], "exit_status": 0}')

    def shown(*options):
        return CliRunner().invoke(app, ["explain", "--no-pictures", *options, str(tmp_path)]).output

    assert len(shown("-q").splitlines()) < 6 < len(shown().splitlines()) < len(shown("-v").splitlines())
    assert "Files in" not in shown("-q") and shown("-q").startswith("NO")
    assert "\x1b[" in shown("--color", "always") and "\x1b[" not in shown() + shown("--color", "never")


def test_the_trace_file_is_written_where_phases_were_timed(tmp_path, capsys):
    head = 'V0101 10:00:00.000000 7 torch/_dynamo/x.py:1] {{{}, "frame_id": 0, "frame_compile_id": 0}}\n'
    log = tmp_path / "a.log"
    log.write_text(head.format('"dynamo_start": {"stack": []}'))
    assert CliRunner().invoke(app, ["explain", str(log), "-q", "--trace", str(tmp_path / "t.json")]).exit_code == 0
    assert not (tmp_path / "t.json").exists()
    with log.open("a") as more:
        for kind, at in (("B", 100), ("E", 350)):
            more.write(head.format('"chromium_event": {}, "has_payload": "x"'))
            event = {"name": "dynamo", "ts": at, "args": {}, "ph": kind, "cat": "dynamo_timed", "tid": 0, "pid": 0}
            more.write("\t" + json.dumps(event, indent=0).replace("\n", "\n\t") + "\n")
    assert CliRunner().invoke(app, ["explain", str(log), "-q", "--trace", str(tmp_path / "t.json")]).exit_code == 0
    phases = [event for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert [(one["name"], one["ts"], one["dur"]) for one in phases] == [("dynamo", 0, 250)]


def test_only_files_of_an_own_run_are_compared(tmp_path, monkeypatch):
    """A log that somebody mailed names files; none of them is opened."""
    source = tmp_path / "train.py"
    source.write_text("def f():\n    return 2\n")
    function = SourceFunction(str(source), 1, "f", "def f():\n    return 1")
    run = Run(info=RunInfo(directory=str(tmp_path)), functions=(function,))
    (tmp_path / "dynadiag-run.json").write_text('{"format": 1}')
    elsewhere = showing._build(run, tmp_path)
    assert elsewhere.changed_sources == ()
    assert any("whether the files changed since is not known" in note for note in elsewhere.notes)
    monkeypatch.setattr("dynadiag.runs.recorded_here", lambda _: True)
    report = showing._build(run, tmp_path)
    assert report.changed_sources == (str(source),) and not report.notes
    assert "train.py changed or was deleted since the recording" in report_page.render(report)
    assert "train.py changed or was deleted since the recording" in json_report.dumps(report)


TEXT_LOG = """Graph break in user code at /home/me/net.py:7
Reason: Unsupported: Data-dependent branching
User code traceback:
  File "/home/me/net.py", line 7, in forward
    if x.sum() > 0:
"""


def test_the_page_of_a_log_is_one_flag_away_and_the_report_says_so(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "from a colleague.log"
    log.write_text(TEXT_LOG)
    told = CliRunner().invoke(app, ["explain", log.name])
    assert told.output.rstrip().endswith("page  dynadiag explain --open 'from a colleague.log'")
    assert [path.name for path in tmp_path.iterdir()] == [log.name]
    told = CliRunner().invoke(app, ["explain", "--open", log.name])
    page = tmp_path / "dynadiag-runs" / "0001-from-a-colleague" / "report.html"
    assert (told.exit_code, opened) == (0, [page.as_uri()])
    assert "Files in dynadiag-runs/0001-from-a-colleague/: report.html" in told.output
    assert "dynadiag explain --open" not in told.output
    assert not (tmp_path / "dynadiag-runs" / "latest").exists()


def test_the_page_can_be_the_format_of_the_report(tmp_path):
    log = tmp_path / "trace.log"
    log.write_text(TEXT_LOG)
    told = CliRunner().invoke(app, ["explain", "--format", "html", "-o", str(tmp_path / "page.html"), str(log)])
    assert told.exit_code == 0
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")
