"""How much of what makes torch.compile slow `dynadiag fix` cures on whole programs, by torch's own counters.

    nice -n 15 .venv/bin/python benchmarks/cures.py FOLDER --out OUT [PROGRAM ...]

Each `NAME.py` of the folder (not `NAME_expert.py`) is copied, recorded and fixed; then the original and the patched program run plainly, in
fresh processes that only ask torch for its counters when they end. `expected.json` of the folder may name the causes (`line`): a cause
counts as cured where a proven change has its line in a finding that is gone. Prints a row for each program and the sums.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

COUNT = """
import atexit, json, logging, os, runpy, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))
import torch
from torch._dynamo import utils
limits = []
class Limits(logging.Handler):
    def emit(self, record):
        if "recompile_limit" in str(record.msg):
            limits.append(1)
logging.getLogger("torch._dynamo.convert_frame").addHandler(Limits())
utils.set_compilation_metrics_limit(100000)
def tell():
    metrics = utils.get_compilation_metrics()
    frames = [each for each in metrics if getattr(each, "co_name", None)]
    counts = {
        "graphs": utils.counters["stats"]["unique_graphs"],
        "operators": sum(each.graph_op_count or 0 for each in frames),
        "breaks": sum(utils.counters["graph_break"].values()),
        "recompiles": sum(bool(each.recompile_reason) for each in frames),
        "limits": len(limits),
    }
    with open(os.environ["DYNADIAG_COUNTS"], "w") as file:
        json.dump(counts, file)
atexit.register(tell)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
NAMES = ("graphs", "operators", "breaks", "recompiles", "limits")


def counted(script: Path, out: Path) -> tuple[dict[str, int], str, int]:
    """Torch's counters of a plain run, what it prints, and how it ends."""
    environment = {**os.environ, "DYNADIAG_COUNTS": str(out), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", COUNT, str(script)], capture_output=True, text=True, env=environment, cwd=script.parent)
    counts = json.loads(out.read_text()) if out.exists() else dict.fromkeys(NAMES, 0)
    return counts, done.stdout, done.returncode


def cured_lines(result: dict[str, Any]) -> set[int]:
    """The lines of the user's file at which a finding is gone."""
    return {item["where"]["line"] for item in result["findings"] if item["cured"] and item["where"]}


def measured(script: Path, folder: Path, causes: list[dict[str, Any]]) -> dict[str, Any]:
    """One program, fixed and counted before and after."""
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / script.name
    own.write_text(script.read_text())
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from dynadiag_cli.main import main; main()", "fix", "--out", "run", "--force", script.name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    (folder / "fix.txt").write_text(done.stdout + done.stderr)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    before, printed, status = counted(own, folder / "before.json")
    found = folder / "run/fix.json"
    result = json.loads(found.read_text()) if found.exists() else {"findings": [], "changes": []}
    patched = folder / "run/fixed" / script.name
    after, now, status_now = counted(patched, folder / "after.json") if patched.exists() else (before, printed, status)
    lines = cured_lines(result)
    return {
        "program": script.stem,
        "before": before,
        "after": after,
        "status": [status, status_now],
        "same_output": printed == now,
        "kept": [change["slug"] for change in result["changes"] if change["proven"]],
        "findings": len(result["findings"]),
        "left": sum(not item["cured"] for item in result["findings"]),
        "cured": [cause["line"] for cause in causes if cause["line"] in lines],
        "causes": len(causes),
        "cpu_s": round(ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime, 1),
    }


def row_of(row: dict[str, Any]) -> str:
    """A line for people."""
    counts = ", ".join(f"{name} {row['before'][name]} -> {row['after'][name]}" for name in NAMES)
    printed = "same output" if row["same_output"] else f"OTHER OUTPUT (exit status {row['status']})"
    cured = f"causes {len(row['cured'])}/{row['causes']}, " if row["causes"] else ""
    kept = ", ".join(row["kept"]) or "nothing kept"
    return f"{row['program']}: {cured}findings left {row['left']}/{row['findings']}, {counts}; {printed}; {row['cpu_s']} CPU s; {kept}"


def main() -> None:
    """Measure the programs of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    named = given.folder / "expected.json"
    expected = json.loads(named.read_text()) if named.exists() else {}
    rows = []
    for script in sorted(given.folder.glob("*.py")):
        if script.stem.endswith("_expert") or (given.programs and script.stem not in given.programs):
            continue
        rows.append(measured(script.resolve(), given.out.resolve() / script.stem, expected.get(script.stem, {}).get("causes", [])))
        print(row_of(rows[-1]), flush=True)
    sums = {name: [sum(row[when][name] for row in rows) for when in ("before", "after")] for name in NAMES}
    causes = [sum(len(row["cured"]) for row in rows), sum(row["causes"] for row in rows)]
    print(
        f"{len(rows)} programs: causes {causes[0]}/{causes[1]}, " + ", ".join(f"{name} {was} -> {now}" for name, (was, now) in sums.items())
    )
    (given.out / "cures.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
