"""`dynamic=True` at the one `torch.compile` of a script, and a model compiled as another object than before."""

from __future__ import annotations

import pytest

from dynadiag.changes.dynamic import compiled_dynamic, compiled_static
from dynadiag.changes.edits import applied
from dynadiag.changes.train_step_edits import compiled_apart
from dynadiag.errors import EditError
from dynadiag.fix.moves import PROOF_NAMES

STEP = """import torch
model = torch.nn.Linear(2, 2)

@torch.compile(backend="eager")
def step(x):
    model(x).sum().backward()
"""


@pytest.mark.parametrize(
    ("row", "new"),
    [
        ("f = torch.compile(step)", "f = torch.compile(step, dynamic=True)"),
        ("f = torch.compile(step, backend='eager')  # as é", "f = torch.compile(step, backend='eager', dynamic=True)  # as é"),
        ("@torch.compile\ndef f(x): return x", "@torch.compile(dynamic=True)\ndef f(x): return x"),
        ("@torch.compile()\ndef f(x): return x", "@torch.compile(dynamic=True)\ndef f(x): return x"),
        ("f = torch.compile(step, dynamic=False)", None),
        ("f = torch.compile(step, **options)", None),
        ("f = torch.compile(\n    step,\n)", "f = torch.compile(\n    step,\n    dynamic=True,\n)"),
        ("g = [torch.compile(\n  step,\n  mode=None)]", "g = [torch.compile(\n  step,\n  mode=None,\n  dynamic=True)]"),
        ("f = partial(torch.compile, backend='eager')", None),
        ("f = torch.compile(one)\ng = torch.compile(two)", None),
    ],
)
def test_sizes_are_symbols_from_the_first_call_where_one_place_says_how_it_is_compiled(row, new):
    text = f"import torch\n\n{row}\n"
    if new is None:
        with pytest.raises(EditError):
            compiled_dynamic("a.py", text)
    else:
        assert applied(text, compiled_dynamic("a.py", text))[0] == f"import torch\n\n{new}\n"


def test_of_several_places_the_one_that_compiles_what_is_recompiled():
    text = "import torch\n\nf = torch.compile(one)\nnet.g = torch.compile(net.two, mode=None)\n"
    edit = compiled_dynamic("a.py", text, "two")
    assert applied(text, edit)[0].endswith("f = torch.compile(one)\nnet.g = torch.compile(net.two, mode=None, dynamic=True)\n")
    with pytest.raises(EditError, match="2 places"):
        compiled_dynamic("a.py", text, "three")


def test_every_place_is_told_that_sizes_are_no_symbols():
    text = "import torch\n\nf = torch.compile(one)\ng = torch.compile(two, mode=None)\n"
    new = [row for edit in compiled_static("a.py", text) for row in edit.new]
    assert new == ["f = torch.compile(one, dynamic=False)", "g = torch.compile(two, mode=None, dynamic=False)"]
    with pytest.raises(EditError, match="told already"):
        list(compiled_static("a.py", text.replace("two,", "two, dynamic=True,")))


def test_a_model_is_wrapped_where_torch_cannot_compile_it_in_place_and_nobody_asks_for_its_names():
    put, step = compiled_apart("a.py", STEP, "step", "model", PROOF_NAMES, in_place=False)
    assert put.new == ("model = torch.nn.Linear(2, 2)", "model = torch.compile(model, backend='eager')")
    assert step.new == () and step.observed == ("@dynadiag_watch__",)
    renamed = STEP.replace("import torch", "import torch as th").replace("torch.", "th.")
    assert "@th.compile" in compiled_apart("a.py", renamed, "step", "model", PROOF_NAMES, in_place=False)[1].old[0]
    imported = STEP.replace("import torch\n", "import torch\nfrom torch import compile as c\n").replace("@torch.compile", "@c")
    assert compiled_apart("a.py", imported, "step", "model", PROOF_NAMES, in_place=True)[1].old == ("@c(backend='eager')",)
    with pytest.raises(EditError, match="other names in its"):
        compiled_apart("a.py", f"{STEP}torch.save(model.state_dict(), 'a')\n", "step", "model", PROOF_NAMES, in_place=False)
