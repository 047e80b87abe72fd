"""torch's guard filter drops guards on torch's own modules, results stay, and the count that the advice is chosen by goes down."""

import pytest

from dynadiag.trace import load
from tests.recorded_here import recorded_here

SCRIPT = """
import torch

torch.manual_seed(0)
model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3, enable_nested_tensor=False)
x, out = torch.randn(2, 4, 8), []
for options in ({}, {"options": {"guard_filter_fn": torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe}}):
    torch._dynamo.reset()
    torch.manual_seed(1)
    out.append(torch.compile(model, backend="eager", **options)(x))
assert torch.equal(*out)
"""


@pytest.mark.slow
def test_the_filter_drops_guards_on_modules(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    recorded_here(tmp_path / "train.py", tmp_path / "run")
    before, after = (frame.guards for frame in load(tmp_path / "run").frames if frame.guards is not None)
    assert before.on_modules * 2 >= before.count
    assert after.count < before.count
    assert after.on_modules < before.on_modules
