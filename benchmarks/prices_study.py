"""Do the prices of graph breaks add up? On six models with planted breaks, beside the same models without them.

    python benchmarks/prices_study.py [--models mlp,...] [--mode reduce-overhead] [--device cpu] [--cores 4] [--max-time 10] [--together 3]
        [--repeat 1] [--seconds 200] [--continue] [--json FILE]

For each: before is the broken model, after the fixed one, in processes that take turns; the prices come from the broken one alone.
Where before - after exceeds 5 % of the step, the sum of the prices should be within 15 % of it or inside its interval.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from table_rows import Turns

from dynadiag.bench.arms import COMPILED, ArmSpec
from dynadiag.bench.round_loop import BenchOptions
from dynadiag.bench.session import Session
from dynadiag.bench.statistics import median_interval
from dynadiag.bench.verdict import Budget

HERE = Path(__file__).resolve().parent
MODELS = ("mlp", "mlp_inference", "residual", "attention", "convolution", "recurrent")
SMALLEST_SHARE, NEAR = 0.05, 0.15
ROUNDS = 60


def main() -> None:
    """Run the models that are missing, print a line each, and count."""
    options = _options()
    if options.cores:
        # Every process of the study, and nothing else of it, has these cores.
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-options.cores :]))
    rows: dict[str, Any] = json.loads(options.json.read_text("utf-8")) if options.go_on and options.json.exists() else {}
    wanted = [name if number == 0 else f"{name} {number + 1}" for number in range(options.repeat) for name in options.models.split(",")]
    missing = [name for name in wanted if name not in rows]
    began = time.monotonic()
    for names in (missing[start : start + options.together] for start in range(0, len(missing), options.together)):
        if time.monotonic() - began > options.seconds:
            break
        for name, row in zip(names, together(names, options), strict=True):
            rows[name] = row
            print(line(name, row), flush=True)
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    print(summary(rows, len(wanted)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--mode", help="a mode of torch.compile, such as reduce-overhead")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="cuda where there is one, unless this says cpu")
    parser.add_argument("--cores", type=int, help="run on so many cores only, with as many threads")
    parser.add_argument("--max-time", type=float, default=10.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--together", type=int, default=1, help="models that are compiled at the same time; each is timed alone")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further model after so many seconds")
    parser.add_argument("--continue", action="store_true", dest="go_on")
    parser.add_argument("--json", type=Path, default=Path("prices_study.json"))
    return parser.parse_args()


def together(names: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """So many models: compiled at the same time, then timed and priced one after the other."""
    turns = Turns(len(names))
    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(lambda name: study(name.partition(" ")[0], options, turns), names))


def study(name: str, options: argparse.Namespace, turns: Turns) -> dict[str, Any]:
    """Before, after and the prices of one model."""
    target = f"{HERE / 'price_models.py'}:call"
    overrides = {} if options.backend == "inductor" else {"backend": options.backend}
    overrides |= {"mode": options.mode} if options.mode else {}
    environment = {"DYNADIAG_DEVICE": options.device} if options.device else {}
    environment |= {"OMP_NUM_THREADS": str(options.cores)} if options.cores else {}
    broken, fixed = (
        ArmSpec(
            name=state,
            kind=COMPILED,
            target=target,
            overrides=overrides,
            environment={**environment, "DYNADIAG_PLANTED": f"{name}:{state}"},
        )
        for state in ("broken", "fixed")
    )
    budget = Budget(min_rounds=ROUNDS, max_s=options.max_time)
    with turns.party() as turn:
        result = Session(
            [broken, fixed], BenchOptions(budget=budget, prices=True, prepare_together=options.together > 1), turn=turn
        ).run_benchmark()
    before, after = result.arms
    prices = next((one for one in result.prices or () if one["arm"] == "broken"), {"why_not": before.reason or "it could not be timed"})
    row: dict[str, Any] = {"model": name, "overrides": overrides, "environment": result.environment, "load": os.getloadavg()[0]}
    row |= {"before_ms": before.median_ms, "after_ms": after.median_ms, "rounds": result.rounds, "prices": prices}
    row["noise_ci95"] = next(([one.decision.noise.low, one.decision.noise.high] for one in result.comparisons if one.decision), None)
    row |= {"breaks": [before.breaks, after.breaks], "results": [check.status for check in result.correctness]}
    if prices["why_not"] or not prices.get("sum") or not before.samples_ms or not after.samples_ms:
        return row
    gain = median_interval([one - other for one, other in zip(before.samples_ms, after.samples_ms, strict=True)])
    total = prices["sum"]["ms"]
    near = abs(total - gain.estimate) <= NEAR * abs(gain.estimate)
    inside = gain.low <= total <= gain.high
    row |= {"gain_ms": gain.estimate, "gain_ci95_ms": [gain.low, gain.high], "sum_ms": total, "near": near, "inside": inside}
    return row | {"counts": gain.estimate > SMALLEST_SHARE * (before.median_ms or 0.0), "adds_up": near or inside}


def line(name: str, row: dict[str, Any]) -> str:
    """One model in one line."""
    if "gain_ms" not in row:
        return f"{name}: no prices: {row['prices']['why_not'] or 'no break was measured'}"
    gain = f"before {row['before_ms']:.4f} ms, less after {row['gain_ms']:.4f} [{row['gain_ci95_ms'][0]:.4f}, {row['gain_ci95_ms'][1]:.4f}]"
    parts = ", ".join("no price" if one["ms"] is None else f"{one['ms']:.4f}" for one in row["prices"]["breaks"])
    left = f"unexplained {row['prices']['unexplained']['ms']:.4f}, total {row['prices']['total']['ms']:.4f}"
    off = f"{row['sum_ms'] / row['gain_ms'] - 1:+.0%}" if row["gain_ms"] else "-"
    verdict = ("within 15 %" if row["near"] else "inside the interval") if row["adds_up"] else "does not add up"
    return f"{name}: {gain}; prices {parts}, sum {row['sum_ms']:.4f} ({off}), {left}; {verdict if row['counts'] else 'too little to judge'}"


def summary(rows: dict[str, Any], wanted: int) -> str:
    """How many sums are within 15 % of before - after, or inside its interval, of those that count."""
    judged = [row for row in rows.values() if row.get("counts")]
    near, inside, either = (sum(row[key] for row in judged) for key in ("near", "inside", "adds_up"))
    small = sum(not row["counts"] for row in rows.values() if "counts" in row)
    return (
        f"{either} of {len(judged)} add up: {near} within 15 %, {inside} inside the interval; {small} differ by too little, "
        f"{sum('counts' not in row for row in rows.values())} have no prices, {max(0, wanted - len(rows))} are still to run"
    )


if __name__ == "__main__":
    main()
