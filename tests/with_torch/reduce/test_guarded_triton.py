"""Triton's cache is no write outside of a candidate's folder: it makes one in the home directory unless it is told otherwise."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

RUN = """
import json, sys
from dynadiag.reduce.scripts.running import RunOptions, run_program

told = {}
run_program(sys.stdin.read(), RunOptions(), told.update)
print(json.dumps(told))
"""
PROGRAM = """
from triton.runtime.cache import get_cache_manager

print(get_cache_manager("ab12").put(b"x", "stub.so"))
"""


def test_what_triton_keeps_is_in_the_folder_of_the_candidate(tmp_path):
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=PROGRAM, capture_output=True, text=True, cwd=tmp_path, timeout=1500, check=True
    )
    stored, told = done.stdout.splitlines()[-2:]
    assert json.loads(told).get("ended") is True, told
    assert stored.startswith(str(tmp_path))
