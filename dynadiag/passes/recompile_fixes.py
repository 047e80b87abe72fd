"""The advice of a finding on recompiles: each change once, with how many of the recompiles it ends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from dynadiag.advice.recompile_reasons import split_reason
from dynadiag.changes.kinds import kind_of
from dynadiag.facts.wording import listed, unique
from dynadiag.model.clauses import Cause, Clause, Effect, EndsRecompiles, Settled, Unadvised
from dynadiag.model.report import Advice, distinct_advice
from dynadiag.passes.recompiled import Recompiled
from dynadiag.passes.transitions import ChangedSource

_SHOWN = 2
_SEVERAL = 4
_MOST_VERSIONS = 64
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


def versions_needed(rows: Iterable[ChangedSource]) -> int | None:
    """How many compiled versions are enough whatever comes, where each thing that changed has few states; None where one has not."""
    states = [_states(row) for row in rows]
    needed = prod(state or 0 for state in states)
    return needed if 0 < needed <= _MOST_VERSIONS else None


def _states(row: ChangedSource) -> int | None:
    if not _CONTAINERS.isdisjoint(row.values):  # one in another, to any depth
        return None
    if row.kind in ("size", "stride", "value") and row.dynamic_since is not None:
        return 2 + (not {"0", "1"}.isdisjoint(row.values))
    if row.kind in _TWO_STATES or row.source.endswith(".training") or {"True", "False"} >= set(row.values) != set():
        return 2
    numbers = any(value[:1] in "-0123456789" for value in row.values)
    few = row.kind in _NAMED_STATES and not numbers and not row.last_unknown and len(row.values) <= _SEVERAL
    return len(row.values) if few and row.values else None


def restless(row: ChangedSource) -> bool:
    """Whether it is a number or a length that torch keeps constant: a count, a list that grows. An optimizer's state is filled once."""
    numbers = bool(row.values) and all(map(_NUMBER.match, row.values))
    return (row.kind == "length" and not _STATE.search(row.source)) or (row.kind == "value" and numbers and row.dynamic_since is None)


def _many_texts(row: ChangedSource) -> bool:
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

    def __init__(self, group: Sequence[Recompiled], chosen: Sequence[tuple[ChangedSource, Advice]]) -> None:
        self._rows: dict[tuple[str, str], dict[int, ChangedSource]] = {}  # that a change removes
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

    def _is_other(self, row: ChangedSource, change: tuple[str, str]) -> bool:
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
        return max(0, ended - (len({row.steps[0].id for row in rows if row.steps}) if kind_of(fix.slug).keeps_first else 0))


# Why a finding on recompiles advises nothing: what each further change costs, and what the recording would have to show.
_FEW = 2
_GROWS = Effect("Another value would be one more version, until the limit is reached and such calls run eagerly")
_NOTHING_KNOWN = Unadvised("the recording does not show that a change would end this")
_DYNAMIC, _BOTH_STATES = (
    "what changed is dynamic now, and another version is compiled only if the code branches on it",
    "what changed has two states, and each has its own version",
)


def settled(group: Sequence[Recompiled]) -> bool:
    """True if nothing more is to be expected: everything that changed became dynamic at its first change, or has two states at most."""
    return all(
        len(recompiled.code.steps) == 1 and all(row.dynamic_since or _two_states(row) for row in recompiled.rows) for recompiled in group
    )


def without_advice(group: Sequence[Recompiled], *, hit: bool) -> Iterator[Clause]:
    """Why nothing is advised."""
    splits = [recompiled.split for recompiled in group if recompiled.split is not None]
    if splits and len(splits) == len(group):  # what was entered from uncompiled code has its own versions anyway
        yield Cause(split_reason(splits))
        return
    if settled(group):
        rows = [row for item in group for row in item.rows]
        said = [_DYNAMIC] * any(row.dynamic_since for row in rows) + [_BOTH_STATES] * any(map(_two_states, rows))
        yield Settled("; ".join(said) or "no further versions are expected")
        return
    chosen = {id(row) for row in telling(group)}
    told = [
        why for element in group for row, why in zip(element.rows, element.reasons, strict=True) if id(row) in chosen and why is not None
    ]
    nothing = next((why for row in telling(group) if (why := _why_nothing(row)) is not None), _NOTHING_KNOWN)
    full = next((one.limit.value for one in group if one.limit.value is not None and one.limit.entries >= one.limit.value), None)
    yield from map(Effect, unique(told)[:2])
    if told and not hit and full:
        yield Effect(f"All {full} versions are used: a call that fits none of them is not compiled again, and runs eagerly")
    elif told and not hit and any(_goes_on(row) for one in group for row in one.rows):
        yield _GROWS
    elif told and not hit:
        yield Settled(enough=True)
        return
    yield nothing


def _why_nothing(row: ChangedSource) -> Unadvised | None:
    """Why nothing is advised for what has a version for each of its values; None where nothing more is known."""
    texts = bool(row.values) and any(value[:1] in "'\"" for value in row.values)
    if row.kind == "length":
        why = (
            "each number of elements is a constant of its version, and the recording does not show whether a tensor could hold them, "
            "or whether they could be added outside the compiled function"
        )
    elif row.kind == "value" and texts:
        why = "strings are constants of the compiled code, so only code outside of the compiled function can handle any string"
    elif row.kind == "value" and restless(row):
        why = "the recording does not show whether the code would work if torch kept this number dynamic"
    elif row.kind in ("identity", "function"):
        why = "the recording does not show where these objects come from, or whether one could serve for all of them"
    else:
        return None
    return Unadvised(why)


def _goes_on(row: ChangedSource) -> bool:
    """Whether it had more than two values, each with a version of its own, and nothing says that these are all."""
    others = sum(value.startswith("another ") for value in row.values)
    different = others + len({value for value in row.values if not value.startswith("another ")})
    return (restless(row) or (row.dynamic_since is None and not _two_states(row))) and different > _FEW


def _two_states(row: ChangedSource) -> bool:
    return row.kind == "requires_grad" or row.source in ("grad_mode",) or row.source.endswith(".training")


def because_of(group: Sequence[Recompiled]) -> str:
    """What the title gives as the cause, with a space before it; empty where nothing is known."""
    shown = telling(group)
    causes = listed(unique(row.text for row in shown if row.source), limit=2)
    told = {step.id for row in shown for step in row.steps}
    left_out = any(step.id not in told for recompiled in group for row in recompiled.rows for step in row.steps)
    return f"{', mostly' if left_out else ''} because of {causes}" if causes else ""


def telling(group: Sequence[Recompiled]) -> tuple[ChangedSource, ...]:
    """The rows without what became dynamic with its first change, where something else caused most of the recompiles."""
    table = [row for recompiled in group for row in recompiled.rows]
    lasting = tuple(row for row in table if row.dynamic_since is None or len(row.steps) > 1)
    return lasting if max((len(row.steps) for row in lasting), default=0) > 2 else tuple(table)
