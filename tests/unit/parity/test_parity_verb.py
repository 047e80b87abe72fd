"""`dynadiag parity SCRIPT`: a script that fails before anything is compiled is told from one that compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("raise ValueError('no data')", 1, "exit status 1 (ValueError: no data) before anything was compiled, so nothing was compared"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", 1, "was killed by SIGSEGV before anything was compiled"),
        ("raise ModuleNotFoundError(\"No module named 'torch'\")", 3, "has no torch, so nothing was compared"),
        ("print(1)", 5, "there is nothing to compare"),
    ],
)  # fmt: skip
def test_a_script_that_compiles_nothing_is_told_from_one_that_fails(tmp_path, text, status, said):
    (tmp_path / "train.py").write_text(f"{text}\n")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"}
    command = [sys.executable, "-m", "dynadiag", "parity", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == status and said in done.stderr.splitlines()[-1]
