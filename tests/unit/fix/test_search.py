"""Which changes a search keeps, with a prover that has its answers ready; and that a search that was cut short goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, Span
from dynadiag.children.answer_cache import AnswerCache, remembering
from dynadiag.fix.candidates import causes_first
from dynadiag.fix.proof import Verdict
from dynadiag.fix.search import Search
from dynadiag.fix.standing import Standing, why_not_better
from dynadiag.model import Finding

FILE = "/train.py"
TEXT = "a = 1\nb = 2\nc = 3\n"


def change(number: int) -> Candidate:
    name = "abc"[number - 1]
    edit = Edit(file=FILE, old=(f"{name} = {number}",), new=(f"{name} = {number}0",), near=number)
    return Candidate(id=f"x{number}", slug=name, text="", edits=(edit,), spans=(Span(number, number + 1),), cures=(name,))


def standing(*findings: str) -> Standing:
    counts = dict.fromkeys(("graph_break_sites", "graph_break_events", "recompiles", "fallbacks"), 0)
    return Standing(findings=findings, warnings={}, counts=counts, compiled=True)


class Answers:
    """A prover to which a set of changes is proven unless `wrong` holds the question; each cures its own finding."""

    backend = "eager"
    backend_words = "backend eager"

    def __init__(self, *wrong: str, cures: dict[str, str] | None = None, hidden: set[str] | None = None, killed_at: int = 99) -> None:
        self.originals = {FILE: TEXT}
        self.first = standing("a", "b", "c")
        self.asked: list[str] = []
        self._wrong, self._cures, self._hidden, self._killed_at = wrong, cures or {}, hidden or set(), killed_at

    def prove(self, changes, new, before, *, own_data=False):
        name = "".join(one.slug for one in changes)
        self.asked.append(name if not own_data else f"({name})")
        if len(self.asked) == self._killed_at:
            raise KeyboardInterrupt
        if name in self._hidden:
            return Verdict(proven=False, why="the finding is still there", by_findings=True)
        if self.asked[-1] in self._wrong:
            return Verdict(proven=False, why="values differ")
        gone = "".join(self._cures.get(one.slug, one.slug) for one in changes)
        return Verdict(proven=True, standing=standing(*(one for one in "abc" if one not in gone)))


def test_what_ends_a_cause_is_tried_before_what_is_for_its_effects():
    def finding(name: str, *behind: str) -> Finding:
        return Finding(
            id=f"n{name}", fingerprint=name, code="", severity="warning", title="", where=None, clauses=(), fix=(), cost=None, evidence=(),
            behind=behind,
        )  # fmt: skip

    changes = [change(number) for number in (1, 2, 3)]
    assert causes_first(changes, [finding("a", "nb"), finding("b", "nc"), finding("c")]) == changes[::-1]
    assert causes_first(changes, [finding("a", "nc"), finding("b"), finding("c")]) == [changes[1], changes[2], changes[0]]
    assert causes_first(changes, [finding("a"), finding("b"), finding("c")]) == changes


def search(prover: Answers) -> Search:
    found = Search(prover=prover, until=float("inf"), say=lambda text: None)  # type: ignore[arg-type]
    found.try_all([change(number) for number in (1, 2, 3)])
    return found


def test_each_is_tried_alone_on_its_own_data_and_all_are_proven_together():
    prover = Answers("(b)")
    found = search(prover)
    assert [one.slug for one in found.kept] == ["a", "c"]
    assert found.tried["x2"].why == "values differ"
    assert prover.asked == ["(a)", "(b)", "(c)", "ac"]


def test_what_is_wrong_on_other_data_is_found_by_proving_one_after_another():
    prover = Answers("abc", "b")
    found = search(prover)
    assert [one.slug for one in found.kept] == ["a", "c"]
    assert found.tried["x2"].why == "values differ"
    assert prover.asked == ["(a)", "(b)", "(c)", "abc", "a", "b", "c", "(ac)", "ac"]


def test_what_an_earlier_change_cures_is_not_tried():
    prover = Answers(cures={"a": "ab"})
    found = search(prover)
    assert [one.slug for one in found.kept] == ["a", "c"]
    assert found.tried["x2"].why == "another change has cured it already"
    assert prover.asked == ["(a)", "(c)", "ac"]


def test_a_finding_that_another_one_hid_is_cured_beside_it():
    """`b` fails alone because `a` is in its way."""
    prover = Answers(hidden={"b"})
    found = search(prover)
    assert [one.slug for one in found.kept] == ["a", "c", "b"]
    assert prover.asked == ["(a)", "(b)", "(c)", "ac", "acb", "(cb)", "(ab)", "acb"]


def test_what_fails_one_by_one_is_tried_at_once():
    """Each leaves the recompiles that the others stand for."""
    prover = Answers(hidden={"a", "b", "c"})
    found = search(prover)
    assert [one.slug for one in found.kept] == ["a", "b", "c"]
    assert prover.asked == ["(a)", "(b)", "(c)", "abc", "(bc)", "(ac)", "abc"]
    found = search(Answers(hidden={"a", "b", "c", "abc"}))
    assert found.kept == [] and found.tried["x1"].why == "the finding is still there"


@pytest.mark.parametrize(("wrong", "kept"), [((), ["b", "c"]), (("(b)",), ["c"])])
def test_what_a_change_uncovers_is_cured_with_it(wrong, kept):
    """A branch is taken away, and a counter behind it recompiles up to the limit: the option that cures it belongs to the change."""
    option = Edit(file=FILE, old=(), new=("torch._dynamo.config.allow_unspec_int_on_nn_module = True",))
    dynamic = replace(change(1), slug="dynamic", text="Let it become dynamic.", edits=(option,), spans=(Span(1, 1),), cures=("new",))

    class Uncovering(Answers):
        def recorded(self, changes):
            return SimpleNamespace(report=[each.slug for each in changes])

        def prove(self, changes, new, before, *, own_data=False):
            verdict = super().prove(changes, new, before, own_data=own_data)
            alone = [each for each in new if each.slug == "b" and option not in each.edits]
            return Verdict(proven=False, why="a new finding: DR01", by_findings=True) if alone else verdict

    prover = Uncovering(*wrong)
    prover.originals = {FILE: TEXT.replace("a = 1", "import torch")}
    found = Search(  # type: ignore[arg-type]
        prover=prover, until=float("inf"), say=lambda text: None, uncovered=lambda report, known: [dynamic] if report == ["b"] else []
    )
    found.try_all([change(number) for number in (2, 3)])
    assert [one.slug for one in found.kept] == kept
    if not wrong:
        joined = found.tried["x2"].candidate
        assert (joined.edits[1], joined.cures, joined.text) == (option, ("b",), "Let it become dynamic.")
    else:
        assert found.tried["x2"].why == "a new finding: DR01"


def test_a_search_on_top_of_what_is_kept_asks_for_all_of_it_together():
    base, on_top = change(1), replace(change(2), layer=1, id="x1-1", rows=(2,))
    prover = Answers()
    found = Search(prover=prover, until=float("inf"), say=lambda text: None, base=(base,), first=standing("b", "c"))  # type: ignore[arg-type]
    found.try_all([on_top])
    assert (prover.asked, found.kept) == (["(ab)", "ab"], [on_top])


def test_a_smaller_region_is_tried_with_the_lines_that_it_leaves():
    region = replace(change(1), moves_region=True, first=True, leaves_rewrites=True, cures=("a", "b"))
    prover = Answers(hidden={"a"})
    found = Search(prover=prover, until=float("inf"), say=lambda text: None)  # type: ignore[arg-type]
    found.try_all([region, change(2), change(3)])
    assert [one.slug for one in found.kept] == ["a", "b", "c"] and prover.asked == ["(ab)", "(c)", "(ac)", "abc"]


def test_what_is_wrong_beside_the_others_is_left():
    prover = Answers("abc")
    found = search(prover)
    assert [one.slug for one in found.kept] == ["a", "b"] and found.tried["x3"].why == "together with the other changes: values differ"


def test_what_the_others_cure_as_well_is_taken_out():
    found = search(Answers(cures={"b": "ab"}))
    assert [one.slug for one in found.kept] == ["b", "c"]
    assert found.tried["x1"].why == "not needed: the other changes cure it too"


@pytest.mark.parametrize(("cures", "kept"), [({"b": "ab"}, ["b", "c"]), ({}, ["a", "b", "c"])])
def test_what_a_later_layer_made_needless_is_taken_back(cures: dict[str, str], kept: list[str]) -> None:
    layers = [change(1), change(2), replace(change(3), layer=1, rows=(3,))]
    prover = Answers(cures=cures)
    found = Search(prover=prover, until=float("inf"), say=lambda text: None, kept=layers)  # type: ignore[arg-type]
    found.drop_needless(standing())
    assert [each.slug for each in found.kept] == kept
    assert prover.asked == ["bc", *(["ac"] if len(kept) > 2 else [])]


def test_a_search_that_was_killed_goes_on_where_it_stopped(tmp_path: Path):
    def known(*, resume: bool) -> AnswerCache:
        return AnswerCache(tmp_path / "known", environment={}, resume=resume)

    whole = Answers()
    search(whole)
    killed = Answers(killed_at=4)
    with remembering(known(resume=False)), pytest.raises(KeyboardInterrupt):
        search(killed)
    going_on = Answers()
    with remembering(known(resume=True)):
        assert [one.slug for one in search(going_on).kept] == ["a", "b", "c"]
    assert killed.asked[:3] + going_on.asked == whole.asked


@pytest.mark.parametrize(
    ("was", "now", "is_new"),
    [
        ("DR02 at line 3 (`f` was recompiled 3 times)", "DR02 at line 5 (`f` was recompiled 3 times)", False),
        ("DR02 at line 3 (`f` was recompiled 3 times)", "DR02 at line 3 (`f` was recompiled 4 times)", True),
        ("GB0059 at line 3 (a break)", "GB0059 at line 5 (a break)", True),
    ],
)
def test_the_same_recompiles_are_not_new_where_another_line_asks_for_them(was, now, is_new):
    before, after = (replace(standing("a", name), warnings={name: words}) for name, words in (("old", was), ("other", now)))
    why = why_not_better(before, before, replace(after, findings=("other",)), ["a"])
    assert why == (f"a new finding: {now}" if is_new else None)


def test_options_that_fail_one_by_one_are_tried_together_before_all_else() -> None:
    options = [replace(change(number), edits=(Edit(file=FILE, old=(), new=(f"{number}",), near=number),)) for number in (2, 3)]
    options = [replace(item, spans=(Span(number, number),)) for item, number in zip(options, (2, 3), strict=True)]
    prover = Answers(hidden={"a", "b", "c", "abc"})
    found = Search(prover=prover, until=float("inf"), say=lambda text: None)  # type: ignore[arg-type]
    found.try_all([change(1), *options])
    assert [item.slug for item in found.kept] == ["b", "c"]
