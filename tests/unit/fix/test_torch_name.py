"""New lines name torch as the module does, and a module without it gets its import."""

from __future__ import annotations

import pytest

from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, applied, placed
from dynadiag.fix.texts import changed
from dynadiag.fix.torch_name import with_torch_named

BODY = """
def step(x):
    y = x * 2
    if y.sum() > 0:
        y = y + 1
    return y
"""
OLD = ("if y.sum() > 0:", "    y = y + 1")
NEW = ("y = torch.where(y.sum() > 0, y + 1, y)",)


def result(text: str, *, near: int, new: tuple[str, ...] = NEW, marked: bool = False) -> str:
    edit = with_torch_named(Edit(file="a.py", old=OLD, new=new, near=near), text)
    one = Candidate(id="x1", slug="if-where", text="", edits=(edit,), spans=(placed(text, edit),), cures=("f",), branch=True)
    return changed({"a.py": text}, [one], marked=marked)["a.py"]


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("import torch", "torch"),
        ("import torch.nn", "torch"),
        ("import torch as th", "th"),
        ("try:\n    import torch as T\nexcept ImportError:\n    T = None", "T"),
        ("import torch as th\nimport torch", "torch"),
    ],
)
def test_the_name_is_that_of_the_module(imports, name):
    text = f"{imports}\n{BODY}"
    expected = text.replace("    if y.sum() > 0:\n        y = y + 1", f"    y = {name}.where(y.sum() > 0, y + 1, y)")
    assert result(text, near=imports.count("\n") + 5) == expected


@pytest.mark.parametrize(
    "top",
    [
        "",
        "from torch import nn\n",
        "import torch.nn as nn\n",
        '"""What it is."""\nfrom __future__ import annotations\n',
        "class A:\n    import torch\n\n",
        "def other():\n    import torch\n\n",
    ],
)
def test_a_module_without_the_name_gets_an_import(top):
    text = f"{top}{BODY}"
    new = result(text, near=text.split("\n").index("    if y.sum() > 0:") + 1)
    assert new.split("\n").count("import torch") == 1 and "torch.where(" in new
    assert new.replace("import torch\n", "", 1).count("\n") <= text.count("\n")
    compile(new, "a.py", "exec")
    marked = result(text, near=text.split("\n").index("    if y.sum() > 0:") + 1, marked=True)
    assert "torch.where(dynadiag_select__('x1', y.sum() > 0), y + 1, y)" in marked


def test_an_import_in_the_function_itself_is_one():
    text = "\ndef step(x):\n    import torch as local\n    y = x * 2\n    if y.sum() > 0:\n        y = y + 1\n    return y\n"
    assert "y = local.where(" in result(text, near=5) and "import torch\n" not in result(text, near=5)


def test_a_condition_can_be_forced_by_whichever_name():
    text = f"import torch as th\n{BODY}"
    assert "y = th.where(dynadiag_select__('x1', y.sum() > 0), y + 1, y)" in result(text, near=5, marked=True)


def test_only_the_name_is_changed():
    new = ("y = torch.where(torch.ones_like(y) > 0, a.torch, y)  # torch", "s = 'torch'")
    expected = ("y = th.where(th.ones_like(y) > 0, a.torch, y)  # torch", "s = 'torch'")
    edit = with_torch_named(Edit(file="a.py", old=OLD, new=new, near=5), f"import torch as th\n{BODY}")
    assert edit.new == expected


def test_an_option_is_set_by_the_modules_name():
    text = f"import torch as th\n{BODY}"
    edit = with_torch_named(Edit(file="a.py", old=(), new=("torch._dynamo.config.x = True",)), text)
    assert applied(text, edit)[0].startswith("import torch as th\nth._dynamo.config.x = True\n")
