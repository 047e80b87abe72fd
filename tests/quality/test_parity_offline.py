"""The offline replay against known truth: every function that is wrong on some call is found, and no other one is warned of."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("parity_program.py")
# A loaded machine must not end a scenario.
LIMITS = ("--timeout", "900", "--budget", "3000")
SHARING = {"DM30", "DM31"}  # which of them depends on the torch: 2.11 raises where 2.15 is wrong
TRUTH = {
    "overlap": SHARING,  # pytorch#139789
    "swap": SHARING,
    "alias_not_declared": {"DM34"},
    "write_not_declared": {"DM34"},
    "cached": {*SHARING, "DM33"},
}


@pytest.mark.slow
def test_what_is_found_is_the_truth(tmp_path):
    inductor = ["--inductor"] if shutil.which("g++") or shutil.which("clang++") else []
    command = [sys.executable, "-m", "dynadiag", "parity", "--out", tmp_path / "run", *LIMITS, "--load", PROGRAM, PROGRAM, *inductor]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    result = json.loads((tmp_path / "run" / "parity.json").read_text())
    functions = {graph["graph"]: graph["function"] for graph in result["graphs"]}
    found: dict[str, set[str]] = {}
    for finding in result["findings"]:
        found.setdefault(functions[finding["graph"]], set()).add(finding["code"])
    print(f"{len(found)} of {len(TRUTH)} wrong functions found; {result['summary']['compared']} of {len(functions)} graphs compared")
    assert found.keys() == {name for name in TRUTH if inductor or name != "cached"}
    assert all(codes <= TRUTH[name] for name, codes in found.items())
    assert found["overlap"] == SHARING
    assert "DM33" in found.get("cached", {"DM33"})
    assert result["summary"]["compared"] == len(functions)
