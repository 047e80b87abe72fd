"""Why nothing was compiled at all: the cause as far as the records show it, else that they do not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dynadiag.facts.lookups import is_from_text
from dynadiag.facts.user_frames import own_frame
from dynadiag.facts.wording import listed, plural, short_place, unique
from dynadiag.model.location import Location
from dynadiag.model.run import CompileCall, Problem, Run
from dynadiag.passes.empty_frames import empty_advice, empty_reason

TRACING_OFF = "Dynamo tracing is disabled"  # `ConvertFrame` in `torch/_dynamo/convert_frame.py`, 2.15
# What each stance of `torch.compiler.set_stance` lets run eager (`torch/_dynamo/eval_frame.py`, 2.11 and 2.15).
_STANCES = {
    "force_eager": "compiled functions run eagerly",
    "eager_on_recompile": "calls that match no compiled version run eagerly",
    "eager_then_compile": "the first call of each compiled function runs eagerly",
    "aot_eager_then_compile": "the first call of each compiled function runs with the back end aot_eager",
}
_STANCE = re.compile(r"stance (\w+)")
_LONGEST_ERROR = 300
_SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")


@dataclass(frozen=True, slots=True)
class Nothing:
    """Why no graph was compiled: a slug, a sentence, the place it points at, and what to do."""

    slug: str
    reason: str
    where: Location | None
    advice: str | None


def switched_off(run: Run) -> tuple[str, ...]:
    """The settings by which compilation was off: environment variables set to 1 (only that value counts) or
    `torch._dynamo.config.disable`.
    """
    found = [f"{name}=1" for process in run.processes for name in _SWITCHES if process.environment.get(name) == "1"]
    found += [problem.text for problem in run.problems if problem.kind == "env_disabled"]
    if not found and _disabled_by_config(run):
        found.append("torch._dynamo.config.disable = True")
    return unique(found)


def _disabled_by_config(run: Run) -> bool:
    """The option as recorded, or what torch 2.15 says of a frame that it left because of it (also when it was set late)."""
    return any(process.config.get("dynamo", {}).get("disable") is True for process in run.processes) or any(
        problem.kind == "no_graph" and TRACING_OFF in problem.text for problem in run.problems
    )


def nothing_compiled(run: Run) -> Nothing | None:
    """Why the run compiled nothing; None when something was compiled, broke or failed (other findings tell those), and for a text."""
    if run.graphs or run.breaks or run.legacy or is_from_text(run) or any(frame.outcome != "skipped" for frame in run.frames):
        return None
    if run.frames:
        return _all_skipped(run)
    return _switched_off(run) or _cut_short(run) or _never_imported(run) or _not_recorded_by_us(run) or _stance(run) or _calls(run)


def _all_skipped(run: Run) -> Nothing:
    first = run.frames[0]
    where = None if first.file is None else Location(first.file, first.line, first.name)
    count = plural(len(run.frames), "frame")
    return Nothing("all-skipped", f"Dynamo tried {count} and skipped every one, so all of them ran eagerly", where, None)


def _switched_off(run: Run) -> Nothing | None:
    switches = switched_off(run)
    if not switches:
        return None
    what = listed(switches)
    return Nothing(
        "switched-off", f"compilation was switched off by {what}: torch.compile returned code that runs eagerly", None, f"Remove {what}."
    )


def _cut_short(run: Run) -> Nothing | None:
    """A recording that ended before its process shows nothing of what the process compiled afterwards."""
    if not run.info.stopped:
        return None
    if not run.processes:
        return Nothing("no-records", f"nothing could be recorded: {run.info.stopped[0]}", None, None)
    reason = f"{run.info.stopped[0]}; whether anything was compiled afterwards is not known"
    return Nothing("no-records", reason, None, None)


def _never_imported(run: Run) -> Nothing | None:
    if run.info.command is None or any(process.torch or process.hooks for process in run.processes):
        return None
    if (early := _ended_early(run, "torch was imported")) is not None:
        return early
    if run.info.running:
        return Nothing("not-yet", "torch is not imported yet", None, None)
    if run.info.killed or run.info.unended:
        return Nothing("not-yet", "the recording was over before torch was imported", None, None)
    return Nothing(
        "no-torch",
        "no import of torch was seen: the program does not use it, or runs in a Python that dynadiag could not record",
        None,
        "If the program uses torch: a Python started with `-I`, `-E` or `-S`, or with an environment of its own, is not recorded. "
        "Avoid that, or record from inside with `with dynadiag.observe(DIR):`.",
    )


def _not_recorded_by_us(run: Run) -> Nothing | None:
    """A foreign log cannot tell a program that compiles nothing from a log that misses its beginning."""
    if any(process.hooks or process.argv for process in run.processes) or run.info.command is not None:
        return None
    return Nothing(
        "no-records", "the log contains no record of a compilation; it does not show whether torch.compile was called", None, None
    )


def _stance(run: Run) -> Nothing | None:
    problem = next((item for item in run.problems if item.kind == "stance" and "force_eager" in item.text), None)
    if problem is None:
        return None
    return Nothing(
        "stance",
        f"the {problem.text} was set, so compiled functions ran eagerly",
        problem_place(problem, run),
        "Set the stance back to default.",
    )


def stance_effect(problem: Problem) -> str | None:
    """What a stance lets run eager, in words; None when it lets nothing, as `fail_on_recompile` and a stance with a back end."""
    match = _STANCE.match(problem.text)
    return None if match is None or "backend" in problem.text else _STANCES.get(match[1])


def _ended_early(run: Run, before: str) -> Nothing | None:
    """The program failed before it came so far: what it is told then is how it ended, not what it should have called."""
    info = run.info
    if not (info.exit_status or info.signal or info.timed_out):
        return None
    raised = next((problem for problem in run.problems if problem.kind == "uncaught"), None)
    where = problem_place(raised, run) if raised is not None else None
    parts = [info.signal or ("time limit" if info.timed_out else f"exit status {info.exit_status}")]
    if raised is not None:
        at = f" at {short_place(where)}" if where is not None else ""
        parts.append(f"{' '.join(raised.text.split())[:_LONGEST_ERROR].rstrip('.')}{at}")
    return Nothing(
        "ended-early",
        f"the program ended ({', '.join(parts)}) before {before}",
        where,
        "Fix that first: the program did not reach anything for torch.compile to compile.",
    )


def _calls(run: Run) -> Nothing:
    places = unique(short_place(call.location) for call in run.compile_calls if call.location is not None)
    where = next((call.location for call in run.compile_calls if call.location is not None), None)
    at = f" (at {listed(places)})" if places else ""
    if not run.compile_calls:
        return _no_call(run)
    if all(call.disabled for call in run.compile_calls):
        return Nothing("disabled", f"every torch.compile call{at} has disable=True", where, "Remove disable=True.")
    empty = next((problem for problem in run.problems if problem.kind == "no_graph"), None)
    if empty is not None:
        return Nothing(
            "no-graph",
            f"torch.compile was called{at}, but nothing could be captured: {empty_reason(empty)}",
            problem_place(empty, run) or where,
            empty_advice(empty),
        )
    if (early := _ended_early(run, f"what torch.compile returned{at} was called")) is not None:
        return early
    so_far = " so far" if run.info.running else ""
    if all(call.target.endswith("._call_impl") for call in run.compile_calls):
        reason = (
            f"`module.compile()` was called{at}, but nothing of the module was compiled{so_far}: it was not called, or all its code is "
            "torch's own (a Sequential of layers), which this torch skips when a module is compiled in place"
        )
        advice = (
            "If the module is called, wrap it instead: `module = torch.compile(module)`, and call what that returns. Only `forward` is "
            "compiled in either way: for another method (`module.loss(x)`) use `torch.compile(module.loss)`, and call what that returns."
        )
        return Nothing("compiled-in-place", reason, where, None if run.info.running else advice)
    if any(process.calls for process in run.processes):
        reason = f"torch.compile was called{at}, and so was what it returned, but nothing was compiled{so_far}; torch gave no reason"
        return Nothing("no-reason", reason, where, None)
    if all(map(_is_decorated, run.compile_calls)):
        names = unique(call.target for call in run.compile_calls)
        was = "was" if len(names) == 1 else "were"
        reason = f"{listed([f'`{name}`' for name in names])} {was} decorated with torch.compile{at}, but {was} not called{so_far}"
        advice = (
            "torch.compile compiles a function when it is called for the first time: call it in the part of the program that is recorded."
        )
        return Nothing("never-called", reason, where, None if run.info.running else advice)
    reason = f"torch.compile was called{at}, but what it returned was not called{so_far}"
    advice = "Call the object that torch.compile returns: it does not change the function or module in place (model.compile() does)."
    return Nothing("never-called", reason, where, None if run.info.running else advice)


def _is_decorated(call: CompileCall) -> bool:
    """Whether a decorator compiles the function: it stands where the function begins."""
    place = call.location
    return place is not None and (place.code or "").startswith("@")


def _no_call(run: Run) -> Nothing:
    watched = [process.hooks.get("torch.compile") for process in run.processes]
    if "ok" in watched:
        if (early := _ended_early(run, "torch.compile was called")) is not None:
            return early
        reason = "torch was imported, but torch.compile was never called"
        return Nothing(
            "never-compiled", reason, None, "Wrap the model or the step in torch.compile, or run dynadiag on the script that does."
        )
    failed = next((state for state in watched if state), None)
    why = f" (calls of torch.compile could not be watched: {failed})" if failed else ""
    return Nothing("no-records", f"no compilation was recorded{why}; whether torch.compile was called is not known", None, None)


def problem_place(problem: Problem, run: Run) -> Location | None:
    """The user's own line that a problem points at, else the place as recorded."""
    return own_frame(problem.stack, run) or problem.location or (problem.stack[-1] if problem.stack else None)
