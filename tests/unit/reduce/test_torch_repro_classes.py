"""The class of a script that torch made, read as text: what a stranger may have written there is refused, never run."""

from __future__ import annotations

import ast
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.reduce.sources.torch_modules import note, read_class
from dynadiag.reduce.sources.torch_repro import is_torch_repro

FORWARD = "    def forward(self, x):\n        w = self.w\n        return (x + w,)\n"


def read(made, *, others=""):
    text = f"{others}class Repro(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        {made}\n{FORWARD}"
    tree = ast.parse(text)
    classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
    return read_class(text.splitlines(), classes.pop("Repro"), classes, {"x": "f32[2][1]cpu"})


@pytest.mark.parametrize(
    ("made", "shape", "dtype", "device", "values"),
    [
        ("self.register_buffer('w', tensor(2))", [], "int64", "cpu", 2),
        ("self.register_buffer('w', tensor([True, False]))", [2], "bool", "cpu", [True, False]),
        (
            "self.register_buffer('w', tensor([[1., -inf]], device='cuda:0', dtype=torch.float16))",
            [1, 2],
            "float16",
            "cuda:0",
            [[1.0, -float("inf")]],
        ),
        ("self.register_buffer('w', torch.randn([3, 4], dtype=torch.bfloat16).to('cuda:1'))", [3, 4], "bfloat16", "cuda:1", None),
        ("self.register_buffer('w', torch.randint(1, size=[0], dtype=torch.int32).cuda())", [0], "int32", "cuda:0", None),
        ("self.w = torch.nn.Parameter(torch.randn([2], dtype=torch.float32, device='cuda:0'))", [2], "float32", "cuda:0", None),
    ],
)
def test_tensors_are_read(made, shape, dtype, device, values):
    found = read(made)
    (tensor,) = found.attributes
    assert found.unread is None and found.used == {"x"}
    assert [tensor[name] for name in ("shape", "dtype", "device", "values")] == [shape, dtype, device, values]
    assert tensor["requires_grad"] is ("Parameter" in made) and f'w: "{note(tensor)}" = self.w' in found.text


@pytest.mark.parametrize(
    "made",
    [
        "self.w = open('/etc/passwd')",
        "self.w = torch.load('x')",
        "self.register_buffer('w', tensor([1, [2]]))",
        "self.register_buffer('w', tensor([1 + 2j]))",
        "self.register_buffer('w', torch.randn([-1], dtype=torch.float32))",
        "self.register_buffer('w', torch.randn([2], dtype=evil.dtype))",
        "self.register_buffer('w x', tensor(1))",
        "self.register_buffer(name, tensor(1))",
        "other.w = tensor(1)",
        "self.w = Unknown()",
        "self.w = Sub(1)",
        "w = 1",
    ],
)
def test_anything_else_is_refused(made):
    assert read(made, others="class Sub(torch.nn.Module):\n    def forward(self, x):\n        return x\n").unread.startswith(
        "its __init__ creates"
    )


def test_a_sub_graph_stands_inside_under_its_attribute():
    found = read("self.w = Sub()", others="class Sub(torch.nn.Module):\n    def forward(self, x):\n        return x\n")
    assert found.unread is None and "\n    class w(torch.nn.Module):\n        def forward(self, x):\n            return x\n" in found.text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("pass", "has no forward"),
        ("def __init__(self):\n        self.again = Sub()\n    def forward(self, x):\n        return x", "contain one another"),
        (
            "def __init__(self):\n        self.t = torch.nn.Parameter(torch.randn([1]))\n    def forward(self, x):\n        return x",
            "contains the tensor",
        ),
    ],
)
def test_a_sub_graph_that_cannot_be_read_is_said(body, message):
    assert message in read("self.w = Sub()", others=f"class Sub(torch.nn.Module):\n    {body}\n").unread


@given(
    st.recursive(
        st.integers() | st.floats() | st.booleans() | st.none() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=12
    )
)
def test_any_literal_is_read_or_refused(value):
    found = read(f"self.register_buffer('w', tensor({value!r}))")
    assert (found.unread is None) == bool(found.attributes)


@pytest.mark.parametrize(
    ("made", "body", "unread"),
    [
        ("self.fc = Linear(in_features=open('x'), out_features=3)", "y = self.fc(x)", "self.fc = Linear("),
        ("self.fc = Linear(2, 3, bias=True, device='cuda')", "y = self.fc(x)", "self.fc = Linear("),
        ("self.fc = Linear(-2, 3)", "y = self.fc(x)", "self.fc = Linear("),
        ("self.fc = Linear('none', 3)", "y = self.fc(x)", "self.fc = Linear("),
        ("self.fc = Linear(**x)", "y = self.fc(x)", "self.fc = Linear("),
        ("self.fc = BatchNorm1d(10000000000000)", "y = self.fc(x)", "self.fc = BatchNorm1d("),
        ("self.fc = Conv2d(2, 3, (1, 1), groups=0)", "y = self.fc(x)", "self.fc = Conv2d("),
        ("self.fc = Conv2d(2, 3, (1, 1), padding_mode=circular)", "y = self.fc(x)", "self.fc = Conv2d("),
        ("self.fc = GELU(approximate='none)(x); import os #')", "y = self.fc(x)", "self.fc = GELU("),
        ("self.fc = torch.ao.nn.qat.modules.conv.Conv2d(3, 4, kernel_size=(3, 3))", "y = self.fc(x)", "self.fc = torch.ao.nn.qat"),
        ("self.fc = nn.Linear(2, 3)", "y = self.fc(x)", "self.fc = nn.Linear("),
        ("self.fc = Linear(2, 3)", "y = self.fc(x, x)", "calls a layer in an unexpected way: 'y = self.fc(x, x)'"),
        ("self.fc = Linear(2, 3)", "y = self.fc.bias", "calls a layer in an unexpected way: 'y = self.fc.bias'"),
        ("self.fc = Linear(2, 3)", "fc_bias_read = self.fc(x)", "the same names"),
        ("self.fc = Linear(2, 3)\n        self.register_buffer('fc_bias', tensor(1))", "y = self.fc(x)", "the same names"),
    ],
)
def test_what_is_no_plain_layer_is_refused(made, body, unread):
    text = f"class Repro(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        {made}\n"
    text += f"    def forward(self, x):\n        {body}\n        return (x,)\n"
    (found,) = ast.parse(text).body
    said = read_class(text.splitlines(), found, {}, {"x": "f32[2][1]cpu"}).unread
    assert said is not None and unread in said and said.startswith("its " if "creates" in said else ("it calls", "its layers"))


def test_a_layer_that_is_called_twice_reads_its_tensors_once():
    text = (
        "class Repro(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = Linear(2, 2).to('cuda:1')\n"
    )
    text += "    def forward(self, x):\n        y = self.fc(x);  x = None\n        z = self.fc(y);  y = None\n        return (z,)\n"
    (found,) = ast.parse(text).body
    read = read_class(text.splitlines(), found, {}, {"x": "f32[2][1]cpu"})
    assert read.unread is None and [one["device"] for one in read.attributes] == ["cuda:1", "cuda:1"]
    assert read.text.count('fc_weight_read: "f32[2, 2][2, 1]cuda:1" = self.fc_weight') == 1
    assert "z = torch._C._nn.linear(y, fc_weight_read, fc_bias_read);  y = None" in read.text


@pytest.mark.parametrize("place", ["/dev/zero", "/dev/null", "pipe", "folder", "circle", "nothing"])
def test_what_is_no_file_is_no_repro_and_is_not_waited_for(place, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert not is_torch_repro(tmp_path / place)
