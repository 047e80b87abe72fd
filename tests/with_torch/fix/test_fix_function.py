"""`dynadiag.fix(fn, *args)`: one function of a module, without a script."""

from __future__ import annotations

import sys

import pytest
import torch

import dynadiag
from dynadiag.errors import UsageError
from dynadiag.fix import function

pytestmark = pytest.mark.oldest
# Inductor compiles no kernel for it.
MODULE = """import torch


def step(x):
    y = x @ x
    print("now")
    return y @ x
"""


@pytest.mark.slow
def test_the_changes_of_one_function_are_proven_and_nothing_is_written(tmp_path, monkeypatch):
    file = tmp_path / "module_with_a_step.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import module_with_a_step

    if not torch.__version__.startswith("2.15"):  # once with Inductor is enough
        assert 'torch.compile(call["fn"])' in function._SCRIPT
        monkeypatch.setattr(function, "_SCRIPT", function._SCRIPT.replace('call["fn"])', 'call["fn"], backend="eager")'))
    result = dynadiag.fix(module_with_a_step.step, torch.ones(3, 3))
    assert result.cured == len(result.findings) == 1
    assert "torch._dynamo.config.reorderable_logging_functions.add(print)\n" in result.new_texts[str(file)]
    assert file.read_text() == MODULE and not list(tmp_path.glob("dynadiag*"))
    del sys.modules["module_with_a_step"]


def test_what_another_process_cannot_call_is_refused():
    with pytest.raises(UsageError, match="cannot be made in another process"):
        dynadiag.fix(lambda x: x, torch.ones(3))
