"""The hold-out: plants of the same kinds in other programs, first run when the code that finds causes was done."""

# ruff: noqa: E501 - a table with one row a cause
from __future__ import annotations

from benchmarks.start_causes.programs import Plant

PROGRAMS = {
    "conv": """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels, gain=0.5):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.gain = gain

    def forward(self, image):
        return image + self.gain * torch.relu(self.conv(image))


torch.manual_seed(1)
net = nn.Sequential(Block(3), Block(3)).eval()
forward = torch.compile(net)
image = torch.randn(2, 3, 8, 8)
with torch.no_grad():
    forward(image)
print("done")
""",
    "optimizer": """import torch

RATE = 0.05
DECAY = 0.9


def update(parameter, gradient, momentum):
    momentum = DECAY * momentum + gradient
    return parameter - RATE * momentum, momentum


fast = torch.compile(update)
torch.manual_seed(2)
state = [torch.randn(7), torch.randn(7), torch.zeros(7)]
for _ in range(2):
    state[0], state[2] = fast(*state)
print("done")
""",
    "tokens": """import torch
import torch.nn.functional as F


class Config:
    vocabulary = 20
    hidden = 8
    smoothing = 0.1


def loss_of(table, tokens, targets):
    logits = table[tokens] @ table.t()
    return F.cross_entropy(logits, targets, label_smoothing=Config.smoothing)


compiled_loss = torch.compile(loss_of)
torch.manual_seed(3)
table = torch.randn(Config.vocabulary, Config.hidden, requires_grad=True)
tokens = torch.randint(0, Config.vocabulary, (12,))
targets = torch.randint(0, Config.vocabulary, (12,))
compiled_loss(table, tokens, targets).backward()
print("done")
""",
    "features": """import torch

NAMES = ["mean", "std", "peak"]


def features(frame):
    found = []
    for name in NAMES:
        if name == "mean":
            found.append(frame.mean(-1))
        elif name == "std":
            found.append(frame.std(-1))
        else:
            found.append(frame.amax(-1) - 0.25)
    return torch.stack(found, -1)


extract = torch.compile(features, fullgraph=True)
frame = torch.arange(24.0).reshape(4, 6)
extract(frame)
print("done")
""",
    "two": """import torch


@torch.compile
def first(a):
    return torch.cos(a) + 3


@torch.compile
def second(b, factor):
    return (b * factor).sum(0)


a = torch.linspace(0, 1, 9)
b = torch.ones(5, 4)
first(a)
second(b, 2.0)
print("done")
""",
}

_TOP = ("import torch\n", "import torch\nimport torch._inductor.config\n")

PLANTS = (
    Plant(name="gain of a block", program="conv", edits=(("gain=0.5", "gain=0.6"),), kind="constant", words=("0.5", "0.6"), line="return image + self.gain"),
    Plant(name="learning rate", program="optimizer", edits=(("RATE = 0.05", "RATE = 0.01"),), kind="constant", words=("0.05", "0.01", "RATE"), line="return parameter - RATE"),
    Plant(name="momentum", program="optimizer", edits=(("DECAY = 0.9", "DECAY = 0.95"),), kind="constant", words=("0.9", "0.95", "DECAY"), line="momentum = DECAY"),
    Plant(name="label smoothing", program="tokens", edits=(("smoothing = 0.1", "smoothing = 0.2"),), kind="constant", words=("0.1", "0.2"), line="return F.cross_entropy("),
    Plant(name="whole number", program="two", edits=(("torch.cos(a) + 3", "torch.cos(a) + 4"),), kind="constant", words=("3", "4"), line="return torch.cos(a) + 4"),
    Plant(name="image size", program="conv", edits=(("torch.randn(2, 3, 8, 8)", "torch.randn(2, 3, 12, 8)"),), kind="input", words=("8", "12")),
    Plant(name="channels last", program="conv", edits=(("torch.randn(2, 3, 8, 8)", "torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)"),), kind="input", words=("stride",)),
    Plant(name="half precision", program="optimizer", edits=(("torch.randn(7), torch.randn(7), torch.zeros(7)", "torch.randn(7).bfloat16(), torch.randn(7).bfloat16(), torch.zeros(7).bfloat16()"),), kind="input", words=("parameter", "bfloat16")),
    Plant(name="more tokens", program="tokens", edits=(("(12,))\ntargets", "(13,))\ntargets"), ("Config.vocabulary, (12,))\ncompiled", "Config.vocabulary, (13,))\ncompiled")), kind="input", words=("tokens", "12", "13")),
    Plant(name="frozen table", program="tokens", edits=((", requires_grad=True", ""), (".backward()", "")), kind="input", words=("table", "requires_grad")),
    Plant(name="order of features", program="features", edits=(('["mean", "std", "peak"]', '["std", "mean", "peak"]'),), kind="operators", words=("mean",)),
    Plant(name="min for max", program="features", edits=(("frame.amax(-1) - 0.25", "frame.amin(-1) - 0.25"),), kind="operators", words=("amax", "amin"), line="found.append(frame.amin"),
    Plant(name="number in a branch", program="features", edits=(("- 0.25", "- 0.75"),), kind="constant", words=("0.25", "0.75"), line="found.append(frame.amax(-1) - 0.75"),
    Plant(name="one of two functions", program="two", edits=(("(b * factor).sum(0)", "(b + factor).sum(0)"),), kind="operators", words=("mul", "add"), line="return (b + factor)"),
    Plant(name="argument that is a number", program="two", edits=(("second(b, 2.0)", "second(b, 2.5)"),), kind="constant", words=("2.0", "2.5", "factor")),
    Plant(name="fallback option", program="conv", edits=(_TOP, ("forward = ", "torch._inductor.config.shape_padding = False\nforward = ")), kind="option", words=("shape_padding",), line="torch._inductor.config.shape_padding = False"),
    Plant(name="patched option", program="two", edits=(_TOP, ("first(a)\n", "with torch._inductor.config.patch(max_horizontal_fusion_size=7) if hasattr(torch._inductor.config, 'max_horizontal_fusion_size') else torch._inductor.config.patch(realize_reads_threshold=7):\n    first(a)\n")), kind="option", words=("7",), line="torch._inductor.config.patch("),
    Plant(name="option of a C++ kernel", program="features", edits=(_TOP, ("extract = ", "torch._inductor.config.cpp.min_chunk_size = 1024\nextract = ")), kind="option", words=("cpp.min_chunk_size", "1024"), line="torch._inductor.config.cpp.min_chunk_size = 1024"),
    Plant(name="mode", program="two", edits=(("@torch.compile\ndef first", '@torch.compile(mode="max-autotune-no-cudagraphs")\ndef first'),), kind="option", words=("max_autotune",), line="@torch.compile(mode="),
    Plant(name="warn only", program="optimizer", edits=(("RATE = 0.05", "torch.use_deterministic_algorithms(True, warn_only=True)\nRATE = 0.05"),), kind="setting", words=("deterministic",), line="torch.use_deterministic_algorithms("),
    Plant(name="medium precision", program="tokens", edits=(("class Config", 'torch.set_float32_matmul_precision("medium")\n\n\nclass Config'),), kind="setting", words=("matmul",), line="torch.set_float32_matmul_precision("),
    Plant(name="three threads", program="two", edits=(("a = torch.linspace", "torch.set_num_threads(3)\na = torch.linspace"),), kind="setting", words=("thread", "3"), line="torch.set_num_threads(3)"),
    Plant(name="autocast in bfloat16", program="tokens", edits=(("compiled_loss(table, tokens, targets).backward()", 'with torch.autocast("cpu", dtype=torch.bfloat16):\n    loss = compiled_loss(table, tokens, targets)\nloss.backward()'),), kind="setting", words=("autocast",), line="with torch.autocast("),
    Plant(name="joint pass", program="optimizer", edits=(_TOP, ("RATE = 0.05", "def tidy(graph):\n    return None\n\n\ntorch._inductor.config.joint_custom_pre_pass = tidy\nRATE = 0.05")), kind="custom_pass", words=("uuid",), line="torch._inductor.config.joint_custom_pre_pass = tidy"),
    Plant(name="moved folder", program="two", between="another folder", kind="cache_folder", words=("folder",)),
    Plant(name="deleted graphs", program="features", between="delete the graphs", kind="entry_gone", words=("entry",)),
    Plant(name="freezing", program="conv", variables={"TORCHINDUCTOR_FREEZING": "1"}, kind="not_cacheable", words=("freezing", "TORCHINDUCTOR_FREEZING")),
    Plant(name="graph cache off", program="optimizer", variables={"TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}, kind="caches_off", words=("TORCHINDUCTOR_FX_GRAPH_CACHE",)),
    Plant(name="clock", program="two", both=(("import torch\n", "import time\nimport torch\n"), ("torch.cos(a) + 3", "torch.cos(a) + time.time() % 10")), kind="per_process", words=()),
    Plant(name="names from a set", program="features", both=(('NAMES = ["mean", "std", "peak"]', 'NAMES = list({"mean", "std", "peak"})'),), kind="hash_order", words=("PYTHONHASHSEED",)),
)  # fmt: skip
UNCHANGED = tuple(Plant(name=f"unchanged {program}", program=program) for program in PROGRAMS)
"""The same program started again: everything must be warm."""
