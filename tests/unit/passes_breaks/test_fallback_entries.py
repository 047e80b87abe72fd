"""Everything that ran eager without being asked to, and why nothing was compiled."""

from dataclasses import replace

import pytest

from dynadiag.model import CompileCall, CompileKey, CompileMetrics, Location, Problem, Process, RecompileEvent, Run, RunInfo
from dynadiag.model.run import UNFINISHED
from dynadiag.passes.base import Priority
from dynadiag.passes.find_fallbacks import find_fallbacks

LIMIT = "Dynamo recompile limit exceeded\n  Explanation: ..."


def _kinds(run):
    return [(entry.kind, entry.breaks) for entry in find_fallbacks(run).fallbacks]


def test_a_frame_skipped_because_of_a_break_names_it_and_makes_no_second_finding(maker, at):
    maker.frame("fine", line=90)
    skipped = maker.frame("step", line=1, outcome="skipped")
    maker.breaks_at(skipped, at(5), skips_frame=True, skip_reason="graph break in loop: ...")
    result = find_fallbacks(maker.run())
    (entry,) = result.fallbacks
    assert (entry.kind, entry.breaks, entry.frame, entry.own_frame.line) == ("skipped_frame", ("b1",), skipped, 1)
    assert entry.reason == "step was skipped because of a graph break: Data-dependent branching (graph break in loop)"
    assert result.findings == ()


def test_frames_without_names_are_not_thrown_together(maker):
    """As read from a text log."""
    for _ in range(2):
        maker.frame(None, line=None, file=None, outcome="skipped")
    assert len(find_fallbacks(maker.run()).fallbacks) == 2


def test_a_fallback_names_the_processes_in_which_it_ran_eager(maker, at):
    frames = [maker.frame("step", line=1, outcome="skipped", key=CompileKey(process, 0, 0, 0)) for process in (2, 0, 2)]
    for frame in frames:
        maker.breaks_at(frame, at(5), skips_frame=True)
    run = maker.run(problems=(Problem(kind="suppressed_error", process=1, text="boom", location=at(9)),))
    run = replace(run, processes=tuple(Process(index=index, log=f"{index}.log") for index in range(3)))
    assert [(one.kind, one.processes) for one in find_fallbacks(run).fallbacks] == [("skipped_frame", (0, 2)), ("suppressed_error", (1,))]


def test_the_rest_of_a_function_is_named_as_such(maker, at):
    skipped = maker.frame("torch_dynamo_resume_in_step_at_5", line=5, outcome="skipped")
    maker.breaks_at(skipped, at(5), skips_frame=True)
    assert find_fallbacks(maker.run()).fallbacks[0].reason.startswith("the rest of step after line 5 was skipped")


def test_the_recompile_limit_is_told_by_the_recompiles_when_there_are_any(maker, failed):
    maker.frame("step", line=1, key=CompileKey(0, 0, 0, 0))
    limit = maker.frame(None, line=None, file=None, key=CompileKey(0, 0, 0, 1), outcome="skipped", metrics=failed("Unsupported", LIMIT))
    run = maker.run()
    result = find_fallbacks(run)
    assert result.fallbacks[0].kind == "recompile_limit"
    assert result.fallbacks[0].own_frame == Location("/home/me/proj/train.py", 1, "step")
    assert [finding.code for finding in result.findings] == ["DF03"]
    told = replace(run, recompiles=(RecompileEvent(frame=limit, reasons=("x",)),))
    assert find_fallbacks(told).findings == ()
    assert _kinds(told) == [("recompile_limit", ())]


def test_a_suppressed_back_end_error_says_the_error(maker, failed):
    maker.frame("fine", line=9)
    maker.frame("step", line=1, outcome="skipped", metrics=failed("BackendCompilerFailed", "backend='bad' raised:\nRuntimeError: boom"))
    (finding,) = find_fallbacks(maker.run()).findings
    assert finding.code == "DF04"
    assert "backend='bad' raised: RuntimeError: boom" in finding.why


def test_a_problem_about_a_frame_that_is_told_already_is_not_told_twice(maker, failed, at):
    frame = maker.frame("step", line=1, outcome="skipped", metrics=failed("BackendCompilerFailed", "boom"))
    problem = Problem(kind="backend_error", process=0, text="BackendCompilerFailed: boom", frame=frame, stack=(at(1),))
    assert _kinds(maker.run(problems=(problem,))) == [("suppressed_error", ())]


def test_a_compilation_that_raised_is_a_failure_and_no_fallback(maker, failed):
    maker.frame("step", line=1, outcome="failed", metrics=failed("BackendCompilerFailed", "boom"))
    result = find_fallbacks(maker.run())
    assert result.fallbacks == ()
    assert [(finding.code, finding.severity) for finding in result.findings] == [("DF10", "error")]


def test_a_recompile_limit_that_was_raised_is_told_by_the_recompiles(maker, failed):
    maker.frame("step", line=1, key=CompileKey(0, 0, 0, 0))
    limit = maker.frame(
        None, line=None, file=None, key=CompileKey(0, 0, 0, 1), outcome="failed", metrics=failed("FailOnRecompileLimitHit", "x")
    )
    run = maker.run()
    assert [finding.code for finding in find_fallbacks(run).findings] == ["DF10"]
    assert find_fallbacks(replace(run, recompiles=(RecompileEvent(frame=limit, reasons=("x",)),))).findings == ()


def test_a_compilation_that_the_log_cuts_short_did_not_fail(maker):
    maker.graph(maker.frame("fine", line=9))
    frame = maker.frame("step", line=1, outcome="failed")
    run = maker.run()
    cut = replace(run, frames=tuple(replace(one, error=UNFINISHED) if one.id == frame else one for one in run.frames))
    result = find_fallbacks(cut)
    assert (result.findings, result.notes) == ((), ("the log ends while step (train.py:1) [1/0] was being compiled",))


def test_a_failure_says_torchs_explanation(maker, failed):
    maker.frame(
        "step", line=1, outcome="failed", metrics=failed("TorchRuntimeError", "fake tensor call\n  Explanation: size 3 and 7\n  Hint: x")
    )
    assert "fake tensor call: size 3 and 7." in find_fallbacks(maker.run()).findings[0].why


def test_a_switch_that_came_late_is_not_ranked_as_if_nothing_was_compiled(maker):
    maker.graph(maker.frame("step", line=1))
    off = Problem(kind="env_disabled", process=0, text="torch._dynamo.config.disable = True")
    (finding,) = find_fallbacks(maker.run(problems=(off,))).findings
    assert (finding.code, finding.rank[0]) == ("DF09", Priority.RAN_EAGER)


def test_a_failure_names_the_users_line_that_was_traced(maker, failed, at, library):
    """torch's place of the failure may be inside a library."""
    metrics = replace(failed("TorchRuntimeError", "boom"), fail_location=library(877))
    frame = maker.frame("step", line=1, outcome="failed", metrics=metrics, callers=(at(90, "main"),))
    error = Problem(kind="error", process=0, text="boom", frame=frame, stack=(at(90, "main"), at(4), library(877)))
    (finding,) = find_fallbacks(maker.run(problems=(error,))).findings
    assert (finding.code, finding.where.line) == ("DF10", 4)
    (finding,) = find_fallbacks(maker.run()).findings
    assert (finding.where.function, finding.where.line) == ("step", 1)


def test_a_function_that_is_only_marked_as_disabled_did_not_run_eager(maker, at):
    maker.frame("step", line=1)
    marked = Problem(kind="disabled", process=0, text="slow is disabled", stack=(at(3, "<module>"),))
    result = find_fallbacks(maker.run(problems=(marked,)))
    assert (result.fallbacks, result.findings) == ((), ())


@pytest.mark.parametrize(
    ("gb_type", "context", "name"),
    [
        ("Skip calling `torch.compiler.disable()`d function", "<function Net.slow at 0x7f0492a99800>", "Net.slow"),
        ("Skip inlining `torch.compiler.disable()`d function", "<function slow at 0x7f0492a99800>", "slow"),
        ("call torch._dynamo.disable() wrapped function <function slow at 0x7f>", None, "slow"),
        ("Skip inlining `torch.compiler.disable()`d function", "<function main.<locals>.slow at 0x7f>", "main.<locals>.slow"),
        ("call torch._dynamo.disable() wrapped function", None, "a function"),
    ],
)
def test_a_disabled_function_that_compiled_code_called_names_the_break(maker, at, gb_type, context, name):
    frame = maker.frame("step", line=1, outcome="broke")
    maker.breaks_at(frame, at(5), gb_type=gb_type, gb_id="GB0098", context=context)
    result = find_fallbacks(maker.run())
    assert _kinds(maker.run()) == [("disabled", ("b1",))]
    assert result.fallbacks[0].reason == f"{name} is disabled by torch.compiler.disable and ran eagerly where compiled code called it"
    assert result.fallbacks[0].own_frame.line == 5
    assert result.findings == ()


def _empty_frame(name):
    said = f"Dynamo decided to skip the frame while tracing: No ops traced for the FX graph. ...\nFrame info: {name}"
    return Problem(kind="no_graph", process=0, text=f"{name}: {said}", stack=(Location("/home/me/proj/train.py", 9, name),))


@pytest.mark.parametrize(
    ("target", "frame", "told"),
    [
        ("main.<locals>.step", "main.<locals>.step", True),
        ("Net", "Net.forward", True),
        ("Trainer", "Trainer.__call__", True),
        ("main.<locals>.step", "main.<locals>.torch_dynamo_resume_in_step_at_5", False),
        ("step", "Timer.__exit__", False),
    ],
)
def test_a_frame_without_tensor_work_is_told_only_if_it_was_to_be_compiled(maker, target, frame, told):
    maker.frame("other", line=1)
    call = CompileCall(process=0, location=None, target=target, backend=None)
    result = find_fallbacks(maker.run(problems=(_empty_frame(frame),), compile_calls=(call,)))
    assert [entry.reason for entry in result.fallbacks] == (
        [f"Dynamo found no tensor operation to compile in `{frame}`, which runs as plain Python"] if told else []
    )
    assert [finding.severity for finding in result.findings] == (["note"] if told else [])


EMPTY = CompileMetrics(has_guarded_code=True)


@pytest.mark.parametrize(
    ("target", "frame", "told"),
    [
        ("main.<locals>.step", "step", True),
        ("main.<locals>.step", "torch_dynamo_resume_in_step_at_5", False),
        ("main.<locals>.step", "__exit__", False),
        ("Net", "forward", True),
        ("Net", "helper", False),
        ("<lambda>", "<lambda>", True),
    ],
)
def test_a_frame_that_torch_left_without_saying_so_is_told_only_if_it_was_to_be_compiled(maker, target, frame, told):
    """torch 2.11 records no reason when it traces no op."""
    empty = maker.frame(frame, line=9, metrics=EMPTY)
    maker.graph(maker.frame("other", line=1))
    call = CompileCall(process=0, location=None, target=target, backend=None)
    result = find_fallbacks(maker.run(compile_calls=(call,)))
    assert [(entry.kind, entry.frame, entry.reason) for entry in result.fallbacks] == (
        [("no_graph", empty, f"Dynamo found no tensor operation to compile in `{frame}`, which runs as plain Python")] if told else []
    )


def test_methods_that_dynamo_meets_after_a_break_are_nobodys(maker, at):
    broke = maker.frame("forward", line=1, outcome="broke")
    maker.breaks_at(broke, at(5))
    maker.frame("forward", line=9, metrics=EMPTY)
    call = CompileCall(process=0, location=None, target="Net", backend=None)
    assert find_fallbacks(maker.run(compile_calls=(call,))).fallbacks == ()


def test_a_frame_with_a_graph_or_with_guards_is_not_empty(maker):
    maker.graph(maker.frame("step", line=1, metrics=EMPTY))
    maker.frame("step", line=5, metrics=replace(EMPTY, guard_count=3))
    call = CompileCall(process=0, location=None, target="step", backend=None)
    assert find_fallbacks(maker.run(compile_calls=(call,))).fallbacks == ()


def test_an_empty_frame_is_told_once(maker):
    """torch 2.15 says the reason and leaves the frame without a graph."""
    maker.frame("step", line=9, metrics=EMPTY)
    maker.graph(maker.frame("other", line=1))
    call = CompileCall(process=0, location=None, target="step", backend=None)
    (entry,) = find_fallbacks(maker.run(problems=(_empty_frame("step"),), compile_calls=(call,))).fallbacks
    assert (entry.kind, entry.events) == ("no_graph", 1)


@pytest.mark.parametrize("outcome", ["compiled", "broke", "failed"])
@pytest.mark.parametrize("kind", ["aot_rejected", "backend_error"])
def test_a_refused_graph_ran_eager_only_if_its_frame_was_left(maker, kind, outcome):
    """AOTAutograd's restart analysis raises, and the frame is compiled in the next attempt; other errors reach the program."""
    maker.frame("fine", line=90)
    frame = maker.frame("step", line=1, outcome=outcome)
    problem = Problem(kind=kind, process=0, text="TensorifyScalarRestartAnalysis: ", frame=frame)
    assert find_fallbacks(maker.run(problems=(problem,))).fallbacks == ()


@pytest.mark.parametrize("kind", ["recompile_limit", "suppressed_error"])
def test_what_a_text_log_says_of_a_frame_names_its_kind(maker, kind):
    """It has no metrics."""
    maker.frame("fine", line=90)
    frame = maker.frame("step", line=1, outcome="skipped")
    problem = Problem(kind=kind, process=0, text="as torch said", frame=frame)
    (entry,) = find_fallbacks(maker.run(problems=(problem,))).fallbacks
    assert (entry.kind, entry.events) == (kind, 1)


@pytest.mark.parametrize("kind", ["aot_rejected", "backend_error"])
def test_a_suppressed_refusal_is_told_once(maker, failed, kind):
    maker.frame("fine", line=90)
    frame = maker.frame("step", line=1, outcome="skipped", metrics=failed("BackendCompilerFailed", "backend='aot_eager' raised:\nboom"))
    problem = Problem(kind=kind, process=0, text="RuntimeError: boom", frame=frame)
    (entry,) = find_fallbacks(maker.run(problems=(problem,))).fallbacks
    assert entry.kind == {"backend_error": "suppressed_error"}.get(kind, kind)
    assert "boom" in entry.reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stance force_eager", "compiled functions run eagerly"),
        ("stance eager_on_recompile", "calls that match no compiled version run eagerly"),
        ("stance eager_then_compile", "the first call of each compiled function runs eagerly"),
        ("stance fail_on_recompile", None),
        ("stance default, backend eager", None),
    ],
)
def test_a_stance_is_told_with_what_it_lets_run_eager(maker, at, text, words):
    maker.graph(maker.frame("step", line=1))
    problem = Problem(kind="stance", process=0, text=text, stack=(at(3, "<module>"),))
    reasons = [entry.reason for entry in find_fallbacks(maker.run(problems=(problem,))).fallbacks]
    expected = f"{text} is set here: while it holds, {words}; whether one was called meanwhile is not recorded"
    assert reasons == ([] if words is None else [expected])


def test_switched_off_compilation_is_told_once(maker):
    """torch 2.15 also says of each frame that it left it."""
    left = Problem(
        kind="no_graph", process=0, text="step: Dynamo tracing is disabled", stack=(Location("/home/me/proj/train.py", 9, "step"),)
    )
    call = CompileCall(process=0, location=None, target="step", backend=None)
    off = _empty(problems=(left,), compile_calls=(call,), process={"environment": {"TORCH_COMPILE_DISABLE": "1"}})
    assert [entry.reason for entry in find_fallbacks(off).fallbacks] == ["TORCH_COMPILE_DISABLE=1 switches compilation off"]
    maker.frame("earlier", line=1)
    late = maker.run(problems=(left,), compile_calls=(call,))
    assert [entry.reason for entry in find_fallbacks(late).fallbacks] == ["torch._dynamo.config.disable = True switches compilation off"]


def test_a_warning_of_2022_is_explained(maker):
    warning = Problem(kind="aot_rejected", process=0, text="Unable to use Aot Autograd because of presence of mutation")
    (finding,) = find_fallbacks(maker.run(legacy=(warning,))).findings
    assert finding.code == "DF05"
    assert "whole captured graph ran eagerly" in finding.why
    assert "functionalizes" in finding.fix[0].text


def _empty(**fields):
    process = Process(index=0, log="0.log", pid=1, argv=("train.py",), hooks={"torch.compile": "ok"}, **fields.pop("process", {}))
    fields.setdefault("info", RunInfo(command=("python", "train.py"), cwd="/home/me/proj"))
    return Run(processes=(process,), **fields)


CALL = CompileCall(process=0, location=Location("/home/me/proj/train.py", 7, "main"), target="Net", backend=None)
IN_PLACE = replace(CALL, target="Sequential._call_impl")
DECORATED = replace(CALL, target="step", location=Location("/home/me/proj/train.py", 3, "<module>", "@torch.compile(backend='eager')"))
GENERATOR = "Attempt to trace generator\n  Explanation: Generators cannot be compiled directly with `torch.compile`."


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (_empty(), "torch.compile was never called"),
        (_empty(compile_calls=(CALL,)), "torch.compile was called (at train.py:7), but what it returned was not called"),
        (
            _empty(compile_calls=(CALL,), process={"calls": 2}),
            "and so was what it returned, but nothing was compiled; torch gave no reason",
        ),
        (_empty(compile_calls=(DECORATED,)), "`step` was decorated with torch.compile (at train.py:3), but was not called"),
        (
            _empty(
                compile_calls=(DECORATED,),
                process={"calls": 1},
                problems=(Problem(kind="no_graph", process=0, text=f"step: {GENERATOR}"),),
            ),
            "nothing could be captured: `step` is a generator function, which Dynamo does not compile: it runs as plain Python",
        ),
        (_empty(compile_calls=(IN_PLACE,)), "`module.compile()` was called (at train.py:7), but nothing of the module was compiled"),
        (_empty(compile_calls=(replace(CALL, disabled=True),)), "has disable=True"),
        (_empty(compile_calls=(CALL,), process={"environment": {"TORCH_COMPILE_DISABLE": "1"}}), "switched off by TORCH_COMPILE_DISABLE=1"),
        (_empty(compile_calls=(CALL,), process={"config": {"dynamo": {"disable": True}}}), "switched off by torch._dynamo.config.disable"),
        (
            _empty(
                compile_calls=(CALL,),
                problems=(Problem(kind="no_graph", process=0, text="main: no tensor-related objects found in frame"),),
            ),
            "nothing could be captured: Dynamo did not trace `main`, which runs as plain Python: it saw no tensor",
        ),
        (
            _empty(compile_calls=(CALL,), problems=(Problem(kind="stance", process=0, text="stance force_eager"),)),
            "The stance force_eager was set",
        ),
        (Run(info=RunInfo(command=("python", "train.py"))), "No import of torch was seen"),
        (Run(info=RunInfo(), processes=(Process(index=0, log="a.log"),)), "does not show whether torch.compile was called"),
    ],
)
def test_why_nothing_was_compiled(run, words):
    findings = [finding for finding in find_fallbacks(run).findings if finding.code == "DF01"]
    assert len(findings) == 1
    assert words in findings[0].why
    assert findings[0].severity == "error"


def test_a_program_that_could_not_be_seen_is_not_said_to_run_eager():
    """`python -I train.py` compiles, but is not recorded: its records look like those of a program without torch."""
    (finding,) = find_fallbacks(Run(info=RunInfo(command=("python", "-I", "train.py")))).findings
    assert finding.title == "No compilation was recorded: no import of torch was seen"
    assert "-I" in finding.fix[0].text and "dynadiag.observe" in finding.fix[0].text


@pytest.mark.parametrize(
    ("state", "title", "words"),
    [
        ("running", "Nothing was compiled so far", "torch is not imported yet"),
        ("killed", "Nothing was compiled before the recording ended", "was over before torch was imported"),
        ("unended", "Nothing was compiled before the recording ended", "was over before torch was imported"),
    ],
)
def test_a_program_that_has_not_come_to_torch_is_not_taken_for_one_without_it(state, title, words):
    run = Run(info=RunInfo(command=("python", "train.py"), **{state: True}))
    (finding,) = find_fallbacks(run).findings
    assert finding.title == title and words in finding.why and not finding.fix
    called = _empty(compile_calls=(CALL,))
    (finding,) = find_fallbacks(replace(called, info=replace(called.info, **{state: True}))).findings
    assert finding.title == title


def test_the_environment_variable_counts_only_when_it_is_1(maker):
    maker.frame("step", line=1)
    run = maker.run()
    off = replace(run, processes=(replace(run.processes[0], environment={"TORCHDYNAMO_DISABLE": "0"}),))
    assert _kinds(off) == []


def test_all_frames_skipped_is_said_once_and_loudly(maker, at):
    frame = maker.frame("step", line=1, outcome="skipped")
    result = find_fallbacks(maker.run())
    assert frame in result.findings[0].evidence
    assert [finding.code for finding in result.findings] == ["DF01"]
    assert "skipped every one" in result.findings[0].why


def test_a_function_that_dynamo_traced_through_its_caller_is_not_said_to_be_empty(maker):
    """`@torch.no_grad()` below `@torch.compile`: the loop broke in the wrapper's frame, and the function alone was called empty."""
    wrapper = maker.frame("inner", line=1, outcome="broke")
    maker.breaks_at(wrapper, Location("/home/me/proj/train.py", 16, "step"))
    call = CompileCall(process=0, location=None, target="step", backend=None)
    result = find_fallbacks(maker.run(problems=(_empty_frame("step"),), compile_calls=(call,)))
    assert [entry.kind for entry in result.fallbacks if entry.kind == "no_graph"] == []
