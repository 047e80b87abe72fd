"""Records that a page shows: output code and guard trees stay in the log, facts about shapes are read, phases are timed."""

from dynadiag.model.compiled import GuardCost
from dynadiag.model.location import Location
from dynadiag.trace import load, read_payload
from tests.unit.render.page_samples import CODE, GUARDS


def test_output_code_and_guard_trees_stay_in_the_log(log, tmp_path):
    log.start(0).record("inductor_output_code", {"filename": "/tmp/x.py"}, CODE, frame=0)
    log.record("dynamo_cpp_guards_str", {}, GUARDS, frame=0).metrics(0)
    run = load(log.write(tmp_path))
    assert [(one.id, one.kind, one.frame) for one in run.listings] == [("o0", "output_code", "f0"), ("t0", "guards", "f0")]
    assert [read_payload(one.text) for one in run.listings] == [CODE, GUARDS]


def test_what_guards_cost(log, tmp_path):
    log.start(0).artifact(
        "dynadiag_guard_cost", {"checks": 50, "whole_us": 7.2, "root_us": 0.6, "parts": {"L['x']": 1.5, "G": "?"}}, frame=0
    )
    log.artifact("dynadiag_guard_cost", {"checks": 50, "whole_us": "7.2", "root_us": 0.6}, frame=0).metrics(0)
    run = load(log.write(tmp_path))
    assert run.guard_costs == (GuardCost(frame="f0", attempt=0, checks=50, whole_us=7.2, root_us=0.6, parts={"L['x']": 1.5}),)
    assert sum(run.processes[0].skipped.values()) == 1


def test_operators_are_counted_as_the_recorder_did(log, tmp_path):
    body = ("a = L_x_.size(0)", "b = L_x_ + a", "return (b,)")
    text = "\n        ".join(("class GraphModule(torch.nn.Module):\n    def forward(self, L_x_):", *body)) + "\n"
    log.start(0).record("dynamo_output_graph", {}, text, frame=0)
    log.artifact("dynadiag_graph", {"graph": 0, "operator_count": 1, "nodes": []}, frame=0).metrics(0)
    log.start(1).record("dynamo_output_graph", {}, text, frame=1).metrics(1)
    counted, foreign = load(log.write(tmp_path)).graphs
    assert (counted.size, sum(counted.ops.values()), foreign.size) == (1, 2, 2)


def test_facts_about_shapes(log, tmp_path):
    stack = [{"line": 12, "name": "forward", "filename": 0, "loc": "if x.shape[0] == 12:"}]
    log.intern("/home/me/train.py").start(0)
    log.record("guard_added_fast", {"expr": "Eq(s7, 11)", "user_stack": stack}, frame=0)
    log.record("guard_added_fast", {"expr": "Eq(s77, 12)", "user_stack": stack}, frame=0, attempt=1)
    log.record("guard_added_fast", {"expr": "Eq(s77, 12)", "user_stack": stack}, frame=0, attempt=1, again=0, more=1)
    value = {"symbol": "s77", "sources": ["L['x'].size()[0]", 3], "value": "12", "reason": "eq", "user_stack": stack}
    log.record("symbolic_shape_specialization", value, frame=0, attempt=1)
    log.record("create_unbacked_symbol", {"symbol": "u0", "vr": "[0, int_oo]", "user_stack": None}, frame=0, attempt=1)
    log.record("guard_added_fast", {"expr": 5}, frame=0, attempt=1).metrics(0)
    run = load(log.write(tmp_path))
    here = Location("/home/me/train.py", 12, "forward", "if x.shape[0] == 12:")
    guard, constant, unbacked = run.shape_facts
    assert (guard.kind, guard.text, guard.stack) == ("guard", "Eq(s77, 12)", (here,))
    assert (constant.kind, constant.text, constant.value, constant.why) == ("specialized", "s77", "12", "eq")
    assert (unbacked.kind, unbacked.text, unbacked.value, unbacked.stack) == ("unbacked", "u0", "[0, int_oo]", ())
    assert sum(run.processes[0].skipped.values()) == 1


def test_phases_are_timed(log, tmp_path):
    log.start(0)
    for name, at, kind in (("dynamo", 100.0, "B"), ("inner", 150.0, "B"), ("inner", 180.5, "E"), ("dynamo", 300.0, "E")):
        log.record("chromium_event", {}, {"name": name, "ts": at, "args": {}, "ph": kind}, frame=0)
    run = load(log.metrics(0).write(tmp_path))
    assert [(one.name, one.began_us, one.took_us, one.depth, one.frame) for one in run.spans] == [
        ("inner", 150.0, 30.5, 1, "f0"),
        ("dynamo", 100.0, 200.0, 0, "f0"),
    ]
