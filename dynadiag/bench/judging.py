"""From samples and checks to rows and verdicts."""

from __future__ import annotations

from dynadiag.bench.arms import pairs
from dynadiag.bench.outcome import ArmResult, BenchResult, Comparison, Correctness
from dynadiag.bench.statistics import drift, median_interval, spread
from dynadiag.bench.verdict import Decision, SpeedVerdict, decide, looks_until

# Noise that is said: a quarter-to-quarter spread or a drift of the baseline beyond this share.
_NOISY = 0.05
_LATE_SHARE = 0.1
ONE_PROCESS = "the arms shared one process: caches, flags and the recompile limit are shared, and the A/A arm is the baseline"
_NOT_RIGHT = {"WRONG": SpeedVerdict.WRONG, "DTYPE_CHANGED": SpeedVerdict.WRONG, "VACUOUS": SpeedVerdict.VACUOUS}


def summarise(row: ArmResult, baseline: ArmResult) -> None:
    """Fill what follows from the samples: the median with its interval, and after how many calls compiling has paid for itself."""
    if not row.samples_ms:
        return
    interval = median_interval(row.samples_ms)
    row.median_ms, row.ci95_ms = interval.estimate, (interval.low, interval.high)
    if row is not baseline and row.compile_cold_s is not None and baseline.samples_ms:
        gain_ms = median_interval(baseline.samples_ms).estimate - interval.estimate
        row.break_even_calls = row.compile_cold_s * 1e3 / gain_ms if gain_ms > 0 else None


def end_early(result: BenchResult) -> None:
    """What is known of a benchmark that was ended before its end, as a result of its own: rows without times say why."""
    result.interrupted = True
    result.notes.append("the benchmark was ended early: this is what had been finished")
    for row in (*result.arms, result.same_again):
        if row is not None and not row.samples_ms and not row.failed:
            row.status, row.reason = "interrupted", "the benchmark was ended before this arm was timed"


def compare_arms(result: BenchResult, *, in_process: bool) -> None:
    """A comparison of every arm with the first and of each after a change with the same before it; what there is to say about the noise."""
    checks = {check.arm: check for check in result.correctness}
    rows = {row.name: row for row in result.arms}
    for before, name in pairs(list(rows)):
        result.comparisons.append(_compare(result, rows[before], rows[name], checks))
    _say_noise(result, result.arms[0])
    if in_process:
        result.notes.append(ONE_PROCESS)


def _compare(result: BenchResult, baseline: ArmResult, row: ArmResult, checks: dict[str, Correctness]) -> Comparison:
    decision = _decision(result, baseline, row)
    wrong = _not_right(baseline, row, checks)
    if wrong is not None:
        return Comparison(baseline=baseline.name, arm=row.name, verdict=wrong[0], reason=wrong[1], decision=decision)
    if decision is None:
        again = result.same_again
        failed = next((arm_result for arm_result in (baseline, row, again) if arm_result is not None and arm_result.failed), row)
        reason = f"{failed.name}: {failed.reason}" if failed.reason else "nothing was timed"
        return Comparison(baseline=baseline.name, arm=row.name, verdict=SpeedVerdict.INCONCLUSIVE, reason=reason, decision=None)
    late = _late(row) or _late(baseline)
    if late:
        return Comparison(baseline=baseline.name, arm=row.name, verdict=SpeedVerdict.INCONCLUSIVE, reason=late, decision=decision)
    if row.status == "not_compiled":
        return Comparison(baseline=baseline.name, arm=row.name, verdict=SpeedVerdict.INCONCLUSIVE, reason=row.reason, decision=decision)
    return Comparison(baseline=baseline.name, arm=row.name, verdict=decision.verdict, reason=decision.reason, decision=decision)


def _not_right(baseline: ArmResult, row: ArmResult, checks: dict[str, Correctness]) -> tuple[SpeedVerdict, str] | None:
    """No speed counts where results are not right; a baseline that proves nothing or disagrees with itself leaves nothing to hold on to."""
    for name in (baseline.name, row.name):
        check = checks.get(name)
        if check is None or check.status in (None, "PASS"):
            continue
        text = f"{check.worst}: {check.detail}" if check.worst else check.detail
        if check.status in _NOT_RIGHT:
            return _NOT_RIGHT[check.status], text if name == row.name else f"{name}: {text}"
        return SpeedVerdict.INCONCLUSIVE, text
    return None


def _decision(result: BenchResult, baseline: ArmResult, row: ArmResult) -> Decision | None:
    again, first = result.same_again, result.arms[0]
    count = min(len(baseline.samples_ms), len(row.samples_ms), len(first.samples_ms), len(again.samples_ms) if again else 0)
    if not count or baseline.failed or row.failed or again is None:
        return None
    samples = (arm_result.samples_ms[:count] for arm_result in (baseline, row, again))
    looks = None if result.time.budget is None else looks_until(count, result.time.budget, last=not result.time.settled)
    return decide(*samples, repeated=first.samples_ms[:count], looks=looks)


def _late(row: ArmResult) -> str:
    if row.late_blocks > _LATE_SHARE * len(row.samples_ms):
        return f"{row.name} still compiled in {row.late_blocks} of {len(row.samples_ms)} timed blocks"
    return ""


def _say_noise(result: BenchResult, baseline: ArmResult) -> None:
    varies, drifted = spread(baseline.samples_ms), drift(baseline.samples_ms)
    if varies > _NOISY:
        result.notes.append(f"noise: the blocks of {baseline.name} vary by {varies:.0%}; another program may be using this machine")
    if abs(drifted) > _NOISY:
        result.notes.append(f"noise: {baseline.name} got {abs(drifted):.0%} {'slower' if drifted > 0 else 'faster'} while it was timed")
