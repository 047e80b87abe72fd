"""The table of codes: each row has its page, each page its row, and no module spells a code itself."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dynadiag.model import codes
from dynadiag.model.codes import TABLE, severity_of, title_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SPELLED = re.compile(r"D[A-Z]\d\d")


def rows_of(page):
    """What a table of a page says of each code that it lists: the last cell of its row."""
    found = re.findall(r"^\| `?(D[A-Z]\d\d)`? \|(?:.*\|)? (.+) \|$", (DOCS / page).read_text(), re.MULTILINE)
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.mark.parametrize("page", ["findings.md", "recompiles.md"])
def test_the_table_of_a_page_has_the_words_of_its_rows(page):
    assert rows_of(page) == {one.id: one.what for one in TABLE.values() if one.page == page}


def test_each_code_has_a_page_of_its_own_and_each_page_a_row():
    pages = {page.stem: page for page in (ROOT / "dynadiag/rules/pages").iterdir()}
    assert set(pages) == set(TABLE)
    index = (DOCS / "mutations" / "README.md").read_text()
    for one in TABLE.values():
        text = pages[one.id].read_text()
        assert text.startswith(f"# {one.id}: {one.title}\n")
        assert re.findall(r"^\*\*(\w+)\.\*\* \S", text, re.MULTILINE) == ["What", "Why", "Cost", "Fix"]
        # A page without code says why: there is nothing to change, or nothing that a small program on a CPU can show.
        shown = re.findall(r"^(Before|After):\n\n```python\n", text, re.MULTILINE)
        assert shown == ["Before", "After"] or re.search(r"Nothing to do|there is no example|has an example|`tests/gpu` has", text), one.id
        if one.id.startswith("DM"):
            assert f"**What.** {one.what}" in text.replace("\n", " ")
            assert f"| [{one.id}](../../dynadiag/rules/pages/{one.id}.md) | {one.title} |" in index


def test_every_row_is_used_and_no_module_spells_a_code_itself():
    names = {name: value for name, value in vars(codes).items() if isinstance(value, str) and value in TABLE}
    used, spelled = set(), []
    for file in [*(ROOT / "dynadiag").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]:
        if file.name == "codes.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and SPELLED.fullmatch(node.value):
                spelled.append(f"{file.relative_to(ROOT)}:{node.lineno} {node.value}")
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "codes":
                used.add(names.get(node.attr))
    assert spelled == []
    assert set(TABLE) - used == set()


def test_a_severity_that_depends_on_the_case_is_refused():
    fixed = next(one for one in TABLE.values() if one.severity)
    free = next(one for one in TABLE.values() if one.severity is None)
    assert severity_of(fixed.id) == fixed.severity and title_of(fixed.id) == fixed.title
    with pytest.raises(ValueError, match=f"{free.id} depends"):
        severity_of(free.id)
    with pytest.raises(KeyError):
        severity_of("DZ99")
