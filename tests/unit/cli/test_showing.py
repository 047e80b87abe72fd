"""What our own part does when it fails: the script's exit status stays, and no half of a file is left."""

import os

import pytest

from dynadiag.errors import UnreadableInputError
from dynadiag.record import RecordResult
from dynadiag_cli import showing


@pytest.fixture
def ran(tmp_path):
    (tmp_path / "dynadiag-run.json").write_text('{"format": 1}')
    return RecordResult(directory=tmp_path, exit_status=7)


@pytest.mark.parametrize("error", [ZeroDivisionError("ours"), UnreadableInputError("no log")])
def test_a_failure_of_ours_leaves_the_exit_status_of_the_script(ran, monkeypatch, capsys, error):
    def fail(run):
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
