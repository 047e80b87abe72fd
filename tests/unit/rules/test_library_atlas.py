"""The atlas of libraries: what its files hold, and for which stacks and versions it is advised."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from dynadiag.changes.edits import applied
from dynadiag.changes.library_cure import library_cures, with_argument
from dynadiag.errors import EditError
from dynadiag.fix.library_cures import library_edits
from dynadiag.model.location import Location
from dynadiag.model.run import Process, Run, RunInfo, SourceFunction
from dynadiag.rules.libraries.entries import Edit, all_libraries, read_library, version_numbers
from dynadiag.rules.libraries.names import FOLDER, distribution_of, package_names
from dynadiag.rules.library_rules import page
from dynadiag.rules.rule import find_rule
from dynadiag.source.imports import imported_names

ENTRIES = [(library, entry) for library in all_libraries() for entry in library.entries]
SITE = "/env/lib/python3.11/site-packages"
CANNY = Location(f"{SITE}/kornia/filters/canny.py", 301, "canny")
LINE = Location("/me/train.py", 9, "edges", "return kornia.filters.canny(image)[0]")
CURE = Edit(call="kornia.filters.canny", argument="hysteresis", value="False")


def process(**versions: str) -> Process:
    return Process(index=0, log="a.log", torch="2.15.0+cpu", libraries=versions)


def run(*functions: SourceFunction) -> Run:
    return Run(info=RunInfo(cwd="/me"), library_functions=functions, blocks={("/me/train.py", 1): "import kornia"})


def named(path: str) -> list[str]:
    return [f"{library.package}/{entry.name}" for library, entry in ENTRIES if library.package == path]


@pytest.mark.parametrize("package", package_names())
def test_a_file_holds_nothing_that_is_not_read(package):
    library = read_library(package)
    held = msgspec.toml.decode((FOLDER / f"{package}.toml").read_bytes())
    assert library is not None and distribution_of(package) == library.library == held["library"]
    assert _keys(held) <= _keys(msgspec.to_builtins(library)) and len(named(package)) == len(set(named(package)))


def _keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(_keys, value.values()))
    return set().union(*map(_keys, value)) if isinstance(value, list | tuple) else set()


@pytest.mark.parametrize(("library", "entry"), ENTRIES, ids=lambda item: getattr(item, "name", None) or item.package)
def test_an_entry_is_checked_and_its_cure_ends_what_it_shows(library, entry):
    assert entry.checked and all(re.split("[.:]", name)[0] == library.package for name in (entry.function, *entry.through))
    for check in entry.checked:
        before, after = check.before, check.after
        counted = [count.recompiles if entry.shows == "recompile" else count.breaks for count in (before, after)]
        assert after.error is None and (before.error is not None if entry.shows == "error" else counted[1] < counted[0])
        assert entry.covers(check.library, f"{check.torch}+cpu")
    assert (entry.guard is not None) == (entry.shows == "recompile")
    for text in (entry.before, entry.after):
        assert any(isinstance(node, ast.Name) and node.id == "result" for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize(("library", "entry"), [item for item in ENTRIES if item[1].edit], ids=lambda item: getattr(item, "name", "-"))
def test_the_edit_of_an_entry_makes_the_cured_program(library, entry, tmp_path):
    """What `fix` writes is what the sweep runs."""
    sources = OneFile(tmp_path / "script.py", entry.before)
    texts = entry.before
    for edit in library_edits(f"{library.package}/{entry.name}", sources.script, sources):
        texts, _ = applied(texts, edit)
    assert ast.unparse(ast.parse(texts)) == ast.unparse(ast.parse(entry.after))


class OneFile:
    """`fix.sources.Sources` of one script."""

    def __init__(self, path: Path, text: str) -> None:
        self.script, self._text = str(path), text

    def text(self, file: str) -> tuple[str, str]:
        assert file == self.script
        return file, self._text


def test_advice_is_on_the_users_line_and_names_the_versions():
    (advice,) = library_cures((CANNY,), run(), process(kornia="0.9.0"), line=LINE)
    assert advice.entry == "kornia/canny-hysteresis" and "checked on" in advice.text and "0.9.0" in advice.text
    assert advice.after == "return kornia.filters.canny(image, hysteresis=False)[0]" and advice.before == LINE.code


@pytest.mark.parametrize("versions", [{}, {"kornia": "99.0"}, {"kornia": "0.0.1"}, {"timm": "0.9.0"}])
def test_nothing_is_advised_for_a_version_that_was_not_recorded_or_not_checked(versions):
    assert list(library_cures((CANNY,), run(), process(**versions), line=LINE)) == []


def test_nothing_is_advised_on_another_torch():
    assert list(library_cures((CANNY,), run(), replace(process(kornia="0.9.0"), torch="2.99.0"), line=LINE)) == []


@pytest.mark.parametrize(
    "place",
    [
        replace(CANNY, function="sobel"),
        replace(CANNY, file=f"{SITE}/kornia/filters/sobel.py"),
        replace(CANNY, file="/me/kornia.py"),
        replace(CANNY, file=f"{SITE}/other/kornia_like/canny.py"),
    ],
)
def test_another_function_of_the_library_is_not_taken_for_it(place):
    assert list(library_cures((place,), run(), process(kornia="0.9.0"), line=LINE)) == []


def test_the_class_is_compared_where_the_source_was_recorded():
    file = f"{SITE}/torch_geometric/nn/conv/gat_conv.py"
    stack = (Location(file, 342, "forward"), Location(f"{SITE}/torch_geometric/utils/loop.py", 113, "remove_self_loops"))
    versions = process(torch_geometric="2.8.1")
    for name, count in (("GATConv.forward", 1), ("OtherConv.forward", 0)):
        function = SourceFunction(file, 300, name, "def forward(self):\n" + "    pass\n" * 60)
        assert len(list(library_cures(stack, run(function), versions))) == count
    assert list(library_cures(stack[::-1], run(), versions)) == []  # it is called by the other one


@pytest.mark.parametrize(
    ("code", "new"),
    [
        ("y = canny(x)", "y = canny(x, hysteresis=False)"),
        ("y = kornia.filters.canny(x,)", "y = kornia.filters.canny(x, hysteresis=False)"),
        ("y = f(canny(é(x)), 1)", "y = f(canny(é(x), hysteresis=False), 1)"),
        ("y = canny(\n    x,\n)", "y = canny(\n    x, hysteresis=False\n)"),
        ("y = canny(x, hysteresis=True)", None),
        ("y = canny(x, **options)", None),
        ("y = other.canny(x)", None),
        ("y = canny(x", None),
    ],
)
def test_an_argument_is_added_to_the_calls_of_the_library(code, new):
    names = {"canny": "kornia.filters.canny", "kornia": "kornia", "other": "other"}
    assert with_argument(CURE, code, names) == new


def test_names_are_those_that_a_file_imports():
    found = imported_names(ast.parse("import a.b\nimport c as d\nfrom e import f as g\nfrom .h import i"))
    assert found == {"a": "a", "d": "c", "g": "e.f"}


def test_an_entry_without_an_edit_is_left_to_the_user(tmp_path):
    with pytest.raises(EditError, match="the atlas has no edit"):
        list(library_edits("torch_geometric/gat-self-loops", str(tmp_path / "a.py"), OneFile(tmp_path / "a.py", "")))


def test_versions_are_compared_by_their_numbers():
    assert version_numbers("2.15.0+cu132") == (2, 15, 0) < version_numbers("2.15.1") and version_numbers("dev") == ()


def test_the_rule_of_a_library_by_either_name():
    assert find_rule("torch_geometric") == find_rule("Torch-Geometric")
    rule = find_rule("kornia")
    assert rule.code == "kornia" and any("hysteresis=False" in text for _, text in rule.sections)


def test_the_page_is_up_to_date():
    assert (Path(__file__).parents[3] / "docs/libraries.md").read_text("utf-8") == page()
