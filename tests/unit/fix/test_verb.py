"""What `dynadiag fix` refuses, in one line and before anything runs; and what it does to files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from dynadiag.changes.edits import patch
from dynadiag.errors import DynadiagError, OutputError, UnreadableInputError
from dynadiag.fix import runs, session, writing
from dynadiag.fix.baseline import check_script, script_of_module
from dynadiag.record.project_root import project_root
from dynadiag_cli.main import app

ROOT = Path(__file__).parents[3]


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


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("raise ValueError('no data')", 1, "ended with exit status 1 (ValueError: no data) before anything was compiled"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", 1, "was killed by SIGSEGV before anything was compiled"),
        ("raise ModuleNotFoundError(\"No module named 'torch'\")", 3, "has no torch, so there is nothing to fix"),
        ("print(1)", 5, "nothing was compiled when"),
    ],
)
def test_a_script_that_compiles_nothing_is_told_from_one_that_fails(folder, text, status, said):
    (folder / "train.py").write_text(f"{text}\n")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"}
    done = subprocess.run([sys.executable, "-m", "dynadiag", "fix", "train.py"], capture_output=True, text=True, env=environment)
    assert done.returncode == status and said in done.stderr.splitlines()[-1]


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
    """Where it may write: in a view of its own it finds itself as it was in each run."""
    (folder / "train.py").write_text("open(__file__, 'a').write('# again\\n')\n")
    assert refused("--outputs", "first", "train.py") == "train.py changes while it runs: fix proves programs that stay as they are"


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
    assert writing._is_modified(file)
    subprocess.run(["git", "add", "."], check=True)
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "-m", "c"], check=True)
    assert not writing._is_modified(file)

    class Result:
        new_texts = {str(file): "new = 1\n"}
        old_texts = {str(file): "changed = 1\n"}
        directory = str(folder)

    file.write_text("changed = 1\n")
    with pytest.raises(OutputError, match="uncommitted changes"):
        list(writing.write_sources(Result()))
    assert file.read_text() == "changed = 1\n"
    assert list(writing.write_sources(Result(), force=True)) == [file]
    assert file.read_text() == "new = 1\n"
    with pytest.raises(OutputError, match="has changed while the changes were proven"):  # an edit of the user's is never lost
        list(writing.write_sources(Result(), force=True))


def test_a_file_of_which_git_says_nothing_is_not_written_without_force(folder):
    (folder / ".git").write_text("gitdir: nowhere\n")
    assert "git does not say whether" in refused("--write", "train.py")
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("words", [["train.py"], ["-m", "train"], ["link.py"]])
def test_a_script_that_may_not_be_written_is_refused_before_it_runs(folder, words):
    (folder / "link.py").symlink_to("train.py")
    (folder / "train.py").chmod(0o444)
    assert refused("--write", *words) == f"{folder / 'train.py'} is read-only: make it writable, or use --force"
    (folder / "train.py").chmod(0o644)
    subprocess.run(["git", "init", "-q", "."], check=True)
    assert refused("--write", *words).endswith("train.py has uncommitted changes: commit them first, or use --force")
    assert not (folder / "ran").exists() and not (folder / "dynadiag-runs").exists()


def test_another_file_that_may_not_be_written_is_refused_before_the_first_proof(folder, monkeypatch):
    """Which files are changed is known once the script is recorded."""
    (folder / "ops.py").touch(0o444)
    edit = SimpleNamespace(file=str(folder / "ops.py"))
    change = SimpleNamespace(edits=[edit], cures=())
    monkeypatch.setattr(session, "read", lambda baseline: (None, SimpleNamespace(modules={}, script="train.py")))
    monkeypatch.setattr(session, "candidates", lambda *words, **options: ([change], []))
    monkeypatch.setattr(session, "chosen", lambda found, report, **options: found)
    monkeypatch.setattr(session, "_delivered", lambda *words: {})
    with pytest.raises(OutputError, match="ops.py is read-only"):
        session.fix_with(None, session.FixOptions(write=True), print, lambda: pytest.fail("a run was made"))


def test_a_read_only_file_keeps_its_mode_where_it_is_written_all_the_same(folder):
    file = folder / "train.py"
    file.write_text("old = 1\n")
    file.chmod(0o544)

    class Result:
        new_texts = {str(file): "new = 1\n"}
        old_texts = {str(file): "old = 1\n"}
        directory = str(folder)

    with pytest.raises(OutputError, match=f"is read-only: make it writable, or use --force; the patch is in {folder}"):
        list(writing.write_sources(Result()))
    list(writing.write_sources(Result(), force=True))
    assert file.read_text() == "new = 1\n" and file.stat().st_mode & 0o777 == 0o544


@pytest.mark.parametrize("words", [["--diff"], ["--format", "json"], ["--format", "md"]])
def test_what_the_script_prints_is_not_between_the_lines_of_what_is_asked_for(folder, words):
    (folder / "train.py").write_text("print('from the script')\n")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"}
    command = [sys.executable, "-m", "dynadiag", "fix", *words, "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == "" and "from the script\n" in done.stderr


def test_ctrl_c_while_the_patched_script_runs_ends_the_search_and_blames_no_change(folder, monkeypatch):
    ended = SimpleNamespace(interrupted=True, told_to_end=None, exit_status=130, directory=folder)
    monkeypatch.setattr(runs, "record", lambda *words: ended)
    base = runs.RunJob(script="train.py", arguments=[], folder=str(folder), output=str(folder))
    with pytest.raises(KeyboardInterrupt):
        runs.Runner(folder, base, lambda message: {}, timeout_s=1.0).last({})


@pytest.mark.parametrize("marker", [".git", "pyproject.toml", None])
@pytest.mark.parametrize("runs_in", ["project", "project/app", "elsewhere"])
def test_the_command_that_is_printed_applies_the_patch_from_where_the_user_is(tmp_path, monkeypatch, marker, runs_in):
    """`git apply` in another folder than that of the names in the patch does nothing, and says nothing."""
    project = tmp_path / "a project"
    (tmp_path / "elsewhere").mkdir()
    (project / "app").mkdir(parents=True)
    file = project / "ops.py" if marker is not None else project / "app" / "ops.py"
    file.write_text("old = 1\n")
    (project / "app" / "train.py").touch()
    if marker == ".git":
        subprocess.run(["git", "init", "-q", "."], cwd=project, check=True)
    elif marker is not None:
        (project / marker).touch()
    here = project / runs_in.removeprefix("project").lstrip("/") if runs_in.startswith("project") else tmp_path / runs_in
    directory = here / "dynadiag-runs" / "0001-train"
    directory.mkdir(parents=True)
    (here / "dynadiag-runs" / "latest").symlink_to("0001-train")
    root = project_root(project / "app" / "train.py")
    (directory / "fixes.patch").write_text(patch({str(file): "old = 1\n"}, {str(file): "new = 1\n"}, root))
    monkeypatch.chdir(here)
    command = writing.apply_command(SimpleNamespace(root=str(root), directory="dynadiag-runs/latest"), here)
    subprocess.run(["sh", "-c", command], check=True)
    assert file.read_text() == "new = 1\n"


def test_outside_of_a_repository_nothing_is_known_and_files_are_written(folder):
    assert not writing._is_modified(Path("train.py").absolute())
