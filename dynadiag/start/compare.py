"""Two starts compared: what each compilation of the second one asked the caches, and why it was not given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from dynadiag.diff.compare import side_of
from dynadiag.diff.result import SourceLine
from dynadiag.errors import NothingFoundError
from dynadiag.facts.cache_lookups import LookUps, look_ups, paired, rank_of, same_function
from dynadiag.facts.program_end import refuse_failed_start, refuse_missing_torch
from dynadiag.facts.user_frames import project_path, source_function
from dynadiag.facts.wording import plural
from dynadiag.model.report import Report
from dynadiag.model.run import Process, Run
from dynadiag.start.bypasses import bypass_cause
from dynadiag.start.derived_numbers import apart_from_derived
from dynadiag.start.graph_causes import AOT, DYNAMO, graph_causes, input_name_causes
from dynadiag.start.input_causes import dynamic_causes, input_causes
from dynadiag.start.key_causes import environment_of, key_causes, leftovers
from dynadiag.start.result import CacheAnswer, Cause, Compilation, StartResult
from dynadiag.start.setting_lines import SettingLines, Source

_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_OFF = ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE")
_BY_PROCESS = frozenset({"constant", "operators", "unknown", "input"})
_WHOLE, _BEFORE = "whole run", "before the first compilation (imports, model, data)"
_PHASES = {
    "dynamo": "tracing (Dynamo)",
    "AOTAutograd": "AOTAutograd",
    "inductor": "Inductor",
    "backend": "back end",
    "backward": "compiling the backward",
}


def compare(
    old: Report,
    new: Report,
    *,
    old_path: str,
    new_path: str,
    sources: Sequence[Source] = (),
    same_seed: Run | None = None,
    same_program: bool = False,
    warm_up: int | None = None,
    cache: str | None = None,
) -> StartResult:
    """What the second start asked of the caches, with the cause of each miss.

    `sources` are the program's own files as the second start ran them. `same_program`: both starts ran one command, so what differs
    between them differs by itself; `same_seed` is then a third start with the hash seed of the first. Raises NothingFoundError where
    nothing can be compared.
    """
    for report in (old, new):
        refuse_missing_torch(report.run, "nothing was compared")
    if not new.run.frames:
        refuse_failed_start(new.run, "nothing was compared")
        raise NothingFoundError("nothing was compiled in the second start")
    if old.run.frames and not _functions(old.run) & _functions(new.run):
        raise NothingFoundError("the runs have no compiled function in common: they are of different programs", exit_code=2)
    if not old.run.caches and not new.run.caches and not _switched_off(new.run):
        raise NothingFoundError("no cache was asked in either start: only the inductor back end keeps what it compiles")
    comparison = _Comparison(old, new, sources, same_seed, same_program)
    compilations = tuple(comparison.compilation(was, now, warm_up) for was, now in paired(old.run, new.run) if comparison.counts(was, now))
    return StartResult(
        old=side_of(old, old_path),
        new=side_of(new, new_path),
        compilations=compilations,
        missed=sum(compilation.cold for compilation in compilations),
        first_s=old.summary.compile_s,
        second_s=new.summary.compile_s,
        steps=_steps(old, new),
        notes=tuple(_notes(old, new)),
        warm_up=warm_up,
        cache=cache,
    )


def _functions(run: Run) -> frozenset[tuple[str | None, str | None]]:
    return frozenset((None if frame.file is None else Path(frame.file).name, source_function(frame.name)) for frame in run.frames)


def _switched_off(run: Run) -> str | None:
    """The variable or option with which no cache is asked."""
    for process in run.processes:
        for name in _OFF:
            if process.environment.get(name) in ({"1"} if "DISABLE" in name else {"0"}):
                return f"{name}={process.environment[name]}"
        if process.config.get("inductor", {}).get("force_disable_caches") is True:
            return "torch._inductor.config.force_disable_caches = True"
    return None


class _Comparison:
    """The two runs, and what is asked of them for each compilation."""

    def __init__(self, old: Report, new: Report, sources: Sequence[Source], same_seed: Run | None, same_program: bool) -> None:
        self.old, self.new = old.run, new.run
        self.same_program = same_program
        self.seeded = (
            None if same_seed is None else frozenset((event.cache, event.key) for event in same_seed.caches if event.result == "hit")
        )
        self.asked_again = same_seed
        self.environment = environment_of(_first(old.run), _first(new.run))
        self.lines = SettingLines(sources, new.run, new.run.compile_calls, old.run.compile_calls)
        self.times = [
            {} if report.compile_time is None else {item.frame: item.total_s for item in report.compile_time.frames}
            for report in (old, new)
        ]
        self.first_of = look_ups(old.run)
        self.late = {event.frame: event.reasons for event in new.run.recompiles}

    def counts(self, old: LookUps | None, new: LookUps) -> bool:
        """Whether it asked a cache, or would have: what is left to eager and what another back end compiles asks none."""
        return (
            bool(new.events)
            or (old is not None and bool(old.events))
            or (new.frame.outcome == "compiled" and bool(_switched_off(self.new)))
        )

    def compilation(self, old: LookUps | None, new: LookUps, warm_up: int | None) -> Compilation:
        frame, run = new.frame, self.new
        answers = tuple(
            CacheAnswer(cache=event.cache, result=event.result, why=event.why, took_s=event.took_s, saved_s=event.saved_s)
            for event in new.events
        ) or (CacheAnswer(cache="fx_graph", result="off"),)
        cold = any(answer.result != "hit" for answer in answers)
        return Compilation(
            id=frame.id,
            function=source_function(frame.name) or "an unnamed function",
            place=None if frame.file is None else SourceLine(file=project_path(frame.file, run), line=frame.line),
            rank=rank_of(frame, run),
            call=frame.call,
            answers=answers,
            compile_s=self.times[1].get(frame.id),
            first_s=None if old is None else self.times[0].get(old.frame.id),
            causes=tuple(self._causes(old, new)) if cold else (),
            late=warm_up is not None and frame.call is not None and frame.call > warm_up,
            why_late=next(iter(self.late.get(frame.id, ())), None),
        )

    def _causes(self, old: LookUps | None, new: LookUps) -> list[Cause]:
        frame = new.frame
        if not new.events:
            return [self._caches_off()]
        bypasses = [
            bypass_cause(event.why, self.new, frame, self.environment, self.lines) for event in new.events if event.result == "bypass"
        ]
        if bypasses:
            return list(dict.fromkeys(_named(bypasses)))
        if any(event.status == "guard_miss" for event in new.events):
            return [Cause(kind="other_sizes", what="an entry with this key is there, but for other sizes of its dynamic inputs")]
        if old is None:
            return self._new(new)
        if old.frame.outcome == "failed":
            return [Cause(kind="new_function", what="the first start did not finish compiling this")]
        missed = [event for event in new.events if event.result == "miss"]
        first = [event for event in missed if event.cache == "aotautograd"] or missed  # Inductor's key follows from that of AOTAutograd
        if first and all((event.cache, event.key) in old.keys for event in first):
            return [self._gone()]
        causes = self._differences(old, new)
        return [self._by_itself(cause, new) for cause in causes] if self.same_program else causes

    def _new(self, new: LookUps) -> list[Cause]:
        """The first start has no counterpart: of a function that it compiled for other inputs these are the cause."""
        alike = next((entry for entry in self.first_of if same_function(entry, new)), None)
        if alike is not None:
            pair = self.old, alike.frame, self.new, new.frame
            causes = list(dynamic_causes(*pair)) or input_causes(*pair)
            if causes:
                return causes
        return [Cause(kind="new_function", what="the first start did not compile this", cure="Call it with the same inputs in each start")]

    def _differences(self, old: LookUps, new: LookUps) -> list[Cause]:
        """What differs between two keys: what a person set comes first, what follows from it only where nothing else is found."""
        pair = self.old, old.frame, self.new, new.frame
        differences = new.differences(old)
        settings = key_causes(differences, self.environment, self.lines)
        if any(cause.kind == "version" and "torch_version" in cause.parts for cause in settings):
            return [replace(settings[0], old=self.old.torch, new=self.new.torch), *settings[1:]]
        inputs = _apart_from_default_dtype(input_causes(*pair), settings)
        dynamic = list(dynamic_causes(*pair))
        graph = apart_from_derived(_apart_from_sizes(graph_causes(*pair, DYNAMO), inputs or dynamic), self.lines.trees())
        found = [*graph, *inputs, *dynamic, *settings]
        if not found:
            found = input_name_causes(*pair) or graph_causes(*pair, AOT) or leftovers(differences)
        return found or [
            Cause(kind="unknown", what="the key of AOTAutograd's cache differs, and this recording does not list what it is made of")
        ]

    def _caches_off(self) -> Cause:
        by = _switched_off(self.new)
        return Cause(
            kind="caches_off",
            what="no cache was asked" + (f": {by}" if by else ""),
            cure="Leave the caches on" if by else None,
        )

    def _gone(self) -> Cause:
        """The key is that of the first start."""
        folders = [_folder(run) for run in (self.old, self.new)]
        if folders[0] != folders[1]:
            return Cause(
                kind="cache_folder",
                what="the keys are the same, but the cache folder is another one",
                old=folders[0],
                new=folders[1],
                cure=f"Give each start the same {_FOLDER}",
            )
        return Cause(
            kind="entry_gone",
            what="the keys are the same, but the entry is not there: the folder was emptied or cannot be written",
            cure="Keep the cache folder, or ship its content with torch.compiler.save_cache_artifacts()",
        )

    def _by_itself(self, cause: Cause, new: LookUps) -> Cause:
        """One command was run twice: what differs in the traced code differs in each process."""
        if cause.kind not in _BY_PROCESS:
            return cause
        if self.asked_again is not None and self._warm_with_seed(new):
            return replace(
                cause,
                kind="hash_order",
                what=f"{cause.what}: it follows the order of a set, which PYTHONHASHSEED decides (with one seed it is warm)",
                cure="Sort what comes out of the set, or use a list or a dict",
            )
        return replace(
            cause,
            kind="per_process",
            what=f"{cause.what}, which differs in each process",
            cure="Do not put random numbers, times, ids or temporary names into traced code; pass them as tensors",
        )

    def _warm_with_seed(self, new: LookUps) -> bool:
        """Whether the start with the first one's hash seed found all that this function asks for."""
        assert self.asked_again is not None
        name = source_function(new.frame.name)
        ids = {frame.id for frame in self.asked_again.frames if source_function(frame.name) == name}
        results = [event.result for event in self.asked_again.caches if event.frame in ids]
        return bool(results) and all(result == "hit" for result in results)


def _named(causes: Sequence[Cause]) -> Iterator[Cause]:
    """A reason that both caches give once, and Inductor's only where AOTAutograd has none of its own."""
    kinds = set()
    for cause in causes:
        if cause.kind not in kinds:
            kinds.add(cause.kind)
            yield cause


def _apart_from_default_dtype(inputs: list[Cause], settings: Sequence[Cause]) -> list[Cause]:
    """Tensors that are of another dtype since the default is another one follow from that."""
    if not any("default_dtype" in cause.parts for cause in settings):
        return inputs
    return [cause for cause in inputs if not cause.what.startswith("dtype ")]


def _apart_from_sizes(graph: list[Cause], inputs: Sequence[Cause]) -> list[Cause]:
    """Whole numbers in a graph that are sizes of inputs follow from those; symbols for sizes are further inputs of a graph."""
    if not any(cause.kind == "dynamic" or cause.what.startswith("shape ") for cause in inputs):
        return graph
    if any(cause.kind == "dynamic" for cause in inputs):
        graph = [cause for cause in graph if cause.kind != "operators" or (cause.old, cause.new) != (None, None)]
    return [cause for cause in graph if not (cause.kind == "constant" and _is_whole(cause.old) and _is_whole(cause.new))]


def _is_whole(text: str | None) -> bool:
    return text is not None and text.lstrip("-").isdecimal()


def _first(run: Run) -> Process | None:
    return next((process for process in run.processes if process.environment), None)


def _folder(run: Run) -> str:
    process = _first(run)
    found = None if process is None else process.environment.get(_FOLDER)
    return found or "torch's default"


def _steps(old: Report, new: Report) -> Mapping[str, tuple[float | None, float | None]]:
    """What a start is made of: the run as a whole, what came before the first compilation, and the phases of compiling."""
    sides = [_side_steps(report) for report in (old, new)]
    names = [_WHOLE, _BEFORE, *_PHASES.values()]
    return {name: (sides[0].get(name), sides[1].get(name)) for name in names if any(name in side for side in sides)}


def _side_steps(report: Report) -> dict[str, float]:
    found: dict[str, float] = {}
    info = report.run.info
    began, ended = _time(info.started_at), _time(info.ended_at)
    in_whole_seconds = info.started_at is not None and "." not in info.started_at  # as older recordings have it
    if began is not None and ended is not None:
        found[_WHOLE] = ended - began
    first = min((span.began_us for span in report.run.spans), default=None)
    if began is not None and first is not None and first * 1e-6 >= began:
        before = first * 1e-6 - began
        found[_BEFORE] = float(round(before)) if in_whole_seconds else before
    for phase, seconds in report.compile_time.phases.items() if report.compile_time is not None else ():
        found[_PHASES.get(phase, phase)] = seconds
    return found


def _time(text: str | None) -> float | None:
    try:
        return None if text is None else datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _notes(old: Report, new: Report) -> Iterator[str]:
    """What cannot be said, or only in part."""
    if any(process.alike is not None for process in new.run.processes):
        yield "of ranks that compiled the same only one was read"
    without = sum(event.result == "miss" and event.parts is None and event.cache == "fx_graph" for event in new.run.caches)
    if without:
        yield f"{plural(without, 'miss', 'misses')} of this log without the components of the key"
    if any(event.result == "miss" for event in new.run.caches):
        yield "caches of Triton and C++ kernels, results of autotuning and the mega-cache write no records of look-ups: not seen here"
    if not old.run.frames:
        yield "nothing was compiled in the first start"
