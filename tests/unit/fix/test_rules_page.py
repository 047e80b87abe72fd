"""The page of changes is what its maker makes of the rules as they are, and names all kinds."""

from __future__ import annotations

from collections import Counter

from dynadiag.changes.kinds import all_kinds, kind_of
from tests.documented_fixes import FIX, PAGE, RULES, fix_page, kinds, of_advice, page


def test_the_pages_of_changes_are_up_to_date_and_name_all_kinds():
    assert PAGE.read_text() == page()
    assert FIX.read_text() == fix_page()
    named = {slug for slugs, _ in kinds() for slug in slugs}
    assert named == {slug for kind in all_kinds() if kind.applied is not None for slug in kind.slugs} and RULES.keys() <= named


def test_each_kind_has_one_row_and_those_that_are_applied_have_words():
    slugs = Counter(slug for kind in all_kinds() for slug in kind.slugs)
    assert set(slugs.values()) == {1}
    assert [kind.slugs for kind in all_kinds() if kind.applied is not None and not (kind.does or kind.gives_up)] == []
    assert [kind.slugs for kind in all_kinds() if kind.applied in ("rewrite", "option") and kind_of(kind.slugs[0]) != kind] == []


OF_RECOMPILES = {"mark-dynamic", "raise-limit", "parameter-shapes", "unspec-int-on-module"}  # `cures_program.py` has their programs
WITHOUT_A_CASE = {"data-copy", "no-grad-instead-of-data", "numpy-trace", "tolist-unbind"}  # older ones; no new one comes here


def test_a_new_cure_is_a_change_a_case_and_a_program():
    """CONTRIBUTING says so: each advice that `fix` applies has a case of code before and after, each rule of its own an example."""
    cases = of_advice().keys() | OF_RECOMPILES | WITHOUT_A_CASE
    applied = {slug: kind for kind in all_kinds() if kind.applied is not None for slug in kind.slugs}
    assert {slug for slug, kind in applied.items() if slug not in (RULES if kind.applied == "rule" else cases)} == set()


def test_what_has_no_row_is_left_to_the_user():
    assert kind_of("static-cache").applied is None and not kind_of("static-cache").leaves_out
    assert kind_of("debug-guard").leaves_out and not kind_of("compile-model-apart").joins
