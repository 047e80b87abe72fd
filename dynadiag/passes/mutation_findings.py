"""The findings of the mutation pass: one for each line and code that costs something which no other pass tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dynadiag.advice.mutations import why_nothing
from dynadiag.facts.cuda_graphs import asks_for_cuda_graphs
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.lookups import config_value
from dynadiag.facts.user_frames import of_last_run
from dynadiag.facts.wording import listed, plural, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Clause, Doubt, Happened, Quoted, Unadvised
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Cost, Finding, Mutation, Severity
from dynadiag.model.run import Run
from dynadiag.model.sentences import capital
from dynadiag.passes.base import Priority
from dynadiag.passes.mutation_facts import severity_of, size_text

# Graph breaks and recompiles have findings of their own, with the same line.
_TOLD_HERE = frozenset(("error", "eager_fallback", "cudagraph_skip", "copy_back", "extra_copy"))
_UNDECLARED = "undeclared"
_TOLD_AS_BREAK = frozenset(
    (codes.SIZES_CHANGED, codes.REQUIRES_GRAD_CHANGED, codes.WRITTEN_IN_BODY, codes.OUT_RESIZED, codes.STATE_SET, codes.PARAMETER_REPLACED)
)
_MUCH_BYTES = 1 << 20
_MORE_THAN_RECOMPILED = 0.5
_CUDA_GRAPH_MODES = frozenset(("reduce-overhead", "max-autotune"))


def mutation_findings(mutations: Sequence[Mutation], run: Run) -> tuple[Finding, ...]:
    """One finding for each line and code whose worst effect is told here."""
    groups: dict[tuple[str, str | None, int | None, str], list[Mutation]] = {}
    for mutation in mutations:
        kind = _kind(mutation)
        if kind is not None and not (kind == "error" and mutation.code in _TOLD_AS_BREAK and mutation.graph is None):
            where = place_of(mutation) or Location("")
            groups.setdefault((mutation.code, where.file, where.line, kind), []).append(mutation)
    return tuple(_finding(group, key[3], run) for key, group in groups.items())


def _kind(mutation: Mutation) -> str | None:
    """What the finding of a mutation is about; None where none is told here. A write that would only cost CUDA graphs is worth a note."""
    if mutation.code == codes.UNDECLARED_WRITE:
        return _UNDECLARED
    if mutation.worst == "free" and mutation.code == codes.INPUT_WITHOUT_ADDRESS and _effects_of(mutation, "cudagraph_skip"):
        return "cudagraph_skip"
    return mutation.worst if mutation.worst in _TOLD_HERE else None


def _effects_of(mutation: Mutation, kind: str) -> list[Mapping[str, str]]:
    return [effect for effect in mutation.effects if effect["kind"] == kind]


def place_of(mutation: Mutation) -> Location | None:
    """The first line that writes, or None."""
    for site in mutation.sites:
        if isinstance(site.get("file"), str):
            return Location(site["file"], site.get("line"), site.get("function"), site.get("code"))
    return None


def _finding(group: Sequence[Mutation], kind: str, run: Run) -> Finding:
    first = group[0]
    where = place_of(first)
    size = _size(group)
    severity = _severity(kind, size, group, run)
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(first.code, where, kind), run),
        code=first.code,
        severity=severity,
        title=_title(kind, group),
        where=where,
        clauses=tuple(_clauses(group)),
        fix=_fixes(group),
        cost=_cost(kind, size, group),
        evidence=(*(mutation.id for mutation in group), *unique(frame for item in group for frame in item.frames))[:20],
        rank=(_rank(kind, severity), float(severity_of(kind)), -float(size or 0), -float(len(group))),
    )


def _fixes(group: Sequence[Mutation]) -> tuple[Advice, ...]:
    """The changes for all inputs; none where an input has none, since what it costs stays then."""
    if not all(mutation.advice for mutation in group):
        return ()
    first, *others = dict.fromkeys(change for item in group for change in item.advice)
    return (first, *(replace(change, follows=True) for change in others))


def _size(group: Sequence[Mutation]) -> int | None:
    sizes = [mutation.bytes_written_back or mutation.bytes_touched for mutation in group]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _severity(kind: str, size: int | None, group: Sequence[Mutation], run: Run) -> Severity:
    if kind in ("error", "eager_fallback"):
        return "error" if kind == "error" else "warning"
    if kind == _UNDECLARED:
        return "warning"
    if kind == "cudagraph_skip":
        return "warning" if wants_cuda_graphs(group, run) else "note"
    return "warning" if (size or 0) >= _MUCH_BYTES else "note"


def wants_cuda_graphs(group: Sequence[Mutation], run: Run) -> bool:
    """Whether one of the functions that write was compiled with CUDA graphs; where no record says how, whether any of its process was."""
    graphs = {graph.id: graph for graph in run.graphs}
    told = [(mutation, None if mutation.graph is None else asks_for_cuda_graphs(graphs[mutation.graph], run)) for mutation in group]
    if any(asks for _, asks in told):
        return True
    processes = {frame.key.process for item, asks in told if asks is None and (frame := run.frame(item.frame)) is not None}
    modes = {mode for process in processes for mode in _modes(run).get(process, ())}
    return bool(modes & _CUDA_GRAPH_MODES) or any(config_value(run, index, "inductor", "triton.cudagraphs") is True for index in processes)


@of_last_run
def _modes(run: Run) -> Mapping[int, frozenset[str]]:
    """The modes that `torch.compile` was called with in each process."""
    found: dict[int, set[str]] = {}
    for call in run.compile_calls:
        if isinstance(mode := call.options.get("mode"), str):
            found.setdefault(call.process, set()).add(mode)
    return {process: frozenset(modes) for process, modes in found.items()}


def _rank(kind: str, severity: Severity) -> float:
    if kind == "error":
        return float(Priority.FAILED)
    if kind == "eager_fallback":
        return float(Priority.RAN_EAGER)
    return float(Priority.REMARK) if severity == "note" else float(Priority.RECOMPILED) + _MORE_THAN_RECOMPILED


_TITLES = {
    "error": "Refused mutation: {inputs}",
    "error of sizes": "Compilation failed: an input changes its sizes while it is traced ({inputs})",
    "eager_fallback": "AOTAutograd refuses this mutation, so the frame runs eagerly: {inputs}",
    "cudagraph_skip": "Written input without a fixed address: CUDA graphs would be skipped ({inputs})",
    "cudagraph_skip marked": "CUDA graphs were skipped for a written input that is marked as static ({inputs})",
    "cudagraph_skip seen": "Written input without a fixed address: CUDA graphs were skipped ({inputs})",
    "copy_back": "Copied back after every call: {inputs}",
    "extra_copy": "Not written in place: {inputs}",
    _UNDECLARED: "Written by an operator that does not declare it: {inputs}",
}


def _title(kind: str, group: Sequence[Mutation]) -> str:
    if kind == "cudagraph_skip" and all(_was_seen(mutation) for mutation in group):
        kind = "cudagraph_skip marked" if group[0].code == codes.STATIC_INPUT else "cudagraph_skip seen"
    if kind == "error" and group[0].code == codes.SIZES_CHANGED:
        kind = "error of sizes"
    return _TITLES[kind].format(inputs=listed([readable(item.input) for item in group]))


def _was_seen(mutation: Mutation) -> bool:
    return any(effect["basis"] == "observed" for effect in _effects_of(mutation, "cudagraph_skip"))


def _clauses(group: Sequence[Mutation]) -> Iterator[Clause]:
    first = group[0]
    parts = unique(f"{effect['detail']}{_condition(effect)}" for effect in first.effects)
    lines = sum(len(mutation.sites) for mutation in group)
    seen = f", {plural(lines, 'write')}" if all(item.sites for item in group) else ""  # without the probe nothing says how many
    count = f" ({plural(len(group), 'input')}{seen})" if len(group) > 1 else ""
    told = first.refusal is None or any(_shown(first.refusal) in part for part in parts)
    for number, part in enumerate(parts):
        yield Happened(f"{capital(part.rstrip('.'))}{count if number == len(parts) - 1 else ''}")
    if not told and first.refusal is not None:
        yield Quoted(f'"{_shown(first.refusal)}"', by="torch says")
    yield from map(Doubt, first.doubts)
    reason = next((why for one in group if (why := why_nothing(one)) is not None), None)
    if reason is not None:
        yield Unadvised(reason)


def _condition(effect: object) -> str:
    condition = effect.get("condition") if isinstance(effect, dict) else None
    return f" ({condition})" if condition else ""


def _shown(text: str) -> str:
    """The exact words of a refusal, on one line."""
    return " ".join(text.split())[:600]


def _cost(kind: str, size: int | None, group: Sequence[Mutation]) -> Cost | None:
    if kind in ("copy_back", "extra_copy") and size is not None:
        return Cost(value=float(size), unit="bytes a call", basis="derived")
    return Cost(value=float(len(group)), unit="inputs", basis="counted") if kind == "cudagraph_skip" else None


def size_of(mutation: Mutation) -> str:
    """How much is written back, in words."""
    return size_text(mutation.bytes_written_back)
