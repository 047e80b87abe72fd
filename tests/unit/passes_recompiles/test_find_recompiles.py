"""Runs made by hand: what changed, the transition table, the limit, and what is said about them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag.model.graph import TracedInput
from dynadiag.model.location import Location
from dynadiag.model.run import (
    CompileCall,
    CompileKey,
    CompileMetrics,
    Frame,
    Guard,
    GuardSet,
    Problem,
    Process,
    RecompileEvent,
    Run,
    SourceFunction,
)
from dynadiag.model.run import RunInfo as Info
from dynadiag.passes.find_recompiles import find_recompiles, user_line


def size(entry, old, new):
    return f"0/{entry}: tensor 'x' size mismatch at index 0. expected {old}, actual {new}"


def equals(entry, source, value):
    return f"0/{entry}: {source + ' == ' + value:<60}  # return x * k  # t.py:11 in step"


def only(values):
    (one,) = values
    return one


def test_sizes_are_read_as_one_row(builders):
    run = builders.recompiled([size(0, 4, 8)], [size(1, 8, 9), size(0, 4, 9)])
    found = find_recompiles(run)
    row = only(found.transitions)
    assert (row.source, row.values, row.recompiles, row.entries, row.limit) == ("x.size(0)", ("4", "8", "9"), ("r1", "r2"), 3, 8)
    assert [(change.old, change.new) for one in found.recompiles for change in one.changed] == [("4", "8"), ("8", "9")]
    finding = only(found.findings)
    assert finding.code == "DR02"
    assert "`x.size(0)`: 4 -> 8 -> 9" in finding.why
    assert "3 of at most 8" in finding.why
    assert "1.00 s" in finding.why
    assert finding.fix == ()  # the line of the call is not in this log


KEYS = "BackendSelect, ADInplaceOrView"
CHANGES = {
    "2 <= x.size()[0]  # return x  # t.py:2 in fn (due to 0/1 specialization in the framework; to avoid)": (
        "The condition that `x.size(0)` is neither 0 nor 1: 2 <= x.size(0)."
    ),
    f"tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, {KEYS}, AutogradCPU), actual DispatchKeySet(CPU, {KEYS})": (
        "The dispatch keys of `x`: AutogradCPU -> none of these."
    ),
    "k <= 2  # if k > 2:  # t.py:7 in step": "A condition on `k`: k <= 2, read at t.py:7 (`if k > 2:`).",
    "2 * ___stack0 >= 2  # if k > 2:  # t.py:7 in step": "A condition on a value computed before the graph break: 2 * value >= 2",
}


@pytest.mark.parametrize(("guard", "said"), CHANGES.items(), ids=["zero_one", "dispatch_keys", "condition", "stack"])
def test_what_has_no_two_values_is_a_sentence_too(builders, guard, said):
    assert only(find_recompiles(builders.recompiled([f"0/0: {guard}"])).findings).why.startswith(said)


def test_a_recompile_for_which_torch_names_no_guard_is_told_in_words(builders):
    sentence = (
        "Unexpected recompilation: runtime guards failed even though they passed during recompilation-reason analysis. "
        "Please open an issue with a minimal repro: https://github.com/pytorch/pytorch"
    )
    run = builders.recompiled([equals(0, "k", "0")], [f"0/1: {sentence}", equals(0, "k", "0")])
    found = find_recompiles(run)
    finding = only(found.findings)
    assert finding.title == "`step` was recompiled 2 times because of `k`, a reason that torch does not name"
    assert "another thread compiled the same code" in finding.why
    assert "https://" not in finding.title
    assert {row.source for row in found.transitions} == {"k", "a reason that torch does not name"}


def test_a_new_value_is_learned_from_the_next_failure(builders):
    run = builders.recompiled([equals(0, "mode", "'a'")], [equals(1, "mode", "'b'"), equals(0, "mode", "'a'")])
    found = find_recompiles(run)
    assert only(found.transitions).values == ("'a'", "'b'")
    assert found.recompiles[0].changed[0].new == "'b'"
    assert found.recompiles[1].changed[0].new is None
    assert "the last value is not in the log" in (only(found.transitions).why or "")


def test_symbols_tell_the_value_and_that_it_became_dynamic(builders):
    run = builders.recompiled([size(0, 4, 8)], symbols=[(1, "L['x'].size()[0]", "8")])
    row = only(find_recompiles(run).transitions)
    assert row.became_dynamic
    assert row.why == "became dynamic with [0/1]"
    assert only(find_recompiles(run).findings).severity == "note"


def test_a_change_that_torchs_reason_hides_is_known_from_its_symbol(builders):
    run = builders.recompiled(
        [equals(0, "k", "2")], symbols=[(1, "L['k']", "3"), (1, "L['x'].size()[0]", "8"), (1, "L['x'].stride()[0]", "24")]
    )
    found = find_recompiles(run)
    assert [(row.source, row.values) for row in found.transitions] == [("k", ("2", "3")), ("x.size(0)", ("8",))]
    assert found.transitions[1].why == "became dynamic with [0/1]; the first value is not in the log"
    assert found.recompiles[0].reasons == (equals(0, "k", "2"),)
    assert "`x.size(0)`: another value -> 8, dynamic since [0/1]" in only(found.findings).why


def test_what_was_dynamic_from_the_start_did_not_change(builders):
    size_of_x = [(number, "L['x'].size()[0]", "8") for number in (0, 1)]
    run = builders.recompiled([equals(0, "mode", "'a'")], symbols=size_of_x)
    assert [row.source for row in find_recompiles(run).transitions] == ["mode"]


def test_sizes_of_a_tensor_with_another_rank_are_no_cause_of_their_own(builders):
    reason = "0/0: tensor 'x' rank mismatch. expected 2, actual 1"
    run = builders.recompiled([reason], symbols=[(1, "L['x'].size()[0]", "8"), (1, "L['y'].size()[0]", "8")])
    assert [row.source for row in find_recompiles(run).transitions] == ["x.dim()", "y.size(0)"]


def test_a_specialised_symbol_is_not_dynamic(builders):
    run = builders.recompiled([equals(0, "k", "2")], symbols=[(1, "L['k']", "3")])
    assert only(find_recompiles(run).transitions).became_dynamic
    fixed = builders.replace(run, symbols=tuple(builders.replace(one, specialized=True) for one in run.symbols))
    row = only(find_recompiles(fixed).transitions)
    assert not row.became_dynamic
    assert row.values == ("2", "3")


def test_a_later_condition_shows_that_a_size_had_become_dynamic(builders):
    run = builders.recompiled([size(0, 4, 5)], ["0/1: 2 <= x.size()[0] <= 9  # if x.shape[0] < 10:  # t.py:3 in step", size(0, 4, 50)])
    rows = {(row.source, row.kind): row for row in find_recompiles(run).transitions}
    assert rows["x.size(0)", "size"].became_dynamic
    assert rows["x.size(0)", "condition"].values == ("2 <= x.size(0) <= 9",)


def test_a_value_seen_before_is_not_counted_again(builders):
    grad = "0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0"
    run = builders.recompiled([grad], [equals(1, "k", "1"), grad], [equals(2, "k", "2"), equals(1, "k", "1"), grad])
    rows = {row.source: row for row in find_recompiles(run).transitions}
    assert rows["x.requires_grad"].recompiles == ("r1",)
    assert rows["x.requires_grad"].values == ("False", "True")
    assert rows["k"].recompiles == ("r2", "r3")


def test_a_new_combination_of_known_values_is_not_lost(builders):
    grad = [f"0/{entry}: tensor 'x' requires_grad mismatch. expected requires_grad=0" for entry in range(3)]
    run = builders.recompiled([grad[0]], [size(1, 4, 8), grad[0]], [grad[2], size(1, 4, 8), grad[0]])
    counted = {recompile for row in find_recompiles(run).transitions for recompile in row.recompiles}
    assert counted == {"r1", "r2", "r3"}


def test_global_state_is_read_from_the_guards(builders):
    def guards(mode):
        code = f'___check_global_state() against {{"default_dtype":6,"grad_mode":{mode},"num_threads":1}}'
        return GuardSet(count=1, by_kind={"GLOBAL_STATE": 1}, examples=(Guard("GLOBAL_STATE", "", code),))

    run = builders.recompiled(["0/0: GLOBAL_STATE changed: grad_mode "])
    run = builders.replace(
        run, frames=tuple(builders.replace(f, guards=guards(m)) for f, m in zip(run.frames, ("true", "false"), strict=True))
    )
    row = only(find_recompiles(run).transitions)
    assert (row.source, row.values) == ("grad_mode", ("True", "False"))


def test_watched_guards_tell_the_new_value(builders):
    run = builders.recompiled([equals(0, "flag", "True")])
    watched = GuardSet(count=1, by_kind={"FALSE_MATCH": 1}, watched=(Guard("FALSE_MATCH", "L['flag']", "L['flag'] == False"),))
    run = builders.replace(run, frames=(run.frames[0], builders.replace(run.frames[1], guards=watched)))
    assert only(find_recompiles(run).transitions).values == ("True", "False")


def test_a_type_guard_on_the_same_type_tells_no_value(builders):
    run = builders.recompiled([equals(0, "k", "2")])
    watched = GuardSet(
        count=1, by_kind={"TYPE_MATCH": 1}, watched=(Guard("TYPE_MATCH", "L['k']", "___check_type_id(L['k'], 9), type=<class 'int'>"),)
    )
    run = builders.replace(run, frames=(run.frames[0], builders.replace(run.frames[1], guards=watched)))
    row = only(find_recompiles(run).transitions)
    assert row.values == ("2",)
    assert not row.became_dynamic


def test_objects_are_told_apart_not_named(builders):
    reason = "0/{}: ___check_obj_id(f.__code__, 14025), type=<class 'code'>  # return f(x)"
    run = builders.recompiled([reason.format(0)], [reason.format(1), reason.format(0)])
    row = only(find_recompiles(run).transitions)
    assert (row.source, row.values) == ("f", ("function", "another object", "another object"))


def test_unknown_texts_are_shown_as_they_are(builders):
    found = find_recompiles(builders.recompiled(["0/0: guard of tomorrow <failed>"]))
    assert only(only(found.recompiles).changed).kind == "unknown"
    assert only(found.findings).code == "DR99"
    assert "guard of tomorrow <failed>" in only(found.findings).why
    assert only(found.findings).fix == ()


def refused(
    builders,
    *,
    limit_text="exceeding the recompile_limit cache size limit (currently set to 2)",
    outcome="skipped",
    fail_type="Unsupported",
):
    run = builders.recompiled([equals(0, "s", "'a'")], [equals(1, "s", "'b'"), equals(0, "s", "'a'")], config={})
    metrics = CompileMetrics(
        total_s=0.001, fail_type=fail_type, fail_reason=f"Dynamo recompile limit exceeded\n  Explanation: x, {limit_text}."
    )
    last = Frame(id="f2", key=CompileKey(0, 0, 0, 2), attempts=1, name=None, file=None, line=None, outcome=outcome, metrics=metrics)
    return builders.replace(run, frames=(*run.frames[:2], last))


def test_the_limit_is_read_from_torchs_own_refusal(builders):
    found = find_recompiles(refused(builders))
    row = only(found.transitions)
    assert (row.entries, row.limit, row.limit_hit) == (2, 2, True)
    finding = only(found.findings)
    assert (finding.code, finding.severity) == ("DR01", "error")
    assert "run eagerly from then on" in finding.why
    assert {"f0", "f2", "r1", "r2"} <= set(finding.evidence)
    assert finding.fix == () and "Each value that the code needs to know takes its own compiled version" in finding.why


def test_a_refused_recompile_is_counted_and_named(builders):
    found = find_recompiles(refused(builders))
    assert len(found.recompiles) == 2
    assert "torch refused 1 of these recompiles and no longer compiles it" in only(found.findings).why


def test_a_compilation_that_the_log_cuts_short_is_no_compiled_version(builders):
    """The process was killed, or still compiles."""
    run = builders.recompiled([size(0, 4, 8)], [size(1, 8, 9), size(0, 4, 9)])
    last = builders.replace(run.frames[-1], metrics=None, outcome="failed", error="the log ends before this frame was finished")
    for outcome in ("failed", "compiled"):
        cut = builders.replace(run, frames=(*run.frames[:-1], builders.replace(last, outcome=outcome)))
        finding = only(find_recompiles(cut).findings)
        assert "The log ends before 1 compilation of it finished; by then it had 2 of at most 8 compiled versions." in finding.why
    bare = builders.replace(run, frames=tuple(builders.replace(frame, metrics=None) for frame in run.frames))
    assert "It has 3 of at most 8 compiled versions." in only(find_recompiles(bare).findings).why


def test_the_accumulated_limit_has_its_own_number(builders):
    text = "exceeding the accumulated_recompile_limit cache size limit (currently set to 256)"
    assert only(find_recompiles(refused(builders, limit_text=text)).transitions).limit == 256


def test_under_fullgraph_the_limit_is_an_error_not_eager(builders):
    found = find_recompiles(refused(builders, outcome="failed", fail_type="FailOnRecompileLimitHit"))
    assert "raised an error instead of running eagerly" in only(found.findings).why


def test_a_recorded_problem_marks_the_limit_too(builders):
    run = builders.recompiled([equals(0, "s", "'a'")])
    run = builders.replace(run, problems=(Problem(kind="recompile_limit", process=0, text="limit", frame="f1"),))
    assert only(find_recompiles(run).transitions).limit_hit


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({}, None),
        ({"dynamo": {}}, 8),
        ({"dynamo": {"recompile_limit": 3}}, 3),
        ({"dynamo": {"cache_size_limit": 64}}, 64),
        ({"dynamo": {"recompile_limit": "many"}}, None),
    ],
)
def test_the_limit_comes_from_the_recorded_configuration(builders, config, limit):
    row = only(find_recompiles(builders.recompiled([size(0, 4, 8)], config=config)).transitions)
    assert row.limit == limit
    assert (limit is None) == ("the recompile limit is not in the log" in (row.why or ""))


def test_the_limit_comes_from_the_metrics(builders):
    metrics = CompileMetrics(total_s=0.1, cache_size=0, recompile_limit=16)
    run = builders.recompiled([size(0, 4, 8)], config={}, metrics=metrics)
    assert only(find_recompiles(run).transitions).limit == 16


def test_epochs_and_processes_are_apart(builders):
    frames = [
        builders.frame(0),
        builders.frame(1, compile=1),
        builders.frame(2, epoch=1),
        builders.frame(3, epoch=1, compile=1),
        builders.frame(4, process=1),
        builders.frame(5, process=1, compile=1),
    ]
    events = [RecompileEvent(frame=frame, reasons=(size(0, 4, 8),)) for frame in ("f1", "f3", "f5")]
    processes = (Process(index=0, log="a", rank=0), Process(index=1, log="b", rank=1))
    found = find_recompiles(Run(info=Info(), processes=processes, frames=tuple(frames), recompiles=tuple(events)))
    assert len(found.transitions) == 3
    finding = only(found.findings)
    assert finding.title == "`step` was recompiled 3 times because of `x.size(0)`"
    assert "On ranks 0, 1." in finding.why


def test_resume_functions_belong_to_their_function(builders):
    frames = [
        builders.frame(0, line=10),
        builders.frame(1, line=10, compile=1),
        builders.frame(2, code=1, line=14, name="torch_dynamo_resume_in_step_at_14"),
        builders.frame(3, code=1, line=14, compile=1, name="torch_dynamo_resume_in_step_at_14"),
        builders.frame(4, code=2, line=50),
        builders.frame(5, code=2, line=50, compile=1),
    ]
    events = [
        RecompileEvent(frame=frame, reasons=(size(0, 4, 8).replace("0/0", entry),))
        for frame, entry in (("f1", "0/0"), ("f3", "1/0"), ("f5", "2/0"))
    ]
    found = find_recompiles(Run(info=Info(), processes=(Process(index=0, log="a"),), frames=tuple(frames), recompiles=tuple(events)))
    assert sorted(finding.title for finding in found.findings) == [
        "`step` was recompiled 2 times because of `x.size(0)`",
        "`step` was recompiled once because of `x.size(0)`",
    ]


def test_two_models_that_enter_one_line_of_a_library_are_two_findings(builders):
    wrapper = {"name": "wrapper", "file": "/lib/python3.12/site-packages/kit/generic.py", "line": 937}
    frames = [builders.frame(2 * code + i, code=code, compile=i, call_line=40 + code, **wrapper) for code in (0, 1) for i in (0, 1)]
    events = (
        RecompileEvent(frame="f1", reasons=(size(0, 4, 8),)),
        RecompileEvent(frame="f3", reasons=(size(0, 5, 6).replace("0/", "1/"),)),
    )
    found = find_recompiles(Run(info=Info(), processes=(Process(index=0, log="a"),), frames=tuple(frames), recompiles=events))
    assert sorted(finding.where.line for finding in found.findings) == [40, 41]


def test_a_compiled_module_is_named_as_such(builders):
    entry = {"name": "inner", "file": "/lib/python3.12/site-packages/torch/_dynamo/external_utils.py", "line": 67}
    run = builders.recompiled(["0/0: fn._modules['1'].training == True" + " " * 30 + "  # return F.dropout  # d.py:3 in forward"], **entry)
    found = find_recompiles(run)
    assert only(found.transitions).source == "module[1].training"
    assert only(found.findings).title.startswith("The compiled module or callable was recompiled once")
    assert only(found.findings).where == Location(builders.SCRIPT, 40, "main", "loss = step(x)")


def test_the_users_line_is_the_compiled_code_if_it_is_theirs(builders):
    run = builders.recompiled([size(0, 4, 8)])
    line = user_line(run.frames[0], run)
    assert line is not None and (line.line, line.function) == (10, "step")


def test_the_calls_in_the_functions_own_file_tell_how_it_was_compiled(builders):
    calls = tuple(
        CompileCall(process=0, location=Location(file, 5), target="step", backend="eager", options=options)
        for file, options in ((builders.SCRIPT, {"dynamic": False}), ("/home/me/project/other.py", {}))
    )
    run = builders.recompiled([size(0, 4, 8)], [size(1, 8, 9), size(0, 4, 9)])
    blocks = {(builders.SCRIPT, run.frames[0].line): "def step(x):\n" + "    x = x * 2\n" * 40 + "    return x"}
    run = builders.replace(run, compile_calls=calls, blocks=blocks)
    assert [advice.slug for advice in only(find_recompiles(run).transitions).advice] == ["drop-dynamic-false"]


@pytest.mark.parametrize(
    ("other", "advised"),
    [("def fit(net, x):\n    opt.step()\n    return net(x)", True), ("def fit(net, x):\n    return net(x) if net.step > 3 else x", False)],
)
@pytest.mark.parametrize("net", ["net", "G['net']"])
def test_a_count_of_a_module_that_is_inlined_is_read_where_it_is_counted(builders, net, other, advised):
    """`self.lin` is a module with parameters, and no other recorded function reads a `step`; torch keeps what it reaches by a global."""
    hint = "(HINT: ... torch._dynamo.config.allow_unspec_int_on_nn_module = True ...)"
    guards = [f"{net}.step == {n}" for n in range(3)]
    reasons = [[f"0/{n}: {guard:<60}  # self.step += 1  # train.py:61 in forward {hint}"] for n, guard in enumerate(guards)]
    forward = SourceFunction(builders.SCRIPT, 60, "Net.forward", "def forward(self, x):\n    self.step += 1\n    return self.lin(x)")
    rest = {"shape": (2, 2), "stride": None, "dtype": None, "device": None, "requires_grad": True, "is_leaf": True, "storage": None}
    weight = TracedInput(frame="f0", source=f"{net}._modules['lin']._parameters['weight']", is_parameter=True, **rest)
    fit = SourceFunction(builders.SCRIPT, 10, "fit", other)
    run = builders.replace(builders.recompiled(*reasons), functions=(forward, fit), traced_inputs=(weight,))
    assert [fix.slug for fix in only(find_recompiles(run).findings).fix] == (["unspec-int-on-module"] if advised and net == "net" else [])
    assert only(find_recompiles(builders.replace(run, traced_inputs=())).findings).fix == ()  # `self.lin(x)` may be a method that reads it


def test_an_option_that_torch_did_not_have_is_not_named(builders):
    hint = "(HINT: ... torch._dynamo.config.allow_unspec_int_on_nn_module = True ...)"
    run = builders.recompiled([f"0/0: {'self.step == 0':<60}  # y = x * self.step  # train.py:11 in forward {hint}"])
    assert only(find_recompiles(run).transitions).advice == ()  # what the function does with it is not known
    run = builders.replace(run, blocks={(builders.SCRIPT, 10): "def forward(self, x):\n    y = x * self.step\n    return y"})
    assert [advice.slug for advice in only(find_recompiles(run).transitions).advice] == ["unspec-int-on-module"]
    old = builders.replace(run.processes[0], option_names={"dynamo": frozenset({"recompile_limit"})})
    run = builders.replace(run, processes=(old,))
    assert only(find_recompiles(run).transitions).advice == ()


def test_a_recompile_of_an_unknown_frame_is_said(builders):
    found = find_recompiles(Run(info=Info(), recompiles=(RecompileEvent(frame="f9", reasons=("0/0: k == 1",)),)))
    assert found.recompiles == ()
    assert found.notes == ("1 recompile record could not be matched to a frame.",)


@settings(max_examples=60)
@given(st.lists(st.lists(st.text(max_size=60), max_size=3), min_size=1, max_size=4))
def test_any_reasons_are_taken(builders, events):
    found = find_recompiles(builders.recompiled(*events))
    assert len(found.recompiles) == len(events)
    counted = {recompile for row in found.transitions for recompile in row.recompiles}
    assert counted == {one.id for one, reasons in zip(found.recompiles, events, strict=True) if reasons}


SPECIALIZED = "_dynamo/output_graph.py:3552 in remove_tensorify_specialized_graphargs"


def test_a_number_that_torch_turned_back_into_a_constant_is_to_be_multiplied(builders):
    first = equals(0, "k", "0.5").replace("t.py", "train.py")
    specialized = f"0/1: k == 0.25  # ({SPECIALIZED})"
    run = builders.recompiled([first], [specialized, first])
    run = builders.replace(run, blocks={(builders.SCRIPT, 10): "def step(x, k):\n    return x.add(x, alpha=k)"})
    (fix,) = only(find_recompiles(run).findings).fix
    assert fix.words.endswith("This ends 1 of these 2 recompiles, as far as torch names their causes.") and fix.after == "x.add(x * k)"


def test_a_file_whose_name_torch_cut_is_still_the_compiled_function(builders):
    """torch writes so where a script shares only "/" with its own folder: the source was taken for another function's."""
    first = equals(0, "k", "0.5").replace("t.py", "ome/me/project/train.py")
    run = builders.recompiled([first], [f"0/1: k == 0.25  # ({SPECIALIZED})", first])
    run = builders.replace(run, blocks={(builders.SCRIPT, 10): "def step(x, k):\n    return x.add(x, alpha=k)"})
    (fix,) = only(find_recompiles(run).findings).fix
    assert fix.after == "x.add(x * k)"


def test_a_full_cache_is_not_said_to_have_room(builders):
    """With 8 of 8 versions a finding said that nothing has to change while there are fewer."""
    steps = [[equals(n, "len(self.seen)", str(n)) for n in range(last + 1)][::-1] for last in range(7)]
    finding = only(find_recompiles(builders.recompiled(*steps)).findings)
    assert "8 of at most 8" in finding.why and finding.fix == ()
    assert (
        "All 8 versions are used: a call that fits none of them is not compiled again, and runs eagerly. Nothing is advised: "
        in finding.why
    )
    finding = only(find_recompiles(builders.recompiled(*steps[:3])).findings)
    assert "Another value would be one more version, until the limit is reached and such calls run eagerly. Nothing is" in finding.why


def test_a_finding_without_advice_says_so(builders):
    grown = "0/0: len(self.seen) == 2"
    for reason, symbols, said in (
        ("0/0: something new", (), "Nothing is advised: the recording does not show that a change would end this."),
        (grown, (), "Each number of elements takes its own compiled version. Nothing has to change while there are fewer versions"),
        (equals(0, "self.best", "inf"), [(1, "L['self'].best", "1.5")], "No change is needed: what changed is dynamic now"),
    ):
        finding = only(find_recompiles(builders.recompiled([reason], symbols=symbols)).findings)
        assert finding.fix == () and said in finding.why


def test_what_has_to_change_for_nothing_is_a_note_and_what_goes_on_changing_is_not(builders):
    """Each object and each mode takes a version of its own, as the numbers do that go on changing; a flag has two."""

    def found(*values):
        return only(find_recompiles(builders.recompiled(*([equals(n, "mode", value)] for n, value in enumerate(values)))).findings)

    going_on = found("'kl'", "'mse'", "'cos'")
    assert going_on.severity == "warning" and "such calls run eagerly. Nothing is advised: strings are constants" in going_on.why
    enough = found("'kl'")
    assert enough.severity == "note" and enough.why.endswith("Nothing has to change while there are fewer versions than the limit.")


def test_what_failed_a_guard_on_a_type_is_another_type(builders):
    run = builders.recompiled(["0/0: ___check_type_id(L['self'].conv, 9), type=<class 'ParametrizedConv1d'>"])
    (finding,) = find_recompiles(run).findings
    assert "`self.conv`: a ParametrizedConv1d -> another type" in finding.why


@pytest.mark.parametrize(("source", "said"), [("self.hits", "guarded for"), ("self.ys", "read at")])
def test_a_line_that_does_not_name_what_changed_is_not_said_to_read_it(builders, source, said):
    """torch gave the guard another line of the function (2.15)."""
    line = f"{f'{source} == 1':<60}  # return self.ys[i]  # train.py:11 in step"
    (finding,) = find_recompiles(builders.recompiled([f"0/0: {line}"], [f"0/1: {line.replace('== 1', '== 2')}"])).findings
    assert f", {said} train.py:11 (`return self.ys[i]`)" in finding.why


def test_a_momentum_that_schedulers_cycle_is_said_to_be_theirs(builders):
    events = [
        [f"0/{i}: self.param_groups[0]['betas'][0] == 0.9{i}  # for group in self.param_groups:  # adam.py:230 in step"] for i in range(3)
    ]
    (finding,) = find_recompiles(builders.recompiled(*events)).findings
    (advice,) = finding.fix
    assert advice.slug == "constant-momentum" and "with `cycle_momentum=False` only the learning rate changes" in advice.text


@pytest.mark.parametrize(("values", "told"), [(("0.0", "0.5", "1.0"), True), (("0", "1", "2"), False)])
def test_a_float_of_an_object_could_be_a_tensor(builders, values, told):
    events = [[f"0/{i}: self.t == {value}  # self.t += 0.5  # train.py:11 in step"] for i, value in enumerate(values)]
    (finding,) = find_recompiles(builders.recompiled(*events)).findings
    assert ("`register_buffer`" in finding.why) is told
