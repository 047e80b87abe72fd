"""A program has the same fingerprints from wherever it is started, recorded as `explain` does and as a proof of `fix` does."""

from __future__ import annotations

import os
import runpy
import sys

import pytest
import torch._dynamo  # noqa: F401 - before the forks, which need it

import dynadiag
from dynadiag import report, trace
from dynadiag.fix import worker
from dynadiag.fix.inside.running import RunJob

pytestmark = pytest.mark.any_torch
SCRIPT = """import torch
from lib.ops import half

@torch.compile(backend="eager")
def f(x):
    if half(x).sum() > 0:
        x = x * 2
    return x.cos()

for i in range(3):
    f(torch.full((4,), 0.1 * i))
"""


def names_of(directory):
    found = report.build(trace.load(directory))
    return {one.fingerprint: (one.code, one.where.line) for one in found.findings}


def test_from_every_folder_and_in_a_proof(tmp_path, monkeypatch):
    app = tmp_path / "project" / "app"
    (app / "lib").mkdir(parents=True)
    (tmp_path / "x").mkdir()
    (app / "train.py").write_text(SCRIPT)
    (app / "lib" / "ops.py").write_text("def half(x):\n    print('in the graph')\n    return x.sin()\n")
    (tmp_path / "x" / "link.py").symlink_to(app / "train.py")
    found = []
    for number, (folder, typed) in enumerate([(app, "train.py"), (tmp_path, "project/app/train.py"), (tmp_path / "x", "link.py")]):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", [typed])
        monkeypatch.setattr(sys, "path", [str(app), *sys.path])
        torch._dynamo.reset()
        for name in ("lib", "lib.ops"):  # code that was compiled is another function's next time
            sys.modules.pop(name, None)
        with dynadiag.observe(tmp_path / f"run{number}"):
            runpy.run_path(os.path.abspath(typed))
        found.append(names_of(tmp_path / f"run{number}"))
    sys.modules.pop("lib.ops"), sys.modules.pop("lib")
    job = RunJob(script=str(app / "train.py"), arguments=[], folder=str(tmp_path / "x"), output=str(tmp_path), eager=False)
    worker.forked({"job": {**job.to_json(), "log": str(tmp_path / "run3")}, "timeout_s": 60})
    found.append(names_of(tmp_path / "run3"))
    assert len(found[0]) == 2
    assert found[1:] == [found[0]] * 3
