"""What `dynadiag fix` refuses, in one line and before anything runs; and what it does to files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dynadiag.errors import DynadiagError, OutputError, UnreadableInputError
from dynadiag.fix import session
from dynadiag.fix.baseline import check_script, script_of_module
from dynadiag_cli.main import app


def refused(*words: str) -> str:
    error = CliRunner().invoke(app, ["fix", *words]).exception
    assert isinstance(error, DynadiagError) and error.exit_code == 2
    assert "\n" not in error.message
    return error.message


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")
    return tmp_path


def test_what_is_no_script_of_ones_own_is_refused(folder):
    installed = folder / "site-packages" / "x.py"
    installed.parent.mkdir()
    installed.write_text("open('ran', 'w')\n")
    (folder / "x.zip").write_bytes(b"PK")
    (folder / "x.pyc").write_bytes(b"x")
    assert "site-packages" in refused(str(installed))
    assert "cannot run -m nothing.here: No module named 'nothing'" in refused("-m", "nothing.here")
    assert "site-packages" in refused("-m", "pytest")
    assert "knows one launcher, torchrun" in refused("--", "accelerate", "launch", "train.py")
    assert "no script is found behind torchrun" in refused("--", "torchrun", "--standalone", "gone.py")
    assert "site-packages" in refused("--", "torchrun", "--standalone", str(installed))
    assert "a script that Python runs itself" in refused("--", "python", "train.py")
    assert "not a Python source file" in refused("x.zip")
    assert "not a Python source file" in refused("x.pyc")
    assert "--format" in refused("--diff", "--format", "json", "train.py")
    (folder / "deep.py").write_text(f"open('ran', 'w')\nx = {'+'.join('1' * 1000)}\n")
    assert "fix cannot change deep.py: LibCST does not know its syntax" in refused("deep.py")
    (folder / "latin.py").write_bytes("# -*- coding: latin-1 -*-\nopen('ran', 'w')  # é\n".encode("latin-1"))
    assert "fix cannot change latin.py: " in refused("latin.py")
    assert "cannot write" in refused("--out", "train.py/run", "train.py")
    assert not (folder / "ran").exists() and not (folder / "dynadiag-runs").exists()


def test_a_script_that_changes_while_it_runs_is_refused(folder):
    (folder / "train.py").write_text("open(__file__, 'a').write('# again\\n')\n")
    assert refused("train.py") == "train.py changes while it runs: fix proves programs that stay as they are"


@pytest.mark.parametrize("name", ["round.py", "a\nb.py", "a\x00b.py"])
def test_the_name_of_a_script_in_a_recording_may_be_anything(folder, name):
    (folder / "round.py").symlink_to("round.py")
    with pytest.raises(UnreadableInputError, match="^[^\n]* is not a Python source file[^\n]*$"):
        check_script(folder / name)


@pytest.mark.parametrize(("name", "where"), [("train", "gone"), ("a\x00b", ".")])
def test_the_module_or_the_folder_of_a_recording_may_be_gone(folder, name, where):
    with pytest.raises(UnreadableInputError, match="^cannot run -m [^\n\x00]*$"):
        script_of_module(name, folder / where)


@pytest.mark.parametrize("command", [["python", "train.py"], ["python", "-m", "train"], None])
def test_a_run_that_was_not_made_here_is_never_executed(folder, command):
    run = folder / "run"
    run.mkdir()
    facts = {"format": 1, "dynadiag": "0", "command": command, "cwd": str(folder), "exit_status": 0}
    (run / "dynadiag-run.json").write_text(json.dumps(facts))
    assert "was not recorded here" in refused("run")
    assert not (folder / "ran").exists()


def test_a_file_that_git_does_not_have_as_it_is_is_not_written_without_force(folder):
    file = folder / "train.py"
    subprocess.run(["git", "init", "-q", "."], check=True)
    assert session._is_modified(file)
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "-m", "c"], check=True)
    assert not session._is_modified(file)

    class Result:
        new_texts = {str(file): "new = 1\n"}
        old_texts = {str(file): "changed = 1\n"}
        directory = str(folder)

    file.write_text("changed = 1\n")
    with pytest.raises(OutputError, match="uncommitted changes"):
        list(session.write_sources(Result()))
    assert file.read_text() == "changed = 1\n"
    assert list(session.write_sources(Result(), force=True)) == [file]
    assert file.read_text() == "new = 1\n"
    with pytest.raises(OutputError, match="has changed while the changes were proven"):  # an edit of the user's is never lost
        list(session.write_sources(Result(), force=True))


def test_outside_of_a_repository_nothing_is_known_and_files_are_written(folder):
    assert not session._is_modified(Path("train.py").absolute())
