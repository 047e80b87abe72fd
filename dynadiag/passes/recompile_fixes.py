"""The advice of a finding on recompiles: each change once, with how many of the recompiles it is for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dynadiag.model.report import Advice
from dynadiag.passes.merged_fixes import breaks_once, marked_tensor, marked_together
from dynadiag.passes.recompiled import Recompiled
from dynadiag.passes.transitions import Row

_SHOWN = 4
_SEVERAL = 4
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?$")
_TOGETHER = " Alone it ends none of these recompiles: something else changed in the same calls."
_NEVER_ALONE = " Each of these recompiles has another recorded cause too."
_FROM_THE_SECOND = " The first change is compiled again all the same: this helps from the second on."
_ENDS_NONE = (_TOGETHER, _NEVER_ALONE, _FROM_THE_SECOND)
# With them torch makes dynamic what has changed once.
_AFTER_A_CHANGE = frozenset({"parameter-shapes", "unspec-int-on-module"})
# They ask for no change, or for one whose own count is another finding's.
_UNCOUNTED = frozenset({"bounded-versions", "split-by-value", "same-grad-mode", "cure-break", "compile-parent", "scheduled-option"})


def counted_fixes(group: Sequence[Recompiled], telling: Sequence[Row], events: int) -> tuple[Advice, ...]:
    """The advice for the causes that are told, with how many of the recompiles each is for; what ends none alone comes last.

    "Recorded": torch tells the first guard that failed in each compiled version; a later one may have failed too
    (`get_guard_fail_reason_helper`, `_dynamo/guards.py`, 2.11 and 2.15).
    """
    told = {id(row) for row in telling}
    chosen = [
        (row, advice)
        for one in group
        for row, given in zip(one.rows, one.advice, strict=True)
        if id(row) in told
        for advice in given
        if not (advice.slug == "compile-dynamic" and (_failed(group) or _left_eager(group) or _has_two_programs(group)))
    ]
    fixes = breaks_once(marked_together(distinct(advice for _, advice in chosen)))
    causes = _Causes(group, chosen)
    counted = ((fix, causes.ended(fix, events)) for fix in fixes)
    told_fixes = [replace(fix, text=f"{fix.text}{said}") for fix, said in counted]
    ending = [fix for fix in told_fixes if not fix.text.endswith(_ENDS_NONE)]
    # What ends nothing by itself is not told beside what does, nor beside what says that all is well, nor where all
    # of it together ends none.
    if any(fix.slug not in _UNCOUNTED for fix in ending):
        told_fixes = ending
    elif ending or not causes.end_any(fixes):
        told_fixes = [fix for fix in told_fixes if not fix.text.endswith((_TOGETHER, _FROM_THE_SECOND))]
    return tuple(sorted(told_fixes, key=lambda fix: fix.text.endswith(_ENDS_NONE))[:_SHOWN])


def distinct(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """Each change once, in the order in which they came."""
    found: dict[tuple[str, str], Advice] = {}
    for one in advice:
        found.setdefault((one.slug, one.after or one.text), one)
    return tuple(found.values())


def _failed(group: Sequence[Recompiled]) -> bool:
    """Whether a later version could not be compiled: a first version with the same symbols would fail already in the first call."""
    return any(
        frame.outcome == "failed"
        and frame.id not in one.limit.hit
        and "Recompile" not in (frame.metrics.fail_type or "" if frame.metrics is not None else "")
        for one in group
        for frame in one.code.frames
    )


def _left_eager(group: Sequence[Recompiled]) -> bool:
    """Whether a later version broke where torch cannot go on, and runs eager: the first version may break there with the same symbols."""
    return any(frame.outcome == "skipped" and frame.id not in one.limit.hit for one in group for frame in one.code.frames)


def _has_two_programs(group: Sequence[Recompiled]) -> bool:
    """Whether a size was 0 or 1 in some calls, as in decoding after a prompt. torch never makes such a size symbolic by itself; with
    `dynamic=True` it does in the first call, where the code may branch on it: `is_causal=t > 1` breaks the graph then (2.15).
    """
    return any(
        row.kind == "size" and row.dynamic_since is None and not {"0", "1"}.isdisjoint(row.values) for one in group for row in one.rows
    )


_WHILE_FEW = re.compile(r" No change is needed while there are fewer[^.]*\.|, and no change is needed while there are fewer [\w ]*versions")
_ELSE = re.compile(r"(?<=\. )(?:Else|With more,) (\w)")


def without_reassurance(fix: Advice) -> Advice:
    """The advice without the words that hold only while the recompile limit is far."""
    text = _WHILE_FEW.sub("", fix.text)
    return fix if text == fix.text else replace(fix, text=_ELSE.sub(lambda match: match[1].upper(), text))


def counts_up(rows: Iterable[Row]) -> bool:
    """Whether a number had another value each time that it was compiled for: no limit is high enough for it."""
    numbers = any(row.kind == "value" and len(row.values) > _SEVERAL and all(map(_NUMBER.match, row.values)) for row in rows)
    return numbers or any(row.kind == "condition" and sum(" == " in value for value in row.values) > 2 for row in rows)


def _change(advice: Advice) -> tuple[str, str]:
    """What makes two pieces of advice one change: the edited line or setting, the tensor that is marked, else the words."""
    return advice.slug, advice.before or advice.after or marked_tensor(advice) or advice.text


class _Causes:
    """Which recompiles each change ends; built once, since a log can have as many changes as recompiles."""

    def __init__(self, group: Sequence[Recompiled], chosen: Sequence[tuple[Row, Advice]]) -> None:
        self._rows: dict[tuple[str, str], dict[int, Row]] = {}  # that a change removes
        for row, advice in chosen:
            self._rows.setdefault(_change(advice), {})[id(row)] = row
        self._of_step = Counter(step for one in group for row in one.rows for step in {step.id for step in row.steps})
        # What an older version than the newest failed on.
        steps = (step for one in group for step in one.code.steps)
        self._older = {guard.raw_source for step in steps for guard in step.guards if guard not in step.news}

    def end_any(self, fixes: Iterable[Advice]) -> bool:
        """Whether the changes together remove all that is recorded of one recompile at least."""
        cured = {mark: row for fix in fixes if fix.slug not in _UNCOUNTED for mark, row in self._rows.get(_change(fix), {}).items()}
        removed = Counter(step for row in cured.values() for step in {step.id for step in row.steps})
        return any(count == self._of_step[step] for step, count in removed.items())

    def ended(self, fix: Advice, events: int) -> str:
        """How many recompiles had, as far as torch records it, no other cause than those that this change removes."""
        if fix.slug in _UNCOUNTED:
            return ""
        cured = self._rows.get(_change(fix), {}).values()
        removed = Counter(step for row in cured for step in {step.id for step in row.steps})
        ended = sum(count == self._of_step[step] for step, count in removed.items())
        if not ended and not self._older.isdisjoint(guard.raw_source for row in cured for guard in row.guards):
            return _NEVER_ALONE  # that version might fit then
        if not ended:
            return _TOGETHER
        if fix.slug in _AFTER_A_CHANGE:
            if ended == 1:
                return _FROM_THE_SECOND
            ended -= 1
        if events == 1 or (ended == events and not fix.before):
            return ""
        return f" What it removes is the only recorded cause of {ended} of these {events} recompiles."
