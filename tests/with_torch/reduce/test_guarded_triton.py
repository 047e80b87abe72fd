"""What compilers keep is no write of a candidate: Triton's cache, in the home directory unless told otherwise, and inductor's headers."""

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


WITH_INDUCTOR = """
import os, tempfile
os.environ["TMPDIR"] = os.getcwd() + "/of-all"
os.mkdir("of-all")
import torch._inductor.codecache
os.environ["TMPDIR"] = os.getcwd() + "/own"
os.makedirs("own/empty")
os.chdir("own/empty")
tempfile.tempdir = None
"""
HEADERS = """
import os
import torch._inductor.codecache

os.makedirs(torch._inductor.codecache._HEADER_LOCK_DIR, exist_ok=True)
print(torch._inductor.codecache._HEADER_LOCK_DIR)
"""


def test_precompiled_headers_of_all_candidates_may_be_written(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITH_INDUCTOR + RUN], input=HEADERS, capture_output=True, text=True, cwd=tmp_path, timeout=1500, check=True
    )
    stored, told = done.stdout.splitlines()[-2:]
    assert json.loads(told).get("ended") is True, told
    assert stored.startswith(str(tmp_path / "of-all"))
