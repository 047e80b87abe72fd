"""A revision as plain files: links, attributes, submodules and large files, and one line for what is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dynadiag.bench.inside import main
from dynadiag.errors import DynadiagError, UsageError
from dynadiag.revisions import extract
from dynadiag_cli.main import app

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"


def git(folder, *arguments):
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder, **files):
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    for name, text in files.items():
        (folder / name.replace("__", "/")).parent.mkdir(exist_ok=True)
        (folder / f"{name.replace('__', '/')}.py").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    return folder


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    folder = commit(tmp_path / "repository", train="x = 1\n", tools__step="y = 1\n")
    monkeypatch.chdir(folder)
    return folder


def test_links_and_what_archives_leave_out_are_in_the_copy_and_the_repository_stays_as_it_is(repository, tmp_path):
    (repository / "data").symlink_to("/nowhere/data")
    (repository / ".gitattributes").write_text("tools export-ignore\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "two")
    (repository / "train.py").write_text("x = 2\n")
    (repository / "new.py").write_text("")
    git(repository, "add", "new.py")
    kept = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    copy = extract("HEAD", tmp_path / "copy", here=repository / "tools")
    assert (copy.here / "step.py").read_text() == "y = 1\n" and copy.here.name == "tools"
    assert (copy.files / "train.py").read_text() == "x = 1\n" and not (copy.files / "new.py").exists()
    assert (copy.files / "data").readlink() == Path("/nowhere/data") and copy.missing == ()
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == kept


def test_a_submodule_is_in_the_copy_at_its_own_revision_or_said_to_be_missing(repository, tmp_path):
    inner = commit(tmp_path / "inner", part="z = 1\n")
    git(repository, "submodule", "add", "-q", str(inner), "vendor")
    git(repository, "commit", "-q", "-m", "two")
    (repository / "vendor" / "part.py").write_text("z = 2\n")
    git(repository / "vendor", "commit", "-q", "-a", "-m", "later")
    copy = extract("HEAD", tmp_path / "copy", here=repository)
    assert (copy.files / "vendor" / "part.py").read_text() == "z = 1\n" and copy.missing == ()
    git(repository, "clone", "-q", str(repository), str(tmp_path / "clone"))
    copy = extract("HEAD", tmp_path / "again", here=tmp_path / "clone")
    assert copy.missing == ("submodule vendor is not in the copy: it is not checked out here at the commit used by HEAD",)


def test_large_files_of_which_only_the_pointer_is_there_are_told(repository, tmp_path):
    (repository / ".gitattributes").write_text("*.pt filter=lfs\n")
    (repository / "weights.pt").write_text(POINTER)
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "two")
    copy = extract("HEAD", tmp_path / "copy", here=repository)
    assert copy.missing == ("1 file in the copy is a Git LFS pointer, not its content: weights.pt",)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--git", "nothing", "train.py"], "--git nothing: no such revision"),
        (["--git=-x", "train.py"], "--git -x: not a revision"),
        (["--git", "HEAD", "new.py"], "--git HEAD: new.py is not in that revision"),
        (["--git", "HEAD", "--fn", "new.py:step"], "--git HEAD: new.py is not in that revision"),
        (["--git", "HEAD", "../outside.py"], "--git: ../outside.py is outside this repository"),
        (["--git", "HEAD", "--fn", "../outside.py:step"], "is outside this repository"),
    ],
)
def test_what_a_revision_does_not_have_is_one_line(repository, arguments, says):
    for name in ("new.py", "../outside.py"):
        (repository / name).write_text("x = 1\n")
    done = CliRunner().invoke(app, ["bench", *arguments])
    assert isinstance(done.exception, DynadiagError), done.output
    assert says in done.exception.message and "\n" not in done.exception.message and done.exception.exit_code == 2
    assert not (repository / "dynadiag-runs").exists()


def test_no_repository_no_git_and_a_folder_that_the_revision_lacks_are_one_line(repository, tmp_path, monkeypatch):
    (repository / "later").mkdir()
    with pytest.raises(UsageError, match=r"--git HEAD: the folder later is not in that revision"):
        extract("HEAD", tmp_path / "copy", here=repository / "later")
    with pytest.raises(UsageError, match=r"--git needs a git repository here: fatal: not a git repository"):
        extract("HEAD", tmp_path / "copy", here=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"--git needs the program git, which is not on PATH"):
        extract("HEAD", tmp_path / "copy", here=repository)


def test_an_arm_of_the_revision_imports_the_revision_or_is_refused(repository, tmp_path, monkeypatch):
    """A path or an editable install names the working tree: both versions would then be the same program."""
    copy = extract("HEAD", tmp_path / "copy", here=repository)
    monkeypatch.setattr(sys, "path", [str(repository / "tools"), str(repository / "not_in_the_copy"), "/elsewhere"])
    main.prefer_copy(str(copy.top), str(copy.files))
    assert sys.path == [str(copy.files / "tools"), str(repository / "not_in_the_copy"), "/elsewhere"]
    main.refuse_working_tree(str(copy.top), str(copy.files))
    module = type(sys)("editable_step")
    module.__file__ = str(repository / "tools" / "step.py")
    monkeypatch.setitem(sys.modules, "editable_step", module)
    with pytest.raises(UsageError, match=r"editable_step was imported from the working tree \(tools/step.py\), not from the revision"):
        main.refuse_working_tree(str(copy.top), str(copy.files))
    module.__file__ = str(repository / "not_tracked.py")
    main.refuse_working_tree(str(copy.top), str(copy.files))
