"""Every code that the pass can give has a page, and every page a code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_every_code_has_a_page():
    kinds = [("passes", "*mutation*.py"), ("advice", "mutation*.py"), ("passes", "*parity*.py"), ("parity", "*.py")]
    sources = [source for folder, name in kinds for source in (ROOT / "dynadiag" / folder).glob(name)]
    used = {code for source in sources for code in re.findall(r'"(DM\d\d)"', source.read_text(encoding="utf-8"))}
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "mutations").glob("DM*.md")}
    assert used == set(pages)
    index = (ROOT / "docs" / "mutations" / "README.md").read_text(encoding="utf-8")
    for code, text in pages.items():
        assert text.startswith(f"# {code}: ") and all(part in text for part in ("**What.**", "**Why.**", "**Cost.**", "**Fix.**"))
        assert f"({code}.md)" in index
