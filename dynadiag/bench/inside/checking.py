"""Is an arm's result as right as eager's? States PASS, WRONG, DTYPE_CHANGED, VACUOUS or EAGER_NONDETERMINISTIC."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynadiag.bench.inside.reference import Expected, change_inputs, note_once, random_pair, run_and_collect
from dynadiag.bench.inside.results import Reference, compare_all, detail_of, other_layouts, status_of, weight_of
from dynadiag.bench.inside.steps import TimedStep

if TYPE_CHECKING:  # see `comparing`
    from dynadiag.compare.judge import Judged
from dynadiag.torch_compat.dynamo.counters import eager_random_numbers

# A CUDA graph is warmed up, recorded and replayed: the third call and later ones show what a replay gives.
_CALLS_BEFORE_CHANGED_DATA = 2


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The state, the worst tensor with how far it is off, and in which of the runs that was."""

    status: str
    worst: str | None = None
    detail: str = ""
    error: float | None = None
    allowed: float | None = None
    compared: int = 0


def check_eager(expected: Expected) -> CheckOutcome | None:
    """What the references alone say: a program that proves nothing, or that does not agree with itself. None when they are fit for use."""
    if expected.vacuous:
        return CheckOutcome(status="VACUOUS", detail=expected.vacuous, compared=expected.recorded.compared)
    judged = judge(expected.eager_differences)
    if judged.status != "PASS":
        detail = f"two eager runs from the same state differ: {judged.detail}"
        return CheckOutcome(status="EAGER_NONDETERMINISTIC", worst=judged.worst, detail=detail, error=judged.error, allowed=judged.allowed)
    return None


def check_arm(step: TimedStep, expected: Expected, *, first: dict[str, Any] | None) -> CheckOutcome:
    """Compare the arm with the references: its first call, calls after that, calls on changed data, and again on the recorded data.

    `first` are the results of the first compiled call when it was made as the check makes it. Every call starts from the same state.
    """
    outcomes: list[CheckOutcome] = []
    setting = check_setting(expected)
    with setting, expected.without_dropout():
        if first is None:
            expected.snapshot.restore()
            first = run_and_collect(step)
        found = _compared(expected.recorded, first)
        outcomes.append(judge(found, "in the first call"))
        if blind := [judged for judged in found if _is_blind(judged)]:
            note_once(expected, _not_compared(blind, len(found)))
        if other := other_layouts(expected.recorded.first, first):
            note_once(expected, other)
        for _ in range(_CALLS_BEFORE_CHANGED_DATA):
            expected.snapshot.restore()
            outcomes.append(_judged(expected.recorded, run_and_collect(step), "in a later call"))
        outcomes.extend(_check_changed(step, expected))
    expected.snapshot.restore()
    return next((outcome for outcome in outcomes if outcome.status != "PASS"), outcomes[0])


def check_random(step: TimedStep, expected: Expected) -> CheckOutcome | None:
    """Whether a step that draws random numbers in eager draws them here as well, in the program that is timed; None when it does.

    Masks may differ from eager's, but a call from another state of the generators has to give something else. The third and fourth calls
    are compared, since a CUDA graph is recorded in the second.
    """
    if not expected.random:
        return None
    for _ in range(_CALLS_BEFORE_CHANGED_DATA):
        expected.snapshot.restore()
        step.run_step()
    first, second = random_pair(step, expected.snapshot)
    expected.snapshot.restore()
    shared = sorted(name for name in expected.random if name in first and name in second)
    if not shared or any(not first[name].equal(second[name]) for name in shared):
        return None
    detail = "eager draws random numbers for it, but here two calls from different generator states give the same values"
    return CheckOutcome(status="WRONG", worst=shared[0], detail=detail, compared=expected.recorded.compared)


def check_setting(expected: Expected) -> AbstractContextManager[Any]:
    """Where the step draws random numbers even without dropout, compiled code must draw them as eager does."""
    return eager_random_numbers() if expected.draws else nullcontext()


def needs_own_setting(expected: Expected) -> bool:
    """Whether the check compiles something else than what is timed."""
    return expected.draws or bool(expected.dropouts)


def _check_changed(step: TimedStep, expected: Expected) -> list[CheckOutcome]:
    if expected.changed is None:
        return []
    outcomes = []
    for change in (True, True, False):
        expected.snapshot.restore()
        if change:
            change_inputs(expected.snapshot.state.held)
        result = run_and_collect(step)
        reference = expected.changed if change else expected.recorded
        outcomes.append(_judged(reference, result, "on changed data" if change else "back on the original data"))
    return outcomes


def _judged(reference: Reference, result: dict[str, Any], when: str) -> CheckOutcome:
    return judge(_compared(reference, result), when)


def _compared(reference: Reference, result: dict[str, Any]) -> list[Judged]:
    kept = {name: value for name, value in result.items() if name in reference.first or name not in reference.second}
    return compare_all(reference, kept)


def _is_blind(judged: Judged) -> bool:
    """Whether rounding explains an error as large as the value: one that was dropped would pass. A line search in bfloat16 does that
    (`torch.optim.LBFGS`): eager and float64 take steps of other lengths.
    """
    return not judged.differences and judged.allowed is not None and judged.allowed >= 1.0 and bool(judged.error)


def _not_compared(blind: Sequence[Judged], count: int) -> str:
    worst = max(blind, key=lambda judged: judged.allowed or 0.0)
    why = "rounding errors in eager are as large as the values themselves, so a wrong value could not be detected"
    return f"NOT COMPARED: {len(blind)} of {count} results, such as {worst.name}: {why}"


def judge(found: Sequence[Judged], when: str = "") -> CheckOutcome:
    """The worst of what was found, outputs before what follows from them when several are past measure."""
    if not found:
        return CheckOutcome(status="PASS")
    worst = max(found, key=_order)
    status, detail = status_of(worst), detail_of(worst)
    detail = f"{detail} ({when})" if status != "PASS" and when else detail
    compared = len(found) - sum(map(_is_blind, found))
    return CheckOutcome(status=status, worst=worst.name, detail=detail, error=worst.error, allowed=worst.allowed, compared=compared)


def _order(judged: Judged) -> tuple[int, float, bool]:
    status = status_of(judged)
    severity = ("PASS", "WRONG", "DTYPE_CHANGED").index(status)
    return severity, weight_of(judged) if status != "PASS" else (judged.error or 0.0), judged.name.startswith("output")
