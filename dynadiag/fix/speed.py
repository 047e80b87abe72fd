"""Whether the changed program is faster: one call of what it compiles, before and after, timed by `bench` with its A/A arm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypedDict

from dynadiag.bench.arms import AFTER, COMPILED, DEFAULT, ArmSpec, ScriptCall
from dynadiag.bench.outcome import ArmResult, BenchResult
from dynadiag.bench.round_loop import BenchOptions
from dynadiag.bench.session import bench
from dynadiag.bench.verdict import Budget, SpeedVerdict
from dynadiag.changes.change import Candidate
from dynadiag.errors import DynadiagError
from dynadiag.fix.baseline import Baseline
from dynadiag.private_view.view import View

BUDGET = Budget(max_rounds=200, max_s=30.0)
BAD = (SpeedVerdict.SLOWER, SpeedVerdict.WRONG)
"""Verdicts for which a change is dropped."""


_Interval = Annotated[list[float], tuple[float, float]]


class VersionKeys(TypedDict):
    """The program before or after."""

    median_ms: Annotated[float | None, "milliseconds a call"]
    ci95_ms: _Interval | None
    compile_cold_s: Annotated[float | None, "seconds that compiling took from cold caches"]


class SpeedKeys(TypedDict):
    """The verdict of `bench` on the patch."""

    verdict: Annotated[str, "FASTER, SAME or INCONCLUSIVE, as in bench.json; what is SLOWER or WRONG is dropped"]
    reason: Annotated[str, "why it is INCONCLUSIVE; empty otherwise"]
    unit: Annotated[str, "what one call is"]
    speedup: Annotated[float | None, "time before / time after"]
    ci95: _Interval | None
    noise_ci99: Annotated[_Interval | None, "how far two processes of the original differ (A/A)"]
    rounds: int
    before: VersionKeys | None
    after: VersionKeys | None


@dataclass(frozen=True, kw_only=True)
class Version:
    """The times of one version of the program: milliseconds a call, and how long compiling took from cold caches."""

    median_ms: float | None
    ci95_ms: tuple[float, float] | None
    compile_cold_s: float | None


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The verdict of `bench` on the changed program beside the one before, in `bench`'s words; `reason` is why there is none or a bad one.

    `unit` says what a call is, `speedup` is time before / time after, `noise_ci99` how far two processes of the same program differ.
    """

    verdict: SpeedVerdict
    reason: str
    unit: str = ""
    speedup: float | None = None
    ci95: tuple[float, float] | None = None
    noise_ci99: tuple[float, float] | None = None
    rounds: int = 0
    before: Version | None = None
    after: Version | None = None

    @property
    def words(self) -> str:
        """The verdict with what it rests on, in one line."""
        if self.speedup is None or self.ci95 is None or self.noise_ci99 is None:
            return f"{self.verdict}: {self.reason}"
        speed = f"{self.verdict}: {self.speedup:.3f} times as fast [{self.ci95[0]:.3f}, {self.ci95[1]:.3f}]"
        noise = f", A/A [{self.noise_ci99[0]:.3f}, {self.noise_ci99[1]:.3f}]"
        return speed + noise + (f"; {self.reason}" if self.reason else "")


def not_slower(kept: Sequence[Candidate], judge: Callable[[Sequence[Candidate]], Speed]) -> tuple[list[Candidate], dict[str, Speed], Speed]:
    """Those of the changes that are left without the ones that make the program slower or wrong, the verdicts on these by id, and the last
    verdict.

    Of several each is timed alone, unless some are made on top of others; where none of them is slower by itself, the last one goes.
    """
    left, dropped = list(kept), dict[str, Speed]()
    speed = judge(left)
    while left and speed.verdict in BAD:
        apart = [] if any(candidate.layer for candidate in left) else left
        alone = {candidate.id: judge([candidate]) if len(left) > 1 else speed for candidate in apart}
        slow = {name: found for name, found in alone.items() if found.verdict in BAD} or {left[-1].id: speed}
        dropped |= slow
        left = [item for item in left if item.id not in slow]
        speed = judge(left) if left else speed
    return left, dropped, speed


def timed(
    baseline: Baseline, new: Mapping[str, str], calls: Mapping[str, int], *, budget: Budget = BUDGET, view: View | None = None
) -> Speed:
    """The verdict on the script with these new texts; `calls` says how often each compiled callable (`NUMBER NAME`) was called.

    The third call of the callable with most calls is timed, or its last one.
    """
    name, count = max(calls.items(), key=lambda item: item[1])
    script = ScriptCall(arguments=baseline.arguments, call=min(3, count), chosen=name.partition(" ")[0], module=baseline.module)
    before = ArmSpec(
        name=DEFAULT,
        kind=COMPILED,
        target=str(baseline.script.resolve()),
        folder=str(baseline.folder.resolve()),
        arguments=baseline.arguments,
        script=script,
    )
    after = ArmSpec(**{**vars(before), "name": f"{AFTER}{DEFAULT}", "texts": dict(new), "after": True})
    try:
        return speed_of(bench([before, after], BenchOptions(budget=budget, view=view)))
    except DynadiagError as error:
        return Speed(verdict=SpeedVerdict.INCONCLUSIVE, reason=f"it could not be timed: {error.message}")


def speed_of(result: BenchResult) -> Speed:
    """The verdict that a benchmark of two arms has."""
    if result.interrupted:
        raise KeyboardInterrupt
    comparison = next((item for item in result.comparisons if item.arm.startswith(AFTER)), None)
    if comparison is None:
        failed = next((row.reason for row in result.arms if row.failed), "nothing was timed")
        return Speed(verdict=SpeedVerdict.INCONCLUSIVE, reason=failed, unit=result.unit)
    found = comparison.decision
    rows = {row.name: row for row in result.arms}
    return Speed(
        verdict=comparison.verdict,
        reason=comparison.reason,
        unit=result.unit,
        speedup=None if found is None else found.speedup.estimate,
        ci95=None if found is None else (found.speedup.low, found.speedup.high),
        noise_ci99=None if found is None else (found.widest.low, found.widest.high),
        rounds=result.rounds,
        before=_version(rows.get(comparison.baseline)),
        after=_version(rows.get(comparison.arm)),
    )


def _version(row: ArmResult | None) -> Version | None:
    return None if row is None else Version(median_ms=row.median_ms, ci95_ms=row.ci95_ms, compile_cold_s=row.compile_cold_s)


def to_json(speed: Speed) -> SpeedKeys:
    """The value of `speed` in `fix.json`."""

    def version(item: Version | None) -> VersionKeys | None:
        if item is None:
            return None
        return {
            "median_ms": item.median_ms,
            "ci95_ms": None if item.ci95_ms is None else list(item.ci95_ms),
            "compile_cold_s": item.compile_cold_s,
        }

    return {
        "verdict": speed.verdict.value,
        "reason": speed.reason,
        "unit": speed.unit,
        "speedup": speed.speedup,
        "ci95": None if speed.ci95 is None else list(speed.ci95),
        "noise_ci99": None if speed.noise_ci99 is None else list(speed.noise_ci99),
        "rounds": speed.rounds,
        "before": version(speed.before),
        "after": version(speed.after),
    }
