"""The commands of README.md and docs/ that read a recording do so, with one recording for all."""

import pytest
from typer.testing import CliRunner

from dynadiag_cli.app import app
from tests.documented import commands, project, reads


@pytest.mark.any_torch
def test_commands_that_read_a_recording_do_what_they_say(tmp_path, monkeypatch):
    project(tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    monkeypatch.setattr("webbrowser.open", lambda *_: True)
    wanted = {" ".join(words[1:]): words[1:] for _, words in commands() if reads(words)}
    ended = {}
    for name, words in wanted.items():
        done = CliRunner().invoke(app, words)
        expected = (0, 1) if words[0] in ("check", "diff") else (0,)
        if done.exit_code not in expected or not isinstance(done.exception, SystemExit | None):
            ended[name] = (done.exit_code, repr(done.exception), done.output[-500:])
    assert len(wanted) > 15 and ended == {}
