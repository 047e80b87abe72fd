"""A recompile because a setting of torch changed names the user's line that sets it."""

import pytest

from dynadiag.passes.find_recompiles import find_recompiles
from dynadiag.torch_compat.trace import stacks


def run_of(builders, state, *texts):
    run = builders.recompiled([f"0/0: GLOBAL_STATE changed: {state} "], [f"0/1: GLOBAL_STATE changed: {state} "])
    return builders.replace(run, blocks={(builders.SCRIPT, line): text for line, text in enumerate(texts, start=13)})


def test_the_line_that_sets_the_state_is_named(builders):
    (finding,) = find_recompiles(run_of(builders, "num_threads", "torch.set_num_threads(n)", 'print("set_num_threads(")')).findings
    assert "set at train.py:13 (`torch.set_num_threads(n)`)" in finding.why and "train.py:14" not in finding.why
    (advice,) = finding.fix
    assert advice.slug == "state-before-compile" and advice.text.startswith("`torch.set_num_threads(n)` (train.py:13) sets `num_threads`")


@pytest.mark.parametrize("state", ["grad_mode", "default_dtype"])
def test_a_line_that_sets_something_else_is_not_named(builders, state):
    (finding,) = find_recompiles(run_of(builders, state, "torch.set_num_threads(n)")).findings
    assert finding.fix == () and "set at" not in finding.why


def test_lines_are_looked_for_in_the_users_files_of_the_stack(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "torch_folder", lambda: "/env/site-packages/torch/")
    script = tmp_path / "train.py"
    script.write_text("import torch\n# torch.set_num_threads(1)\nfor n in (1, 2):\n    torch.set_num_threads(n)\n    step(n)\n")
    stack = [{"file": str(script), "line": 5}, {"file": "/env/site-packages/lib/a.py", "line": 1}]
    assert stacks.lines_that_set_state('["0/0: GLOBAL_STATE changed: grad_mode num_threads "]', stack) == [
        {"file": str(script), "line": 4, "text": "torch.set_num_threads(n)"}
    ]
    assert stacks.lines_that_set_state('["0/0: GLOBAL_STATE changed: grad_mode "]', stack) == []
