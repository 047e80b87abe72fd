"""The page of changes is what its maker makes of the rules as they are, and names all kinds."""

from __future__ import annotations

from dynadiag.changes.applied_advice import OPTIONS, REWRITES
from dynadiag.fix.candidates import UNSAFE
from tests.documented_fixes import PAGE, RULES, kinds, page


def test_the_page_of_changes_is_up_to_date_and_names_all_kinds():
    assert PAGE.read_text() == page()
    named = {slug for slugs, _ in kinds() for slug in slugs}
    assert (REWRITES | OPTIONS | UNSAFE.keys() | RULES.keys()) - named == set()
