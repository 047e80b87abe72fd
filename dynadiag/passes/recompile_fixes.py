"""The advice of a finding on recompiles: each change once, with how many of the recompiles it ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from dynadiag.model.clauses import EndsRecompiles
from dynadiag.model.report import Advice, distinct_advice
from dynadiag.passes.recompiled import Recompiled
from dynadiag.passes.transitions import Row

_SHOWN = 2
_SEVERAL = 4
_MOST_VERSIONS = 64
# With them torch makes dynamic what has changed once: the first change of each source stays a recompile.
_AFTER_A_CHANGE = frozenset({"parameter-shapes", "drop-dynamic-false", "number-as-operand"})
_MARK, _INTEGER = "mark-dynamic", "unspec-int-on-module"
_SIDES = frozenset({"condition", "duck_size", "zero_one"})  # counted among those that stay (`size_conditions`)
_TWO_STATES = frozenset({"none", "requires_grad", "dispatch_keys", "global_state", "attribute", "aliasing", "zero_one"})
_CONTAINERS = frozenset({"a tuple", "a list", "a dict"})
_NAMED_STATES = frozenset({"dtype", "device", "rank", "type", "value", "module"})


def counted_fixes(group: Sequence[Recompiled], events: int, *, hit: bool, followed: int = 0) -> tuple[Advice, ...]:
    """The advice for the causes with how many of the recompiles each ends; what ends none by itself is left out.

    `followed` are recompiles of the same finding in what the code calls: the change reaches into it, how far is not recorded.

    Where the recompile limit was hit, a recompile that ends makes room for one that was refused: only what ends most of them is told.

    "Recorded": torch tells the first guard that failed in each compiled version; a later one may have failed too
    (`get_guard_fail_reason_helper`, `_dynamo/guards.py`, 2.11 and 2.15).
    """
    chosen = [(row, fix) for recompiled in group for row, given in zip(recompiled.rows, recompiled.advice, strict=True) for fix in given]
    ended = _Ended(group, chosen)
    counted = [(fix, ended.by(fix)) for fix in distinct_advice(advice for _, advice in chosen)]
    best = sorted((pair for pair in counted if pair[1] and (not hit or 2 * pair[1] > events)), key=lambda entry: -entry[1])[:_SHOWN]
    total = events + followed
    # The sizes of all calls are recorded; of another cause, another one may stand behind it.
    shown = (
        fix if total == 1 else replace(fix, clauses=(*fix.clauses, EndsRecompiles(count, total, fix.slug == _MARK))) for fix, count in best
    )
    return tuple(replace(fix, follows=number > 0 and ended.apart(best[0][0], best[number][0])) for number, fix in enumerate(shown))


def versions_needed(rows: Iterable[Row]) -> int | None:
    """How many compiled versions are enough whatever comes, where each thing that changed has few states; None where one has not."""
    states = [_states(row) for row in rows]
    needed = prod(state or 0 for state in states)
    return needed if 0 < needed <= _MOST_VERSIONS else None


def _states(row: Row) -> int | None:
    if not _CONTAINERS.isdisjoint(row.values):  # one in another, to any depth
        return None
    if row.kind in ("size", "stride", "value") and row.dynamic_since is not None:
        return 2 + (not {"0", "1"}.isdisjoint(row.values))
    if row.kind in _TWO_STATES or row.source.endswith(".training") or {"True", "False"} >= set(row.values) != set():
        return 2
    numbers = any(value[:1] in "-0123456789" for value in row.values)
    few = row.kind in _NAMED_STATES and not numbers and not row.last_unknown and len(row.values) <= _SEVERAL
    return len(row.values) if few and row.values else None


def restless(row: Row) -> bool:
    """Whether it is a number or a length that torch keeps constant: a count, a list that grows. An optimizer's state is filled once."""
    numbers = bool(row.values) and all(map(_NUMBER.match, row.values))
    return (row.kind == "length" and not _STATE.search(row.source)) or (row.kind == "value" and numbers and row.dynamic_since is None)


def _many_texts(row: Row) -> bool:
    """Whether it is a text of more than two values, such as one that grows with each call: nothing shows that these are all."""
    texts = [value for value in row.values if value[:1] in "'\""]
    return row.kind == "value" and len(texts) + row.first_unknown + row.last_unknown > _SHOWN and bool(texts)


_NUMBER = re.compile(r"-?\d")
_STATE = re.compile(r"^len\(.*\bstate(?:\[key \d+\])?\)$")


def _change(advice: Advice) -> tuple[str, str]:
    """What makes two pieces of advice one change: the edited line or setting, else the words."""
    return advice.slug, advice.before or advice.after or advice.text


class _Ended:
    """Which recompiles each change ends; built once, since a log can have as many changes as recompiles."""

    def __init__(self, group: Sequence[Recompiled], chosen: Sequence[tuple[Row, Advice]]) -> None:
        self._rows: dict[tuple[str, str], dict[int, Row]] = {}  # that a change removes
        for row, advice in chosen:
            self._rows.setdefault(_change(advice), {})[id(row)] = row
        self._restless = {id(row) for item in group for row in item.rows if restless(row) or _many_texts(row)}
        self._most: Counter[tuple[str, str]] = Counter()  # recompiles in the code that a change is for, less those that stay
        for recompiled in group:
            for change in {_change(fix) for given in recompiled.advice for fix in given if fix.slug in (_MARK, _INTEGER)}:
                other = {step.id for row in recompiled.rows if self._is_other(row, change) for step in row.steps}
                self._most[change] += (
                    len(recompiled.code.steps) - len(other) - (recompiled.stays if change[0] == _MARK else recompiled.sides)
                )
        self._of_step = Counter(step for element in group for row in element.rows for step in {step.id for step in row.steps})

    def _is_other(self, row: Row, change: tuple[str, str]) -> bool:
        """Whether the row tells of something that the change does not touch; of a condition on an integer the versions are counted."""
        removed = self._rows[change]
        named = change[0] == _MARK or row.kind != "condition" or any(item.source in row.source for item in removed.values())
        return id(row) not in removed and not (row.kind in _SIDES and named)

    def apart(self, advice: Advice, other: Advice) -> bool:
        """Whether the two changes remove different things that changed, so that both are needed."""
        return not self._rows.get(_change(advice), {}).keys() & self._rows.get(_change(other), {}).keys()

    def by(self, fix: Advice) -> int:
        """How many recompiles had, as far as torch records it, no other cause than those that this change removes.

        Zero where a number, a length or a text stays that may be another one in every call: torch names the first guard that failed only.
        """
        rows = tuple(self._rows.get(_change(fix), {}).values())
        if not self._restless <= {id(row) for row in rows}:
            return 0
        removed = Counter(step for row in rows for step in {step.id for step in row.steps})
        ended = sum(count == self._of_step[step] for step, count in removed.items())
        if (change := _change(fix)) in self._most:
            ended = min(ended, self._most[change])
        return max(0, ended - (len({row.steps[0].id for row in rows if row.steps}) if fix.slug in _AFTER_A_CHANGE else 0))
