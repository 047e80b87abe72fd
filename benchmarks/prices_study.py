"""Do the prices of graph breaks add up? On six models with planted breaks, beside the same models without them.

    python benchmarks/prices_study.py [--models mlp,...] [--backend inductor] [--max-time 10] [--repeat 1] [--json FILE]

For each: before is the broken model, after the fixed one, in processes that take turns; the prices come from the broken one alone.
Where before - after exceeds 5 % of the step, the sum of the prices should be within 15 % of it or inside its interval.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dynadiag.bench.arms import COMPILED, ArmSpec
from dynadiag.bench.round_loop import BenchOptions
from dynadiag.bench.rounds import Budget
from dynadiag.bench.session import Session
from dynadiag.bench.statistics import median_interval

HERE = Path(__file__).resolve().parent
MODELS = ("mlp", "mlp_inference", "residual", "attention", "convolution", "recurrent")
SMALLEST_SHARE, NEAR = 0.05, 0.15


def main() -> None:
    """Run the models and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--max-time", type=float, default=10.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.models.split(",") * options.repeat:
        row = study(name, options.backend, options.max_time)
        rows.append(row)
        print(line(row), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    judged = [row for row in rows if row.get("counts")]
    added = sum(row["adds_up"] for row in judged)
    print(f"{added} of {len(judged)} add up; {len(rows) - len(judged)} of {len(rows)} differ by too little or have no prices")


def study(name: str, backend: str, max_s: float) -> dict[str, Any]:
    """Before, after and the prices of one model."""
    target = f"{HERE / 'price_models.py'}:call"
    overrides = {} if backend == "inductor" else {"backend": backend}
    broken, fixed = (
        ArmSpec(name=state, kind=COMPILED, target=target, overrides=overrides, environment={"DYNADIAG_PLANTED": f"{name}:{state}"})
        for state in ("broken", "fixed")
    )
    result = Session([broken, fixed], BenchOptions(budget=Budget(max_s=max_s), prices=True)).run()
    before, after = result.arms
    prices = next((one for one in result.prices or () if one["arm"] == "broken"), {"why_not": before.reason})
    row: dict[str, Any] = {"model": name, "backend": backend, "before_ms": before.median_ms, "after_ms": after.median_ms, "prices": prices}
    if prices["why_not"] or not prices.get("sum") or not before.samples_ms or not after.samples_ms:
        return row
    gain = median_interval([one - other for one, other in zip(before.samples_ms, after.samples_ms, strict=True)])
    total = prices["sum"]["ms"]
    near = abs(total - gain.estimate) <= NEAR * abs(gain.estimate)
    inside = gain.low <= total <= gain.high
    row |= {"gain_ms": gain.estimate, "gain_ci95_ms": [gain.low, gain.high], "sum_ms": total, "near": near, "inside": inside}
    return row | {"counts": gain.estimate > SMALLEST_SHARE * (before.median_ms or 0.0), "adds_up": near or inside}


def line(row: dict[str, Any]) -> str:
    """One model in one line."""
    if "gain_ms" not in row:
        return f"{row['model']}: no prices: {row['prices']['why_not']}"
    gain = f"before {row['before_ms']:.3f} ms, less after {row['gain_ms']:.3f} [{row['gain_ci95_ms'][0]:.3f}, {row['gain_ci95_ms'][1]:.3f}]"
    parts = ", ".join("no price" if one["ms"] is None else f"{one['ms']:.3f}" for one in row["prices"]["breaks"])
    verdict = "adds up" if row["adds_up"] else "does not add up"
    return f"{row['model']}: {gain}; prices {parts}, sum {row['sum_ms']:.3f}; {verdict if row['counts'] else 'too little to judge'}"


if __name__ == "__main__":
    main()
