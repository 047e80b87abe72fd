"""A back end that stands in the script is the compiler: it is kept whole or goes, and no candidate changes it."""

from __future__ import annotations

import pytest

from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.scripts.back_ends import texts_of
from dynadiag.reduce.scripts.oracle import Conditions, ScriptOracle
from dynadiag.reduce.scripts.passes.statements import executing_only
from dynadiag.reduce.scripts.program import Facts, parsed
from dynadiag.reduce.scripts.slicing import Slicer

PICKY = """
import torch
from torch._dynamo.backends.common import aot_autograd

def looks(node):
    return "sigmoid" in str(node.target)

def forward(gm, inputs):
    return gm.forward

def backward(gm, inputs):
    for node in gm.graph.nodes:
        if looks(node):
            raise NotImplementedError("no sigmoid")
    return gm.forward

picky = aot_autograd(fw_compiler=forward, bw_compiler=backward)

def step(x):
    y = torch.tanh(x)
    return torch.sigmoid(y).sum()

compiled = torch.compile(step, backend=picky)
compiled(torch.randn(3)).backward()
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (PICKY, {"looks", "forward", "backward"}),
        ("def mine(gm, i):\n    return gm\ntorch.compile(f, backend=mine)\ndef f(x):\n    return x", {"mine"}),
        (
            "@torch.compile(backend=make(3))\ndef f(x):\n    return x\ndef make(n):\n    return helper\ndef helper():\n    pass",
            {"make", "helper"},
        ),
        ("@register_backend\ndef mine(gm, i):\n    return gm", {"mine"}),
        ("@torch._dynamo.register_backend(name='a')\ndef mine(gm, i):\n    return gm", {"mine"}),
        ("def mine(gm, i):\n    return gm\ntorch._dynamo.register_backend(mine, 'a')", {"mine"}),
        ("class Config:\n    backend = 'eager'\nconfig = Config()\ntorch.compile(f, backend=config.backend)", set()),
        ("def parse():\n    return 1\nargs = parse()\nname = args.backend\ntorch.compile(f, backend=name)", set()),
        ("a = b\nb = a\ntorch.compile(f, backend=a)", set()),
    ],
)
def test_which_definitions_are_the_compiler(text, names):
    assert set(texts_of(parsed(text, "script.py").tree)) == names


def test_a_back_end_stays_whole_or_goes():
    slicer = Slicer(parsed(PICKY, "script.py"))
    last = slicer.build(slicer.items[-1:]).text
    assert "backward()" in last and "        if looks(node):" in last and "tanh" not in last
    assert "looks" not in slicer.build(slicer.items[:1]).text
    alone = [slicer.build([number]).text for number in slicer.items]
    assert all("raise NotImplementedError" in text for text in alone if "def backward" in text)


def test_an_uncompiled_run_says_nothing_of_it():
    program = parsed(PICKY, "script.py")
    ran = [number for number, line in enumerate(program.text.splitlines(), 1) if "node" not in line and "tanh" not in line]
    first = next(executing_only(lambda _: Facts(key=program.key, lines=frozenset(ran)))(program))
    assert "if looks(node):" in first.text and "tanh" not in first.text


def test_a_changed_compiler_costs_no_question():
    program = parsed(PICKY, "script.py")
    oracle = ScriptOracle(
        Failure(kind="runtime_error", phase="call"), Conditions(recorded=False, timeout_s=1), back_ends=texts_of(program.tree)
    )
    assert oracle.impossible(program) is None
    assert oracle.impossible(parsed(PICKY.replace("if looks(node)", "if True"), "s")) == "it changes the compiler: backward"
    assert oracle.impossible(parsed(PICKY.replace("torch.tanh(x)", "x"), "s")) is None
    assert oracle.thorough().back_ends == oracle.back_ends
