"""What `--cost` says of breaks, beside what a call gains when they are removed by hand: `python compare.py OUT [NAME ...]`.

Each program of `programs.py` and `held_out.py` runs by itself. With `--warm` all of them run at once before, for Inductor's caches.
"""
# ruff: noqa: D103

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
START = "from dynadiag_cli.main import main; main()"


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "cli"), os.environ.get("PYTHONPATH", "")))}


def names_of(file):
    """The names in the file's table of programs."""
    table = (HERE / file).read_text().rpartition("\nPROGRAMS = {" if file == "programs.py" else "\nHELD_OUT = {")[2].partition("\n}")[0]
    return re.findall(r"(?m)^ +(?:\"\w+\": )?\((\w+), \(", table)


def breaks_of(file):
    """Lines that are marked, by name; a name may be on several lines of several programs."""
    lines = (HERE / file).read_text().splitlines()
    return {number: line.split("# break: ")[1] for number, line in enumerate(lines, 1) if "# break: " in line}


def compared(file, name, out, more):
    """One row for each break that the program says it has."""
    run = out / name
    command = [sys.executable, "-c", START, "explain", "--cost", "--no-pictures", "--out", str(run), "--format", "json"]
    command += ["-o", str(out / f"{name}.json"), str(HERE / file), name, "--gains", *more]
    began = time.monotonic()
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    (out / f"{name}.txt").write_text(ran.stdout + ran.stderr)
    gains_by_hand = next((json.loads(line) for line in (ran.stdout + ran.stderr).splitlines() if line.startswith('{"program"')), None)
    if gains_by_hand is None:
        print(f"{name}: no gains, exit status {ran.returncode}: {ran.stderr[-300:]}", flush=True)
        return
    report = json.loads((out / f"{name}.json").read_text())
    marked, call_ms = breaks_of(file), gains_by_hand["call_ms"]
    for label, quartiles in gains_by_hand["gains"].items():
        costs = [
            finding["cost"]
            for finding in report["findings"]
            if finding["where"] and marked.get(finding["where"]["line"]) == label and (finding["cost"] or {}).get("unit") == "ms per call"
        ]
        print(f"{name:13} {label:11} {judged(costs[0] if costs else None, quartiles)}; a call {call_ms} ms", flush=True)
    print(f"    {time.monotonic() - began:.0f} s", flush=True)


def judged(cost, quartiles):
    """The predicted interval beside the quartiles of what was gained."""
    if cost is None:
        return f"no cost; by hand {quartiles}"
    low, high, truth = cost.get("low"), cost.get("high"), max(0.0, quartiles[1])
    if low is None or high is None:
        return f"{cost['value']} ms, by hand {quartiles}: {cost['remark']}"
    holds = "holds" if low <= truth <= high else "MISSES"
    half = f"{(high - low) / 2 / truth:.0%} of it" if truth else "of nothing"
    return f"{low:.3f} to {high:.3f}, by hand {quartiles}: {holds}, half-width {half}; {cost['remark']}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--file", default="held_out.py")
    parser.add_argument("--warm", action="store_true")
    given, more = parser.parse_known_args()
    given.out.mkdir(parents=True, exist_ok=True)
    names = given.names or names_of(given.file)
    if given.warm:
        begun = []
        for name in names:
            command = [sys.executable, str(HERE / given.file), name, "--gains", "--rounds", "2", "--seconds", "0"]
            begun.append(subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        print("warm:", dict(zip(names, [one.wait() for one in begun], strict=True)), flush=True)
        return
    for name in names:
        compared(given.file, name, given.out, more)


if __name__ == "__main__":
    main()
