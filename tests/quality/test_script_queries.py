"""How small `dynadiag minify SCRIPT` gets a script, in how many questions: bounds, so that neither grows unseen.

The questions are answered by a few lines that stand for torch, in a millisecond each. With torch itself, from the command line to a proven
file: `tests/with_torch/test_mcp.py`.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
import types

import pytest

pytest.importorskip("torch")

from dynadiag.reduce.core.reduction import Options  # noqa: E402
from dynadiag.reduce.scripts.inlining import join_local_modules  # noqa: E402
from dynadiag.reduce.scripts.oracle import ScriptRun  # noqa: E402
from dynadiag.reduce.scripts.program import read_script  # noqa: E402
from dynadiag.reduce.scripts.recorded_failures import Failure  # noqa: E402
from dynadiag.reduce.scripts.reduction import reduce_script_program  # noqa: E402

SCRIPT = """
import torch
from training import layers


def main():
    compiled = torch.compile(layers, backend="eager")
    for step in range(3):
        compiled(torch.randn(8, 16))


if __name__ == "__main__":
    main()
"""
# In a module beside the script: the file must stand alone.
MODULE = """
import torch


def layers(x):
    x = torch.relu(x)
    print("a first break")
    if x.mean() > 0:
        x = x + 1
    return x.sum()
"""
MOST_STATEMENTS, MOST_QUERIES = 5, 45
PRINTED = Failure(kind="graph_break", phase="trace", message="GB0059 of a print")
BRANCHED = Failure(kind="graph_break", phase="trace", message="GB0170 data-dependent jump")


class Tensor:
    """Gives itself for whatever is done to it; asked whether it is true, a compiled function breaks."""

    def __init__(self, met):
        self.met = met

    def __getattr__(self, name):
        return lambda *values: self

    def __add__(self, other):
        return self

    def __gt__(self, other):
        return self

    def __bool__(self):
        self.met.append(BRANCHED)
        return True


def breaks_of(text):
    """The breaks of a program in the order in which they are met, until something ends it."""
    met, compiling = [], []

    def compile_function(function=None, **_):
        def call(*values):
            compiling.append(function)
            try:
                return function(*values)
            finally:
                compiling.pop()

        return compile_function if function is None else call

    torch = types.ModuleType("torch")
    tensor = Tensor(met)
    torch.compile = compile_function
    torch.__getattr__ = lambda name: lambda *values, **_: tensor
    names = {"__name__": "__main__", "__builtins__": vars(builtins) | {"print": lambda *_: compiling and met.append(PRINTED)}}
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Exception):
        patch.setitem(sys.modules, "torch", torch)
        exec(compile(text, "candidate.py", "exec"), names)
    return tuple(met)


def test_a_break_chosen_by_its_text_ends_as_a_small_file_in_few_questions(tmp_path, monkeypatch):
    (tmp_path / "training.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT)

    def see(program, conditions, *, eager=False, look=False):
        return ScriptRun(failures=() if eager else breaks_of(program.text))

    for module in ("reduction", "oracle"):
        monkeypatch.setattr(f"dynadiag.reduce.scripts.{module}.see", see)
    program = join_local_modules(read_script(tmp_path / "script.py", ()), tmp_path).program
    found = reduce_script_program(program, Options(kind="graph_break", match="GB0170"))
    source = found.best.text
    assert program.statements == 13
    assert found.complete and found.confirmed.failure.message == BRANCHED.message
    assert found.best.statements <= MOST_STATEMENTS, source
    assert sum(found.queries.values()) <= MOST_QUERIES
    assert "a first break" not in source and "relu" not in source and "training" not in source
