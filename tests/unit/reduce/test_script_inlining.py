"""Modules beside a script become part of it, or stay out with the reason."""

import contextlib
import io
import sys

import pytest

from dynadiag.reduce.scripts.inlining import join_local_modules
from dynadiag.reduce.scripts.program import read_script


def joined(folder, script, **modules):
    for name, text in {"main": script, **modules}.items():
        (folder / f"{name}.py").write_text(text)
    return join_local_modules(read_script(folder / "main.py", []), folder)


def output_of(text):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, "joined", "exec"), {"__name__": "__main__"})
    return out.getvalue()


HELPER = """
'''What helps.'''
import math
LIMIT = 3
def double(x):
    total = x * 2
    return min(total, LIMIT) + math.floor(0.5)
class Box:
    size = LIMIT
if __name__ == "__main__":
    print("not this")
"""
WAYS = {
    "from": "from helper import double, Box\nprint(double(1), Box.size)",
    "from as": "from helper import double as twice\nprint(twice(5))",
    "star": "from helper import *\nprint(double(1), LIMIT)",
    "module": "import helper\nprint(helper.double(1), helper.LIMIT)",
    "module as": "import helper as h, math\nprint(h.double(1), math.pi)",
    "twice": "import math\nfrom helper import double\nx = double(1)\nfrom helper import LIMIT\nprint(x, LIMIT, math.pi)",
    "a local of the same name": "from helper import double\ndef run(total):\n    return double(total)\nprint(run(1))",
    "same import later": "from helper import double\nimport math\nprint(double(1), math.pi)",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_joined_program_does_the_same_alone(way, tmp_path, monkeypatch):
    result = joined(tmp_path, WAYS[way], helper=HELPER)
    assert result.stay == ()
    assert "helper" not in result.program.text
    alone = output_of(result.program.text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    assert alone == output_of(WAYS[way])
    sys.modules.pop("helper", None)


def test_a_module_that_imports_another_one(tmp_path):
    modules = {"one": "from two import b\ndef a():\n    return b() + 1", "two": "def b():\n    return 1"}
    result = joined(tmp_path, "from one import a\nprint(a())", **modules)
    assert (output_of(result.program.text), result.stay) == ("2\n", ())


@pytest.mark.parametrize(
    ("script", "helper", "reason"),
    [
        ("from helper import f\nLIMIT = 1\nprint(f())", "LIMIT = 3\ndef f():\n    return LIMIT", "both use the name LIMIT"),
        ("from helper import f\nsum = 1\nprint(f())", "def f():\n    return sum([1])", "both use the name sum"),
        ("from helper import f\nprint(sum([1]))", "def sum(x):\n    return 0\ndef f():\n    return 1", "both use the name sum"),
        ("import helper\nprint(helper)", "x = 1", "used as an object"),
        ("import helper\nhelper.x = 2", "x = 1", "used as an object"),
        ("import helper\ndef f(x):\n    return helper.x + x\nprint(f(1))", "x = 1", "already defines x"),
        ("from helper import f", "g = 1", "does not define f"),
        ("from helper import f", "f = __file__", "its own __file__"),
        ("from helper import f", "from .other import f", "relative imports"),
        ("from helper import f", "from __future__ import annotations\nf = 1", "__future__"),
        ("from helper import f", "f = (", "is not Python"),
    ],
)
def test_what_would_change_the_meaning_stays_out(script, helper, reason, tmp_path):
    result = joined(tmp_path, script, helper=helper)
    assert len(result.stay) == 1 and result.stay[0].startswith("helper.py stays a separate file: ") and reason in result.stay[0]
    assert result.program.text == read_script(tmp_path / "main.py", []).text


def test_other_imports_are_left_alone(tmp_path):
    result = joined(tmp_path, "import json\nimport os.path\nfrom . import x\n")
    assert (result.program.text, result.stay) == ("import json\nimport os.path\nfrom . import x\n", ())
