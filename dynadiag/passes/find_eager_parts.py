"""Methods and submodules of compiled modules that the program calls by themselves: torch compiles `forward` only."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.advice.fallbacks import compile_part
from dynadiag.facts.compiled_work import compiled_work, eager_parts
from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.user_frames import own_frame
from dynadiag.facts.wording import listed, plural, rank_text, short_place, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Basis, Cause, Effect, Happened
from dynadiag.model.compiled import CompiledWork
from dynadiag.model.location import Location
from dynadiag.model.report import Cost, Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority

_SMALL = 0.1


def find_eager_parts(run: Run) -> PassResult:
    """One finding for each such method or submodule, at the line that calls it most often."""
    groups: dict[str, list[tuple[CompiledWork, Location | None]]] = {}
    for eager_part in eager_parts(run):
        stack = () if eager_part.eager is None else eager_part.eager.stack
        groups.setdefault(eager_part.function, []).append((eager_part, own_frame(stack, run) or (stack[-1] if stack else None)))
    for group in groups.values():
        group.sort(key=lambda pair: -_calls(pair[0]))
    marks = fingerprints([Subject(codes.EAGER_PART, group[0][1], name) for name, group in groups.items()], run)
    return PassResult(findings=tuple(_finding(name, group, mark, run) for (name, group), mark in zip(groups.items(), marks, strict=True)))


def _calls(compiled_work: CompiledWork) -> int:
    return 0 if compiled_work.eager is None else compiled_work.eager.calls


def _finding(name: str, group: Sequence[tuple[CompiledWork, Location | None]], mark: str, run: Run) -> Finding:
    work, where = group[0]
    module, _, part = name.rpartition(".")
    is_module = work.eager is not None and work.eager.is_module
    calls, operators = sum(_calls(item) for item, _ in group), max(element.outside for element, _ in group)
    whole = compiled_work(run)
    share = None if whole is None or not whole.operators else operators / whole.operators
    others = unique(short_place(place) for _, place in group[1:] if place is not None)
    on = rank_text(run, {one.process for one, _ in group})
    rest = "" if whole is None or share is None else f"; of all {whole.operators:,} operators counted, {whole.compiled:,} run compiled"
    return Finding(
        id="",
        fingerprint=mark,
        code=codes.EAGER_PART,
        severity="note" if share is not None and share < _SMALL else "warning",
        title=f"{'Submodule' if is_module else 'Method'} of a compiled module runs eagerly: {name}",
        where=where,
        clauses=(
            Happened(
                f"Called {plural(calls, 'time')}{_inside(work, where)}{f' on {on}' if on else ''}"
                f"{f', also at {listed(others)}' if others else ''}"
            ),
            Basis(f"One of these calls was counted: it ran {plural(operators, 'operator')}, none of them compiled{rest}"),
            Cause(f"`torch.compile({module})` compiles calls of the module itself; its `{part}` is the uncompiled one"),
            Effect("A backward through it is not compiled either"),
        ),
        fix=compile_part(part, is_module=is_module, where=where, compiled=_compiling(module, group, run)),
        cost=Cost(value=float(operators), unit="operator a call" if operators == 1 else "operators a call", basis="counted"),
        evidence=(),
        rank=(float(Priority.RAN_EAGER), 0.0, -float(operators * calls)),
    )


def _compiling(module: str, group: Sequence[tuple[CompiledWork, Location | None]], run: Run) -> tuple[Location | None, ...]:
    """The lines that compile modules of this class in the same processes."""
    processes = {work.process for work, _ in group}
    name = module.rpartition(".")[2]
    return tuple(call.location for call in run.compile_calls if call.process in processes and call.target.rpartition(".")[2] == name)


def _inside(work: CompiledWork, where: Location | None) -> str:
    """The line of a library that makes the call, where the user's line only leads there."""
    place = work.eager.stack[-1] if work.eager is not None and work.eager.stack else None
    return "" if place is None or place == where else f" at {short_place(place)}"
