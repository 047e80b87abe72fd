"""What a script of torch holds besides operators: tensors and sub graphs of its class, inputs that are no plain tensors, process groups."""

from __future__ import annotations

import os

import pytest
import torch
from torch._dynamo.repro.after_aot import save_graph_repro
from torch._dynamo.repro.after_dynamo import generate_dynamo_fx_repro_string
from torch.fx.experimental.proxy_tensor import make_fx

from dynadiag.errors import UnreadableInputError
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.inputs import make_values
from dynadiag.reduce.graphs.loading import load_capture
from dynadiag.reduce.graphs.reduction import ReductionOptions, reduce_graph
from dynadiag.reduce.reproducer.graph_file import Header, reproducer
from dynadiag.reduce.reproducer.proving import run_in_child
from dynadiag.reduce.sources.torch_repro import capture_script
from dynadiag.torch_compat.dispatch.state import fake_process_groups
from dynadiag.torch_compat.dynamo.compiling import warm_up

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
HEADER = Header(failure=Failure(kind="compile_error", phase="compile"), made_by="test", versions="", story="")


def loaded(folder, gm, values, **change):
    """What is read of the script that torch writes of a graph after AOT; `change` replaces text in it."""
    script = folder / "repro.py"
    with script.open("w") as file:
        save_graph_repro(file, gm, values, "inductor", save_dir=str(folder / "checkpoints"))
    return reread(folder, change)


def reread(folder, change):
    script = folder / "repro.py"
    text = script.read_text()
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    script.write_text(text)
    _, (first, *_) = capture_script(script, folder / "out", backend=None)
    return load_capture(first)


def results(candidate):
    return candidate.module(*make_values(candidate.inputs))


def test_small_tensors_of_the_class_have_their_values(tmp_path):
    numbers = torch.tensor([[1.5, -2.0], [float("inf"), float("nan")]])

    def f(x):
        return torch.relu(x) + torch.tensor(2) + numbers.nan_to_num(7.0)

    x = torch.randn(2, 2)
    candidate, _ = loaded(tmp_path, make_fx(f)(x), [x])
    assert len(candidate.inputs) == 3 and torch.equal(results(candidate), f(x))


def test_large_tensors_of_the_class_have_their_shapes(tmp_path):
    weights, numbers = torch.randn(3, 5), torch.arange(6)
    x = torch.randn(2, 3)
    gm = make_fx(lambda x: (x @ weights, numbers + 1))(x)
    candidate, _ = loaded(tmp_path, gm, [x])
    one, two = results(candidate)
    assert one.shape == (2, 5) and two.dtype == torch.int64 and two.tolist() == [1] * 6


def test_parameters_of_the_class_need_gradients(tmp_path):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

        def forward(self, x):
            return (x * self.weight,)

    text = generate_dynamo_fx_repro_string(torch.fx.symbolic_trace(Module()), [torch.ones(3)], "eager")
    (tmp_path / "repro.py").write_text(text)
    candidate, _ = reread(tmp_path, {})
    assert [one.requires_grad for one in candidate.inputs] == [False, True] and results(candidate)[0].shape == (3,)


class Layers(torch.nn.Module):
    """Each layer that torch writes into a repro, but for LSTM."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.embedding, self.norm, self.linear = nn.Embedding(9, 6, padding_idx=2), nn.LayerNorm((5, 6)), nn.Linear(6, 8, bias=False)
        self.conv1, self.batch1, self.up1 = nn.Conv1d(5, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ConvTranspose1d(4, 6, 2, stride=2)
        self.glu, self.gelu, self.drop, self.same = nn.GLU(dim=1), nn.GELU(approximate="tanh"), nn.Dropout(p=0.0), nn.Identity()
        self.conv2, self.batch2, self.pool = nn.Conv2d(3, 4, 3, groups=1, bias=False), nn.BatchNorm2d(4, affine=False), nn.MaxPool2d(2)
        self.average, self.relu = nn.AdaptiveAvgPool2d((2, 3)), nn.ReLU(inplace=True)
        self.conv3, self.batch3, self.flat = nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2, momentum=None), nn.Flatten()
        self.tanh, self.softmax, self.last = nn.Tanh(), nn.Softmax(dim=1), nn.Linear(3, 3)

    def forward(self, i, x):
        row = self.linear(self.norm(self.embedding(i)))
        row = self.gelu(self.glu(self.up1(self.batch1(self.conv1(row)))))
        image = self.average(self.relu(self.pool(self.batch2(self.conv2(x)))))
        block = self.flat(self.batch3(self.conv3(x[:, None])))
        return row, self.same(self.last(self.last(self.drop(image)))), self.softmax(self.tanh(block))


def test_layers_of_the_class_become_the_operators_that_they_call(tmp_path):
    inputs = [torch.randint(9, (2, 5)), torch.randn(2, 3, 9, 9)]
    text = generate_dynamo_fx_repro_string(torch.fx.symbolic_trace(Layers()), inputs, "eager")
    (tmp_path / "repro.py").write_text(text)
    candidate, _ = reread(tmp_path, {})
    assert "call_module" not in {node.op for node in candidate.module.graph.nodes}
    names = {}
    exec(text[text.index("class Repro") : text.index("mod = Repro()")], {**vars(torch.nn), "torch": torch, "device": torch.device}, names)
    expected, values = names["Repro"](), make_values(candidate.inputs)
    named = {node.target: value for node, value in zip(candidate.module.graph.nodes, values, strict=False)}
    for name, tensor in [*expected.named_parameters(), *expected.named_buffers()]:
        found = [value for key, value in named.items() if key == f"{name.replace('.', '_')}_read"]
        if "num_batches" not in name:
            assert found[0].requires_grad is tensor.requires_grad
            tensor.data.copy_(found[0].data)
    shown = expected(named["i"], named["x"])
    assert all(torch.equal(one, other) for one, other in zip(results(candidate), shown, strict=True))


@needs_fork
def test_a_class_of_layers_parameters_and_buffers_ends_at_the_operator(tmp_path):
    """As test_cpu_device_module_after_dynamo of torch has it, without the other device."""

    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m_x, self.m_y = torch.nn.Linear(12, 12), torch.nn.Linear(12, 12)
            self.p_x, self.b_x = torch.nn.Parameter(torch.randn(12, 12)), torch.nn.Buffer(torch.ones(12, 12))

        def forward(self, x, y):
            return (torch.relu(self.m_x(x + torch.randn(12, 12)) + self.p_x + self.m_y(y) + self.b_x.cpu()),)

    fault = "relu_compile_error_TESTING_ONLY"
    text = generate_dynamo_fx_repro_string(torch.fx.symbolic_trace(Mixed()), [torch.randn(12, 12), torch.randn(12, 12)], fault)
    (tmp_path / "repro.py").write_text(text)
    candidate, setting = reread(tmp_path, {})
    assert setting.backend == fault
    found = reduce_graph(candidate, setting, ReductionOptions(timeout_s=600.0))
    assert [node.target for node in found.best.module.graph.nodes if node.op.startswith("call")] == [torch.relu]


KERNEL = """import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, 1)

kernel_side_table.add_kernel(kernel)

class Repro("""


def test_kernels_of_the_user_are_in_the_way_only_where_the_graph_calls_them(tmp_path):
    gm = make_fx(lambda x: (x * x,))(torch.ones(3))
    candidate, _ = loaded(tmp_path, gm, [torch.ones(3)], **{"class Repro(": KERNEL})
    assert torch.equal(results(candidate)[0], torch.ones(3))
    call = "torch.ops.higher_order.triton_kernel_wrapper_mutation(kernel_idx = 0, constant_args_idx = 0, grid = [(1, 1, 1)], kwargs = {})"
    (tmp_path / "again").mkdir()
    with pytest.raises(UnreadableInputError, match="triton_kernel_wrapper_mutation"):
        loaded(tmp_path / "again", gm, [torch.ones(3)], **{"class Repro(": KERNEL, "torch.ops.aten.mul.Tensor(x_1, x_1)": call})


def test_other_modules_of_the_class_are_refused_by_name(tmp_path):
    class Holds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.LSTM(2, 2)

        def forward(self, x):
            return (self.layer(x)[0],)

    text = generate_dynamo_fx_repro_string(torch.fx.symbolic_trace(Holds()), [torch.ones(1, 1, 2)], "eager")
    (tmp_path / "repro.py").write_text(text)
    with pytest.raises(UnreadableInputError, match=r"its __init__ creates 'self.layer = LSTM\(2, 2"):
        reread(tmp_path, {})


SINE = """
    def forward(self, arg0_1):
        sin"""
SUB_GRAPHS = """
import torch
class true_graph_0_0(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, arg0_1):
        sin = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None
        return (sin,)

class false_graph_0_1(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, arg0_1):
        cos = torch.ops.aten.cos.default(arg0_1);  arg0_1 = None
        return (cos,)

class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.true_graph_0 = true_graph_0_0()
        self.false_graph_0 = false_graph_0_1()

    def forward(self, x_1):
        sum_1 = torch.ops.aten.sum.default(x_1)
        gt = torch.ops.aten.gt.Scalar(sum_1, 0);  sum_1 = None
        true_graph_0 = self.true_graph_0
        false_graph_0 = self.false_graph_0
        cond = torch.ops.higher_order.cond(gt, true_graph_0, false_graph_0, (x_1,));  gt = true_graph_0 = false_graph_0 = x_1 = None
        getitem = cond[0];  cond = None
        return getitem

def load_args(reader):
    buf0 = reader.storage(None, 12)
    reader.tensor(buf0, (3,), is_leaf=True)  # x_1
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    run_repro(mod, load_args, accuracy=False, command='run', save_dir=None, tracing_mode='real', check_str=None)
"""


def test_sub_graphs_of_the_class_are_rebuilt(tmp_path):
    """As torch 2.15 writes them; 2.11 writes what is no Python."""
    (tmp_path / "repro.py").write_text(SUB_GRAPHS)
    candidate, _ = reread(tmp_path, {})
    (x,) = make_values(candidate.inputs)
    assert torch.equal(candidate.module(x), x.sin() if x.sum() > 0 else x.cos())
    with pytest.raises(UnreadableInputError, match="contain one another"):
        reread(tmp_path, {SINE: SINE.replace("    def", "        self.again = true_graph_0_0()\n    def", 1)})


UNSAVED = """
import torch
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, other, x_1):
        relu = torch.ops.aten.relu.default(x_1);  x_1 = None
        return (relu,)

def load_args(reader):
    LINE
    buf0 = reader.storage(None, 8)
    reader.tensor(buf0, (2,), is_leaf=True)  # x_1
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    run_repro(mod, load_args, accuracy=False, command='run', save_dir=None, tracing_mode='real', check_str=None)
"""


@pytest.mark.parametrize(
    "line",
    [
        "reader.unsupported('other')  # unsupported type for dumping: <class 'str'>",
        "reader.generator('cuda', 0)  # other",
        "reader.opaque('__torch__.MyClass')  # other",
    ],
)
def test_an_argument_that_is_not_saved_is_missed_only_where_it_is_read(tmp_path, line):
    (tmp_path / "repro.py").write_text(UNSAVED)
    candidate, _ = reread(tmp_path, {"LINE": line})
    assert make_values(candidate.inputs)[0] is None and results(candidate)[0].shape == (2,)
    with pytest.raises(UnreadableInputError, match="argument 0 is of an unsupported kind"):
        reread(tmp_path, {"relu.default(x_1)": "relu.default(other)"})


def test_an_input_that_was_computed_is_no_leaf(tmp_path):
    made = torch.randn(4, requires_grad=True)
    gm = torch.fx.symbolic_trace(lambda a, b: (a + b,))
    text = generate_dynamo_fx_repro_string(gm, [made + 1, made], "eager", save_dir=str(tmp_path / "checkpoints"))
    (tmp_path / "repro.py").write_text(text)
    candidate, _ = reread(tmp_path, {})
    assert [one.leaf for one in candidate.inputs] == [False, True] and all(one.requires_grad for one in candidate.inputs)


def test_a_conjugate_view_has_the_values_that_are_seen(tmp_path):
    value = torch.randn(4, dtype=torch.complex64)
    candidate, _ = loaded(tmp_path, make_fx(lambda x: (x * 2,))(value), [value.conj()])
    assert torch.equal(results(candidate)[0], value.conj() * 2)
    with pytest.raises(UnreadableInputError, match="a negated view"):
        reread(tmp_path, {"conj=True": "neg=True"})


def test_options_of_another_back_end_are_said_to_be_lost(tmp_path):
    x = torch.ones(2)
    loaded(tmp_path, make_fx(lambda x: (x + 1,))(x), [x])
    _, setting = reread(tmp_path, {"import torch\n": "import torch\nimport their_config\ntheir_config.fast = True\n"})
    # Options of inductor that another test of this process left set are not torch's default either (seen on 2.11: `triton.store_cubin`).
    assert [name for name in setting.lost_options if not name.startswith("inductor.")] == ["their_config.fast = True"]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
@needs_fork
def test_collectives_are_reduced_with_groups_that_communicate_with_nobody(tmp_path):
    warm_up("eager")
    functional = torch.ops._c10d_functional

    def f(x):
        gathered = functional.wait_tensor(functional.all_gather_into_tensor(torch.sin(x), 4, "tp"))
        return torch.relu(gathered) + functional.wait_tensor(functional.all_reduce(gathered, "sum", "tp"))

    x = torch.randn(2, 3)
    with fake_process_groups({"tp": 4}):
        gm = make_fx(f)(x)
        candidate, setting = loaded(tmp_path, gm, [x])
    assert setting.groups == {"tp": 4} and not torch.distributed.is_initialized()
    setting = type(setting)(**{**vars(setting), "backend": refuses_to_gather})
    found = reduce_graph(candidate, setting, ReductionOptions(timeout_s=300.0))
    assert [str(node.target) for node in found.best.module.graph.nodes if node.op == "call_function"] == [
        "_c10d_functional.all_gather_into_tensor.default"
    ]
    written = reproducer(found.best, type(setting)(**{**vars(setting), "backend": "eager"}), HEADER, expect_failure=False)
    assert "{'tp': 4}" in written and run_in_child(written, timeout_s=300.0) == 0


def refuses_to_gather(gm, inputs):
    if any("all_gather" in str(node.target) for node in gm.graph.nodes):
        raise RuntimeError("cannot gather")
    return gm.forward


def test_a_storage_that_is_empty_is_said_in_one_line(tmp_path):
    loaded(tmp_path, make_fx(lambda x: (x + 1,))(torch.ones(2)), [torch.ones(2)])
    for storage in (tmp_path / "checkpoints" / "storages").iterdir():
        storage.write_bytes(b"")
    with pytest.raises(UnreadableInputError, match="the inputs of the repro cannot be created: ."):
        reread(tmp_path, {})
