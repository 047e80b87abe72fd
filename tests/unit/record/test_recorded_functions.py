"""The source of a function that is compiled again is recorded once, and a stack of another shape loses no record."""

import ast
import json
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from dynadiag.record.inside import Recorder
from dynadiag.torch_compat.trace import stacks, structured
from dynadiag.torch_compat.trace.hooks import Hooks

HERE = str(Path(__file__))


def of_interest(x, scale):  # the function that is "compiled"
    y = x * scale
    return y + 1


class Log:
    def __init__(self):
        self.written, self._seen = [], set()

    def once(self, key):
        return key not in self._seen and not self._seen.add(key)

    def artifact(self, name, payload, keys):
        self.written.append((name, payload))


def start(number, line):
    """`dynamo_start` as torch 2.6 to 2.15 writes it: the callers, then the frame itself."""
    return {"stack": [{"line": 1, "name": "<module>", "filename": 1, "loc": ""}, {"line": line, "name": "of_interest", "filename": number}]}


def preceded(monkeypatch, *metadata, kind="dynadiag_source"):
    monkeypatch.setattr(structured, "interned_strings", lambda: {"main.py": 1, HERE: 7})
    monkeypatch.setattr(stacks, "torch_folder", lambda: "/torch/")
    recorder, log = Recorder(None, "0"), Log()
    log.once(("config", repr({})))
    monkeypatch.setattr("dynadiag.record.inside.options.changes", dict)
    for one in metadata:
        recorder._precede(log, one, None)
    return [payload for name, payload in log.written if name == kind]


def test_a_function_that_is_compiled_again_is_recorded_once(monkeypatch):
    line = of_interest.__code__.co_firstlineno
    first, again = ({"dynamo_start": start(7, line), "frame_id": 0, "frame_compile_id": number} for number in (0, 1))
    assert preceded(monkeypatch, first) == []
    source, imports = preceded(monkeypatch, first, again, {**again, "frame_compile_id": 2})
    assert imports["text"].split("\n")[0] == "import ast"
    assert (source["file"], source["line"]) == (HERE, line)
    assert source["text"].startswith("def of_interest(x, scale):") and "    return y + 1" in source["text"]


def test_an_import_over_several_lines_is_recorded_as_one(monkeypatch, tmp_path):
    file = tmp_path / "net.py"
    file.write_text(
        "import torch as th\nfrom torch import (  # all\n    where,  # one\n    relu as rl,\n)\nfrom math import (exp,\n    log)\nx = 1\n"
    )
    monkeypatch.setattr(stacks, "torch_folder", lambda: "/torch/")
    found = stacks.imports_of(str(file))
    assert found["text"] == "import torch as th\nfrom torch import ( where, relu as rl, )\nfrom math import (exp, log)"
    assert ast.parse(found["text"])
    file.write_text("x = 1\n")
    assert stacks.imports_of(str(tmp_path / "missing.py")) is None


@pytest.mark.parametrize("broken", [None, [], {}, {"stack": []}, {"stack": [{}]}, {"stack": [{"filename": "x", "line": 3}]}, start(99, 3)])
def test_a_stack_of_another_shape_is_left_out(monkeypatch, broken):
    assert preceded(monkeypatch, {"dynamo_start": broken, "frame_compile_id": 1}) == []


class Sink:
    def __init__(self):
        self.errors = []

    def failed(self, hook, error):
        self.errors.append((hook, str(error)))


def test_a_record_that_torch_cannot_serialise_does_not_end_the_program(monkeypatch):
    def trace_structured(name, metadata_fn=dict, *, payload_fn=lambda: None):
        metadata_fn()
        json.dumps(payload_fn())

    internal = ModuleType("torch.missing_operator")
    internal.__file__, internal.trace_structured = __file__, trace_structured
    monkeypatch.setitem(sys.modules, "torch.missing_operator", internal)
    sink = Sink()
    structured._guard_payloads(internal, Hooks(sink))
    files = []
    internal.trace_structured("artifact", lambda: files.append(sys._getframe(1).f_code.co_filename), payload_fn=lambda: {"value": object()})
    assert files == [__file__]  # no file of ours in a stack that torch records
    ((hook, error),) = sink.errors
    assert hook == "trace_structured artifact" and "not JSON serializable" in error


class Outer:
    @staticmethod
    def decorated(
        x,
        y=")",
    ):
        def inner(z):
            return z

        # the end
        return inner(x)


def test_a_function_is_recorded_whole_when_it_is_first_compiled(monkeypatch):
    line = of_interest.__code__.co_firstlineno
    first, again = ({"dynamo_start": start(7, line), "frame_id": 0, "frame_compile_id": number} for number in (0, 1))
    (function,) = preceded(monkeypatch, first, again, kind="dynadiag_function")
    assert (function["file"], function["line"], function["name"]) == (HERE, line, "of_interest")
    assert function["text"].split("\n")[0].startswith("def of_interest") and function["text"].endswith("return y + 1")


def test_a_function_begins_at_its_def_and_ends_where_it_ends(monkeypatch):
    monkeypatch.setattr(stacks, "torch_folder", lambda: "/torch/")
    begin = Outer.decorated.__code__.co_firstlineno
    found = stacks.whole_function(HERE, begin)
    assert found is not None and (found["line"], found["name"]) == (begin + 1, "Outer.decorated")
    assert (found["text"].split("\n")[0], found["text"].split("\n")[-1]) == ("def decorated(", "    return inner(x)")
    stack = f'  File "{HERE}", line {begin + 6}, in inner\n    return z\n  File "{HERE}", line {begin + 9}, in decorated\n'
    assert [one["name"] for one in stacks.functions_named_in([stack, stack])] == ["Outer.decorated.inner", "Outer.decorated"]


@pytest.mark.parametrize(("file", "line"), [(HERE, 0), (HERE, 10**9), ("/nowhere.py", 3), ("/torch/nn.py", 3), ("<string>", 1)])
def test_what_is_no_own_function_is_not_recorded(monkeypatch, file, line):
    monkeypatch.setattr(stacks, "torch_folder", lambda: "/torch/")
    assert stacks.whole_function(file, line) is None


def test_the_imports_of_a_file_that_a_message_names_are_recorded(monkeypatch, tmp_path):
    monkeypatch.setattr(stacks, "is_library", lambda file: False)
    file = tmp_path / "train.py"
    file.write_text('"""A script."""\n\nimport torch\nfrom torch import nn\n\ndef f(x):\n    import math\n    return x.item()\n')
    found = {one["line"]: one["text"] for one in stacks.statements_named_in(f'  File "{file}", line 8, in f\n    return x.item()\n')}
    assert found[3] == "import torch\nfrom torch import nn" and found[6].startswith("def f(x):")


def test_functions_that_are_called_behind_a_break_are_recorded_whole_where_one_has_the_name(monkeypatch, tmp_path):
    monkeypatch.setattr(stacks, "torch_folder", lambda: "/torch/")
    text = """
    class Net:
        def forward(self, x):
            early(x)
            y = breaks(x)
            self.log(y)
            return twice(y) + y.sum(late(y)) + forward(y)

        def log(self, y):
            print(y)

        def twice(self, y):
            return y

    def twice(y):
        return y

    def late(y):
        return y.item()

    def early(y):
        return y
    """
    file = tmp_path / "net.py"
    file.write_text(textwrap.dedent(text).lstrip())
    found = stacks.functions_called_after(f'  File "{file}", line 4, in forward\n    y = breaks(x)\n  File "/torch/x.py", line 1, in y\n')
    assert [(one["name"], one["line"]) for one in found] == [("Net.log", 8), ("late", 17)]
    assert found[1]["text"] == "def late(y):\n    return y.item()"


def test_what_may_catch_an_exception_around_a_line_of_a_script_is_recorded_whole(monkeypatch, tmp_path):
    monkeypatch.setattr(stacks, "is_library", lambda file: False)
    file = tmp_path / "train.py"
    text = "try:\n    with suppress(E):\n        step(1)\n\n    step(2)\nexcept ValueError:\n    step(3)\nfinally:\n    pass"
    file.write_text(f"for n in m:\n{textwrap.indent(text, '    ')}\nlast()\n")
    found = {
        number: [(one["line"], one["text"]) for one in stacks.statements_named_in(f'  File "{file}", line {number}, in <module>\n')][1:]
        for number in (4, 6, 8)
    }
    assert found == {4: [(3, "with suppress(E):\n    step(1)"), (2, text)], 6: [(2, text)], 8: []}


def test_the_statement_around_a_line_of_a_script_is_recorded_where_the_line_is_only_a_part_of_it(monkeypatch, tmp_path):
    monkeypatch.setattr(stacks, "is_library", lambda file: False)
    file = tmp_path / "train.py"
    file.write_text("for t in n:\n    print(\n        t,\n        step(x)[\n            0\n        ],\n    )\n    step(y)\n")

    def around(line, function="<module>"):
        return list(stacks.innermost_own_statement([{"file": str(file), "line": line, "function": function}]))

    text = "print(\n    t,\n    step(x)[\n        0\n    ],\n)"
    assert around(4) == around(5) == [{"file": str(file), "line": 2, "text": text}]
    assert around(8) == around(1) == around(99) == around(4, "main") == []


REASON = """Graph break in user code at {file}:6
User code traceback:
  File "{own}", line 3, in f
    pool(x)
  File "/opt/lib/python3.12/site-packages/torch/_dynamo/polyfills/__init__.py", line 4, in made
    init()
  File "{file}", line 6, in pool
    size = int(x.max())

Traceback (most recent call last):
  File "{other}", line 3, in never
"""


def test_functions_of_a_library_between_an_own_line_and_the_break_are_recorded_with_what_the_environment_sets(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "torch_folder", lambda: "/torch/")
    package = tmp_path / "site-packages" / "lib"
    inner = package / "inner"
    inner.mkdir(parents=True)
    for folder in (package, inner):
        (folder / "__init__.py").write_text("")
    (package / "_config.py").write_text('import os\nlazy = os.environ.get("LIB_LAZY", "0")\nset("off", os.getenv("LIB_OFF"))\n')
    file = inner / "core.py"
    file.write_text("import os\n\n\ndef pool(x, size=None):\n    if size is None:\n        size = int(x.max())\n    return size\n")
    (tmp_path / "train.py").write_text("def f(x):\n    y = x\n    pool(x)\n")
    (found,) = stacks.library_functions_named_in(REASON.format(file=file, own=tmp_path / "train.py", other=file))
    assert (found["file"], found["line"], found["name"]) == (str(file), 4, "pool")
    assert found["text"].endswith("        size = int(x.max())\n    return size")
    assert found["environment"] == {"lazy": "LIB_LAZY", "lib_off": "LIB_OFF"}
    assert list(stacks.library_functions_named_in("Graph break\nwithout a stack")) == []


def test_functions_that_an_error_says_were_traced_are_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "torch_folder", lambda: "/torch/")
    file = tmp_path / "train.py"
    file.write_text("def have(name):\n    return probe(name)\n\n\ndef f(x):\n    return have(x)\n")
    told = f'Error: no\n\nfrom user code:\n   File "{file}", line 6, in f\n    return have(x)\n  File "{file}", line 2, in have\n'
    assert [one["name"] for one in stacks.functions_traced_in(f"{told}    return probe(name)\n\nSet TORCHDYNAMO_VERBOSE=1")] == [
        "f",
        "have",
    ]
    assert list(stacks.functions_traced_in("Error: no")) == []
