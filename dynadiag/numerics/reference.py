"""What eager gives for a graph, also in float64, and how compiled results compare with it by the rule of all verbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynadiag.compare.judge import MINIFY, Noise, Runs, Seen, judge
from dynadiag.compare.noise import noisy_runs
from dynadiag.numerics.distance import all_same_bits
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.observing import run_once
from dynadiag.reduce.graphs.running import in_float64
from dynadiag.reduce.graphs.setting import Setting

_NOISY = 3


@dataclass(frozen=True)
class Reference:
    """A graph with its results in eager; `exact` are those in float64, none where it does not run so."""

    candidate: Candidate
    setting: Setting
    eager: list[Any]
    exact: list[Any]

    def outcome(self, results: Sequence[Any]) -> str:
        """equal, rounding or different."""
        if all_same_bits(results, self.eager):
            return "equal"
        seen = [Seen("output", at, f"result {at}", value) for at, value in enumerate(self.eager)]
        found = judge(seen, results, Noise(exact=self.exact, runs=self._more_runs), MINIFY)
        return "different" if any(judged.differences for judged in found) else "rounding"

    def _more_runs(self, _: object) -> Runs:
        module, setting = self.candidate.module, self.setting
        further, same, seen = noisy_runs(lambda _, change: run_once(self.candidate, setting, own_copy(module), change=change), _NOISY)
        return Runs(further=further, same=same, coarsest=seen.half, tf32=seen.tf32)


def reference_of(candidate: Candidate, setting: Setting) -> Reference:
    """Run the graph without the compiler. Raises what it raises."""
    return Reference(candidate, setting, run_once(candidate, setting, own_copy(candidate.module)), _exact(candidate, setting))


def _exact(candidate: Candidate, setting: Setting) -> list[Any]:
    try:
        wide = in_float64(candidate)
        return run_once(wide, replace(setting, autocast=None), wide.module)
    except Exception:  # noqa: BLE001 - the border around a candidate: a graph may insist on a dtype
        return []
