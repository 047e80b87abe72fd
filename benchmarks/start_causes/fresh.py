"""Plants by an author who had not read `dynadiag/start`: other programs and other ways to write the same kinds of causes."""

from __future__ import annotations

from benchmarks.start_causes.programs import Plant

PROGRAMS = {
    "experts": """import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self, width, *, temperature=1.5):
        super().__init__()
        self.gate = nn.Linear(width, 2)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.temperature = temperature

    def forward(self, x):
        weight = torch.softmax(self.gate(x) / self.temperature, -1)
        left = torch.tanh(self.first(x))
        right = torch.relu(self.second(x))
        return weight[:, :1] * left + weight[:, 1:] * right


torch.manual_seed(0)
model = Experts(6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = torch.compile(model)
data = torch.randn(4, 6)
for _ in range(2):
    optimizer.zero_grad()
    step(data).square().mean().backward()
    optimizer.step()
print("trained")
""",
    "sampled": """import os
from dataclasses import dataclass

import torch


@dataclass
class Settings:
    cutoff: float = 0.3
    order: int = 2


def make_filter(settings, floor):
    def run(samples):
        spread = samples - samples.mean(-1, keepdim=True)
        for _ in range(settings.order):
            spread = spread * settings.cutoff + torch.sin(spread)
        return torch.where(spread.abs() > floor, spread, torch.zeros_like(spread))

    return torch.compile(run, dynamic=False)


clean = make_filter(Settings(), floor=float(os.environ.get("FLOOR", "0.05")))
samples = torch.arange(24.0).reshape(3, 8).sin()
clean(samples)
print("filtered")
""",
    "attend": """import torch
import torch.nn.functional as F
from torch import nn


class Attend(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.register_buffer("mask", torch.ones(length, length).tril().bool())

    def split(self, t):
        return t.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, tokens):
        q, k, v = (self.split(t) for t in self.mix(tokens).chunk(3, -1))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        return F.gelu(out.transpose(1, 2).flatten(2)) + tokens


LENGTH = 5
torch.manual_seed(3)
layer = Attend(8, 2, LENGTH).eval()
layer.compile()
with torch.no_grad():
    layer(torch.randn(2, LENGTH, 8))
print("attended")
""",
    "scales": """import torch

SCALES = (1.0, 2.0, 4.0)
LIMITS = {"low": -1.0, "high": 1.0}
PARTS = ["cosine", "sine", "square"]


class Pyramid:
    def __call__(self, picture):
        levels = []
        for scale in SCALES:
            levels.append(torch.clamp(picture * scale, LIMITS["low"], LIMITS["high"]))
        return self.parts(torch.stack(levels).sum(0))

    def parts(self, level):
        total = torch.zeros_like(level)
        for part in PARTS:
            if part == "cosine":
                total = total + level.cos()
            elif part == "sine":
                total = total * level.sin()
            else:
                total = total - level.square()
        return total


pyramid = torch.compile(Pyramid().__call__)
picture = torch.linspace(-2, 2, 30).reshape(5, 6)
pyramid(picture)
print("built")
""",
    "serve": """import torch


def prepare(request):
    return torch.log1p(request.abs())


def answer(features, weights):
    return torch.softmax(features @ weights, -1)


prepare = torch.compile(prepare, fullgraph=True)
answer = torch.compile(answer)
torch.manual_seed(5)
weights = torch.randn(4, 3)
for size in (6, 6):
    answer(prepare(torch.randn(size, 4)), weights)
print("served")
""",
}

_TOP = ("import torch\n", "import torch\nimport torch._inductor.config\n")

PLANTS = (
    Plant(
        name="keyword default",
        program="experts",
        edits=(("temperature=1.5", "temperature=0.7"),),
        kind="constant",
        words=("1.5", "0.7"),
        line="weight = torch.softmax(",
    ),
    Plant(
        name="field of a dataclass",
        program="sampled",
        edits=(("cutoff: float = 0.3", "cutoff: float = 0.4"),),
        kind="constant",
        words=("0.3", "0.4"),
        line="spread = spread * settings.cutoff",
    ),
    Plant(
        name="number from a variable",
        program="sampled",
        variables={"FLOOR": "0.2"},
        kind="constant",
        words=("0.05", "0.2"),
        line="return torch.where(",
    ),
    Plant(
        name="value of a table",
        program="scales",
        edits=(('"high": 1.0', '"high": 1.5'),),
        kind="constant",
        words=("1.0", "1.5"),
        line="levels.append(torch.clamp(",
    ),
    Plant(
        name="one of several scales",
        program="scales",
        edits=(("2.0, 4.0", "2.0, 8.0"),),
        kind="constant",
        words=("4.0", "8.0"),
        line="levels.append(torch.clamp(",
    ),
    Plant(
        name="one round more",
        program="sampled",
        edits=(("order: int = 2", "order: int = 3"),),
        kind="operators",
        words=("sin",),
        line="spread = spread * settings.cutoff",
    ),
    Plant(
        name="another activation",
        program="attend",
        edits=(("F.gelu(out", "F.silu(out"),),
        kind="operators",
        words=("gelu", "silu"),
        line="return F.silu(",
    ),
    Plant(name="residual dropped", program="attend", edits=((".flatten(2)) + tokens", ".flatten(2))"),), kind="operators", words=("add",)),
    Plant(name="longer context", program="attend", edits=(("LENGTH = 5", "LENGTH = 7"),), kind="input", words=("5", "7")),
    Plant(
        name="layer in bfloat16",
        program="attend",
        edits=(
            ("LENGTH).eval()", "LENGTH).eval().bfloat16()"),
            ("torch.randn(2, LENGTH, 8)", "torch.randn(2, LENGTH, 8, dtype=torch.bfloat16)"),
        ),
        kind="input",
        words=("bfloat16",),
    ),
    Plant(
        name="frozen gate",
        program="experts",
        edits=(("optimizer = torch", "model.gate.requires_grad_(False)\noptimizer = torch"),),
        kind="input",
        words=("gate", "requires_grad"),
    ),
    Plant(
        name="transposed samples",
        program="sampled",
        edits=((".reshape(3, 8).sin()", ".reshape(8, 3).t().sin()"),),
        kind="input",
        words=("samples", "stride"),
    ),
    Plant(name="second size", program="serve", edits=(("(6, 6)", "(6, 9)"),), kind="dynamic", words=()),
    Plant(
        name="marked dynamic",
        program="scales",
        edits=(("pyramid(picture)\n", "torch._dynamo.mark_dynamic(picture, 0)\npyramid(picture)\n"),),
        kind="dynamic",
        words=("picture",),
    ),
    Plant(
        name="options of one function",
        program="serve",
        edits=(("answer = torch.compile(answer)", 'answer = torch.compile(answer, options={"epilogue_fusion": False})'),),
        kind="option",
        words=("epilogue_fusion",),
        line="answer = torch.compile(answer, options=",
    ),
    Plant(
        name="option by setattr",
        program="scales",
        edits=(_TOP, ("pyramid = ", 'setattr(torch._inductor.config, "realize_opcount_threshold", 11)\npyramid = ')),
        kind="option",
        words=("realize_opcount_threshold", "11"),
        line="setattr(torch._inductor.config",
    ),
    Plant(
        name="inference mode",
        program="attend",
        edits=(("with torch.no_grad():", "with torch.inference_mode():"),),
        kind="setting",
        words=("inference",),
        line="with torch.inference_mode():",
    ),
    Plant(
        name="deterministic fill",
        program="experts",
        edits=(("torch.manual_seed(0)\n", "torch.manual_seed(0)\ntorch.use_deterministic_algorithms(True)\n"),),
        kind="setting",
        words=("deterministic",),
        line="torch.use_deterministic_algorithms(",
    ),
    Plant(
        name="threads by variable",
        program="sampled",
        variables={"OMP_NUM_THREADS": "2"},
        kind="setting",
        words=("thread", "2", "OMP_NUM_THREADS"),
    ),
    Plant(
        name="pass as a lambda",
        program="serve",
        edits=(
            _TOP,
            ("torch.manual_seed(5)", "torch._inductor.config.post_grad_custom_pre_pass = lambda graph: None\ntorch.manual_seed(5)"),
        ),
        kind="custom_pass",
        words=("uuid",),
        line="torch._inductor.config.post_grad_custom_pre_pass",
    ),
    Plant(
        name="all caches off",
        program="scales",
        variables={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
        kind="caches_off",
        words=("TORCHINDUCTOR_FORCE_DISABLE_CACHES",),
    ),
    Plant(name="emptied folder", program="serve", between="empty the folder", kind="entry_gone", words=()),
    Plant(
        name="process id",
        program="sampled",
        both=(("floor=float(", "floor=os.getpid() % 97 / 1000 + 0 * float("),),
        kind="per_process",
        words=(),
    ),
    Plant(
        name="parts as a set",
        program="scales",
        both=(('PARTS = ["cosine", "sine", "square"]', 'PARTS = set("cosine sine square".split())'),),
        kind="hash_order",
        words=("PYTHONHASHSEED",),
    ),
)

UNCHANGED = tuple(Plant(name=f"unchanged {program}", program=program) for program in PROGRAMS)
