"""The module that replaces functions of installed packages: what it does to them, and that it leaves alone what is another one by now."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, placed, with_first
from dynadiag.errors import EditError
from dynadiag.fix import session
from dynadiag.fix.baseline import Baseline
from dynadiag.fix.patch_module import IMPORT, NAME, patch_module
from dynadiag.fix.texts import changed

LIBRARY = '''"""A package."""
import functools


def twice(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        # both
        return function(*args, **kwargs) * 2

    return wrapper


class Base:
    def run(self, x):
        return x


class Layer(Base):
    __hidden = 3

    @twice
    def run(self, x, more: "int" = 5, *, last=[1]):
        """Says
        little.
        """
        y = super().run(x)  # kept
        y = y + 1
        assert isinstance(self, Layer)
        return y + more + self.__hidden + len(last)

    @staticmethod
    def plain(x): return x
'''
MAIN = "import library\nprint(library.Layer().run(1), library.Layer().run(1, more=0))\n"


def change(old: str, new: str, row: int) -> Candidate:
    edit = Edit(file="/library.py", old=(old,), new=(new,), near=row)
    return Candidate(id="x1", slug="s", text="", edits=(edit,), spans=(placed(LIBRARY, edit),), cures=("f",))


def made(*changes: Candidate) -> str:
    originals = {"/library.py": LIBRARY}
    return patch_module(originals, changed(originals, changes), {"/library.py": "library"}, changes)


def run(folder: Path, main: str = MAIN) -> tuple[str, str]:
    (folder / "main.py").write_text(main)
    done = subprocess.run([sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


PLUS = change("y = y + 1", "y = y + 100", 28)
TWICE = change("return function(*args, **kwargs) * 2", "return function(*args, **kwargs) * 3", 9)


@pytest.mark.parametrize("main", [f"{IMPORT}\n{MAIN}", f"import library\n{IMPORT}\n{MAIN}"])
def test_the_copy_does_what_was_changed_with_all_else_as_it_was(tmp_path, main):
    (tmp_path / "library.py").write_text(LIBRARY)
    assert run(tmp_path)[0] == "22 12\n"
    (tmp_path / f"{NAME}.py").write_text(made(PLUS))
    assert [row for row in made(PLUS).split("\n") if row != row.rstrip()] == []
    assert "        y = super().run(x)  # kept\n" in (tmp_path / f"{NAME}.py").read_text()
    assert run(tmp_path, main) == ("220 210\n", "")
    assert (tmp_path / "library.py").read_text() == LIBRARY


def test_a_function_that_is_another_one_stays_and_that_is_said_once(tmp_path):
    (tmp_path / "library.py").write_text(LIBRARY.replace("# kept", "# newer"))
    (tmp_path / f"{NAME}.py").write_text(made(PLUS))
    out, err = run(tmp_path, f"{IMPORT}\n{MAIN}")
    assert out == "22 12\n" and err.count("UserWarning") == 1
    assert "library.Layer.run is not the one that dynadiag_patches was made for" in err


def test_a_text_over_several_lines_stays_as_it_is_in_the_copy():
    library = 'class A:\n    def f(self, x):  # f\n        y = x + 1\n        return """a\n  b""" * y\n'
    edit = Edit(file="/library.py", old=("y = x + 1",), new=("y = x + 2",), near=3)
    change = Candidate(id="x1", slug="s", text="", edits=(edit,), spans=(placed(library, edit),), cures=("f",))
    text = patch_module({"/library.py": library}, changed({"/library.py": library}, [change]), {"/library.py": "library"}, [change])
    assert '        def f(self, x):\n            y = x + 2\n            return """a\n  b""" * y\n' in text


def test_what_cannot_be_copied_is_refused():
    with pytest.raises(EditError, match="stands on one line"):
        made(change("return x", "return -x", 1 + LIBRARY.splitlines().index("    def plain(x): return x")))
    with pytest.raises(EditError, match="in no function"):
        made(change("__hidden = 3", "__hidden = 4", 20))


@pytest.mark.parametrize(("name", "folder"), [(None, "job"), ("job.train", ".")])
def test_the_module_is_put_where_the_script_finds_it(tmp_path, name, folder):
    """Beside a script, and where Python starts a module from."""
    script = str(tmp_path / "job" / "train.py")
    baseline = Baseline(directory=tmp_path, script=Path(script), module=name, arguments=(), folder=tmp_path)
    texts = {"/library.py": LIBRARY, script: MAIN}
    sources = SimpleNamespace(texts=texts, modules={"/library.py": "library"}, script=script, root=tmp_path)
    new = session._delivered(baseline, sources, [PLUS])
    assert new == {script: f"{IMPORT}\n{MAIN}", str(tmp_path / folder / f"{NAME}.py"): made(PLUS)}


def test_the_import_comes_before_all_others():
    assert with_first("#!/usr/bin/python\nimport a\n", IMPORT) == f"#!/usr/bin/python\n{IMPORT}\nimport a\n"
    text = '"""Words."""\nfrom __future__ import annotations\n\nimport a\n'
    assert with_first(text, IMPORT).splitlines()[2] == IMPORT
    assert ast.parse(with_first("import a", IMPORT))
