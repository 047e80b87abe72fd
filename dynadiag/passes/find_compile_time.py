"""Where the compile time went: by frame and phase, what the caches did, and what restarts threw away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.lookups import frames_by_code
from dynadiag.facts.user_frames import entry_stack, function_words, own_frame
from dynadiag.facts.wording import frame_location, listed, plural, short_place, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Cause, Clause, Effect, Happened
from dynadiag.model.location import Location
from dynadiag.model.report import CompileTime, Cost, Finding, FrameTime, PassResult
from dynadiag.model.run import CompileMetrics, Frame, Phase, Run
from dynadiag.passes.base import Priority

PHASES = ("dynamo", "AOTAutograd", "backend", "inductor", "backward")
# What makes a finding: seconds that a person waits for, and a part of the whole that is worth changing something for.
SLOW_S = 30.0
SLOW_SHARE = 0.25
RESTART_S = 2.0
RESTART_SHARE = 0.2
UNCACHED_S = 10.0
# torch's reason is the text of the exception that restarts a frame, else its class (`TensorifyScalarRestartAnalysis`): that is no break.
_CLASS = re.compile(r"<class '(?:\w+\.)*(\w+)'>$")
_NO_BREAK = re.compile(r"`\w+`$")


def find_compile_time(run: Run) -> PassResult:
    """The compile time of the run and of each frame, in phases that do not overlap, with the findings that matter.

    The seconds are torch's own (`compilation_metrics`): `dynamo` is tracing and guards, `AOTAutograd` what is left of its time without the
    back end, `inductor` the back end of the forward, `backward` a backward that was compiled later, `backend` a back end that had neither
    (`backend="eager"`, one of the user's). A frame without metrics (the run was
    cut short) takes its time from the `dynamo_timed` events that had ended. `find_compile_time` finds: DC01 restarts that cost at least
    2 s and a fifth of all, DC02 a function that took at least 30 s and a quarter of all, DC03 compilations of 10 s and more whose result
    no cache may keep.
    """
    caches = _caches_by_frame(run)
    phases = _phases_by_frame(run)
    times = tuple(
        time for frame in run.frames if (time := _frame_time(frame, phases.get(frame.id, ()), caches.get(frame.id, {}))) is not None
    )
    if not times:
        why = "no compilation was timed in this log" if run.frames else "nothing was compiled"
        return PassResult(
            compile_time=CompileTime(total_s=None, phases={}, thrown_away_s=None, caches=_cache_counts(run), frames=(), why=why)
        )
    total = CompileTime(
        total_s=sum(time.total_s for time in times),
        phases=_added(time.phases for time in times),
        thrown_away_s=_sum_known(time.thrown_away_s for time in times),
        caches=_cache_counts(run),
        frames=tuple(sorted(times, key=lambda time: -time.total_s)),
        why=_why(run, times),
    )
    return PassResult(compile_time=total, findings=_findings(run, total, {time.frame: time for time in times}))


def _why(run: Run, times: Sequence[FrameTime]) -> str | None:
    untimed = len(run.frames) - len(times)
    return None if untimed == 0 else f"{plural(untimed, 'frame')} of {len(run.frames)} could not be timed: the log has no timings for them"


def _frame_time(frame: Frame, phases: Sequence[Phase], caches: Mapping[str, str]) -> FrameTime | None:
    split = _from_metrics(frame.metrics) or _from_events(phases)
    if not split:
        return None
    if "AOTAutograd" in split and "inductor" not in split and not caches and _no_autograd(phases):
        split = {"backend" if name == "AOTAutograd" else name: seconds for name, seconds in split.items()}
    return FrameTime(frame=frame.id, total_s=sum(split.values()), phases=split, thrown_away_s=_before_restart(frame.metrics), caches=caches)


def _no_autograd(phases: Sequence[Phase]) -> bool:
    """Whether a back end ran without AOTAutograd. torch counts any back end as AOTAutograd's time (`call_user_compiler` in
    `_dynamo/output_graph.py`, 2.15), but the events inside it tell.
    """
    names = {phase.name for phase in phases}
    return "backend_compile" in names and all(phase_layer(name) == "dynamo" for name in names - {"backend_compile"})


def _before_restart(metrics: CompileMetrics | None) -> float | None:
    """What attempts before the last one took. torch sets the same field to the whole time of a frame that failed or was left eager
    (`_compile` in `_dynamo/convert_frame.py`, 2.11 to 2.15): no restart.
    """
    return None if metrics is None or metrics.fail_type is not None else metrics.before_restart_s


def _from_metrics(metrics: CompileMetrics | None) -> dict[str, float]:
    """Torch's nested seconds as parts: the frame's total contains AOTAutograd, that contains the back end; the backward is apart."""
    if metrics is None or metrics.total_s is None:
        return {}
    aot = metrics.aot_s or 0.0
    inductor = min(metrics.inductor_s or 0.0, aot)
    split = {
        "dynamo": max(0.0, metrics.total_s - aot),
        "AOTAutograd": max(0.0, aot - inductor),
        "inductor": inductor,
        "backward": metrics.backward_s or 0.0,
    }
    return {name: seconds for name, seconds in split.items() if seconds > 0 or name == "dynamo"}


def _from_events(phases: Sequence[Phase]) -> dict[str, float]:
    """The parts of a frame whose compilation did not end: each event's own time without those inside it, under its layer."""
    split: dict[str, float] = {}
    for phase in phases:
        layer = phase_layer(phase.name)
        split[layer] = split.get(layer, 0.0) + phase.self_s
    return {name: split[name] for name in PHASES if name in split}


def phase_layer(name: str) -> str:
    """The layer of one of torch's `dynamo_timed` events (names of torch 2.11 and 2.15)."""
    if name in _DYNAMO or name.startswith(("compile_attempt_", "pgo.")):
        return "dynamo"
    if name == "entire_backward_compile" or name.endswith("bw_compiler"):
        return "backward"
    if name in _AOT or name.startswith(("aot_", "AOTAutogradCache")):
        return "AOTAutograd"
    return "inductor"


_DYNAMO = frozenset({"dynamo", "entire_frame_compile", "bytecode_tracing", "insert_deferred_runtime_asserts", "build_guards", "gc"})
_AOT = frozenset(
    {"create_aot_dispatcher_function", "min_cut_rematerialization_partition", "backend_compile", "additional_fake_tensor_prop"}
)


def _phases_by_frame(run: Run) -> dict[str, list[Phase]]:
    found: dict[str, list[Phase]] = {}
    for phase in run.phases:
        if phase.frame is not None:
            found.setdefault(phase.frame, []).append(phase)
    return found


def _caches_by_frame(run: Run) -> dict[str, dict[str, str]]:
    """For each frame what each cache answered: "miss", or "hit, miss" when it was asked several times."""
    found: dict[str, dict[str, list[str]]] = {}
    for event in run.caches:
        if event.frame is not None:
            found.setdefault(event.frame, {}).setdefault(event.cache, []).append(event.result)
    return {frame: {cache: ", ".join(unique(results)) for cache, results in caches.items()} for frame, caches in found.items()}


def _cache_counts(run: Run) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for event in run.caches:
        results = counts.setdefault(event.cache, {})
        results[event.result] = results.get(event.result, 0) + 1
    return counts


def _added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, seconds in part.items():
            total[name] = total.get(name, 0.0) + seconds
    return {name: total[name] for name in PHASES if name in total}


def _sum_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _findings(run: Run, total: CompileTime, times: Mapping[str, FrameTime]) -> tuple[Finding, ...]:
    findings = [*_restarts(run, total, times), *_slow(run, total, times), *_uncached(run, times)]
    marks = fingerprints([Subject(finding.code, finding.where) for finding in findings], run)
    return tuple(
        replace(finding, id=f"n{i}", fingerprint=mark) for i, (finding, mark) in enumerate(zip(findings, marks, strict=True), start=1)
    )


def _finding(code: str, title: str, where: Location | None, clauses: tuple[Clause, ...], cost: Cost, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        id="n0",
        fingerprint="",
        code=code,
        severity=codes.severity_of(code),
        title=title,
        where=where,
        clauses=clauses,
        fix=(),
        cost=cost,
        evidence=evidence,
        rank=(float(Priority.COMPILE_TIME), -cost.value),
    )


def _seconds(value: float) -> Cost:
    return Cost(value=round(value, 3), unit="s", basis="measured")


def _restart_reasons(frame: Frame) -> tuple[str, ...]:
    """The first line of each of torch's reasons."""
    told = frame.metrics.restart_reasons if frame.metrics is not None else ()
    return tuple(_CLASS.sub(r"`\1`", name.strip().partition("\n")[0]) for name in told)


def _restarts(run: Run, total: CompileTime, times: Mapping[str, FrameTime]) -> Iterable[Finding]:
    lost = total.thrown_away_s or 0.0
    if lost < RESTART_S or lost < RESTART_SHARE * (total.total_s or 0.0):
        return
    guilty = sorted((frame for frame in run.frames if _lost(times, frame) > 0), key=lambda frame: -_lost(times, frame))
    reasons = unique(one for frame in guilty for one in _restart_reasons(frame))
    because = f"torch's reasons: {listed(reasons)}" if reasons else "torch recorded no reason"
    broken = {event.frame for event in run.breaks}
    by_break = sum(1 for frame in guilty if frame.id in broken and not all(map(_NO_BREAK.match, _restart_reasons(frame) or ("",))))
    them = "It" if len(guilty) == 1 else f"{by_break} of these frames" if by_break < len(guilty) else "All of these frames"
    cure = f"{them} broke the graph, and Dynamo restarts a frame at each break: without the break, that time would be saved"
    clauses = (
        Happened(
            f"Dynamo restarted {plural(len(guilty), 'frame')} after it had traced part of {'it' if len(guilty) == 1 else 'them'}: "
            f"{lost:.1f} s of {total.total_s or 0.0:.1f} s of compile time were thrown away"
        ),
        Cause(because),
        *((Effect(cure),) if by_break else ()),
    )
    title = f"Restarts threw away {lost:.1f} s of compile time"
    yield _finding(codes.RESTARTS, title, _where(guilty[0], run), clauses, _seconds(lost), tuple(frame.id for frame in guilty[:10]))


def _lost(times: Mapping[str, FrameTime], frame: Frame) -> float:
    return (times[frame.id].thrown_away_s or 0.0) if frame.id in times else 0.0


def _slow(run: Run, total: CompileTime, times: Mapping[str, FrameTime]) -> Iterable[Finding]:
    for frames in frames_by_code(run).values():
        timed = [times[frame.id] for frame in frames if frame.id in times]
        seconds = sum(time.total_s for time in timed)
        if seconds < SLOW_S or seconds < SLOW_SHARE * (total.total_s or 0.0):
            continue
        parts = sorted(_added(time.phases for time in timed).items(), key=lambda item: -item[1])
        first = frames[0]
        clauses = (
            Happened(
                f"{plural(len(timed), 'compilation')} of {short_place(frame_location(first))}: "
                f"{', '.join(f'{name} {value:.1f} s' for name, value in parts)}"
            ),
            Happened(f"That is {100 * seconds / (total.total_s or seconds):.0f} % of all compile time"),
        )
        title = f"Compiling {function_words(first.name, first.file)} took {seconds:.1f} s"
        yield _finding(codes.SLOW_COMPILE, title, _where(first, run), clauses, _seconds(seconds), tuple(time.frame for time in timed[:10]))


def _uncached(run: Run, times: Mapping[str, FrameTime]) -> Iterable[Finding]:
    """Compilations that a cache refused to keep: every start of the program pays for them again."""
    kept = {event.frame for event in run.caches if event.result in ("hit", "miss")}
    kept |= {frame.id for frame in run.frames if frame.outcome == "failed"}  # what did not compile has nothing to store
    refused = {
        event.frame: event.why for event in run.caches if event.result == "bypass" and event.frame in times and event.frame not in kept
    }
    seconds = sum(times[frame].total_s for frame in refused if frame is not None)
    if not refused or seconds < UNCACHED_S:
        return
    reasons = unique(why.strip().partition("\n")[0] for why in refused.values() if why)
    first = next(frame for frame in run.frames if frame.id in refused)
    count = plural(len(refused), "compilation")
    them = "it" if len(refused) == 1 else "them"
    clauses = (
        Happened(f"torch did not store the result of {count}, so each start of the program compiles {them} again"),
        *((Cause(f"torch's reasons: {listed(reasons)}"),) if reasons else ()),
    )
    evidence = tuple(frame for frame in refused if frame is not None)[:10]
    yield _finding(
        codes.UNCACHED, f"{seconds:.1f} s of compile time cannot be cached", _where(first, run), clauses, _seconds(seconds), evidence
    )


def _where(frame: Frame, run: Run) -> Location | None:
    return own_frame(entry_stack(frame), run)
