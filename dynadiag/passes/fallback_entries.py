"""All that ran eager without being asked to, one entry a thing: skipped frames, limits, suppressed errors, switches, old warnings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dynadiag.advice.fallbacks import fallback_advice
from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.user_frames import bare_name, is_own_file, of_last_run, own_entry, resume_line, source_function
from dynadiag.facts.wording import unique
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.report import Fallback, GraphBreak
from dynadiag.model.run import SOFT_ERRORS, Frame, Problem, Run
from dynadiag.passes.break_sites import break_sites
from dynadiag.passes.empty_frames import empty_frames, empty_reason, function_in, nothing_in, was_compiled
from dynadiag.passes.nothing_compiled import TRACING_OFF, nothing_compiled, problem_place, stance_effect, switched_off

MOST_FRAMES = 10_000  # code objects that were left, of which each is told
_NOT_SEEN_TO_RUN = frozenset({"ended-early", "no-torch", "no-records"})
CODES = {
    "nothing_compiled": codes.NOTHING_COMPILED,
    "skipped_frame": codes.SKIPPED_FRAME,
    "recompile_limit": codes.LIMIT_LEFT_EAGER,
    "suppressed_error": codes.SUPPRESSED_ERROR,
    "aot_rejected": codes.AOT_REJECTED,
    "no_graph": codes.NO_GRAPH,
    "disabled": codes.DISABLED,
    "stance": codes.STANCE,
    "env_disabled": codes.SWITCHED_OFF,
}
_LIMIT_TYPES = ("recompile limit exceeded", "cache limit exceeded")
# As `variables/functions.py` and `symbolic_convert.py` of `torch/_dynamo` say it (2.11, 2.15); torch of 2023 wrote "wrapped function".
_DISABLED_CALL = re.compile(r"(?:compiler|_dynamo)\.disable\(\)`?d? (?:wrapped )?function")

# What the warnings of 2022 meant (text logs of torchdynamo and functorch): `is_aot_autograd_safe_to_run` and `AotAutogradStrategy` of
# `torch/_dynamo/optimizations/training.py` in torch 1.13.
_MUTATION: Final = (
    "In 2022, torchdynamo inspected each captured graph before passing it to AOTAutograd. This one mutates a tensor in place, which "
    "AOTAutograd could not represent at the time (without functionalization any mutation, with it one of an input), so the whole "
    "captured graph ran eagerly, not only the op. With current torch, the same code is functionalized and compiled; the new value is "
    "copied back after the graph"
)
_LSTM: Final = (
    "In 2022, torchdynamo refused graphs that contain an LSTM module, because of an open bug (pytorch/functorch#586), and ran them "
    "eagerly. Current torch leaves LSTM, GRU and RNN modules out of its graphs unless torch._dynamo.config.allow_rnn is set, which is "
    "a graph "
    "break, not this fallback"
)
_UNSAFE: Final = (
    "In 2022, torchdynamo considered the captured graph unsafe for AOTAutograd (a mutation in it, or an LSTM module) and ran the whole "
    "graph eagerly, forward and backward. With current torch, graphs with mutations are functionalized and compiled"
)
_OTHER: Final = "a warning of torch's compiler in a text log of 2022: a captured graph ran eagerly"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One occurrence before it is counted: what it is, where, and a key that equal ones share."""

    kind: str
    frame: str | None
    reason: str
    where: Location | None
    key: tuple[object, ...]
    name: str = ""
    breaks: tuple[str, ...] = ()
    process: int | None = None  # where no frame says it


class Entries(NamedTuple):
    """The entries `x1`, `x2`, ... in a fixed order; `more` is how many others there are, which are only counted."""

    shown: tuple[Fallback, ...]
    more: int


@of_last_run
def fallback_entries(run: Run) -> Entries:
    """What ran eager; an entry that a graph break caused names it in `breaks`."""
    sites = break_sites(run)
    groups: dict[tuple[object, ...], list[_Entry]] = {}
    more = 0
    for entry in (*_frames(run, sites), *_disabled(sites), *_problems(run), *_empty(run), *_legacy(run), *_switches(run)):
        if entry is None:
            more += 1
        else:
            groups.setdefault((entry.kind, *entry.key), []).append(entry)
    ordered = list(groups.values()) or _nothing(run)
    prints = fingerprints([_subject(group[0]) for group in ordered], run)
    shown = (
        _entry(f"x{number}", fingerprint, group, run)
        for number, (group, fingerprint) in enumerate(zip(ordered, prints, strict=True), start=1)
    )
    return Entries(tuple(shown), more)


def _subject(entry: _Entry) -> Subject:
    named = entry.kind in ("env_disabled", "nothing_compiled")  # the others are named after a function
    return Subject(CODES[entry.kind], entry.where, entry.name if named else "", "" if named else entry.name)


def _entry(identifier: str, fingerprint: str, group: Sequence[_Entry], run: Run) -> Fallback:
    first = group[0]
    entry = Fallback(
        id=identifier,
        fingerprint=fingerprint,
        kind=first.kind,
        frame=first.frame,
        reason=first.reason,
        own_frame=first.where,
        events=len(group),
        breaks=unique(word for entry in group for word in entry.breaks),
        processes=_processes(group, run),
    )
    return replace(entry, advice=fallback_advice(entry, first.name.strip()))


def _processes(group: Sequence[_Entry], run: Run) -> tuple[int, ...]:
    """Where it ran eager; empty where one occurrence does not say."""
    frames = [None if entry.frame is None else run.frame(entry.frame) for entry in group]
    found = [entry.process if frame is None else frame.key.process for entry, frame in zip(group, frames, strict=True)]
    return () if None in found else tuple(sorted({number for number in found if number is not None}))


def is_limit(frame: Frame) -> bool:
    """True for the record of a frame that reached the recompile limit: it has metrics and nothing else (torch 2.11 and 2.15)."""
    metrics = frame.metrics
    if metrics is None or metrics.fail_type is None:
        return False
    reason = (metrics.fail_reason or "").lower()
    return metrics.fail_type == "FailOnRecompileLimitHit" or any(name in reason for name in _LIMIT_TYPES)


def named_frames(run: Run) -> Callable[[Frame], Frame]:
    """Finds for a frame record without a name an earlier compilation of the same code object."""
    first: dict[tuple[int, int, int | None], Frame] = {}
    for frame in run.frames:
        if frame.name is not None:
            first.setdefault((frame.key.process, frame.key.epoch, frame.key.frame), frame)
    return lambda frame: frame if frame.name is not None else first.get((frame.key.process, frame.key.epoch, frame.key.frame), frame)


def _frames(run: Run, sites: Sequence[GraphBreak]) -> Iterable[_Entry | None]:
    """Frames that Dynamo left, because of a break, of the recompile limit or of an error that was suppressed.

    None stands for each code object beyond the first MOST_FRAMES.
    """
    caused: dict[str, list[GraphBreak]] = {}
    for site in sites:
        for frame_id in site.skipped_frames:
            caused.setdefault(frame_id, []).append(site)
    named, said = named_frames(run), _said_of_frames(run)
    first: dict[tuple[object, ...], _Entry | None] = {}
    for frame in run.frames:
        if frame.outcome == "skipped" or (frame.id in caused and frame.outcome != "failed"):
            known, why = named(frame), caused.get(frame.id, ())
            kind = _frame_kind(frame, frame.id in caused, said.get(frame.id))
            key = (frame.key.process, frame.key.epoch, frame.key.frame) if known.file is None else (known.file, known.line, known.name)
            if (kind, *key) in first:
                told = first[kind, *key]
                if told is not None:
                    yield replace(told, frame=frame.id, breaks=tuple(site.id for site in why))
                continue
            entry = _frame_entry(frame, known, kind, key, why, run) if len(first) < MOST_FRAMES else None
            first[kind, *key] = entry
            yield entry


def _frame_entry(frame: Frame, known: Frame, kind: str, key: tuple[object, ...], why: Sequence[GraphBreak], run: Run) -> _Entry:
    return _Entry(
        kind=kind,
        frame=frame.id,
        reason=_frame_reason(frame, known, why, kind),
        where=_frame_place(known, why, run),
        key=key,
        name=source_function(known.name) or "",
        breaks=tuple(site.id for site in why),
    )


def _said_of_frames(run: Run) -> dict[str | None, str]:
    """What the recorder or a text log says of frames that were left, for those whose metrics do not say it."""
    kinds = {"aot_rejected": "aot_rejected", "suppressed_error": "suppressed_error", "backend_error": "suppressed_error"}
    found = {problem.frame: kinds[problem.kind] for problem in run.problems if problem.kind in kinds}
    rejected = {problem.frame: problem.kind for problem in run.problems if problem.kind in ("aot_rejected", "recompile_limit")}
    return found | rejected


def _frame_kind(frame: Frame, broke: bool, said: str | None) -> str:
    if is_limit(frame) or said == "recompile_limit":
        return "recompile_limit"
    fail_type = None if frame.metrics is None else frame.metrics.fail_type
    if broke or fail_type in SOFT_ERRORS or (fail_type is None and said is None):
        return "skipped_frame"
    return said or "suppressed_error"


def _frame_reason(frame: Frame, known: Frame, sites: Sequence[GraphBreak], kind: str) -> str:
    line = resume_line(known.name)
    what = source_function(known.name) or "a frame"
    what = what if line is None else f"the rest of {what} after line {line}"
    if kind == "recompile_limit":
        return f"{what} reached the recompile limit: calls that match no compiled version run eagerly from then on"
    if sites:
        second = next((site.skip_reason for site in sites if site.skip_reason), None)
        return f"{what} was skipped because of a graph break: {sites[0].reason}" + (f" ({second.partition(': ')[0]})" if second else "")
    metrics = frame.metrics
    first = first_sentence((None if metrics is None else metrics.fail_reason) or frame.error)
    fail_type = None if metrics is None else metrics.fail_type
    return f"{what} was skipped: " + (f"{fail_type}: {first}" if fail_type not in (None, *SOFT_ERRORS) else first)


def first_sentence(message: str | None) -> str:
    """The first line of an error message, with the next one when the first only announces it ("backend='x' raised:")."""
    lines = [line.strip() for line in (message or "").splitlines() if line.strip()]
    if not lines:
        return "torch recorded no reason"
    return f"{lines[0]} {lines[1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]


def _frame_place(frame: Frame, sites: Sequence[GraphBreak], run: Run) -> Location | None:
    """The frame's own code; for a library frame the user line of the break that made it eager."""
    if frame.file is not None and is_own_file(frame.file, run):
        return Location(frame.file, frame.line, source_function(frame.name))
    broken = next((site.own_frame for site in sites if site.own_frame is not None), None)
    return broken or own_entry(frame, run)


def _problems(run: Run) -> Iterable[_Entry]:
    """What the recorder saw and the trace does not say; a frame that `_frames` has already told is not told again."""
    named = named_frames(run)
    told = {(known.file, known.line): frame for frame in run.frames if frame.outcome == "skipped" for known in (named(frame),)}
    empty = {(frame.file, frame.line) for frame in empty_frames(run)}
    # Dynamo met tensors in these when it came to them through a caller (`inner` around a decorated function): a break tells of them.
    traced = {(location.file, bare_name(location.function)) for event in run.breaks for location in event.stack}
    for problem in run.problems:
        kind = _problem_kind(problem, run)
        place = problem_place(problem, run)
        if kind is None:
            continue
        at = problem.stack[-1] if problem.stack else problem.location
        if kind in ("recompile_limit", "suppressed_error", "aot_rejected") and _told(problem, at, told, run):
            continue
        if kind == "no_graph" and at is not None and ((at.file, at.line) in empty or (at.file, bare_name(at.function)) in traced):
            continue
        reason = _reason_words(problem, kind)
        yield _Entry(
            kind,
            problem.frame,
            reason,
            place,
            (place and place.file, place and place.line, reason),
            name="" if place is None else place.function or "",
            process=problem.process,
        )


def _problem_kind(problem: Problem, run: Run) -> str | None:
    """What to tell it as; a function that was only marked with `torch.compiler.disable` ran eager only where compiled code called it.

    An error left its frame eager only if the frame was skipped: else it reached the program, or the next attempt compiled the frame.
    """
    frame = None if problem.frame is None else run.frame(problem.frame)
    if problem.kind in ("backend_error", "suppressed_error", "aot_rejected"):
        kind = problem.kind if problem.kind == "aot_rejected" else "suppressed_error"
        return kind if frame is None or frame.outcome == "skipped" else None
    if problem.kind == "recompile_limit":
        return None if frame is not None and frame.outcome == "failed" else problem.kind
    if problem.kind == "no_graph":
        return problem.kind if was_compiled(problem, run) and TRACING_OFF not in problem.text else None
    return problem.kind if problem.kind == "stance" and stance_effect(problem) is not None else None


def _stance_reason(problem: Problem) -> str:
    return f"{problem.text} is set here: while it holds, {stance_effect(problem)}; whether one was called meanwhile is not recorded"


def _reason_words(problem: Problem, kind: str) -> str:
    return empty_reason(problem) if kind == "no_graph" else _stance_reason(problem) if kind == "stance" else problem.text


def _empty(run: Run) -> Iterable[_Entry]:
    """Functions that were to be compiled and hold nothing to compile."""
    for frame in empty_frames(run):
        name, where = str(frame.name), Location(str(frame.file), frame.line, frame.name)
        yield _Entry("no_graph", frame.id, nothing_in(name), where, (frame.file, frame.line, name), name=name)


def _disabled(sites: Sequence[GraphBreak]) -> Iterable[_Entry]:
    """Disabled functions that compiled code called: each such call broke the graph, which is the evidence that it ran eager."""
    for site in sites:
        if _DISABLED_CALL.search(site.reason):
            name = function_in(site.context) or function_in(site.reason)
            yield _Entry(
                kind="disabled",
                frame=site.frames[0],
                reason=f"{name or 'a function'} is disabled by torch.compiler.disable and ran eagerly where compiled code called it",
                where=site.own_frame,
                key=(name, site.own_frame and site.own_frame.file, site.own_frame and site.own_frame.line),
                name=name or "",
                breaks=(site.id,),
            )


def _told(problem: Problem, at: Location | None, told: dict[tuple[str | None, int | None], Frame], run: Run) -> bool:
    frame = None if problem.frame is None else run.frame(problem.frame)
    return (frame is not None and frame.outcome == "skipped") or (at is not None and (at.file, at.line) in told)


def _legacy(run: Run) -> Iterable[_Entry]:
    for problem in run.legacy:
        reason = f"{' '.join(problem.text.split())[:300]} - a warning of 2022: {legacy_meaning(problem.text)}"
        place = problem_place(problem, run)
        yield _Entry(
            "aot_rejected",
            problem.frame,
            reason,
            place,
            (problem.text, place and place.file, place and place.line),
            process=problem.process,
        )


def _switches(run: Run) -> Iterable[_Entry]:
    places = {problem.text: problem for problem in reversed(run.problems) if problem.kind == "env_disabled"}
    for switch in switched_off(run):
        where = problem_place(places[switch], run) if switch in places else None
        yield _Entry("env_disabled", None, f"{switch} switches compilation off", where, (switch,), name=switch.partition("=")[0])


def _nothing(run: Run) -> list[list[_Entry]]:
    """Nothing was compiled and nothing above says why. Code that was not reached, or not seen, is not said to have run eager."""
    nothing = nothing_compiled(run)
    return (
        []
        if nothing is None or nothing.slug in _NOT_SEEN_TO_RUN
        else [[_Entry("nothing_compiled", None, nothing.reason, nothing.where, (), name=nothing.slug)]]
    )


def legacy_meaning(text: str) -> str:
    """What a warning of 2022 meant, what forced it then, and what becomes of the same code on current torch."""
    lower = text.lower()
    if "presence of mutation" in lower or "has mutation" in lower:
        return _MUTATION
    if "presence of lstm" in lower:
        return _LSTM
    return _UNSAFE if "not safe to run" in lower else _OTHER
