"""How often verdicts are right on this machine: the same step twice (A/A), and one with 2 % more work.

    python benchmarks/verdict_study.py [--same 100] [--slower 60] [--verdict-seconds 15] [--continue] [--json FILE]

Each verdict has fresh samples and statistics; the processes are started once. Verdicts are kept in FILE as they come, so that `--continue`
goes on from there, with processes of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dynadiag.bench.arms import EAGER, ArmSpec
from dynadiag.bench.outcome import BenchResult
from dynadiag.bench.session import BenchOptions, Session
from dynadiag.bench.verdict import Budget, Decision

HERE = Path(__file__).resolve().parent
PRODUCTS = 50


def main() -> None:
    """Run both studies and print their counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--same", type=int, default=100)
    parser.add_argument("--slower", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further verdict of a study after so many seconds")
    parser.add_argument("--verdict-seconds", type=float, default=15.0, help="what the rounds of one verdict may take")
    parser.add_argument("--continue", action="store_true", dest="go_on")
    parser.add_argument("--json", type=Path, default=Path("verdict_study.json"))
    options = parser.parse_args()
    kept: dict[str, dict[str, Any]] = json.loads(options.json.read_text("utf-8")) if options.go_on and options.json.exists() else {}
    for name, products, count in (("same", PRODUCTS, options.same), ("slower by 2 %", PRODUCTS + 1, options.slower)):
        rows = kept.setdefault(name, {}).setdefault("rows", [])
        for row in study(name, products, count - len(rows), options.seconds, options.verdict_seconds):
            rows.append(row)
            kept[name] |= summary(rows, PRODUCTS / products)
            options.json.write_text(json.dumps(kept) + "\n", "utf-8")
        if rows:
            found = summary(rows, PRODUCTS / products)
            print(f"{name}: {found['verdicts']} verdicts, {found['counts']}, truth inside {found['truth in the interval']}", end=", ")
            print(
                f"{found['seconds'][0]} to {found['seconds'][1]} s each, at most {found['outside blocks']:.1%} outside blocks", flush=True
            )


def study(name: str, products: int, count: int, seconds: float, verdict_s: float) -> Iterator[dict[str, Any]]:
    """Verdicts on a step of so many products beside one of 50; one line each as it comes."""
    if count <= 0:
        return
    target = f"{HERE / 'study_steps.py'}:step"
    arms = [
        ArmSpec(name="fifty", kind=EAGER, target=target, environment={"DYNADIAG_STUDY": str(PRODUCTS)}),
        ArmSpec(name="arm", kind=EAGER, target=target, environment={"DYNADIAG_STUDY": str(products)}),
    ]
    began = time.monotonic()
    for result in Session(arms, BenchOptions(budget=Budget(max_s=verdict_s))).study(count):
        for comparison in result.comparisons:
            found = comparison.decision
            if found:
                span = f"{found.speedup.estimate:.4f} [{found.speedup.low:.4f}, {found.speedup.high:.4f}] A/A {found.noise.high:.4f}"
                print(f"{name}: {found.verdict} {span} {result.rounds} rounds {result.time.phases_s['rounds']:.1f} s", flush=True)
                yield _row(result, found)
        for arm in result.arms:
            if arm.reason:
                print(f"{name}: {arm.name}: {arm.reason}", flush=True)
        if time.monotonic() - began > seconds:
            break


def _row(result: BenchResult, found: Decision) -> dict[str, Any]:
    """One verdict with every figure that it comes from."""
    return {
        "verdict": str(found.verdict),
        "estimate": round(found.speedup.estimate, 5),
        "interval": [round(found.speedup.low, 5), round(found.speedup.high, 5)],
        "noise": round(found.noise.high, 5),
        "rounds": result.rounds,
        "seconds": round(result.time.phases_s["rounds"], 2),
        "outside": round(result.time.outside_share or 0, 3),
        "ms": round(result.arms[0].median_ms or 0, 3),
        "clocks": result.clocks,
    }


def summary(rows: Sequence[dict[str, Any]], truth: float) -> dict[str, Any]:
    """The counts."""
    return {
        "verdicts": len(rows),
        "counts": dict(Counter(row["verdict"] for row in rows)),
        "truth in the interval": sum(row["interval"][0] <= truth <= row["interval"][1] for row in rows),
        "seconds": [min(row["seconds"] for row in rows), max(row["seconds"] for row in rows)],
        "outside blocks": max(row["outside"] for row in rows),
    }


if __name__ == "__main__":
    main()
