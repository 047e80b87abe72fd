"""`dynadiag numerics`: a script whose graphs are compared, with a wrong lowering that --load brings along."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "numerics.schema.json").read_text())
PROGRAM = """
import torch


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(32)

    def forward(self, x):
        y = torch.sigmoid(self.norm(x))
        return torch.nn.functional.pad(torch.exp(y * x), (1, 1)) + 1


torch.manual_seed(0)
model = torch.compile(Gate().eval())
with torch.no_grad():
    print("sum", round(float(model(torch.randn(8, 32)).sum()), 2))
    model(torch.randn(8, 32))
    torch.compile(lambda x: x * 2, backend="aot_eager")(torch.ones(3))
"""
LOADED = """
import torch
from torch._inductor import lowering

aten = torch.ops.aten
right = lowering.lowerings[aten.exp.default]
lowering.lowerings[aten.exp.default] = lambda x: lowering.lowerings[aten.mul.Tensor](right(x), 1.001)
"""


def dynadiag(*arguments, folder):
    command = [sys.executable, "-m", "dynadiag", "numerics", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.mark.slow
@pytest.mark.any_torch  # test_examination.py asks both versions
def test_a_script_with_a_fault_in_one_of_two_graphs(tmp_path):
    (tmp_path / "gate.py").write_text(PROGRAM)
    (tmp_path / "loaded.py").write_text(LOADED)
    done = dynadiag("--out", "run", "--timeout", "3000", "--calls", "3", "--load", "loaded.py", "gate.py", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("sum ")
    assert len(done.stdout.splitlines()) == 1
    assert "Fault: graph-0" in done.stderr
    assert "Equal to the bit: graph-1" in done.stderr
    assert "first at aten.exp" in done.stderr
    assert "gate.py:12inforward" in "".join(done.stderr.split())  # the path of a long folder is folded
    result = json.loads((tmp_path / "run" / "numerics.json").read_text())
    origins = json.loads((tmp_path / "run/capture/graph-0/origins.json").read_text())
    assert {"L['x']"} < {source for _, _, source in origins.values()}
    jsonschema.validate(result, SCHEMA)
    assert result["summary"] == {"graphs": 2, "equal": 1, "rounding": 0, "faults": 1, "skipped": 0}
    assert [graph.get("calls", []) for graph in result["graphs"]] == [
        [{"call": 1, "outcome": "different"}, {"call": 2, "outcome": "different"}],
        [],
    ]
    places = {row["operator"]: row for row in result["graphs"][0]["operators"]}
    assert "norm" in places["aten.native_layer_norm"]["module"]
    assert places["aten.constant_pad_nd"]["line"]["file"].endswith("gate.py")
    assert (tmp_path / "run" / "numerics.html").is_file()


@pytest.mark.any_torch
def test_what_cannot_be_compared_is_said_in_a_line(tmp_path):
    (tmp_path / "nothing.py").write_text("print('hello')\n")
    missing = dynadiag("--load", "no.py", "nothing.py", folder=tmp_path)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "--load no.py: no such file" in missing.stderr
    nothing = dynadiag("--out", "run", "nothing.py", folder=tmp_path)
    assert (nothing.returncode, nothing.stdout) == (5, "hello\n")
    assert "no graph was compiled and called" in nothing.stderr
