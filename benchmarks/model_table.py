"""The model table: ten models, inference and training, eager beside default and reduce-overhead, with geometric means.

python benchmarks/model_table.py [--models resnet18,bert,...] [--kinds infer] [--continue] [--json FILE] [--markdown docs/model_table.md]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from table_models import IMAGE_MODELS
from table_rows import Rows, arm, markdown

from dynadiag.bench.statistics import geometric_mean

MODELS = (*IMAGE_MODELS[:-1], "bert", IMAGE_MODELS[-1])
MODES = ("default", "reduce-overhead")
TEXT = (
    "Random weights, synthetic data, TF32 on; images 224 x 224. Training is forward, backward and SGD in train mode without dropout. "
    "Made by `python benchmarks/model_table.py`. Several rows were compiled at the same time, so the cold seconds are those of a busy "
    "machine; they were timed one after the other, while the processes of the others waited. Where the GPU is busy for less than half of "
    "the time, the CPU decides, and on a shared host its A/A interval is wide: read it before the speed-up."
)


def main() -> None:
    """Measure what is missing and write the page with its geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--kinds", default="infer,train")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--continue", action="store_true", dest="go_on")
    parser.add_argument("--max-time", type=float, default=5.0)
    parser.add_argument("--together", type=int, default=1, help="rows that are compiled at the same time")
    parser.add_argument("--json", type=Path, default=Path("model_table.json"))
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rows = Rows(options.json, go_on=options.go_on)
    wanted = {}
    for kind in options.kinds.split(","):
        for model in filter(None, options.models.split(",")):
            what = f"{model}:{kind}:{options.precision}:{options.batch_size}:x"
            arms = [arm("eager", what, eager=True), arm("default", what), arm("reduce-overhead", what, mode="reduce-overhead")]
            wanted[f"{model}, {kind}"] = arms
    rows.run(wanted, max_s=options.max_time, together=options.together)
    summary = "\n".join(means(rows.rows))
    print(summary)
    if options.markdown:
        options.markdown.write_text(markdown(rows.rows, "Ten models", f"{TEXT}\n\n{summary}"), "utf-8")


def means(rows: Mapping[str, Any]) -> list[str]:
    """Geometric means of the speed-ups, nothing clipped; what has no speed-up, or no right result, is named and left out."""
    lines = []
    for kind in ("infer", "train"):
        for mode in MODES:
            ratios, left_out = {}, []
            for name, row in rows.items():
                if name.endswith(f", {kind}"):
                    item = next(item for item in row["comparisons"] if item["arm"] == mode)
                    right = item["speedup"] is not None and item["verdict"] not in ("WRONG", "VACUOUS") and not unsure(row, mode)
                    if right:
                        ratios[name] = item["speedup"]
                    else:
                        left_out.append(f"{name.partition(',')[0]} ({item['verdict']}: {item['reason'][:100]})")
            if ratios:
                names = f"; left out: {', '.join(left_out)}" if left_out else ""
                lines.append(f"* {kind}, {mode}: geometric mean {geometric_mean(ratios.values()):.3f} of {len(ratios)} models{names}")
    return lines


def unsure(row: Mapping[str, Any], mode: str) -> bool:
    """Whether eager does not agree with itself, so that the results could not be checked."""
    return any(item["status"] != "PASS" for item in row["correctness"] if item["arm"] in ("eager", mode))


if __name__ == "__main__":
    main()
