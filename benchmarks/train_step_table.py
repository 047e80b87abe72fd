"""The train-step table: BERT-base MLM with AdamW, sequence 128, compiled in each of the ways that people try.

    python benchmarks/train_step_table.py [--settings tf32:16,fp16:8,...] [--continue] [--json FILE] [--markdown docs/train_step_table.md]

Without a CUDA device, DYNADIAG_TINY=1 makes the model small enough to try the script.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from table_rows import Rows, arm, markdown

SETTINGS = "tf32:16,fp16:8,fp32:16,fp16:16,tf32:8,fp32:8"
VARIANTS = ("optimize_model", "optimize_forward", "train_step", "reduce_overhead", "model_plus_optimizer")
DYNAMIC = ("dynamic", "dynamic_optimized")
TEXT = (
    "BERT-base for masked language modelling (random weights, no dropout), AdamW, sequence 128; fp16 is autocast without a loss scale. "
    "`dynamic` arms run five steps of lengths 128, 96, 64, 112 and 80 per call. Made by `python benchmarks/train_step_table.py`. "
    "The arms of a row were compiled at the same time, so the cold seconds are those of a busy machine. Where the GPU is busy for "
    "less than half of the time, the CPU decides, and on a shared host its A/A interval is wide: read it before the speed-up."
)


def main() -> None:
    """Measure what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", default=SETTINGS)
    parser.add_argument("--dynamic", default="tf32:16", help="settings of which the dynamic variants are measured as well")
    parser.add_argument("--continue", action="store_true", dest="go_on")
    parser.add_argument("--max-time", type=float, default=8.0)
    parser.add_argument("--together", type=int, default=1, help="rows that are compiled at the same time")
    parser.add_argument("--json", type=Path, default=Path("train_step_table.json"))
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rows = Rows(options.json, go_on=options.go_on)
    wanted = {}
    for setting in filter(None, options.settings.split(",")):
        precision, batch = setting.split(":")
        what = f"bert:train:{precision}:{batch}"
        arms = [arm("base", f"{what}:base", eager=True), *(arm(variant, f"{what}:{variant}") for variant in VARIANTS)]
        wanted[f"batch {batch}, {precision}"] = arms
        if setting in options.dynamic.split(","):
            arms = [arm("base", f"{what}:dynamic_base", eager=True), *(arm(variant, f"{what}:{variant}") for variant in DYNAMIC)]
            wanted[f"batch {batch}, {precision}, five lengths"] = arms
    rows.run(wanted, max_s=options.max_time, together=options.together)
    if options.markdown:
        options.markdown.write_text(markdown(rows.rows, "Train steps of BERT", TEXT), "utf-8")


if __name__ == "__main__":
    main()
