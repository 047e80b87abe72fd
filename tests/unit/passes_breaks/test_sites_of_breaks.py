"""A site is torch's user frame, file and line; events are its records."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dynadiag.model import CompileCall, CompileMetrics, Location, PayloadRef, Problem, RegionCost, RegistryEntry, Run, RunInfo
from dynadiag.model.run import CallProfile
from dynadiag.passes.break_categories import category
from dynadiag.passes.find_graph_breaks import find_graph_breaks
from dynadiag.render import wording


def test_one_line_in_three_frames_is_one_site_with_three_events(maker, at):
    for number in range(3):
        maker.breaks_at(maker.frame(f"step{number}", line=number), at(8))
    (site,) = find_graph_breaks(maker.run()).graph_breaks
    assert (site.events, site.frames) == (3, ("f0", "f1", "f2"))
    assert site.own_frame.line == site.torch_frame.line == 8


def test_two_reasons_on_one_line_stay_one_site_and_both_are_told(maker, at):
    frame = maker.frame("step", line=1)
    maker.breaks_at(frame, at(8))
    maker.breaks_at(frame, at(8), gb_id="GB0124", gb_type="Unsupported Tensor.item() call with capture_scalar_outputs=False")
    result = find_graph_breaks(maker.run())
    (site,) = result.graph_breaks
    assert site.reason == "Data-dependent branching"
    assert site.other_reasons == ("GB0124 Unsupported Tensor.item() call with capture_scalar_outputs=False",)
    assert "Also on this line: GB0124" in result.findings[0].why


def test_a_change_of_what_a_branch_prints_says_that_the_branch_still_breaks(maker, at):
    """Followed on an EM step (2.15): the print went behind the graph, and its condition broke the graph as before."""
    frame, code = maker.frame("step", line=7), 'if x.min() < 0: print("low", x.argmin().item())'
    maker.breaks_at(frame, at(8, "step", code))
    printed = "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False"
    maker.breaks_at(frame, at(8, "step", code), gb_id="GB0124", gb_type="Unsupported Tensor.item() call with capture_scalar_outputs=False")
    maker.breaks_at(frame, at(8, "step", code), gb_id="GB0059", gb_type="Failed to trace builtin operator", context=printed)
    run = maker.run(blocks={("/home/me/proj/train.py", 7): f"def step(x):\n    {code}\n    return x.relu()"})
    (site,) = find_graph_breaks(run).graph_breaks
    texts = {advice.slug: advice.words for advice in site.advice}
    assert len(texts) == 2 and "still breaks" not in texts.pop("branch-guard")
    assert texts.popitem()[1].endswith(" The branch itself (GB0170) still breaks the graph.")


def test_it_is_said_too_where_the_branch_has_no_change_of_its_own(maker, at):
    frame, code = maker.frame("step", line=7), 'if x.min() < 0: print("low"); self.hits += 1'
    maker.breaks_at(frame, at(8, "step", code))
    printed = "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False"
    maker.breaks_at(frame, at(8, "step", code), gb_id="GB0059", gb_type="Failed to trace builtin operator", context=printed)
    run = maker.run(blocks={("/home/me/proj/train.py", 7): f"def step(self, x):\n    {code}\n    return x.relu()"})
    ((advice,),) = (site.advice for site in find_graph_breaks(run).graph_breaks)
    assert advice.words.endswith(" The branch itself (GB0170) still breaks the graph.")


def test_a_line_with_many_reasons_tells_some_and_counts_the_others(maker, at):
    frame = maker.frame("step", line=1)
    for number in range(30):
        maker.breaks_at(frame, at(8), gb_id=None, gb_type=f"Unsupported {number}")
    (site,) = find_graph_breaks(maker.run()).graph_breaks
    assert site.other_reasons == tuple(f"Unsupported {number}" for number in range(1, 11))
    assert "19 further reasons on this line are only counted" in site.doubts


def test_the_own_line_of_a_break_inside_a_library_is_the_innermost_user_frame(maker, at, library):
    maker.breaks_at(maker.frame("step", line=1), at(3, "main"), at(8), library(70), library(71))
    (site,) = find_graph_breaks(maker.run()).graph_breaks
    assert (site.own_frame.line, site.torch_frame.line) == (8, 71)


def test_library_sites_behind_one_line_make_one_finding(maker, at, library):
    frame = maker.frame("step", line=1)
    for line in (70, 90):
        maker.breaks_at(frame, at(8, code="opt.step()"), library(line))
    result = find_graph_breaks(maker.run())
    (finding,) = result.findings
    assert len(result.graph_breaks) == 2
    assert finding.where.line == 8
    assert finding.evidence[:2] == ("b1", "b2")
    assert "2 break events at 2 sites. Dynamo stops inside the call, at core.py:70, core.py:90" in finding.why


def test_an_exception_stack_that_begins_at_the_frame_is_joined_with_its_entry(maker, at):
    frame = maker.frame("step", line=7, stack=(at(3, "main"),), outcome="failed")
    maker.breaks_at(frame, at(8), source="exception")
    (site,) = find_graph_breaks(maker.run()).graph_breaks
    assert [place.line for place in site.stack] == [3, 8]
    assert site.own_frame.line == 8
    assert site.fullgraph


def test_the_caller_of_a_library_frame_that_raised_is_certain_only_behind_compile_wrapper(maker, at, library):
    """torch leaves the two innermost callers out of a frame's entry stack."""
    wrapper = Location("/opt/venv/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py", 1265, "compile_wrapper")
    for stack in ((at(8), wrapper), (at(9, "other"),), (at(10, "late"), wrapper)):
        if stack[0].line == 10:
            maker.frame("eager", line=50, outcome="broke")
        frame = maker.frame("helper", line=60, file=library(0).file, stack=stack, outcome="failed")
        maker.breaks_at(frame, *stack, library(60), library(stack[0].line + 60), source="metrics")
    sites = find_graph_breaks(maker.run()).graph_breaks
    assert [(site.own_frame.function, site.own_frame.line) for site in sites] == [("step", 8), ("other", None), ("late", None)]


def test_the_callers_that_dynadiag_recorded_give_the_line(maker, at, library):
    """What raised carries the stack from the frame on; the record of callers leaves nobody out."""
    callers = (at(3, "<module>"), at(9, "step"), library(20))
    frame = maker.frame("helper", line=60, file=library(0).file, stack=callers[:1], callers=callers, outcome="failed")
    maker.breaks_at(frame, *callers, library(61), library(77), source="metrics")
    (site,) = find_graph_breaks(maker.run()).graph_breaks
    assert ((site.own_frame.function, site.own_frame.line), site.doubts) == (("step", 9), ())
    bare = maker.frame("helper", line=60, file=library(0).file, stack=callers[:1], callers=callers)
    maker.breaks_at(bare, torch_frame=library(61))
    assert find_graph_breaks(maker.run()).graph_breaks[1].own_frame.line == 9


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        (({"fullgraph": True},), "under fullgraph=True"),
        (({},), "under error_on_graph_break"),
        (({"fullgraph": True}, {}), "where none is allowed (fullgraph=True or error_on_graph_break)"),
        ((), "where none is allowed (fullgraph=True or error_on_graph_break)"),
    ],
)
def test_what_made_a_break_an_error_is_said_as_far_as_it_is_known(maker, at, calls, words):
    frame = maker.frame("step", line=1, outcome="failed")
    maker.breaks_at(frame, at(4), source="metrics")
    called = tuple(CompileCall(process=0, location=None, target="step", backend=None, options=options) for options in calls)
    (finding,) = find_graph_breaks(maker.run(compile_calls=called)).findings
    assert finding.title.startswith(f"Compilation failed: graph break {words} (")


def test_a_stack_that_ends_before_torchs_frame_gives_no_line(maker, at, library):
    """Only the callers were recorded: the innermost of them need not be the one that led to the break."""
    maker.breaks_at(maker.frame("step", line=1), at(3, "main"), torch_frame=library(71))
    result = find_graph_breaks(maker.run())
    (site,) = result.graph_breaks
    assert (site.own_frame.function, site.own_frame.line) == ("main", None)
    assert "only a calling function is known, not its line" in result.findings[0].why


def test_a_break_without_any_line_says_so(maker):
    maker.breaks_at(maker.frame("step", line=1))
    (site,) = find_graph_breaks(maker.run()).graph_breaks
    assert site.own_frame.line == 1
    assert "torch recorded no line" in site.doubts[0]


def test_the_record_that_announces_a_back_end_error_is_not_a_second_break(maker, at):
    frame = maker.frame("step", line=1, outcome="skipped")
    maker.breaks_at(frame, gb_id=None, gb_type="WON'T CONVERT step")
    maker.breaks_at(frame, at(1), gb_id="GB0219", gb_type="Backend compiler exception", skips_frame=True)
    (site,) = find_graph_breaks(maker.run()).graph_breaks
    assert (site.events, site.gb_id) == (1, "GB0219")


def test_ranks_merge_into_one_site_with_their_processes(maker, at, ranked):
    for process in (0, 1):
        maker.breaks_at(maker.frame("step", line=1, process=process), at(8))
    result = find_graph_breaks(ranked(maker.run()))
    (site,) = result.graph_breaks
    assert site.processes == (0, 1)
    assert "on ranks 0, 1" in result.findings[0].why


def test_the_registry_of_the_torch_that_ran_fills_what_the_record_leaves_out(maker, at):
    maker.breaks_at(maker.frame("step", line=1), at(8))
    run = maker.run()
    entry = RegistryEntry("GB0170", "Data-dependent branching", "why", ("hint",))
    run = replace(run, processes=(replace(run.processes[0], registry={"GB0170": entry}),))
    (site,) = find_graph_breaks(run).graph_breaks
    assert (site.explanation, site.hints) == ("why", ("hint",))


def test_a_skipped_frame_is_ranked_before_breaks_that_only_split(maker, at):
    maker.breaks_at(maker.frame("one", line=1), at(4))
    maker.breaks_at(maker.frame("one", line=1), at(4))
    skipped = maker.frame("two", line=10, outcome="skipped")
    maker.breaks_at(skipped, at(12, "two"), skips_frame=True, skip_reason="graph break in loop: torch.compile detected ...")
    findings = sorted(find_graph_breaks(maker.run()).findings, key=lambda finding: finding.rank)
    assert [finding.where.line for finding in findings] == [12, 4]
    assert findings[0].title.startswith("two runs eagerly")
    assert "Because of this, two is not compiled (graph break in loop)" in findings[0].why
    assert findings[0].evidence[:2] == ("b2", "x1")


def test_measured_cost_is_shown_and_ranks_within_its_class(maker, at):
    first = maker.frame("one", line=1)
    maker.breaks_at(first, at(4))
    second = maker.frame("two", line=10)
    maker.breaks_at(second, at(12, "two"))
    resume = maker.frame("torch_dynamo_resume_in_two_at_12", line=12)
    cost = {"process": 0, "calls": 20, "region_us": 900.0, "how": "torch.profiler over 20 calls"}
    costs = (
        RegionCost(frame=second, region="1/0", lookup_us=5.0, pregraph_us=2.0, between_us=1200.0, **cost),
        RegionCost(frame=resume, region="2/0", lookup_us=6.0, pregraph_us=4.0, between_us=3.0, **cost),
    )
    findings = sorted(find_graph_breaks(maker.run(costs=costs)).findings, key=lambda finding: finding.rank)
    assert findings[0].where.line == 12
    assert (findings[0].cost.value, findings[0].cost.unit) == (1.21, "ms per call")
    assert (findings[0].cost.basis, findings[0].cost.remark) == ("measured", "host time, torch.profiler over 20 calls")
    assert (findings[1].cost.unit, findings[1].cost.basis, findings[1].cost.remark) == ("event", "counted", "break records")
    assert find_graph_breaks(maker.run(costs=costs)).notes == ()


def profiled(tmp_path, facts, costs, period_ns=None):
    """What a run has of a timeline: the artifact's payload on disk."""
    file = tmp_path / "0.log"
    file.write_text(json.dumps(facts))
    fields = {
        "process": 0,
        "calls": 8,
        "region_us": 900.0,
        "lookup_us": None,
        "pregraph_us": None,
        "between_us": None,
        "how": "torch.profiler",
    }
    return {
        "costs": tuple(RegionCost(frame=frame, region=region, **fields) for frame, region in costs),
        "profiles": (CallProfile(0, PayloadRef(str(file), 0, file.stat().st_size), period_ns),),
    }


def timeline_of(name):
    return json.loads((Path(__file__).parents[2] / "corpus" / "timelines" / f"{name}.json").read_text())


def test_with_a_device_the_cost_is_what_a_call_would_gain(maker, at, tmp_path, ranked):
    """Two breaks of one call, recorded on an H200: 2.4 ms by hand for a read that waits, 2.2 for a sleep."""
    first = maker.frame("one", line=1)
    maker.breaks_at(first, at(4))
    second = maker.frame("torch_dynamo_resume_in_one_at_4", line=4)
    maker.breaks_at(second, at(6))
    run = maker.run(**profiled(tmp_path, timeline_of("products"), [(first, "0/0"), (second, "1/0")]))
    read, sleep = sorted(find_graph_breaks(run).findings, key=lambda finding: finding.rank)
    assert (read.where.line, read.cost.unit, read.cost.basis) == (4, "ms per call", "derived")
    assert read.cost.value == read.cost.low < 2.4 < read.cost.high and sleep.cost.low < 2.2 < sleep.cost.high
    assert wording.cost(read.cost) == (
        "1.63 to 3.28 ms per call (derived: of 6.86 ms, by replaying host and device without the break; "
        "not known more closely until the break is gone; host time 3.161 ms, 3.024 ms of it waiting for the device)"
    )
    assert "; on rank 0; host time 3.161 ms" in min(find_graph_breaks(ranked(run)).findings, key=lambda found: found.rank).cost.remark


def test_a_break_that_gives_up_its_frame_costs_what_the_caller_does_in_eager(maker, at, tmp_path):
    """A loop over four modules: 0.175 ms of 1.32 by hand; the gaps of one module alone are a part of it."""
    caller = maker.frame("forward", line=1, outcome="skipped")
    maker.breaks_at(caller, at(12), skips_frame=True, skip_reason="graph break in loop")
    inner = maker.frame("check", line=10)
    maker.breaks_at(inner, at(12))
    facts = profiled(tmp_path, timeline_of("loop"), [(inner, "1/0")])
    (finding,) = find_graph_breaks(maker.run(**facts)).findings
    assert finding.cost.low < 0.175 < finding.cost.high
    other = maker.frame("other", line=30, outcome="skipped")
    maker.breaks_at(other, at(32), skips_frame=True)  # which of the two is behind the caller's own code is not known
    both = sorted(find_graph_breaks(maker.run(**facts)).findings, key=lambda finding: finding.where.line)
    assert [one.cost.low for one in both] == [0.0, 0.0] and both[0].cost.high == finding.cost.high


def test_a_break_whose_gain_is_not_known_has_its_host_time_and_says_why(maker, at, tmp_path):
    frame = maker.frame("two", line=10)
    maker.breaks_at(frame, at(12, "two"))
    facts = {**timeline_of("products"), "period_ns": None, "untimed": "it needs 30 steady calls, saw 29"}
    (finding,) = find_graph_breaks(maker.run(**profiled(tmp_path, facts, [(frame, "0/0")]))).findings
    assert finding.cost.basis == "measured" and finding.cost.high is None and finding.cost.value == pytest.approx(0.132, abs=0.01)
    assert "the gain per call is not known (it needs 30 steady calls, saw 29)" in finding.cost.remark
    assert "waiting for the device" in finding.cost.remark


def test_without_a_device_the_cost_is_the_hosts_time_in_all_calls_of_a_region(maker, at, tmp_path):
    """One call calls the region four times: its cost is that of four, not the mean of one."""
    inner = maker.frame("check", line=10)
    maker.breaks_at(inner, at(12))
    facts = timeline_of("loop") | {"asks": []}
    (finding,) = find_graph_breaks(maker.run(**profiled(tmp_path, facts, [(inner, "1/0")]))).findings
    assert finding.cost.basis == "measured" and finding.cost.value == pytest.approx(0.49, abs=0.1)


def test_a_damaged_timeline_leaves_the_cost_of_regions(maker, at, tmp_path):
    frame = maker.frame("two", line=10)
    maker.breaks_at(frame, at(12, "two"))
    for damaged in ({"spans": ["region 5 1 0/0"]}, {"spans": [3]}, {"asks": ["1 2 x"]}, [1], {"too_long": 99999}):
        run = maker.run(**profiled(tmp_path, damaged, [(frame, "0/0")]))
        run = replace(run, costs=tuple(replace(cost, between_us=1200.0) for cost in run.costs))
        (finding,) = find_graph_breaks(run).findings
        assert (finding.cost.value, finding.cost.basis) == (1.2, "measured")


def test_that_run_time_can_be_measured_is_said_once(maker, at):
    assert find_graph_breaks(maker.run()).notes == ()
    for line in (4, 5):
        maker.breaks_at(maker.frame("one", line=1), at(line))
    result = find_graph_breaks(maker.run())
    assert [finding.cost.basis for finding in result.findings] == ["counted"] * 2
    (note,) = result.notes
    assert "--cost" in note


def test_what_breaks_inside_torch_distributed_is_a_distributed_call(maker, at):
    inside = Location("/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 4, "barrier")
    polyfill = Location("/opt/venv/lib/python3.12/site-packages/torch/_dynamo/polyfills/__init__.py", 5, "new")
    event = maker.breaks_at("f0", at(3), inside, polyfill, gb_type="Attempted to call function marked as skipped")
    assert category(event, Run(info=RunInfo())) == "distributed call"
    assert category(replace(event, stack=(inside, at(3))), Run(info=RunInfo())) == "unsupported builtin or library call"
    wait = maker.breaks_at("f0", at(4), gb_type="Unsupported method call", context="call_method UserDefinedObjectVariable(Work) wait [] {}")
    assert category(wait, Run(info=RunInfo())) == "distributed call"


def test_what_ddp_calls_is_not_ddp(maker, at):
    site = "/opt/venv/lib/python3.12/site-packages/torch/nn"
    ddp = Location(f"{site}/parallel/distributed.py", 1779, "forward")
    helper = Location("/usr/lib/python3.12/contextlib.py", 105, "__init__")
    event = maker.breaks_at("f0", at(3), ddp, helper, gb_type="Attempted to call function marked as skipped")
    assert category(event, Run(info=RunInfo())) == "inside DistributedDataParallel"
    inside = replace(
        event, stack=(at(3), ddp, Location(f"{site}/modules/rnn.py", 9, "forward")), gb_type="Attempted to wrap RNN, GRU, or LSTM"
    )
    assert category(inside, Run(info=RunInfo())) == "unsupported builtin or library call"


def test_torchs_example_of_a_builtin_decides_no_category(maker, at):
    said = "This function is either a Python builtin (e.g. _warnings.warn) or a third-party C/C++ Python extension"
    event = maker.breaks_at("f0", at(3), gb_type="Attempted to call function marked as skipped", gb_id="GB0007")
    event = replace(event, context="module: <unknown module>, qualname: list.append", explanation=said)
    assert category(event, Run(info=RunInfo())) == "unsupported builtin or library call"


@pytest.mark.parametrize(
    ("gb_type", "context", "expected"),
    [
        ("Data-dependent branching", "", "data-dependent control flow"),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "", "scalar read"),
        ("Failed to trace builtin operator", "builtin print [ConstantVariable] False", "side effect"),
        ("Failed to trace builtin operator", "builtin hex []", "unsupported builtin or library call"),
        ("Attempted to call function marked as skipped", "module: _warnings, qualname: warn", "side effect"),
        ("Attempted to inline function marked as skipped", "qualname: Optimizer.zero_grad, name: inner", "autograd or optimizer call"),
        ("logging.Logger method not supported for non-export cases", "", "side effect"),
        ("Unsupported context manager", "", "context manager"),
        ("Unsupported Tensor.backward() call", "", "autograd or optimizer call"),
        ("Attempted to wrap RNN, GRU, or LSTM", "", "unsupported builtin or library call"),
        ("Dynamic shape operator", "aten.nonzero.default", "dynamic shape operator"),
        ("Call to `torch._dynamo.graph_break()`", "", "user-inserted"),
        ("Skip calling `torch.compiler.disable()`d function", "", "disabled function"),
        ("Something new in torch 3", "", "other"),
    ],
)
def test_categories(maker, at, gb_type, context, expected):
    event = maker.breaks_at("f0", at(3), gb_type=gb_type, gb_id=None)
    assert category(replace(event, context=context), Run(info=RunInfo())) == expected


def test_a_break_call_inside_torch_optim_is_not_the_users(maker):
    place = Location("/x/site-packages/torch/optim/optimizer.py", 78, "_use_grad")
    event = maker.breaks_at("f0", place, gb_type="Call to `torch._dynamo.graph_break()`", gb_id="GB0025")
    assert category(event, Run(info=RunInfo())) == "autograd or optimizer call"


def test_torchs_long_words_for_an_unknown_number_are_cut_and_are_control_flow(maker, at):
    words = (
        "Consider annotating your code using torch._check*(). Could not guard on data-dependent expression zuf0 > 0.0 "
        "(unhinted: zuf0 > 0.0).  (Size-like symbols: none)"
    )
    maker.breaks_at(maker.frame("step", line=1, outcome="failed"), at(4), source="metrics", gb_id=None, gb_type=words)
    (finding,) = find_graph_breaks(maker.run()).findings
    assert finding.title.endswith("(data-dependent control flow: Could not guard on data-dependent expression zuf0 > 0.0)")


def test_torchs_long_words_of_a_break_without_an_id_are_cut_in_its_title(maker, at):
    words = "Could not guard on data-dependent expression Eq(u1, 0) (unhinted: Eq(u1, 0)).  (Size-like symbols: u1)\n\nCaused by: x"
    maker.breaks_at(maker.frame("step", line=1, outcome="broke"), at(4), gb_id=None, gb_type=words)
    (finding,) = find_graph_breaks(maker.run()).findings
    assert finding.title.endswith("Could not guard on data-dependent expression Eq(u1, 0))")


def test_a_run_of_breaks_without_any_graph_is_said_to_have_run_eager(maker, at):
    said = "No graph was captured in the whole run, so no operation ran compiled"
    frame = maker.frame("step", line=1, outcome="broke", metrics=CompileMetrics(has_guarded_code=True))
    maker.breaks_at(frame, at(8))
    assert said in find_graph_breaks(maker.run()).findings[0].why
    maker.graph(frame)
    assert said not in find_graph_breaks(maker.run()).findings[0].why


def test_a_text_log_without_graphs_does_not_tell_that_none_was_captured(maker, at):
    maker.breaks_at(maker.frame("step", line=1, outcome="broke"), at(8))
    assert "No graph was captured" not in find_graph_breaks(maker.run()).findings[0].why


@pytest.mark.parametrize(
    ("said", "recorded", "told"),
    [
        ("aten.item.default", "DataDependentOutputException: aten.item.default", "raised DataDependentOutputException: aten.item.default."),
        ("", "NotImplementedError: ", "The back end raised NotImplementedError."),
        ("aten.item.default", None, "The back end raised aten.item.default."),
        ("first line\nsecond", None, "The back end raised first line."),
        ("", None, None),
    ],
)
def test_a_graph_that_the_back_end_refused_says_what_it_raised(maker, at, said, recorded, told):
    frame = maker.frame("step", line=1, outcome="skipped")
    context = f"Backend: inductor\nException:{said}\nTraceback:\nFile x"
    maker.breaks_at(frame, at(5), gb_id="GB0219", gb_type="Backend compiler exception", context=context, skips_frame=True)
    problems = (Problem(kind="backend_error", process=0, text=recorded, frame=frame),) if recorded else ()
    (finding,) = find_graph_breaks(maker.run(problems=problems)).findings
    assert told in finding.why if told else "raised" not in finding.why


def test_what_the_back_end_raised_is_named_by_its_class_where_the_break_has_it(maker, at):
    """`table[step]` with a tensor without dimensions: "The back end raised aten._local_scalar_dense.default" (2.15)."""
    frame = maker.frame("step", line=1, outcome="skipped")
    context = "Backend: aot_eager\nException:aten._local_scalar_dense.default\n\nWhile executing\nTraceback:\nFile x"
    cause = "torch._subclasses.fake_tensor.DataDependentOutputException: aten._local_scalar_dense.default\n\nWhile executing"
    refused = "Backend compiler exception"
    maker.breaks_at(frame, at(5), gb_id="GB0219", gb_type=refused, context=context, cause=cause, skips_frame=True)
    (finding,) = find_graph_breaks(maker.run()).findings
    assert "The back end raised DataDependentOutputException: aten._local_scalar_dense.default." in finding.why


@pytest.mark.parametrize(
    ("line", "compiled", "told"),
    [
        ("return checkpoint(block, x, use_reentrant=False)", False, True),
        ("return checkpoint(self.block, x)", False, True),
        ("return checkpoint(block, x)", True, False),
        ("return block(x)", False, False),  # Dynamo looks at it when it is called, and leaves it alone where it has no tensors
    ],
)
def test_a_function_that_is_handed_to_what_dynamo_leaves_out_runs_eagerly(maker, at, line, compiled, told):
    frame = maker.frame("step", line=1, outcome="broke")
    maker.breaks_at(frame, at(3, "step", line), at(8, "block", 'print("in block")'))
    maker.frame("torch_dynamo_resume_in_step_at_3", line=1)
    if compiled:
        maker.frame("block", line=6)
    (finding,) = find_graph_breaks(maker.run()).findings
    assert ("`block`, in which it breaks, is not compiled: the whole body runs eagerly" in finding.why) == told, finding.why


@pytest.mark.parametrize("skips", [False, True])
def test_a_category_that_says_torchs_words_is_said_once(maker, at, skips):
    maker.breaks_at(maker.frame("step", line=1), at(8), gb_id="GB0036", gb_type="Dynamic shape operator", skips_frame=skips)
    (finding,) = find_graph_breaks(maker.run()).findings
    assert finding.title.lower().count("dynamic shape operator") == 1


def test_other_causes_behind_a_line_are_named_once_where_they_have_one_code(maker, at, library):
    frame = maker.frame("step", line=1)
    for line, name in ((70, "lib.a"), (90, "lib.b")):
        maker.breaks_at(frame, at(8), library(line), context=f"qualname: {name}")
    whys = [finding.why for finding in find_graph_breaks(maker.run()).findings]
    assert len(whys) == 2 and all("This is one of 2 causes behind this line, all GB0170." in why for why in whys)


def test_two_lines_of_the_user_behind_one_line_of_a_library_are_two_sites(maker, at, library):
    frame = maker.frame("step", line=1)
    for line, times in ((8, 2), (9, 1)):
        for _ in range(times):
            maker.breaks_at(frame, at(line), library(71))
    result = find_graph_breaks(maker.run())
    assert [(site.id, site.own_frame.line, site.events) for site in result.graph_breaks] == [("b1", 8, 2), ("b2", 9, 1)]
    assert [one.where.line for one in result.findings] == [8, 9]
    first, second = (site.fingerprint for site in result.graph_breaks)
    assert second == f"{first}-1"


def test_events_of_a_library_line_without_a_line_of_the_user_belong_to_the_only_site(maker, at, library):
    frame = maker.frame("step", line=1)
    maker.breaks_at(frame, at(3, "main"), torch_frame=library(71))
    maker.breaks_at(frame, at(8), library(71))
    (site,) = find_graph_breaks(maker.run()).graph_breaks
    assert (site.own_frame.line, site.events) == (8, 2)
    maker.breaks_at(frame, at(9), library(71))
    assert len(find_graph_breaks(maker.run()).graph_breaks) == 3


@pytest.mark.parametrize("named", ["function watch at 0x7f32cb1aeca0", "bound method watch of Net()", "function other at 0x7f32cb1aeca0"])
def test_a_function_that_the_user_excludes_is_blamed_where_it_is_excluded(maker, at, library, named):
    frame = maker.frame("step", line=1)
    fields = {"gb_id": "GB0098", "gb_type": "Skip calling `torch.compiler.disable()`d function"}
    maker.breaks_at(frame, at(17), library(71), context=f"<{named}>", **fields)
    place = at(7, "<module>", "@torch.compiler.disable")
    problem = Problem(kind="disabled", process=0, text="watch is disabled: slow", location=place, stack=(place,))
    result = find_graph_breaks(maker.run(problems=(problem,)))
    (finding,) = result.findings
    if "other" in named:
        assert (finding.where.line, finding.fix) == (17, ())
        assert "not yours to edit" in finding.why
        return
    assert (finding.where.line, [one.slug for one in finding.fix]) == (7, ["exclude-no-more"])
    assert "Dynamo stops where it is called, at core.py:71" in finding.why
    assert "not yours to edit" not in finding.why
