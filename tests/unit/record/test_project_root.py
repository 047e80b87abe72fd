"""A program's project and its files have the same names from wherever it is started, and through whichever link."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from dynadiag.facts.user_frames import project_path
from dynadiag.model import Run, RunInfo
from dynadiag.record.project_root import describe_project


def names(monkeypatch, here, argv0, *files, prefixes=(), chosen=None):
    """What files are called in a run that was started in a folder, where `argv0` is what was typed."""
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "argv", [argv0])
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())
    told = describe_project(chosen, prefixes)
    around = () if told["around"] is None else (told["around"],)
    run = Run(info=RunInfo(cwd=str(here)), project=told["project"], around=around)
    return [project_path(str(file), run) for file in files]


@pytest.fixture(params=[".git", "pyproject.toml", None])
def project(request, tmp_path):
    """A script in a sub-folder, a module beside it and one in another folder; a folder outside; a link to the project."""
    for folder in ("project/app/deep", "project/lib", "x", "home"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("app/train.py", "app/deep/net.py", "lib/ops.py"):
        (tmp_path / "project" / file).touch()
    if request.param is not None:
        (tmp_path / "project" / request.param).touch()
    (tmp_path / "home" / "linked").symlink_to(tmp_path / "project")
    (tmp_path / "home" / "app").symlink_to(tmp_path / "project" / "app")
    (tmp_path / "home" / "run.py").symlink_to(tmp_path / "project" / "app" / "train.py")
    (tmp_path / "project" / "app" / "other_name.py").symlink_to("train.py")
    return tmp_path / "project", request.param is not None


STARTS = ("project", "project/app", "project/lib", "x", ".")


@pytest.mark.parametrize("start", STARTS)
def test_files_are_called_the_same_from_every_folder(project, monkeypatch, start):
    root, marked = project
    here = root.parent / start
    train, net, ops = root / "app/train.py", root / "app/deep/net.py", root / "lib/ops.py"
    expected = ["app/train.py", "app/deep/net.py", "lib/ops.py"] if marked else ["train.py", "deep/net.py", "lib/ops.py"]
    typed = train.relative_to(here) if train.is_relative_to(here) else train
    assert names(monkeypatch, here, str(train), train, net, ops) == expected
    assert names(monkeypatch, here, str(typed), train, net, ops) == expected
    # As Python says it of a script that was typed with a way up: not cleaned.
    assert names(monkeypatch, root / "lib", "../app/train.py", f"{root}/lib/../app/train.py") == expected[:1]


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        ("home/linked/app/train.py", "home/linked/app/deep/net.py"),
        ("home/app/train.py", "home/app/deep/net.py"),
        ("home/run.py", "project/app/deep/net.py"),
        ("project/app/other_name.py", "project/app/deep/net.py"),
    ],
)
def test_files_are_called_the_same_through_links(project, monkeypatch, typed, seen):
    root, marked = project
    expected = ["app/train.py", "app/deep/net.py", "app/deep/net.py"] if marked else ["train.py", "deep/net.py", "deep/net.py"]
    script = root.parent / typed
    assert names(monkeypatch, root.parent / "x", str(script), script, root.parent / seen, root / "app/deep/net.py") == expected


def test_a_program_that_is_installed_belongs_to_the_project_of_the_current_folder(project, monkeypatch):
    root, marked = project
    launcher = root.parent / "env" / "launcher.py"
    launcher.parent.mkdir()
    launcher.touch()
    found = names(monkeypatch, root / "app", str(launcher), root / "app/train.py", prefixes=(str(launcher.parent),))
    assert found == (["app/train.py"] if marked else ["train.py"])
    assert names(monkeypatch, root / "app", "-c", root / "app/train.py") == found


def test_a_script_elsewhere_may_use_the_project_of_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "project" / "deep" / "down").mkdir(parents=True)
    (tmp_path / "project" / ".git").touch()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/tool.py").touch()
    files = [tmp_path / "tools/tool.py", tmp_path / "project/deep/down/x.py", "/elsewhere/deep/down/x.py"]
    assert names(monkeypatch, tmp_path / "project", "../tools/tool.py", *files) == ["tool.py", "deep/down/x.py", "down/x.py"]


def test_the_root_of_a_copy_is_the_one_that_the_caller_says(project, monkeypatch):
    root, _ = project
    (root / ".git").unlink(missing_ok=True), (root / "pyproject.toml").unlink(missing_ok=True)
    assert names(monkeypatch, root / "app", "train.py", root / "app/train.py", chosen=str(root)) == ["app/train.py"]


def test_a_folder_that_is_gone_is_no_error(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "argv", ["train.py\0"])
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace())
    assert describe_project(None, ()) == {"project": {}, "around": None}
