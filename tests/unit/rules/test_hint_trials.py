"""What a report says of torch's own hints: what came of the switch that they name."""

from __future__ import annotations

import json

from dynadiag.changes.library_cure import library_cures
from dynadiag.model.location import Location
from dynadiag.model.run import Process, Run, RunInfo
from dynadiag.rules import hint_trials
from dynadiag.rules.hint_trials import with_trials
from dynadiag.rules.rule import as_text, find_rule

TABLE = json.loads(hint_trials._FILE.read_text("utf-8"))["options"]
HINT = "Set `torch._dynamo.config.{} = True` to capture it."


def test_a_hint_is_as_torch_gives_it_where_nothing_is_known_against_it():
    assert with_trials("Move the call out.") == "Move the call out."
    assert with_trials(HINT.format("no_such_switch")) == HINT.format("no_such_switch")


def test_a_hint_that_did_harm_says_how_often(monkeypatch):
    counts = {"programs": 9, "fewer_breaks": 6, "nothing": 1, "raised": 2}
    monkeypatch.setattr(hint_trials, "_trials", lambda: {"a": counts, "b": {"programs": 3, "fewer_breaks": 3}})
    told = with_trials(HINT.format("a"))
    assert told.endswith("(Tried on 9 programs that ran with this break: 6 then broke less, 2 raised an exception.)")
    assert with_trials(HINT.format("b")) == HINT.format("b")


def test_the_table_adds_up_and_has_the_switch_that_ends_programs():
    for counts in TABLE.values():
        assert counts["programs"] == sum(count for name, count in counts.items() if name != "programs")
    assert TABLE["capture_scalar_outputs"]["raised"] > 0
    assert "raised an exception" in as_text(find_rule("GB0124"))


def test_advice_says_which_hint_of_torch_ends_the_program():
    """Seen on torch 2.15: with the switch that torch names, GATv2Conv, which ran, ends in an exception of the back end."""
    files = [f"/env/site-packages/torch_geometric/{name}.py" for name in ("nn/conv/gatv2_conv", "utils/loop")]
    stack = (Location(files[0], 313, "forward"), Location(files[1], 113, "remove_self_loops"))
    process = Process(index=0, log="a.log", torch="2.15.0", libraries={"torch_geometric": "2.8.1"})
    (advice,) = library_cures(stack, Run(info=RunInfo()), process)
    assert "Not torch's hint `torch._dynamo.config.capture_dynamic_output_shape_ops = True`" in advice.text
    assert "raises BackendCompilerFailed" in advice.text
