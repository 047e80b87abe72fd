"""`dynadiag fix` from the command line: a script, a module of it and a package are recorded, proven and patched in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import torch._dynamo  # noqa: F401 - before the forks, which need it

from dynadiag.fix import session, worker
from dynadiag.fix.baseline import baseline_of
from dynadiag.fix.inside.running import RunJob
from dynadiag.fix.proof import NotProvableError, Prover
from dynadiag.fix.runs import Runner, report_on

ROOT = Path(__file__).parents[3]
PACKAGES = Path("env") / "site-packages"
SCRIPT = """import sys

import library
import torch

from . import helper

torch.manual_seed(0)
compiled = torch.compile(helper.step, backend="aot_eager")
model = torch.compile(torch.nn.Sequential(library.Block(), torch.nn.Linear(3, 3)), backend="aot_eager")
for number in range(int(sys.argv[1])):
    x = torch.randn(6) + (1 if number % 2 else -1)
    print(number, f"{compiled(x).sum().item():.5f}")
    rows = torch.randn(2, 3)
    if number == 2:
        rows[0, 0] = float("inf")
    print(f"{model(rows)[1].sum().item():.4f}")
"""
HELPER = """import torch


def step(x):
    y = x * 2
    if y.sum() > 0:  # which way
        y = y + 1
    s = y.mean().item()
    return y * s
"""
LIBRARY = '''import functools
import logging
import warnings

import torch


@functools.lru_cache(None)
def warning_once(self, *words):
    self.warning(*words)


logging.Logger.warning_once = warning_once
logger = logging.getLogger(__name__)


class Block(torch.nn.Module):
    def forward(self, x):
        """Says what is old."""
        logger.warning_once(
            "this is "
            "old"
        )
        warnings.warn(
            "it will go", FutureWarning
        )
        if torch.isinf(x).any() or torch.isnan(x).any():
            high = torch.finfo(x.dtype).max - 1000
            x = torch.clamp(x, min=-high, max=high)
        return x * 2
'''
# As an editor on another system leaves it: a mark, tabs, other line ends.
WRITTEN = ("\ufeff" + HELPER.replace("    ", "\t").replace("\n", "\r\n")).encode()


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder / PACKAGES, ROOT, ROOT / "cli")))}
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, env=environment, timeout=600)


def dynadiag(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "dynadiag", *words)


@pytest.mark.slow
def test_a_module_of_the_script_and_a_package_are_patched_and_do_the_same(tmp_path):
    """The script is a module of a package, run with -m; its run directory could be asked once more, until the patch is applied."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text(SCRIPT + "open('results.csv', 'a').write(f'{x.sum():.4f}')\n")
    (tmp_path / "job" / "helper.py").write_bytes(WRITTEN)
    (tmp_path / PACKAGES).mkdir(parents=True)
    (tmp_path / PACKAGES / "library.py").write_text(LIBRARY)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    done = dynadiag(tmp_path, "fix", "--out", "run", "-m", "job.train", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "job" / "helper.py").read_bytes() == WRITTEN
    assert not (tmp_path / "results.csv").exists() and not (tmp_path / "job" / "__pycache__").exists()
    assert "not kept: what the runs wrote (results.csv)" in done.stderr
    told = json.loads((tmp_path / "run" / "fix.json").read_text())
    jsonschema.validate(told, json.loads((ROOT / "docs" / "fix.schema.json").read_text()))
    assert told["after"]["graph_break_sites"] == 0 < told["before"]["graph_break_sites"]
    proven = {one["slug"] for one in told["changes"] if one["proven"]}
    assert proven == {"if-where", "item-keep-tensor", "log-while-tracing", "warn-while-tracing", "branch-select"}
    notes: list[str] = []
    session._known(baseline_of(tmp_path / "run"), report_on(tmp_path / "run"), notes.append)
    assert notes == ["resuming the earlier search"]  # and not that something has changed: test_search.py then goes on with it
    subprocess.run(["git", "apply", "run/fixes.patch"], cwd=tmp_path, check=True)
    fixed = (tmp_path / "job" / "helper.py").read_bytes()
    assert fixed == (tmp_path / "run" / "fixed" / "job" / "helper.py").read_bytes() != WRITTEN
    assert fixed.startswith(WRITTEN[: WRITTEN.index(b"if y")]) and fixed.endswith(b"\r\n\treturn y * s\r\n")
    assert b"\t# which way\r\n\ty = torch.where(" in fixed
    assert (tmp_path / "job" / "train.py").read_text().startswith("import dynadiag_patches")
    assert (tmp_path / PACKAGES / "library.py").read_text() == LIBRARY
    after = python(tmp_path, "-m", "job.train", "4")
    assert after.stdout and done.stdout.startswith(after.stdout)  # the first run of `fix` prints what the script prints
    assert set(after.stderr.splitlines()) <= set(done.stderr.splitlines())
    assert [after.stderr.count(words) for words in ("this is old", "library.py:24: FutureWarning: it will go")] == [1, 1]
    again = dynadiag(tmp_path, "fix", "--diff", "run")
    assert again.returncode == 2 and "helper.py is no longer as it was recorded" in again.stderr


@pytest.mark.parametrize(("cap_bytes", "compared"), [(10_000_000, 3), (1_000_000, 0)])
def test_fewer_calls_are_compared_where_copies_of_all_take_too_much(tmp_path, cap_bytes, compared):
    """Each call reads one megabyte and gives another one; weights that no call changes are kept once."""
    (tmp_path / "train.py").write_text(
        "import torch\nw = torch.ones(262_144)\ncompiled = torch.compile(lambda x: x * 2 + w, backend='eager')\n"
        "for number in range(6):\n    compiled(torch.randn(262_144))\n"
    )
    job = RunJob(script=str(tmp_path / "train.py"), arguments=[], folder=str(tmp_path), output=str(tmp_path), cap_bytes=cap_bytes)
    prover = Prover(runner=Runner(tmp_path, job, worker.answer, timeout_s=60), originals={}, backend="eager")
    if compared:
        prover.refer([])
        assert list(prover.calls.values()) == [compared]
    else:
        with pytest.raises(NotProvableError, match=r"takes more than 0\.0 GiB"):
            prover.refer([])


def test_a_run_of_a_script_that_used_a_device_other_than_cuda_is_not_forked(tmp_path):
    """It says what a forked one says, and how its process ended where it crashed."""
    (tmp_path / "train.py").write_text("import os, sys\nprint(os.getppid(), 'torch' in sys.modules)\nsys.exit(int(sys.argv[1]))\n")
    (tmp_path / "crash.py").write_text("import os\nos.abort()\n")
    job = RunJob(script=str(tmp_path / "train.py"), arguments=["3"], folder=str(tmp_path), output=str(tmp_path))
    told = {alone: worker.forked({"job": job.to_json(), "timeout_s": 60, "on_device": alone}) for alone in (False, True)}
    assert [(one["ended"], one["exit_status"]) for one in told.values()] == [(True, 3)] * 2
    printed = (tmp_path / "stdout").read_text().split()
    assert printed[1] == "False" and printed[0] != str(os.getpid())
    (tmp_path / "2").mkdir()
    job = replace(job, script=str(tmp_path / "crash.py"), output=str(tmp_path / "2"))
    told = worker.forked({"job": job.to_json(), "timeout_s": 60, "on_device": True})
    assert not told["ended"] and "exit status -6" in told["why"]


@pytest.mark.parametrize("text", ["print(sys.stdin.readline())", "print(list(sys.stdin))", "input()", "print(sys.stdin.buffer.read())"])
def test_a_run_knows_that_it_was_asked_for_input(tmp_path, text):
    job = RunJob(script=str(tmp_path / "train.py"), arguments=[], folder=str(tmp_path), output=str(tmp_path))
    (tmp_path / "train.py").write_text("print(1)\n")
    assert worker.forked({"job": job.to_json(), "timeout_s": 60})["read_stdin"] is False
    (tmp_path / "train.py").write_text(f"import sys\n{text}\n")
    assert worker.forked({"job": job.to_json(), "timeout_s": 60})["read_stdin"] is True


@pytest.mark.parametrize(("gpu", "forked"), [(False, True), (True, False)])
def test_a_process_that_has_lost_a_gpu_makes_runs_alone_only_where_there_is_one(tmp_path, monkeypatch, gpu, forked):
    """A warm-up without a GPU loses it too (seen on torch 2.15): each run of a proof then took a fresh process."""
    monkeypatch.setattr(worker, "cuda_is_lost", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    (tmp_path / "train.py").write_text("import sys\nprint('torch' in sys.modules)\n")
    job = RunJob(script=str(tmp_path / "train.py"), arguments=[], folder=str(tmp_path), output=str(tmp_path))
    assert worker.forked({"job": job.to_json(), "timeout_s": 60})["ended"]
    assert (tmp_path / "stdout").read_text().split() == [str(forked)]


def test_a_script_that_compiles_nothing_has_nothing_to_fix(tmp_path):
    (tmp_path / "train.py").write_text("print(1)\n")
    done = dynadiag(tmp_path, "fix", "--out", "run", "train.py")
    assert done.returncode == 5 and "nothing was compiled" in done.stderr
    assert done.stdout == "1\n"
