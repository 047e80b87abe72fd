"""What a compiled driver calls is compiled instead of it: which regions are found, what they are called there, and what is left alone."""

from __future__ import annotations

import ast

import pytest

from dynadiag.changes.edits import applied
from dynadiag.changes.region_edits import ProofNames
from dynadiag.changes.smaller_region import Smaller, smaller_regions
from dynadiag.errors import EditError
from dynadiag.fix.standing import Standing, why_not_better

NAMES = ProofNames(watch="watch", apart="apart")
NET = """import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        return self.lin(x).relu()


"""
TRAINER = (
    NET
    + """def distance(a, b):
    return torch.norm(a - b)


class Trainer:
    def __init__(self, model):
        self.model, self.log = model, []

    def penalty(self, y):
        return torch.relu(y).sum()

    def step(self, x):
        y = self.model(x)
        loss = distance(y, x) + self.penalty(y)
        loss.backward()
        return loss


def main(backend):
    trainer = Trainer(Net())
    step = torch.compile(trainer.step, backend=backend)
    step(torch.randn(4, 4))
"""
)


def found(text: str, begin: str, *, part: bool = False) -> list[Smaller]:
    row = next(number for number, line in enumerate(text.splitlines(), start=1) if line.strip().startswith(begin))
    return [smaller for smaller in smaller_regions("a.py", text, {row}, NAMES) if is_part(smaller) == part]


def is_part(smaller: Smaller) -> bool:
    return any(name.endswith("_compiled_part") for name in smaller.names)


def changed(text: str, smaller: Smaller) -> str:
    for edit in sorted(smaller.edits, key=lambda edit: -(edit.near or 0)):
        text, _ = applied(text, edit)
    ast.parse(text)
    return text


def test_module_method_and_function_below_a_driver() -> None:
    whole, modules = found(TRAINER, "loss.backward")
    assert set(whole.names) == {"trainer.model", "distance", "trainer.penalty"}
    assert whole.drives
    new = changed(TRAINER, whole)
    assert "    trainer.model.compile(backend=backend)\n" in new
    assert "    trainer.penalty = torch.compile(trainer.penalty, backend=backend)\n" in new
    assert "    global distance\n    distance = torch.compile(distance, backend=backend)\n" in new
    assert "    step = trainer.step\n" in new
    assert modules.names == ("trainer.model",)


def test_proofs_watch_what_was_compiled_and_not_the_regions() -> None:
    (edit,) = found(TRAINER, "loss.backward")[-1].edits
    assert edit.observed == ("trainer.model.compile(backend=backend, apart=True)", "step = watch(trainer.step)")


def test_an_argument_that_all_calls_give_alike() -> None:
    text = NET + (
        "def step(model, x):\n    loss = model(x).sum()\n    loss.backward()\n\n\n"
        "def main():\n    net = Net()\n    run = torch.compile(step)\n    run(net, torch.randn(4))\n"
    )
    (smaller,) = found(text, "loss.backward")
    assert "    net.compile()\n    run = step\n" in changed(text, smaller)
    assert not found(text.replace("run(net, ", "run(Net(), "), "loss.backward")
    assert not found(text.replace("    run = torch", "    net = net.eval()\n    run = torch"), "loss.backward")


def test_a_module_that_breaks_itself_stays_plain_and_what_it_calls_is_compiled() -> None:
    text = NET.replace("return self.lin(x).relu()", "y = self.lin(x)\n        print(y.sum().item())\n        return y") + (
        "def main():\n    net = Net()\n    fast = torch.compile(net, dynamic=False)\n    fast(torch.randn(4, 4))\n"
    )
    (smaller,) = found(text, "print(")
    assert smaller.names == ("net.lin",)
    assert "    net.lin.compile(dynamic=False)\n    fast = net\n" in changed(text, smaller)


def test_each_module_of_a_list() -> None:
    text = NET + (
        "class Stack(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.parts = nn.ModuleList(Net() for _ in range(3))\n\n"
        "    def forward(self, x):\n        for part in self.parts:\n            x = part(x)\n        print(x.shape)\n"
        "        return x\n\n\n"
        "stack = Stack()\nfast = torch.compile(stack)\n"
    )
    (smaller,) = found(text, "print(x")
    assert "for part in stack.parts:\n    part.compile()\nfast = stack\n" in changed(text, smaller)


def test_two_drivers_share_their_regions() -> None:
    text = TRAINER.replace(
        "\n\ndef main", "\n    def score(self, x):\n        y = self.model(x)\n        y.backward()\n        return y\n\n\ndef main"
    ).replace("    step(torch", "    score = torch.compile(trainer.score, backend=backend)\n    step(torch")
    rows = {number for number, line in enumerate(text.splitlines(), start=1) if line.strip() in ("loss.backward()", "y.backward()")}
    both = next(smaller for smaller in smaller_regions("a.py", text, rows, NAMES) if not is_part(smaller))
    new = changed(text, both)
    assert new.count("trainer.model.compile(") == 1
    assert "step = trainer.step" in new
    assert "score = trainer.score" in new


@pytest.mark.parametrize(
    "text",
    [
        NET + "net = Net()\nfast = torch.compile(net)\n",  # nothing of it breaks
        NET + "def f(x, unknown):\n    unknown(x).backward()\n\n\ng = torch.compile(f)\n",  # what it calls is not known
    ],
)
def test_nothing_where_nothing_is_known(text: str) -> None:
    row = next((number for number, line in enumerate(text.splitlines(), start=1) if "backward" in line), 1)
    assert not list(smaller_regions("a.py", text, {row}, NAMES))


def test_a_name_that_is_used_before_it_would_be_global() -> None:
    text = TRAINER.replace("    trainer = Trainer", "    first = distance\n    trainer = Trainer")
    with pytest.raises(EditError, match="is used before"):
        found(text, "loss.backward")


def standing(operators: int, events: int, recompiles: int, warnings: dict[str, str]) -> Standing:
    counts = {"graph_break_sites": min(events, 1), "graph_break_events": events, "recompiles": recompiles, "fallbacks": 0}
    return Standing(findings=tuple(warnings), warnings=warnings, counts=counts, compiled=True, operators=operators)


def test_what_is_left_of_a_moved_region_counts_in_sum() -> None:
    before = standing(100, 20, 2, {"a": "GB0123 at line 3 (whole step)"})
    after = standing(60, 0, 3, {"b": "DR01 at line 9 (sizes)"})
    assert why_not_better(before, before, after, ["a"], moved=True) is None
    assert why_not_better(before, before, after, ["a"]) is not None
    assert "too little" in (why_not_better(before, before, standing(9, 0, 0, {}), ["a"], moved=True) or "")
    assert "together" in (why_not_better(before, before, standing(90, 0, 22, {}), ["a"], moved=True) or "")


def test_what_stood_behind_a_break_may_show_where_less_is_left_in_sum() -> None:
    before = standing(60, 9, 2, {"a": "GB0036 at line 3 (mask)"})
    after = standing(90, 0, 5, {"b": "DR02 at line 9 (sizes)"})
    assert why_not_better(before, before, after, ["a"]) is None
    assert "a new finding" in (why_not_better(before, before, standing(90, 0, 11, {"b": "DR02 at line 9 (sizes)"}), ["a"]) or "")
    assert "a new finding" in (why_not_better(before, before, standing(50, 0, 5, {"b": "DR02 at line 9 (sizes)"}), ["a"]) or "")


def test_a_decorator_of_a_function_whose_model_is_global() -> None:
    text = NET + (
        "model = Net()\n\n\ndef distance(a, b):\n    return torch.norm(a - b)\n\n\n"
        '@torch.compile(backend="eager")\ndef step(x):\n    loss = distance(model(x), x)\n    loss.backward()\n\n\n'
        "for _ in range(3):\n    step(torch.randn(4, 4))\n"
    )
    whole, modules = found(text, "loss.backward")
    new = changed(text, whole)
    assert '@torch.compile(backend="eager")\ndef distance' in new
    assert "\n\ndef step(x):\n" in new
    assert 'model.compile(backend="eager")\nfor _ in range(3)' in new
    assert modules.names == ("model",)


def test_a_module_that_an_earlier_change_compiles_is_not_compiled_again() -> None:
    text = NET + (
        "model = Net()\n\n\n@torch.compile\ndef evaluate(x):\n    y = model(x)\n    y.sum().backward()\n    return y\n\n\n"
        "def main():\n    model.compile()\n    evaluate(torch.randn(4, 4))\n"
    )
    (smaller,) = found(text, "y.sum().backward")
    new = changed(text, smaller)
    assert new.count("model.compile(") == 1
    assert "@torch.compile" not in new


def test_a_decorator_of_a_method() -> None:
    text = TRAINER.replace("    def step", "    @torch.compile\n    def step").replace(
        "torch.compile(trainer.step, backend=backend)", "trainer.step"
    )
    new = changed(text, found(text, "loss.backward")[0])
    assert "        self.model, self.log = model, []\n        self.model.compile()\n" in new
    assert "    @torch.compile()\n    def penalty" in new
    assert "\n\n    def step" in new


def test_the_part_without_a_break_becomes_a_function_of_its_own() -> None:
    text = TRAINER.replace("        y = self.model(x)\n", "        x = self.crop(x)\n        y = self.model(x)\n").replace(
        "    def penalty", "    def crop(self, x):\n        return x[:, : random.randint(1, 4)]\n\n    def penalty"
    )
    rows = {number for number, line in enumerate(text.splitlines(), start=1) if "loss.backward" in line or "crop(x)" in line}
    part, *_ = smaller_regions("a.py", text, rows, NAMES)
    assert part.names == ("trainer.step_compiled_part",)
    new = changed(text, part)
    assert (
        "    def step_compiled_part(self, x):\n        y = self.model(x)\n"
        "        loss = distance(y, x) + self.penalty(y)\n        return loss\n\n    def step(self, x):\n"
        "        x = self.crop(x)\n        loss = self.step_compiled_part(x)\n        loss.backward()\n"
    ) in new
    assert "    trainer.step_compiled_part = torch.compile(trainer.step_compiled_part, backend=backend)\n" in new


@pytest.mark.parametrize(
    ("body", "given", "results"),
    [
        # what is read behind it, in the order of its names; what the loop carries is given and comes back
        ("    a = torch.relu(x)\n    b = a + torch.sin(x)\n    print(b)\n    return a\n", "x", "a, b"),
        ("    for _ in range(3):\n        x = torch.relu(x) + torch.sin(x)\n        print(x)\n    return x\n", "x", "x"),
        ("    x += torch.relu(x) * 2\n    print(x)\n    return x\n", "x", "x"),
        ("    a = torch.stack([torch.sin(p) for p in x])\n    print(a)\n    return a\n", "x", "a"),
    ],
)
def test_what_a_part_is_given_and_gives(body: str, given: str, results: str) -> None:
    text = f"import torch\n\n\ndef f(x):\n{body}\n\ng = torch.compile(f)\ng(torch.randn(4))\n"
    part = found(text, "print(", part=True)[0]
    assert f"{results} = f_compiled_part({given})" in changed(text, part)


@pytest.mark.parametrize(
    "body",
    [
        "    print(x)\n    return torch.relu(x) + torch.sin(x)\n",  # the result itself is no statement that can be left in its place
        "    n = max(1, min(len(x), 4)) + 2\n    print(n)\n    return n\n",  # nothing of torch
        "    x.n = torch.relu(x) + torch.sin(x)\n    print(x)\n    return x\n",  # an attribute is set
        "    if x.dim():\n        return torch.relu(x) + torch.sin(x)\n    print(x)\n    return x\n",  # it leaves the function
        "    text = torch.relu(x).describe('''a\n''') + 2\n    print(text)\n    return text\n",  # its lines cannot be moved
    ],
)
def test_what_is_no_part(body: str) -> None:
    text = f"import torch\n\n\ndef f(x):\n{body}\n\ng = torch.compile(f)\ng(torch.randn(4))\n"
    assert not found(text, "print(", part=True)


CLOSURE = (
    NET
    + """class Loss:
    def __init__(self):
        self.seen = 0

    def __call__(self, y, x):
        self.seen += int((y > 0).sum().item())
        return distance(y, x)


def distance(a, b):
    return torch.norm(a - b)


def main():
    net, loss = Net(), Loss()

    def noisy(x):
        return torch.relu(x) + torch.rand_like(x)

    def step(x):
        y = net(noisy(x))
        return loss(y, x)

    compiled = torch.compile(step)
    compiled(torch.randn(4, 4))
"""
)


def test_a_function_that_is_defined_where_it_is_compiled_knows_what_is_there() -> None:
    whole = found(CLOSURE, "return loss")[0]
    assert set(whole.names) == {"net", "noisy", "distance"}
    new = changed(CLOSURE, whole)
    assert "    net.compile()\n" in new and "    noisy = torch.compile(noisy)\n" in new and "    compiled = step\n" in new
    assert "    global distance\n" in new and "global noisy" not in new


def test_a_name_that_has_another_value_later_is_no_region() -> None:
    text = CLOSURE.replace("    compiled(torch", "    net = Net()\n    compiled(torch")
    assert all("net" not in smaller.names for smaller in found(text, "return loss"))


def test_the_largest_part_of_a_function_within_a_function_stays_there() -> None:
    text = CLOSURE.replace(
        "        y = net(noisy(x))\n", "        x = x * 2 + 1\n        x = torch.relu(x) + torch.sin(x)\n        y = net(noisy(x))\n"
    )
    (smaller,) = found(text, "return loss", part=True)
    new = changed(text, smaller)
    assert "    def step_compiled_part(x):\n" in new and "    step_compiled_part = torch.compile(step_compiled_part)\n" in new


MADE = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.log = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), []

    def forward(self, x):
        h = self.enc(x)
        self.log.append(h.sum().item())
        return h


def main():
    net = torch.compile(Net().to("cpu"), dynamic=True)
    net(torch.randn(4, 4))
"""


def test_what_is_compiled_where_it_is_made_has_its_parts_compiled_behind() -> None:
    (whole,) = found(MADE, "self.log.append")
    assert '    net = Net().to("cpu")\n    net.enc.compile(dynamic=True)\n    net(torch' in changed(MADE, whole)
    (edit,) = whole.edits
    assert edit.observed == ('net = watch(Net().to("cpu"))', "net.enc.compile(dynamic=True, apart=True)")


def test_what_would_only_be_given_to_itself_is_no_statement() -> None:
    text = MADE.replace('net = torch.compile(Net().to("cpu"), dynamic=True)', "net = Net()\n    net = torch.compile(net)")
    (whole,) = found(text, "self.log.append")
    assert "    net = Net()\n    net.enc.compile()\n    net(torch" in changed(text, whole)
    assert whole.edits[0].observed == ("net.enc.compile(apart=True)", "net = watch(net)")


@pytest.mark.parametrize("line", ["net = [torch.compile(Net())]", "net = other = torch.compile(Net())", "net = torch.compile(make())"])
def test_what_has_no_name_of_its_own_is_left(line: str) -> None:
    text = MADE.replace('net = torch.compile(Net().to("cpu"), dynamic=True)', line)
    assert list(smaller_regions("a.py", text, {12}, NAMES)) == []


BLOCKS = """

def block(n):
    return nn.Sequential(nn.Linear(n, n))


def stacked(n):
    layers = [nn.Linear(4, 4)]
    for _ in range(n):
        layers.append(block(4))
    return nn.Sequential(*layers)


def broken(n):
    layers = []
    for _ in range(n):
        layers += [nn.ReLU(), Net()]
    return nn.Sequential(*layers)
"""


@pytest.mark.parametrize(
    ("made", "is_region"),
    [
        ("nn.Sequential(nn.Linear(4, 4), nn.ReLU())", True),
        ("nn.Sequential(block(4), block(4))", True),
        ("nn.Sequential(nn.Linear(4, 4), Net())", False),
        ("nn.Sequential(*stack(3))", False),
        ("stacked(3)", True),
        ("broken(3)", False),
        ("nn.Sequential(layer)", False),
    ],
)
def test_a_container_whose_parts_are_plain_to_see_is_compiled(made: str, is_region: bool) -> None:
    text = MADE.replace("nn.Sequential(nn.Linear(4, 4), nn.ReLU())", made) + BLOCKS
    names = {name for smaller in found(text, "self.log.append") for name in smaller.names}
    assert ("net.enc" in names) == is_region


def test_before_torch_2_15_a_module_of_torchs_own_is_compiled_by_its_forward() -> None:
    """`Module.compile()` compiles nothing of it (2.11: 0 graphs for a Sequential and a Linear, 1 for a class of the user's)."""
    text = MADE.replace("self.enc, self.log", "self.own = Part()\n        self.enc, self.log").replace(
        "h = self.enc(x)", "h = self.own(self.enc(x))"
    )
    text += "\n\nclass Part(nn.Module):\n    def forward(self, x):\n        return x.relu()\n"
    row = next(number for number, line in enumerate(text.splitlines(), start=1) if "self.log.append" in line)
    (whole,) = (smaller for smaller in smaller_regions("a.py", text, {row}, NAMES, in_place=False) if not is_part(smaller))
    new = changed(text, whole)
    assert "    net.enc.forward = torch.compile(net.enc.forward, dynamic=True)\n" in new and "    net.own.compile(dynamic=True)\n" in new
