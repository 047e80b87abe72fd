"""How small `dynadiag minify SCRIPT` gets a script, in how many questions: bounds, so that neither grows unseen."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

SCRIPT = """
import torch
from training import layers


def main():
    compiled = torch.compile(layers, backend="eager")
    for step in range(3):
        compiled(torch.randn(8, 16))


if __name__ == "__main__":
    main()
"""
# In a module beside the script: the file must stand alone.
MODULE = """
import torch


def layers(x):
    x = torch.relu(x)
    print("a first break")
    if x.mean() > 0:
        x = x + 1
    return x.sum()
"""
# They are the same in every run (torch 2.15), whatever the hashes of strings are.
MOST_STATEMENTS, MOST_QUERIES = 5, 90


@pytest.mark.slow
def test_a_break_chosen_by_its_text_ends_as_a_small_proven_file_in_few_questions(tmp_path):
    (tmp_path / "training.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT)
    verb = [sys.executable, "-c", "from dynadiag_cli.main import main; main()", "minify", "--out", "out"]
    command = [*verb, "--kind", "graph_break", "--match", "GB0170", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str((tmp_path / "out" / "repro_min.py").resolve())]
    result = json.loads((tmp_path / "out" / "minify.json").read_text())
    assert (result["kind"], result["level"], result["guilty"]["layer"]) == ("graph_break", "script", "dynamo")
    assert result["signature"]["message"].startswith("GB0170 ") and result["proven"] == {"runs": 3, "reproduced": 3}
    source = (tmp_path / "out" / "repro_min.py").read_text()
    assert result["complete"] and result["size_before"]["statements"] == 13
    assert result["size_after"]["statements"] <= MOST_STATEMENTS, source
    assert sum(result["queries"].values()) <= MOST_QUERIES
    assert "dynadiag" not in source and "a first break" not in source and "assert not breaks" in source and "relu" not in source
    assert "Traceback" not in done.stderr and "proven: it failed in the same way in 3 of 3" in done.stderr
    assert (tmp_path / "out" / "report.md").stat().st_size > 0
