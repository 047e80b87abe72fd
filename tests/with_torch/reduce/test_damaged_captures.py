"""A captured graph that somebody changed is refused in one line, and none of it is run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from dynadiag.errors import UnreadableInputError
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.loading import load_capture
from dynadiag.reduce.graphs.observing import observe
from dynadiag.reduce.graphs.setting import Setting

TEXT = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[2]"):
        y = torch.relu(L_x_);  L_x_ = None
        return (y,)
"""


class Trap:
    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "setting.json").write_text(json.dumps({"backend": "eager", "configs": []}))
    (tmp_path / "graph.txt").write_text(TEXT)
    return tmp_path


@pytest.mark.parametrize("state", ["[]", "{}", '{"backend": 3, "grad": "yes"}', '{"configs": 7}', '{"configs": [[1]]}', "\x00"])
def test_a_setting_that_is_none(folder, state):
    (folder / "setting.json").write_text(state)
    with pytest.raises(UnreadableInputError, match="cannot be read"):
        load_capture(folder)


def test_a_pickled_payload_is_not_unpickled_and_its_danger_not_advised(folder):
    torch.save({"inputs": [Trap()]}, folder / "inputs.pt")
    with pytest.raises(UnreadableInputError, match="it was not unpickled") as caught:
        load_capture(folder)
    assert "weights_only" not in caught.value.message


@pytest.mark.parametrize("saved", [{}, {"inputs": 3}, [torch.ones(2)], {"inputs": [torch.ones(2)], "homes": [7], "requires_grad": ["a"]}])
def test_tensors_in_another_form(folder, saved):
    torch.save(saved, folder / "inputs.pt")
    with pytest.raises(UnreadableInputError, match="cannot be read"):
        load_capture(folder)


def test_a_graph_on_the_meta_device_can_be_asked_about():
    def add(x):
        return (x + 1,)

    told = []
    candidate = candidate_of(torch.fx.symbolic_trace(add), [torch.empty(2, device="meta")])
    observe(candidate, Setting(backend="eager"), told.append)
    assert {"passed": True} in told


def test_an_error_of_the_reducer_itself_is_one_line_and_a_traceback_in_its_log(tmp_path):
    (tmp_path / "job.json").write_text('{"captures": 3, "resume": false}')
    command = [sys.executable, "-m", "dynadiag.reduce.graph_worker", str(tmp_path / "job.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    told = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 2 and told["exit_code"] == 2 and told["error"].startswith("the reducer failed (see worker.log): ")
    assert "Traceback" in done.stderr
