"""Scripts that torch makes of a failure, made here by torch itself: read with their saved inputs, never run; and the scripts in a log."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch._dynamo.repro.after_aot import save_graph_repro
from torch._dynamo.repro.after_dynamo import generate_dynamo_fx_repro_string
from torch.fx.experimental.proxy_tensor import make_fx

from dynadiag.errors import NothingFoundError, UnreadableInputError
from dynadiag.reduce.graphs.inputs import make_values
from dynadiag.reduce.graphs.loading import load_capture
from dynadiag.reduce.graphs.reduction import ReductionOptions, reduce_graph
from dynadiag.reduce.sources.recording import capture_all_recorded
from dynadiag.reduce.sources.torch_repro import capture_script, is_torch_repro, read_torch_repro

pytestmark = pytest.mark.oldest
TRACES = Path(__file__).parents[3].parent / "shared" / "traces"


def example():
    """A graph whose inputs share memory, have strides of their own, and hold integers."""
    torch.manual_seed(0)
    base = torch.randn(6, 4)
    values = [base[1:3], base.t()[:2], torch.arange(3), torch.randn(4, 6, dtype=torch.bfloat16)]

    def f(a, b, index, c):
        return torch.relu(a[0] + 1).sum() + b.sum(), c.float() + 1, index + 1

    return f, values


def aot_script(folder, *, save_dir, **options):
    f, values = example()
    gm = make_fx(f)(*values)
    with (folder / "repro.py").open("w") as file:
        save_graph_repro(file, gm, values, "inductor", save_dir=save_dir, **options)
    return folder / "repro.py", values


def test_a_graph_after_aot_comes_with_its_saved_inputs(tmp_path):
    script, values = aot_script(tmp_path, save_dir=str(tmp_path / "checkpoints"), command="minify")
    assert is_torch_repro(script)
    repro, (folder,) = capture_script(script, tmp_path / "out", backend=None)
    assert repro.after == "aot" and not repro.accuracy and repro.unread is None
    candidate, setting = load_capture(folder)
    assert setting.backend == "inductor" and not setting.grad
    made = make_values(candidate.inputs)
    for value, expected in zip(made, values, strict=True):
        assert torch.equal(value, expected) and (value.stride(), value.dtype) == (expected.stride(), expected.dtype)
    assert made[0].untyped_storage().data_ptr() == made[1].untyped_storage().data_ptr()
    f, _ = example()
    for ours, theirs in zip(candidate.module(*made), f(*values), strict=True):
        assert torch.equal(ours, theirs)


def test_without_saved_storages_the_inputs_are_made_up(tmp_path):
    script, values = aot_script(tmp_path, save_dir=None)
    _, (folder,) = capture_script(script, tmp_path / "out", backend="eager")
    candidate, setting = load_capture(folder)
    assert setting.backend == "eager"
    assert [(value.shape, value.stride(), value.dtype) for value in make_values(candidate.inputs)] == [
        (value.shape, value.stride(), value.dtype) for value in values
    ]


def test_a_storage_is_never_unpickled_and_never_sought_elsewhere(tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    script, _ = aot_script(here, save_dir=str(elsewhere / "checkpoints"))
    _, (folder,) = capture_script(script, tmp_path / "out", backend=None)
    assert '"folder": null' in (folder / "arguments.json").read_text()
    script, _ = aot_script(here, save_dir=str(here / "checkpoints"))
    for storage in (here / "checkpoints" / "storages").iterdir():
        storage.write_bytes(pickle.dumps(tmp_path, protocol=2))
    _, (folder,) = capture_script(script, tmp_path / "again", backend=None)
    with pytest.raises(UnreadableInputError, match="the inputs of the repro cannot be created"):
        load_capture(folder)


def dynamo_script(folder, gm, values, **options):
    text = generate_dynamo_fx_repro_string(gm, values, "relu_compile_error_TESTING_ONLY", **options)
    (folder / "minifier_launcher.py").write_text(text)
    return folder / "minifier_launcher.py"


def test_a_graph_after_dynamo_is_reduced(tmp_path):
    gm = torch.fx.symbolic_trace(lambda x, w: (torch.relu(torch.tanh(x @ w) + 1).sum(),))
    values = [torch.randn(2, 3), torch.randn(3, 3, requires_grad=True)]
    script = dynamo_script(tmp_path, gm, values, save_dir=str(tmp_path / "checkpoints"), command="minify")
    repro, folders = capture_script(script, tmp_path / "out", backend=None)
    assert repro.after == "dynamo" and len(folders) == 2
    candidate, setting = load_capture(folders[0])
    assert setting.backend == "relu_compile_error_TESTING_ONLY" and setting.grad and not setting.backward
    assert load_capture(folders[1])[1].backward
    assert [one.requires_grad for one in candidate.inputs] == [False, True] and torch.equal(candidate.inputs[0].data, values[0])
    found = reduce_graph(candidate, setting, ReductionOptions(timeout_s=600, simplify=False))
    assert [node.target for node in found.best.module.graph.nodes if node.op == "call_function"] == [torch.relu]


def test_a_wrong_result_is_known_by_the_script(tmp_path):
    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x),))
    script = dynamo_script(tmp_path, gm, [torch.ones(2)], check_accuracy=True)
    assert read_torch_repro(script.read_text()).accuracy


def test_options_of_another_torch_are_left_out(tmp_path):
    script, _ = aot_script(tmp_path, save_dir=None)
    text = script.read_text().replace("class Repro", "torch._inductor.config.no_such_option = 3\nclass Repro", 1)
    script.write_text(text.replace("class Repro", "torch._inductor.config.max_fusion_size = 3\nclass Repro", 1))
    _, (folder,) = capture_script(script, tmp_path / "out", backend="eager")
    configs = dict(load_capture(folder)[0].configs)
    assert configs["inductor.max_fusion_size"] == 3 and "inductor.no_such_option" not in configs


def test_what_cannot_be_read_is_said_in_one_line(tmp_path):
    script, _ = aot_script(tmp_path, save_dir=None)
    whole = script.read_text()
    for old, new, message in (
        ("def forward(", "def backward(", "it has no forward"),
        ("super().__init__()", "super().__init__(); self.x = open('/etc/passwd')", "its __init__ creates"),
        ("reader.tensor(buf0", "reader.opaque('x'); reader.tensor(buf0", "of an unsupported kind .opaque"),
        ("def load_args(reader):", "def load_args(reader):\n    import os", "load_args does something else"),
    ):
        script.write_text(whole.replace(old, new, 1))
        with pytest.raises(UnreadableInputError, match=message):
            capture_script(script, tmp_path / "out", backend=None)
    script.write_text("from torch._dynamo.repro.after_aot import run_repro\ndef load_args(:")
    assert is_torch_repro(script)
    with pytest.raises(UnreadableInputError, match="cannot be parsed"):
        capture_script(script, tmp_path / "out", backend=None)


def test_a_graph_of_a_machine_with_a_gpu_is_refused_in_one_line(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    script, _ = aot_script(tmp_path, save_dir=None)
    script.write_text(script.read_text().replace("reader.storage(None, 96", "reader.storage(None, 96, device=device(type='cuda', index=0)"))
    _, (folder,) = capture_script(script, tmp_path / "out", backend=None)
    with pytest.raises(UnreadableInputError, match="needs the device cuda:0, which this machine does not have"):
        load_capture(folder)


@pytest.mark.skipif(not TRACES.exists(), reason="needs the foreign logs")
def test_a_foreign_log_gives_its_graphs_and_its_scripts(tmp_path):
    folders = capture_all_recorded(TRACES / "simple.log", tmp_path, backend="eager")
    assert any((folder / "arguments.json").exists() for folder in folders)
    for folder in folders:
        try:
            assert load_capture(folder)[1].backend == "eager"
        except UnreadableInputError as error:
            assert "needs the device cuda" in str(error) or "is a private operator" in str(error)
    with pytest.raises(NothingFoundError, match="contains the text of no graph"):
        capture_all_recorded(TRACES / "export_guard_added.log", tmp_path / "none", backend=None)


SYMBOLIC = """
import torch
torch._inductor.config.max_fusion_size = 3
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()



    def forward(self, arg0_1, arg1_1, arg2_1):
        permute = torch.ops.aten.permute.default(arg0_1, [1, 0]);  arg0_1 = None
        mm = torch.ops.aten.mm.default(arg2_1, permute);  arg2_1 = permute = None
        relu = torch.ops.aten.relu.default(mm);  mm = None
        return (relu,)

def load_args(reader):
    buf0 = reader.storage(None, 256)
    reader.tensor(buf0, (8, 8), is_leaf=True)  # arg0_1
    reader.symint(4, expr='s77')  # arg1_1
    buf2 = reader.storage(None, 32*s77)
    reader.tensor(buf2, (s77, 8), is_leaf=True)  # arg2_1
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    with torch.no_grad():
        run_repro(mod, load_args, accuracy=True, command='minify', save_dir=None, tracing_mode='symbolic', check_str=None)
"""


def test_symbolic_sizes_take_their_recorded_values(tmp_path):
    """As torch 2.15 writes it for `dynamic=True`; run as it stands it ends in a NameError, for `s77` is defined nowhere."""
    (tmp_path / "repro.py").write_text(SYMBOLIC)
    repro, (folder,) = capture_script(tmp_path / "repro.py", tmp_path / "out", backend=None)
    candidate, setting = load_capture(folder)
    assert repro.accuracy and setting.dynamic is True
    values = make_values(candidate.inputs)
    assert values[1] == 4 and values[2].shape == (4, 8) and candidate.module(*values)[0].shape == (4, 8)
