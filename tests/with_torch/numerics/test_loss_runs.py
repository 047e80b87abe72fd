"""One run of a training script in which its losses are noted: as it is, with some graphs in eager, in eager with other rounding."""

import os
import subprocess
import sys
from pathlib import Path

import dynadiag
from dynadiag.capture.losses import GRAPHS, LOSSES, VARIABLE, LossSettings

PROGRAM = """
import torch

def tenfold(module, inputs):
    return lambda *values: tuple(10 * value for value in module.forward(*values))

weight = torch.nn.Parameter(torch.ones(4, 4))
double = torch.compile(lambda x: x * 2, backend="eager")
wrong = torch.compile(lambda x: (x @ weight).sin(), backend=tenfold)
for step in range(5):
    loss = wrong(double(torch.rand(3, 4))).sum()
    loss.backward()
    print("step", step)
"""


def losses_of(folder, **settings):
    """The losses, how many graphs were compiled, and what the program printed."""
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    bootstrap = Path(dynadiag.__file__).parent / "bootstrap"
    wanted = LossSettings(directory=str(folder), steps=3, **settings)
    environment = {**os.environ, "PYTHONPATH": str(bootstrap), VARIABLE: wanted.dumps(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "train.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (losses,) = folder.glob(LOSSES.format("*"))
    graphs = list(folder.glob(GRAPHS.format("*")))
    lines = losses.read_text().split()
    return list(map(float, lines)), len(graphs[0].read_text().split()) if graphs else 0, done.stdout


def test_the_losses_of_a_program_of_two_graphs_of_which_one_is_wrong(tmp_path):
    compiled, graphs, printed = losses_of(tmp_path / "compiled")
    assert (len(compiled), graphs, printed) == (3, 2, "step 0\nstep 1\n")
    right, graphs, _ = losses_of(tmp_path / "right", eager_graphs=(1,))
    assert graphs == 2 and [round(loss / other, 4) for loss, other in zip(compiled, right, strict=True)] == [10.0] * 3
    noisy, graphs, _ = losses_of(tmp_path / "noisy", eager=True, noise=1)
    assert graphs == 0 and noisy != right
    assert all(abs(one - other) < 1e-4 for one, other in zip(noisy, right, strict=True))
