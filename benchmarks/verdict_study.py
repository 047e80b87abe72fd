"""How often verdicts are right on this machine: the same step twice (A/A), and one with 2 % more work.

    python benchmarks/verdict_study.py [--same 100] [--slower 60] [--verdict-seconds 15] [--json FILE]

Each verdict has fresh samples and statistics; the processes are started once.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dynadiag.bench.arms import EAGER, ArmSpec
from dynadiag.bench.outcome import BenchResult
from dynadiag.bench.rounds import Budget
from dynadiag.bench.session import BenchOptions, Session

HERE = Path(__file__).resolve().parent
PRODUCTS = 50


def main() -> None:
    """Run both studies and print their counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--same", type=int, default=100)
    parser.add_argument("--slower", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further verdict of a study after so many seconds")
    parser.add_argument("--verdict-seconds", type=float, default=15.0, help="what the rounds of one verdict may take")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, object] = {}
    for name, products, count in (("same", PRODUCTS, options.same), ("slower by 2 %", PRODUCTS + 1, options.slower)):
        if count:
            figures[name] = study(name, products, count, options.seconds, options.verdict_seconds)
            if options.json:
                options.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def study(name: str, products: int, count: int, seconds: float, verdict_s: float) -> dict[str, object]:
    """Verdicts on a step of so many products beside one of 50; one line each as it comes."""
    target = f"{HERE / 'study_steps.py'}:step"
    arms = [
        ArmSpec(name="fifty", kind=EAGER, target=target, environment={"DYNADIAG_STUDY": str(PRODUCTS)}),
        ArmSpec(name="arm", kind=EAGER, target=target, environment={"DYNADIAG_STUDY": str(products)}),
    ]
    results: list[BenchResult] = []
    began = time.monotonic()
    for result in Session(arms, BenchOptions(budget=Budget(max_s=verdict_s))).study(count):
        results.append(result)
        for comparison in result.comparisons:
            found = comparison.decision
            if found:
                span = f"{found.speedup.estimate:.4f} [{found.speedup.low:.4f}, {found.speedup.high:.4f}] A/A {found.noise.high:.4f}"
                print(f"{name}: {found.verdict} {span} {result.rounds} rounds {result.phases_s['rounds']:.1f} s", flush=True)
        if time.monotonic() - began > seconds:
            break
    figures = summary(results, PRODUCTS / products)
    print(f"{name}: {figures['verdicts']} verdicts, {figures['counts']}, truth inside {figures['truth in the interval']}", flush=True)
    return figures


def summary(results: Sequence[BenchResult], truth: float) -> dict[str, object]:
    """The counts, and every figure they come from."""
    decisions = [comparison.decision for result in results for comparison in result.comparisons if comparison.decision]
    return {
        "verdicts": len(decisions),
        "counts": Counter(str(decision.verdict) for decision in decisions),
        "truth in the interval": sum(not decision.speedup.excludes(truth) for decision in decisions),
        "estimates": [round(decision.speedup.estimate, 5) for decision in decisions],
        "intervals": [[round(decision.speedup.low, 5), round(decision.speedup.high, 5)] for decision in decisions],
        "noise reach": [round(decision.noise.high, 5) for decision in decisions],
        "rounds": [result.rounds for result in results],
        "seconds": [round(result.phases_s["rounds"], 2) for result in results],
        "outside blocks": [round(result.outside_share or 0, 3) for result in results],
        "ms": [round(result.arms[0].median_ms or 0, 3) for result in results[:3]],
        "clocks": results[0].clocks if results else None,
        "reasons": [row.reason for result in results[:1] for row in result.arms if row.reason],
    }


if __name__ == "__main__":
    main()
