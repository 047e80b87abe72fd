"""Hashes of tensors: equal where each bit is equal, and else not; and those that a compiled program writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

import dynadiag
from dynadiag.capture.output_hashes import HASHES, VARIABLE, HashSettings, hashes

PROGRAM = """
import torch

double = torch.compile(lambda x: x * 2, backend="eager")
for step in range(3):
    double(torch.full((4,), float(step)))
"""


def test_equal_bits_have_equal_hashes_and_others_have_not():
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    changed, swapped = x.clone(), x.flatten()
    changed[4, 2] = torch.nextafter(changed[4, 2], torch.tensor(9.0))
    swapped = swapped[[1, 0, *range(2, 15)]].reshape(5, 3)
    first, copy, *others = hashes([x, x.t().contiguous().t(), changed, swapped, x.t(), x.bfloat16(), x.reshape(15), -x])
    assert first == copy
    assert len({first, *others}) == 7
    assert hashes([torch.zeros(2)]) != hashes([-torch.zeros(2)])
    assert hashes([torch.ones(3).to_sparse(), torch.tensor(True), 3, torch.zeros(0)])[0] is None


def test_a_program_writes_the_hashes_of_its_first_calls(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    bootstrap = Path(dynadiag.__file__).parent / "bootstrap"
    environment = {**os.environ, "PYTHONPATH": str(bootstrap), VARIABLE: HashSettings(str(tmp_path), 2).dumps()}
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob(HASHES.format("*"))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["graph"], line["call"], line["function"][0]) for line in lines] == [(0, 1, "<lambda>"), (0, 2, "<lambda>")]
    assert lines[0]["outputs"] == hashes([torch.zeros(4)]) == lines[0]["inputs"]
    assert lines[1]["outputs"] == hashes([torch.full((4,), 2.0)])
