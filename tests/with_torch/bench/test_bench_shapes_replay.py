"""A script's shapes are noted while it runs, and replayed where it was taken over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import torch

from dynadiag.bench.inside import shapes as shapes_module
from dynadiag.bench.inside.loading import CompileSwitch
from dynadiag.bench.inside.script_step import ScriptStep, without_history
from dynadiag.bench.inside.shapes import ShapeLog, most_seen, parameter_names, signature_of
from dynadiag.capture.compiled_calls import CompiledCallable
from dynadiag.capture.reach import Mode

ROOT = Path(__file__).parents[3]


class Taken(BaseException):
    """Leaves the script in the middle of the call."""


LOOP = """
import torch

model = torch.compile(torch.nn.Linear(4, 4))
for number in range(12):
    rows = 2 if number % 3 else 5
    if number == 4:
        with torch.no_grad():
            model(torch.randn(rows, 4))
    model(torch.randn(rows, 4)).sum().backward()
"""


@pytest.fixture
def replay_of(tmp_path, monkeypatch):
    """Take a script over with its shapes; gives the unit and the replay."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(torch, "compile", torch.compile)

    def replay_of(source, *, call):
        path = tmp_path / "script.py"
        path.write_text(source)
        taken = []

        def hand_over(make):
            taken.append(make())
            raise Taken

        switch = CompileSwitch(arm="compiled", overrides={"backend": "aot_eager"})
        run = ScriptStep(str(path), arguments=(), call=call, chosen=None, switch=switch, hand_over=hand_over, shapes=True)
        with pytest.raises(Taken):
            run.run_until_taken()
        return taken[0], run.replay

    torch.compiler.reset()
    yield replay_of
    torch.compiler.set_stance("default")
    torch.compiler.reset()


def test_shapes_are_counted_and_the_one_of_most_calls_is_the_step(replay_of):
    unit, replay = replay_of(LOOP, call=10)
    assert unit.what.endswith("call 2 of Linear (script.py:4), the shapes of 6 of the first 10 calls")
    assert tuple(unit.arguments[0].shape) == (2, 4)
    listed = replay.listed()
    assert [(list(one["tensors"][0]["shape"]), one["calls"], one["first_call"]) for one in listed["shapes"]] == [
        ([5, 4], 3, 1),
        ([2, 4], 6, 2),
    ]
    assert listed["shapes"][0]["tensors"][0]["name"] == "input"
    assert listed["left_out"] == {"in a different mode (grad mode, autocast, training)": 1}


def test_each_shape_is_checked_and_compiled_in_the_order_of_the_loop(replay_of):
    _, replay = replay_of(LOOP, call=10)
    assert [replay.check(index)["status"] for index in range(2)] == ["PASS", "PASS"]
    # The first shape is compiled alone, the second makes its dimension dynamic.
    assert replay.settle() == {"graphs": 2, "breaks": 0, "recompiles": 1, "limit_hits": 0}
    assert [replay.regions(index) for index in range(2)] == [1.0, 1.0]
    assert not replay.block(1, 2).late


SIN = CompiledCallable(number=1, name="sin", place="", compiled=torch.sin, options={})


def test_arguments_beyond_the_limits_are_counted_and_not_kept(monkeypatch):
    monkeypatch.setattr(shapes_module, "MOST_SHAPES", 2)
    log = ShapeLog(without_history)
    for call, size in enumerate((3, 4, 5, 5, 4)):
        log.note(SIN, call + 1, (torch.zeros(size),), {})
    kept = [(one.calls, one.arguments is not None) for one in log.seen(1)]
    assert kept == [(1, True), (2, True), (2, False)]
    assert most_seen(log.seen(1), Mode.of(torch.sin)).calls == 2
    monkeypatch.setattr(shapes_module, "MOST_BYTES", 100)
    log = ShapeLog(without_history)
    log.note(SIN, 1, (torch.zeros(26),), {})
    log.note(SIN, 2, (torch.zeros(25),), {})
    assert [one.arguments is not None for one in log.seen(1)] == [False, True]


def test_arguments_that_were_resized_since_are_not_replayed():
    log, growing = ShapeLog(without_history), torch.zeros(3)
    log.note(SIN, 1, (growing,), {})
    growing.resize_(9)
    (seen,) = log.seen(1)
    assert not seen.is_whole and most_seen([seen], seen.mode) is None


def test_no_graph_of_earlier_operations_is_kept():
    log, weight = ShapeLog(without_history), torch.nn.Parameter(torch.ones(3))
    log.note(SIN, 1, (weight * 2,), {"more": [weight + 1]})
    (seen,) = log.seen(1)
    assert seen.arguments[0].is_leaf and seen.arguments[0].requires_grad and seen.keywords["more"][0].is_leaf


def test_names_of_what_a_callable_takes():
    def function(x, *rest, scale=1):
        return x

    assert parameter_names(function) == ("x",) and parameter_names(torch.nn.Linear(1, 1)) == ("input",)
    assert parameter_names(print) == () or isinstance(parameter_names(print), tuple)
    names = [name for name, *_ in signature_of((torch.zeros(1), {"a": torch.zeros(2)}), {"mask": torch.zeros(3), "n": 4}, ("x",))]
    assert names == ["x", "arguments[1]['a']", "mask"]


SCRIPT = """
import torch

@torch._dynamo.register_backend
def wrong_when_long(graph, inputs):
    return lambda *args: tuple(value * (1.5 if value.shape[0] > 5 else 1.0) for value in graph(*args))

f = torch.compile(lambda x: (x * 2).cos())
with torch.no_grad():
    for number in range(4):
        f(torch.randn(9 if number == 2 else 3, 8))
"""


def test_a_shape_with_wrong_results_is_told_though_the_usual_shape_is_right(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT.replace("import torch\n", "import torch\nimport torch._dynamo\n", 1))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}", "OMP_NUM_THREADS": "1"}
    options = ["--arms", "eager,wrong_when_long", "--shapes", "20", "--max-time", "1", "--max-rounds", "20", "--json"]
    command = [sys.executable, "-m", "dynadiag", "bench", "script.py", *options]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json.loads((ROOT / "docs/bench.schema.json").read_text())).validate(document)
    assert document["correctness"][1]["status"] == "PASS"
    assert document["arms"][1]["graphs"] == 1 and document["arms"][1]["regions"] == 1
    shapes = document["shapes"]["replayed"]
    assert [(one["label"], one["calls"], one["correctness"][1]["status"]) for one in shapes] == [
        ("x 3x8", 3, "PASS"),
        ("x 9x8", 1, "WRONG"),
    ]
    assert shapes[1]["comparisons"][0]["verdict"] == "WRONG" and len(shapes[0]["arms"][1]["samples_ms"]) == 20
    assert document["shapes"]["means"][0]["left_out"][-1] == "x 9x8"
