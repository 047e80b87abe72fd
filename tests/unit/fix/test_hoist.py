"""What is made anew each time is found by what it calls, whatever the program calls torch."""

import pytest

from dynadiag.changes.hoist import makes_constant, out_of_function, out_of_loops
from dynadiag.errors import EditError
from dynadiag.source.imports import parse_imports

LOOP = "import torch\n\nfor x in data:\n    step = torch.compile(f)\n    step(x)\n"
MADE = "import torch\n\n\ndef f(x):\n    scale = torch.tensor([2.0])\n    return x * scale\n"


def renamed(text: str) -> str:
    return text.replace("import torch", "import torch as th").replace("torch.", "th.")


def imported(text: str, name: str) -> str:
    return text.replace("import torch", f"from torch import {name}").replace("torch.", "")


@pytest.mark.parametrize(
    ("text", "made"),
    [(LOOP, "torch.compile(f)"), (renamed(LOOP), "th.compile(f)"), (imported(LOOP, "compile"), "compile(f)")],
)
def test_a_compilation_leaves_its_loop(text, made):
    (((before, taken), target),) = out_of_loops("a.py", text, None)
    assert (before.new, taken.old, taken.new, target) == ((f"step = {made}",), (f"step = {made}",), (), "step")


@pytest.mark.parametrize(
    ("text", "made"),
    [(MADE, "torch.tensor([2.0])"), (renamed(MADE), "th.tensor([2.0])"), (imported(MADE, "tensor"), "tensor([2.0])")],
)
def test_a_constant_leaves_its_function_under_the_names_of_the_program(text, made):
    line = text.splitlines()[4].strip()
    assert makes_constant(line, parse_imports(text.splitlines()[0]))
    (before, at_line), name = out_of_function("a.py", text, 5)
    assert before.new[0] == f"f_scale = {made}" and at_line.new == ("scale = f_scale",) and name == "f_scale"


def test_what_is_not_torchs_stays():
    other = MADE.replace("import torch", "import mine as torch_like").replace("torch.", "torch_like.")
    assert not makes_constant(other.splitlines()[4].strip(), parse_imports(other.splitlines()[0]))
    assert list(out_of_loops("a.py", LOOP.replace("import torch", "from mine import compile").replace("torch.", ""), None)) == []
    with pytest.raises(EditError, match="is not there before the function"):
        out_of_function("a.py", MADE.replace("import torch", "import numpy"), 5)
