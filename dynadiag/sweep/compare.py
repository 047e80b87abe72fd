"""Two sweeps compared: which programs no longer run, and which findings came and went, by their fingerprints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from dynadiag.errors import NothingFoundError
from dynadiag.facts.fingerprint import matched
from dynadiag.sweep.rows import WELL, Finding, TaskRow

What = Literal["worse", "better"]
_GRAVE = ("error", "warning")


@dataclass(frozen=True, kw_only=True)
class RowChange:
    """One difference between two rows of a program. `kind` is "status" or "finding"; `finding` is the one that came or went."""

    subject: str
    arm: str
    verb: str
    what: What
    kind: Literal["status", "finding"]
    old: str
    new: str
    finding: Finding | None = None


@dataclass(frozen=True, kw_only=True)
class SweepComparison:
    """What two sweeps have in common (`pairs`) and what changed; `only_old` and `only_new` are tasks without a partner, by name."""

    pairs: Annotated[int, "tasks that both sweeps have"]
    unchanged: int
    changes: tuple[RowChange, ...] = field(default=())
    only_old: tuple[str, ...] = ()
    only_new: tuple[str, ...] = ()
    torch: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def regressions(self) -> tuple[RowChange, ...]:
        """What is worse."""
        return tuple(change for change in self.changes if change.what == "worse")


def compare(old: Sequence[TaskRow], new: Sequence[TaskRow], arms: tuple[str, str] | None = None) -> SweepComparison:
    """Rows of the same subject, verb and arm compared; `arms` compares one arm of the old side with one of the new side.

    A finding of severity "note" is never a regression. Raises NothingFoundError where no task is in both.
    """
    before, after = _by_task(old, None if arms is None else arms[0]), _by_task(new, None if arms is None else arms[1])
    both = [key for key in before if key in after]
    if not both:
        raise NothingFoundError(
            "no program is in both sweeps with the same arm and verb" + ("" if arms else ": --arms OLD,NEW pairs two arms")
        )
    found = {key: _changes(before[key], after[key]) for key in both}
    return SweepComparison(
        pairs=len(both),
        unchanged=sum(not changes for changes in found.values()),
        changes=tuple(change for changes in found.values() for change in changes),
        only_old=tuple(" ".join(filter(None, key)) for key in before if key not in after),
        only_new=tuple(" ".join(filter(None, key)) for key in after if key not in before),
        torch=(_versions(before[key] for key in both), _versions(after[key] for key in both)),
    )


def _by_task(rows: Sequence[TaskRow], arm: str | None) -> dict[tuple[str, str, str], TaskRow]:
    return {(row.subject, row.verb, "" if arm else row.arm): row for row in rows if arm in (None, row.arm)}


def _versions(rows: Iterable[TaskRow]) -> tuple[str, ...]:
    return tuple(sorted({row.torch or "unknown" for row in rows}))


def _changes(old: TaskRow, new: TaskRow) -> list[RowChange]:
    names: dict[str, Any] = {"subject": new.subject, "arm": new.arm, "verb": new.verb}
    if old.status != new.status:
        # What was skipped or failed has no findings to compare.
        said = [row.status if row.reason is None else f"{row.status}: {row.reason}" for row in (old, new)]
        worse = old.status in WELL and new.status not in WELL
        better = old.status not in WELL and new.status in WELL
        if not worse and not better:
            worse, better = old.status == "done", new.status == "done"
        what: What = "worse" if worse or not better else "better"
        return [RowChange(**names, what=what, kind="status", old=said[0], new=said[1])]
    was, now = (tuple(finding for finding in row.findings if finding.severity in _GRAVE) for row in (old, new))
    prints = [[item.fingerprint or f"{item.code}-{item.title}" for item in side] for side in (was, now)]
    there = frozenset(word.split("-")[2] for word in prints[0] if word.count("-") >= 4)  # no function counts as renamed: nobody knows here
    pairs = matched(*prints, there=there, other_torch=old.torch != new.torch) if all(map(_whole, [*was, *now])) else _equal(*prints)
    gone = [element for number, element in enumerate(was) if number not in pairs.values()]
    came = [entry for number, entry in enumerate(now) if number not in pairs]
    return [
        *(RowChange(**names, what="worse", kind="finding", old="", new=one.title, finding=one) for one in came),
        *(RowChange(**names, what="better", kind="finding", old=one.title, new="", finding=one) for one in gone),
    ]


def _whole(finding: Finding) -> bool:
    return finding.fingerprint is not None and finding.fingerprint.count("-") in (4, 5)


def _equal(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Pairs of equal fingerprints, where some are damaged."""
    left = list(enumerate(old))
    pairs = {}
    for to, name in enumerate(new):
        of = next((number for number, other in left if other == name), None)
        if of is not None:
            pairs[to] = of
            left.remove((of, name))
    return pairs
