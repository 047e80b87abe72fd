"""An edit of anybody: as a patch, since a revision, one file against another; what is no such edit is refused in one line."""

from __future__ import annotations

import os
import subprocess

import pytest

from dynadiag.errors import DynadiagError
from dynadiag.fix.given_edits import edit_against, edit_of_patch, edit_since_revision

OLD = "import helper\n\nx = 1\nprint(x)\n"
NEW = "import helper\n\nx = 2\nprint(x)\n"
PATCH = """--- a/train.py
+++ b/train.py
@@ -1,4 +1,4 @@
 import helper

-x = 1
+x = 2
 print(x)
""".replace("\n\n-", "\n \n-")


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "train.py").write_text(OLD)
    (tmp_path / "helper.py").write_text("y = 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def patch_edit(project, text):
    patch = project / "some.patch"
    patch.write_bytes(text if isinstance(text, bytes) else text.encode())
    return edit_of_patch(patch, project / "train.py")


def test_a_patch_gives_both_texts_and_changes_nothing(project):
    edit = patch_edit(project, PATCH)
    file = os.path.realpath(project / "train.py")
    assert (edit.before, edit.after, edit.files) == ({file: OLD}, {file: NEW}, ("train.py",))
    assert (project / "train.py").read_text() == OLD
    assert patch_edit(project, edit.diff).after == edit.after


def test_a_patch_may_add_a_file(project):
    added = "--- /dev/null\n+++ b/more.py\n@@ -0,0 +1 @@\n+z = 1\n"
    edit = patch_edit(project, PATCH + added)
    assert edit.after[os.path.realpath(project / "more.py")] == "z = 1\n" and not (project / "more.py").exists()


REFUSED = {
    "no patch": (b"\x00\xff" * 50, "no unified diff"),
    "nothing": (b"", "no unified diff"),
    "a file outside": (PATCH.replace("a/train.py", "a/../train.py").replace("b/train.py", "b/../train.py"), ""),
    "another text": (PATCH.replace("-x = 1", "-x = 7"), "does not apply"),
    "a file that is not there": (PATCH.replace("train.py", "other.py"), "which is not in"),
    "a file of another kind": (PATCH.replace("train.py", "data.txt"), "Python files"),
    "a file deleted": ("--- a/helper.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-y = 1\n", "deletes or renames"),
    "no Python": (PATCH.replace("+x = 2", "+x = = 2"), "no Python, line 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_patch_of_the_program_is_refused_in_one_line(project, name):
    text, words = REFUSED[name]
    with pytest.raises(DynadiagError) as error:
        patch_edit(project, text)
    assert words in error.value.message and "\n" not in error.value.message
    assert sorted(path.name for path in project.iterdir()) == ["helper.py", "pyproject.toml", "some.patch", "train.py"]


def test_since_a_revision(project):
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    with pytest.raises(DynadiagError, match="both versions are the same"):
        edit_since_revision("HEAD", project / "train.py")
    (project / "train.py").write_text(NEW)
    file = os.path.realpath(project / "train.py")
    edit = edit_since_revision("HEAD", project / "train.py")
    assert (edit.before, edit.after) == ({file: OLD}, {file: NEW})
    for revision in ("nowhere", "--output=x"):
        with pytest.raises(DynadiagError, match="--git"):
            edit_since_revision(revision, project / "train.py")
    assert not (project / "x").exists()


def test_one_file_against_another(project):
    (project / "new.py").write_text(NEW)
    edit = edit_against(project / "train.py", project / "new.py")
    assert list(edit.after.values()) == [NEW] and list(edit.before.values()) == [OLD]
    assert edit.files == ("train.py",) and edit.script == project / "train.py"
