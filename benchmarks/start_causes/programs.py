"""Programs whose second start is cold for a planted cause, and what is right to say of each: written before the code that finds causes.

A plant edits a program, sets a variable, or does something to the cache folder between the first start and the second.
`line` is a piece of the line of the second program that the cause must point to; every one of `words` must be in what is said of it.
"""

# ruff: noqa: E501 - a table with one row a cause
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PROGRAMS = {
    "mlp": """import os
import torch
from torch import nn

EPS = 1e-3


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.up = nn.Linear(8, width)
        self.down = nn.Linear(width, 4)
        self.slope = 0.2

    def forward(self, x):
        hidden = torch.where(self.up(x) > 0, self.up(x), self.up(x) * self.slope)
        return self.down(hidden) / (hidden.sum(-1, keepdim=True).abs() + EPS)


torch.manual_seed(0)
net = Net()
step = torch.compile(net)
batch = torch.randn(4, 8)
loss = step(batch).pow(2).mean()
loss.backward()
print("done")
""",
    "attention": """import torch
import torch.nn.functional as F

HEADS = 2
TEMPERATURE = 0.7


def attend(q, k, v):
    scores = q @ k.transpose(-1, -2)
    weights = F.softmax(scores / TEMPERATURE, dim=-1)
    return weights @ v


compiled = torch.compile(attend)
torch.manual_seed(0)
q, k, v = (torch.randn(1, HEADS, 6, 8) for _ in range(3))
with torch.no_grad():
    compiled(q, k, v)
print("done")
""",
    "smoothing": """import torch


def smooth(x, weights):
    total = torch.zeros_like(x)
    for power in (1, 2, 3):
        total = total + weights[power - 1] * x.pow(power)
    return torch.tanh(total) * 1.5


def energy(x):
    return (x * x).sum(dim=-1).sqrt()


@torch.compile
def pipeline(x, weights):
    y = smooth(x, weights)
    return y / energy(y).unsqueeze(-1)


torch.manual_seed(0)
x = torch.randn(3, 10)
weights = torch.rand(3)
pipeline(x, weights)
print("done")
""",
    "sampler": """import torch


class Sampler:
    def __init__(self, steps=3, sigma=0.5):
        self.sigma = sigma
        self.steps = steps
        self.scale = torch.ones(8)

    @torch.compile
    def denoise(self, x):
        x = x - self.sigma * torch.sin(x)
        return x * self.scale

    def run(self, x):
        for _ in range(self.steps):
            x = self.denoise(x)
        return x


sampler = Sampler()
torch.manual_seed(0)
with torch.inference_mode(False):
    sampler.run(torch.randn(8))
print("done")
""",
    "norm": """import torch
from torch import nn

model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6, eps=1e-5), nn.GELU(), nn.Dropout(0.0))
model.eval()
run = torch.compile(model)
torch.manual_seed(0)
rows = torch.randn(5, 6)
with torch.no_grad():
    run(rows)
print("done")
""",
}

Between = Literal["nothing", "another folder", "empty the folder", "delete the graphs"]


@dataclass(frozen=True, kw_only=True)
class Plant:
    """One cause: in which program, what changes for the second start, and what is right to say."""

    name: str
    program: str
    edits: tuple[tuple[str, str], ...] = ()
    both: tuple[tuple[str, str], ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    first_variables: dict[str, str] = field(default_factory=dict)
    between: Between = "nothing"
    kind: str = ""
    words: tuple[str, ...] = ()
    line: str | None = None


_TOP = ("import torch\n", "import torch\nimport torch._inductor.config as inductor\n")

PLANTS = (
    Plant(name="number in an attribute", program="mlp", edits=(("self.slope = 0.2", "self.slope = 0.3"),), kind="constant", words=("0.2", "0.3"), line="hidden = torch.where("),
    Plant(name="global number", program="attention", edits=(("TEMPERATURE = 0.7", "TEMPERATURE = 0.9"),), kind="constant", words=("0.7", "0.9", "TEMPERATURE"), line="weights = F.softmax("),
    Plant(name="number in an expression", program="smoothing", edits=(("* 1.5", "* 1.25"),), kind="constant", words=("1.5", "1.25"), line="return torch.tanh("),
    Plant(name="another operator", program="smoothing", edits=(("torch.tanh(total)", "torch.sigmoid(total)"),), kind="operators", words=("tanh", "sigmoid"), line="return torch.sigmoid("),
    Plant(name="an operator more", program="attention", edits=(("return weights @ v", "return (weights @ v).relu()"),), kind="operators", words=("relu",), line="return (weights @ v).relu()"),
    Plant(name="batch size", program="mlp", edits=(("torch.randn(4, 8)", "torch.randn(6, 8)"),), kind="input", words=("x", "4", "6")),
    Plant(name="sequence length", program="attention", edits=(("HEADS, 6, 8", "HEADS, 7, 8"),), kind="input", words=("q", "6", "7")),
    Plant(name="dtype of inputs", program="smoothing", edits=(("x = torch.randn(3, 10)\n", "x = torch.randn(3, 10).double()\n"),), kind="input", words=("x", "float32", "float64")),
    Plant(name="transposed input", program="smoothing", edits=(("x = torch.randn(3, 10)\n", "x = torch.randn(10, 3).t()\n"),), kind="input", words=("x", "stride")),
    Plant(name="input needs a gradient", program="smoothing", edits=(("x = torch.randn(3, 10)\n", "x = torch.randn(3, 10, requires_grad=True)\n"),), kind="input", words=("x", "requires_grad")),
    Plant(name="option by attribute", program="norm", edits=(_TOP, ("model.eval()", "model.eval()\ninductor.max_fusion_size = 12")), kind="option", words=("max_fusion_size", "12"), line="inductor.max_fusion_size = 12"),
    Plant(name="option of torch.compile", program="norm", edits=(("torch.compile(model)", 'torch.compile(model, options={"epilogue_fusion": False})'),), kind="option", words=("epilogue_fusion", "False"), line="run = torch.compile("),
    Plant(name="option by variable", program="norm", variables={"TORCHINDUCTOR_CPP_WRAPPER": "1"}, kind="option", words=("cpp_wrapper", "TORCHINDUCTOR_CPP_WRAPPER")),
    Plant(name="deterministic mode", program="attention", edits=(("HEADS = 2", "torch.use_deterministic_algorithms(True)\nHEADS = 2"),), kind="setting", words=("deterministic",), line="torch.use_deterministic_algorithms(True)"),
    Plant(name="matmul precision", program="attention", edits=(("HEADS = 2", 'torch.set_float32_matmul_precision("high")\nHEADS = 2'),), kind="setting", words=("matmul",), line='torch.set_float32_matmul_precision("high")'),
    Plant(name="threads by call", program="norm", edits=(("model.eval()", "model.eval()\ntorch.set_num_threads(2)"),), kind="setting", words=("thread", "2"), line="torch.set_num_threads(2)"),
    Plant(name="threads by variable", program="norm", variables={"OMP_NUM_THREADS": "2"}, kind="setting", words=("thread", "OMP_NUM_THREADS")),
    Plant(name="a pass without uuid", program="attention", edits=(_TOP, ("HEADS = 2", "inductor.post_grad_custom_post_pass = lambda graph: None\nHEADS = 2")), kind="custom_pass", words=("uuid",), line="inductor.post_grad_custom_post_pass"),
    Plant(name="another folder", program="norm", between="another folder", kind="cache_folder", words=("folder",)),
    Plant(name="emptied folder", program="smoothing", between="empty the folder", kind="entry_gone", words=("entry",)),
    Plant(name="caches off", program="smoothing", variables={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}, kind="caches_off", words=("TORCHINDUCTOR_FORCE_DISABLE_CACHES",)),
    Plant(name="random number", program="attention", both=(("import torch\n", "import random\nimport torch\n"), ("TEMPERATURE = 0.7", "TEMPERATURE = random.random() + 0.1")), kind="per_process", words=("TEMPERATURE",), line="weights = F.softmax("),
    Plant(name="order of a set", program="smoothing", both=(("for power in (1, 2, 3):", "for power in [int(name[-1]) for name in {'p1', 'p2', 'p3'}]:"),), kind="hash_order", words=("PYTHONHASHSEED",)),
    Plant(name="gradients on", program="attention", edits=(("with torch.no_grad():", "q.requires_grad_()\nif True:"),), kind="input", words=("q", "requires_grad")),
    Plant(name="width of a layer", program="mlp", edits=(("width=16", "width=24"),), kind="input", words=("up", "16", "24")),
    Plant(name="epsilon of a layer", program="norm", edits=(("eps=1e-5", "eps=1e-6"),), kind="constant", words=("1e-05", "1e-06")),
    Plant(name="dynamic shapes", program="smoothing", edits=(("@torch.compile\ndef pipeline", "@torch.compile(dynamic=True)\ndef pipeline"),), kind="dynamic", words=("x",)),
    Plant(name="a removed operator", program="norm", edits=((" nn.GELU(),", ""),), kind="operators", words=("gelu",)),
    Plant(name="default dtype", program="mlp", edits=(("torch.manual_seed(0)", "torch.set_default_dtype(torch.float64)\ntorch.manual_seed(0)"),), kind="setting", words=("float64",), line="torch.set_default_dtype(torch.float64)"),
    Plant(name="autocast", program="norm", edits=(("with torch.no_grad():", 'with torch.no_grad(), torch.autocast("cpu"):'),), kind="setting", words=("autocast",), line="torch.autocast("),
)  # fmt: skip
UNCHANGED = tuple(Plant(name=f"unchanged {program}", program=program) for program in PROGRAMS)
"""The same program started again: everything must be warm."""
