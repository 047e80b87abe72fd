"""Which code was compiled again, what had changed each time, how far that is from the recompile limit, and what ends it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from dynadiag.advice.recompile_reasons import reason, split_off
from dynadiag.advice.recompiles import limit_advice, recompile_advice
from dynadiag.changes.recompile import sides_of_integer
from dynadiag.changes.recompile_cause import Calls, CompiledCode
from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.lookups import is_from_text, is_in_compiled_function, lines_that_set
from dynadiag.facts.user_frames import (
    entry_stack,
    function_words,
    is_generated,
    is_module_entry,
    is_own_file,
    own_frame,
    resume_line,
    source_function,
)
from dynadiag.facts.wording import frame_text, listed, plural, rank_text, short_place, times, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Clause, CompileSeconds, Effect, Happened, OnProcesses, Settled
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Cost, Finding, PassResult, Recompile, Transition, distinct_advice
from dynadiag.model.run import Frame, Run
from dynadiag.passes.base import Priority
from dynadiag.passes.compile_calls import CompileCalls, calling_lines, input_roots, inputs_of, names_passed_before
from dynadiag.passes.recompile_causes import (
    Facts,
    Splits,
    cause_of,
    changes_objects,
    changes_of,
    has_one_group,
    is_library,
    parameters,
    parts_with_parameters,
    recorded_source,
    takes_float32,
    told_apart,
)
from dynadiag.passes.recompile_fixes import because_of, counted_fixes, settled, telling, versions_needed, without_advice
from dynadiag.passes.recompile_rows import (
    Shapes,
    constant_at,
    input_shapes,
    recompile_code,
    rest_was_skipped,
    row_sentence,
    row_text,
    sides_met,
    varying_sizes,
)
from dynadiag.passes.recompiled import Limit, Recompiled, followers, recompile_limit, versions_used
from dynadiag.passes.stack_values import ON_STACK, BrokenLines, broken_lines, written
from dynadiag.passes.transitions import (
    KEY_ORDER,
    ChangedSource,
    CodeObject,
    KnownValues,
    changes,
    code_objects,
    keys_of,
    known_values,
    only_order_differs,
    rows,
    with_news,
)

_MOST_ADVISED = 3_000


def find_recompiles(run: Run) -> PassResult:
    """Every recompile with what changed, the transition table of each code object, one finding a code object and kind of cause."""
    calls = CompileCalls.of_run(run)
    lines, roots, held = broken_lines(run), input_roots(run), parameters(run)
    splits = Splits.of_run(run)
    codes = (told_apart(code, held) if is_module_entry(code.named.file) else code for code in code_objects(run))
    context = _Context(calls, lines, roots, splits, input_shapes(run), parts_with_parameters(run), iter(range(_MOST_ADVISED)))
    found = tuple(_read(code, run, context) for code in codes)
    more = sum(len(recompiled.rows) for recompiled in found) - _MOST_ADVISED
    unplaced = len(run.recompiles) - sum(len(item.code.steps) for item in found)
    return PassResult(
        recompiles=_recompiles(found, run),
        transitions=tuple(
            _transition(element, row, advice) for element in found for row, advice in zip(element.rows, element.advice, strict=True)
        ),
        findings=_findings(found, run),
        notes=(
            *((f"{plural(unplaced, 'recompile record')} could not be matched to a frame.",) if unplaced else ()),
            *((f"{more:,} causes of recompiles have no advice: it is given for the first {_MOST_ADVISED:,}.",) if more > 0 else ()),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Context:
    """What is looked up for each code object."""

    calls: CompileCalls
    lines: BrokenLines
    roots: Mapping[str, frozenset[str]]
    splits: Splits
    shapes: Shapes
    parts: Mapping[str, frozenset[str]]
    room: Iterator[int]  # one for each cause that advice is still given for


def _read(code: CodeObject, run: Run, context: _Context) -> Recompiled:
    known = known_values(code)
    code = with_news(code, known)
    several_callables = is_module_entry(code.named.file) and context.calls.targets(code.key[0]) > 1
    named = (_named_module(row, code.named, several=several_callables) for row in rows(code, known))
    table = tuple(_known_better(_on_stack(row, code.named, context.lines), known, run) for row in named)
    call = next(iter(_lines(code, run)), None)
    several = any(row.kind == "module" for row in table)  # then the first call is not that of each module
    varying = () if rest_was_skipped(code.frames[0], run) else varying_sizes(code.frames, table, context.shapes)
    entered, source = () if several else calling_lines(code.frames, run), recorded_source(code.named, run)
    compiled = CompiledCode(
        process=code.key[0],
        name=source_function(code.named.name),
        calls=Calls(
            shown=call,
            entered=entered,
            compiled=any(is_in_compiled_function(line, run) for line in entered),
            inputs=inputs_of(code.frames, context.roots),
            parameters=None if source is None else source.parameters,
            passed_before=names_passed_before(code.frames, run),
        ),
        library=is_library(code.named, run),
        resumed=resume_line(code.named.name) is not None,
        dynamic_false=context.calls.of(code.key[0], code.named).dynamic_false,
        split=context.splits.of(step.frame for step in code.steps),
        varying=varying,
        one_group=has_one_group(code, run),
        float32=takes_float32(code, run),
        recompiles=len(code.steps),
        stays=sides_met(code.frames, varying, context.shapes, run) - 1 + changes_objects(code, run),
    )
    parts = frozenset(name for frame in code.frames for name in context.parts.get(frame.id, ()))
    facts = Facts(compiled=compiled, parts=parts, changes=changes_of(code, run))
    causes = tuple(cause_of(row, code, facts, run) for row in table)
    advice = tuple(() if next(context.room, None) is None else recompile_advice(cause, run) for cause in causes)
    reasons = tuple(reason(cause) for cause in causes)
    splits = [said for cause in causes if (said := split_off(cause)) is not None or not cause.dynamic]
    split = None if None in splits else next(iter(splits), None)
    sides = prod(sides_of_integer(cause) or 1 for cause in causes)
    return Recompiled(code, known, table, advice, reasons, split, recompile_limit(code, run), call, compiled.stays, sides)


def user_line(frame: Frame, run: Run) -> Location | None:
    """The innermost line of the user's own: the compiled code itself if it is theirs, else the line of theirs that led to it.

    torch leaves out the direct caller of a plain function (`log_dynamo_start`, `_dynamo/convert_frame.py`, skips one frame too many in 2.11
    and 2.15), so the line that called it is only in logs that dynadiag recorded.
    """
    found = own_frame([location for location in entry_stack(frame) if not is_generated(location)], run)
    return None if found is None else Location(found.file, found.line, source_function(found.function), found.code)


def _lines(code: CodeObject, run: Run) -> tuple[Location, ...]:
    """The lines that led to a recompile of this code, the commonest first; without one the line of its first compilation."""
    found = Counter(line for step in code.steps if step.frame.file is not None and (line := user_line(step.frame, run)) is not None)
    first = user_line(code.named, run)
    return tuple(line for line, _ in found.most_common()) or (() if first is None else (first,))


def _named_module(row: ChangedSource, frame: Frame, *, several: bool) -> ChangedSource:
    """A compiled nn.Module of torch's own is entered through `inner(fn)` of `_dynamo/external_utils.py`: its `fn` is the module.

    With several callables compiled, other arguments come from another one of them, as far as anybody can tell.
    """
    parameter = row.source.startswith("fn.") and any("Guard failed on a parameter" in guard.text for guard in row.guards)
    if several and (parameter or row.kind in ("length", "keys", "contains")):  # no module's own parameters change their sizes
        return replace(row, source="module", kind="module")
    if not is_module_entry(frame.file) or not re.match(r"fn\b", row.source):
        return row
    return replace(row, source=f"module{row.source[2:].removeprefix('.__self__')}")


def _on_stack(row: ChangedSource, frame: Frame, lines: BrokenLines) -> ChangedSource:
    """The row with words for what has no name in the program: a value of the stack (`___stack0`), the module of torch's entry."""
    if row.kind == "module":
        return replace(row, said="another compiled module")
    if row.kind == "unexpected":
        return replace(row, said="a reason that torch does not name")
    return replace(row, said=written(row.source, frame, lines, row.values)) if ON_STACK in row.source else row


def _known_better(row: ChangedSource, known: KnownValues, run: Run) -> ChangedSource:
    """The row with the lines that set a state of torch, or that made a number a constant; as one of the order, where only that differs."""
    if row.kind in ("size", "value", "condition") and row.dynamic_since is None:
        return replace(row, constant_at=constant_at(row, run))
    if row.kind == "global_state":
        return replace(row, set_at=lines_that_set(row.source, run))
    if row.kind != "keys":
        return row
    if not only_order_differs(keys_of(guard, step, known) for step in row.steps for guard in step.news if guard.source == row.source):
        return row
    named = row.said or f"the keys of `{row.source.removeprefix('keys of ')}`"
    return replace(row, kind=KEY_ORDER, said=f"the order of {named}")


def _recompiles(found: Sequence[Recompiled], run: Run) -> tuple[Recompile, ...]:
    entries = [(recompiled, step) for recompiled in found for step in recompiled.code.steps]
    changed = [changes(step, item.known) for item, step in entries]
    subjects = [
        Subject(
            recompile_code(changed[i][0].kind if changed[i] else None),
            element.call,
            changed[i][0].source if _stable(changed[i]) else "",
        )
        for i, (element, _) in enumerate(entries)
    ]
    advice = {id(entry): _advice_by_step(entry) for entry in found}
    made = [
        Recompile(
            id=step.id,
            fingerprint=mark,
            frame=step.frame.id,
            reasons=step.event.reasons,
            changed=change,
            own_frame=user_line(step.frame, run) if step.frame.file is not None else one.call,
            advice=advice[id(one)].get(step.id, ()),
        )
        for (one, step), change, mark in zip(entries, changed, fingerprints(subjects, run), strict=True)
    ]
    return tuple(sorted(made, key=lambda recompile: int(recompile.id[1:])))


def _stable(changed: Sequence[object]) -> bool:
    return bool(changed) and getattr(changed[0], "kind", "unknown") not in ("unknown", "unexpected")


def _advice_by_step(recompiled: Recompiled) -> dict[str, tuple[Advice, ...]]:
    """By recompile the advice of the rows that it belongs to."""
    rows: dict[str, list[int]] = {}
    for number, row in enumerate(recompiled.rows):
        for step in row.steps:
            rows.setdefault(step.id, []).append(number)
    made: dict[tuple[int, ...], tuple[Advice, ...]] = {}
    for numbers in map(tuple, rows.values()):
        if numbers not in made:
            made[numbers] = distinct_advice(advice for number in dict.fromkeys(numbers) for advice in recompiled.advice[number])
    return {step: made[tuple(numbers)] for step, numbers in rows.items()}


def _transition(recompiled: Recompiled, row: ChangedSource, advice: tuple[Advice, ...]) -> Transition:
    return Transition(
        frame_name=recompiled.code.named.name or "an unnamed frame",
        own_frame=recompiled.call,
        source=row.text.replace("`", "") if row.said else row.source,
        kind=row.kind,
        values=row.values,
        recompiles=tuple(step.id for step in row.steps),
        entries=recompiled.limit.entries,
        limit=recompiled.limit.value,
        limit_hit=bool(recompiled.limit.hit),
        became_dynamic=row.dynamic_since is not None,
        why=_why_row(row, recompiled.limit),
        advice=advice,
    )


def _why_row(row: ChangedSource, limit: Limit) -> str | None:
    parts = [
        None if row.dynamic_since is None else f"became dynamic with [{row.dynamic_since}]",
        "the first value is not in the log" if row.first_unknown else None,
        "the last value is not in the log"
        if row.last_unknown and row.kind not in ("condition", "zero_one", "duck_size", "module")
        else None,
        "the recompile limit is not in the log" if limit.value is None else None,
    ]
    return "; ".join(part for part in parts if part) or None


def _findings(found: Sequence[Recompiled], run: Run) -> tuple[Finding, ...]:
    groups: dict[tuple[object, ...], list[Recompiled]] = {}
    definitions = _definitions(run)
    for recompiled in found:
        key = (
            bool(recompiled.limit.hit),
            _main_code(recompiled),
            _function(recompiled.code.named, run, definitions) or recompiled.code.key,
        )
        groups.setdefault(key, []).append(recompiled)
    all_groups = list(groups.values())
    follows = followers(all_groups)
    inside: list[list[Recompiled]] = [[] for _ in all_groups]
    for followed, outer in follows.items():
        inside[outer] += all_groups[followed]
    members = [group for index, group in enumerate(all_groups) if index not in follows]
    inner = [there for index, there in enumerate(inside) if index not in follows]
    subjects = [Subject(_finding_code(group), group[0].call, function=group[0].code.named.name or "") for group in members]
    marks = fingerprints(subjects, run)
    return tuple(_finding(number, *each, run) for number, each in enumerate(zip(members, inner, marks, strict=True), start=1))


def _definitions(run: Run) -> dict[tuple[str | None, str | None], list[int]]:
    """The lines at which functions of each file and name begin, in order."""
    lines: dict[tuple[str | None, str | None], set[int]] = {}
    for frame in run.frames:
        if frame.line is not None:
            lines.setdefault((frame.file, frame.name), set()).add(frame.line)
    return {key: sorted(found) for key, found in lines.items()}


def _function(frame: Frame, run: Run, definitions: Mapping[tuple[str | None, str | None], Sequence[int]]) -> tuple[object, ...] | None:
    """The function as a person wrote it; a resume function belongs to the nearest definition of its name above its own line."""
    name, at = source_function(frame.name), resume_line(frame.name)
    if frame.file is None:
        return None
    if not is_own_file(frame.file, run):  # one line of a library serves every model that comes through it
        own = user_line(frame, run)
        return frame.file, name, None if own is None else (own.file, own.line)
    begins = definitions.get((frame.file, name), ())
    above = bisect_right(begins, at) if at is not None else 0
    return frame.file, name, begins[above - 1] if above else frame.line


def _main_code(recompiled: Recompiled) -> str:
    return recompile_code(recompiled.rows[0].kind if recompiled.rows else None)


def _finding_code(group: Sequence[Recompiled]) -> str:
    return codes.RECOMPILE_LIMIT if group[0].limit.hit else _main_code(group[0])


def _finding(number: int, group: Sequence[Recompiled], inside: Sequence[Recompiled], mark: str, run: Run) -> Finding:
    """The finding of a group, with the code objects inside it that only followed."""
    everything = (*group, *inside)
    events = sum(len(recompiled.code.steps) for recompiled in everything)
    seconds = _seconds(everything)
    refused = tuple(frame for item in group for frame in item.limit.hit)
    hit = bool(refused)
    own = sum(len(element.code.steps) for element in group)
    fixes = counted_fixes(group, own, hit=hit, followed=events - own)
    needed = versions_needed(row for entry in everything for row in entry.rows)
    if hit and not fixes and needed is not None and all(one.split is None for one in group):
        fixes = limit_advice(group[0].code.key[0], group[0].limit.value, needed, run)
    left = () if fixes else tuple(without_advice(everything, hit=hit))
    quiet = settled(everything) or any(isinstance(clause, Settled) for clause in left)
    return Finding(
        id=f"n{number}",
        fingerprint=mark,
        code=_finding_code(group),
        severity="error" if hit else ("note" if quiet else "warning"),
        title=_title(group, inside, events, hit),
        where=None if (call := group[0].call) is None else replace(call, function=source_function(call.function)),
        clauses=(*_clauses(group, inside, seconds, run), *left),
        fix=fixes,
        cost=None if hit and is_from_text(run) else Cost(value=float(events), unit="recompiles", basis="counted"),
        evidence=(
            *(step.id for one in everything for step in one.code.steps),
            *unique((*(one.code.named.id for one in everything), *refused)),
        ),
        rank=(float(Priority.LIMIT_HIT if hit else Priority.RECOMPILED), float(-events), -(seconds or 0.0)),
    )


def _name(recompiled: Recompiled) -> str:
    return function_words(recompiled.code.named.name, recompiled.code.named.file)


def _seconds(group: Sequence[Recompiled]) -> float | None:
    times = [
        frame.metrics.total_s
        for recompiled in group
        for frame in {step.frame.id: step.frame for step in recompiled.code.steps}.values()
        if frame.metrics is not None and frame.metrics.total_s is not None
    ]
    return sum(times) if times else None


def _title(group: Sequence[Recompiled], inside: Sequence[Recompiled], events: int, hit: bool) -> str:
    recompiled = group[0]
    name = _name(recompiled)
    name = name[:1].upper() + name[1:]
    because = because_of(group)
    if hit:
        value = "" if recompiled.limit.value is None else f" ({recompiled.limit.value})"
        return f"{name} hit the recompile limit{value}{because}"
    if inside:
        name += f" and {plural(len(_names(inside)), 'function')} that it calls were recompiled, {times(events)} in all"
        return f"{name}{because if because[:1] in ('', ',') else f',{because}'}"
    return f"{name} was recompiled {times(events)}{because}"


def _names(group: Sequence[Recompiled]) -> tuple[str, ...]:
    return unique(_name(recompiled) for recompiled in group)


def _clauses(group: Sequence[Recompiled], inside: Sequence[Recompiled], seconds: float | None, run: Run) -> Iterator[Clause]:
    yield from (Happened(row_sentence(row)) for row in _shown_rows(group))
    lines = unique(short_place(line) for one in group for line in _lines(one.code, run))
    if len(lines) > 1:
        yield Happened(f"Reached from {listed(lines)}")
    if inside and group[0].limit.hit:
        alone = listed([f"{_name(one)} ({plural(one.limit.entries, 'version')})" for one in inside])
        yield Effect(f"From then on, what it calls is compiled on its own: {alone}")
    elif inside:
        followed = listed([f"{_name(one)} ({listed([row_text(row) for row in one.rows], limit=2)})" for one in inside])
        yield Effect(f"The same change recompiles what it calls: {followed}")
    yield versions_used(group)
    if seconds is not None:
        yield CompileSeconds(seconds, sum(len(one.code.steps) for one in (*group, *inside)))
    others = [one.code.named for one in group[1:]]
    if others:
        yield Happened(f"Also recompiled: {listed(unique(frame_text(frame) for frame in others))}")
    if who := rank_text(run, {one.code.key[0] for one in group}):
        yield OnProcesses(who)


def _shown_rows(group: Sequence[Recompiled]) -> tuple[ChangedSource, ...]:
    """What is told of a group: what caused most of it, then what alone caused a recompile that those do not explain."""
    most = [row for row in telling(group) if row.steps]
    explained = {step.id for row in most for step in row.steps}
    rest = [row for recompiled in group for row in recompiled.rows if any(step.id not in explained for step in row.steps)]
    return tuple({row_text(row): row for row in (*most[:4], *rest[:2])}.values())
