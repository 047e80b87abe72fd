"""What `dynadiag start` costs on two large logs, against `explain` of both: `python benchmarks/start_logs.py LOG_A LOG_B [--mb 60]`.

Each log is made of whole copies of a real one, under new process ids; CPU seconds of whole processes, in turns.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.trace_reader import OURS, build_log, measure


def main() -> None:
    """Print the seconds of each, and their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("logs", nargs=2, type=Path)
    parser.add_argument("--mb", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        made = []
        for side, source in zip("ab", options.logs, strict=True):
            folder = Path(name, side)
            folder.mkdir()
            log = folder / "dedicated_log_torch_trace_big.log"
            size = build_log(log, [source], megabytes=options.mb)
            print(f"{side}: {size / 1e6:.0f} MB")
            made.append(str(log))
        start = [*OURS, "start", "--format", "json", "-o", f"{name}/start.json", *made]
        explain, compared = 0.0, 0.0
        for _ in range(options.repeats):
            explain += sum(measure([*OURS, "explain", "--format", "json", "-o", f"{name}/report.json", log]).cpu_s for log in made)
            compared += measure(["sh", "-c", '"$@" || [ $? = 1 ]', "sh", *start]).cpu_s
        explain, compared = explain / options.repeats, compared / options.repeats
        print(f"explain of both {explain:.1f} s CPU, start {compared:.1f} s: {compared / explain:.2f} times")


if __name__ == "__main__":
    main()
