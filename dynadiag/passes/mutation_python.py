"""Python objects that compiled code changes: which, on which line, and whether a guard on them made torch compile again."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dynadiag import trace
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.guard_sources import is_global, readable
from dynadiag.facts.user_frames import full_place, own_frame
from dynadiag.facts.wording import plural
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.mutations import SideEffect
from dynadiag.model.run import Frame, Run
from dynadiag.passes.guard_parts import FailedGuard
from dynadiag.passes.guard_text import parse_reason
from dynadiag.passes.mutation_facts import Effect, Fact, Site
from dynadiag.passes.mutation_graphs import list_names
from dynadiag.source.function import parse_function
from dynadiag.source.line import parse_line

_TENSOR_PROPERTY = frozenset((
    "size", "stride", "rank", "dtype", "device", "requires_grad", "dispatch_keys", "storage_offset", "dim_marking", "aliasing", "duck_size",
    "zero_one",
))  # fmt: skip
_NOT_STATE = frozenset(["global_state", "function_mode", "backend", "invalidated", "unexpected", "unknown"])
_UNKNOWN = dict.fromkeys(("bytes_touched", "bytes_written_back", "no_grad", "static", "where"), "a Python object has no tensor data")


# `*args` and `**kwargs` are new objects in each call: a guard on their length fails because the caller passes others.
_OWN_ARGUMENTS = re.compile(r"L\['(?:args|kwargs|kwds|kw)'\]")
_WHOLE = re.compile(r"^(?:len\((.*)\)|keys of (.*))$")
_Code = tuple[int, str | None, int | None]


@dataclass(frozen=True, slots=True)
class Changed:
    """One failed guard on the state of an object: its readable source, both values, who compiled again because of it."""

    guard: FailedGuard
    frame: Frame


def python_facts(run: Run) -> Iterator[Fact]:
    """A fact for each Python object that a kept frame changes, and for each object whose changed state made torch compile again."""
    changed = _ChangedObjects(_changed(run))
    lines: set[tuple[str, int | None]] = set()
    for fact in _side_effects(run):
        lines.update((site.where.file, site.where.line) for site in fact.sites if site.where is not None)
        yield _with_recompiles(fact, () if _OWN_ARGUMENTS.fullmatch(fact.input) else changed.of(fact.frame, fact.input))
    yield from _changed_outside(changed.others(), lines, run)


def _code(frame: Frame) -> _Code:
    return frame.key.process, frame.file, frame.line


def _side_effects(run: Run) -> Iterator[Fact]:
    frames = {frame.id: frame for frame in run.frames}
    names = list_names(run)
    for record in run.mutation_records:
        frame = frames.get(record.frame)
        if record.kind != "side_effects" or frame is None or record.attempt < frame.attempts - 1:
            continue
        try:
            effects = trace.side_effects(record.payload)
        except UnreadableInputError:
            continue
        for effect in effects:
            called = names.get((frame.id, effect.source or ""))
            yield from _facts(effect if called is None else replace(effect, source=called), frame, run)


def _facts(effect: SideEffect, frame: Frame, run: Run) -> Iterator[Fact]:
    """One fact for each thing that was changed of an object: an attribute for a module, the object itself for a list."""
    name = effect.source or effect.variable
    if name is None:
        return
    by_input: dict[str, list[Site]] = {}
    for stack in effect.stacks:
        own = own_frame(stack, run) or stack[-1]
        changed, op = _what(own, stack[-1], name, effect)
        if changed is not None:
            by_input.setdefault(changed, []).append(Site(own, op, None if own is stack[-1] or own == stack[-1] else stack[-1]))
    if not effect.stacks:
        by_input[name] = []
    for changed, sites in by_input.items():
        grows = effect.type in _DEQUES and any(site.op in _GROWING for site in sites)
        yield Fact(
            code=codes.PYTHON_REPLAYED,
            frame=frame,
            input=changed,
            kind="python",
            sites=tuple(dict.fromkeys(sites)),
            doubts=(_MAXLEN,) if grows else (),
            unknown=_UNKNOWN if sites else {**_UNKNOWN, "sites": "torch recorded no stack for this change"},
        )


def _what(own: Location, inner: Location, name: str, effect: SideEffect) -> tuple[str | None, str | None]:
    """What the user's line changes of the object, in Dynamo's spelling, and how; None for a cell that the line does not assign."""
    line = parse_line(own.code)
    for node in line.nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
        for target in targets:
            if isinstance(target, ast.Name) and target.id == effect.variable:
                return name, "assignment"
            if isinstance(target, ast.Attribute) and effect.type not in _CONTAINERS and effect.source is not None:
                return f"{name}.{target.attr}", "attribute"
            if isinstance(target, ast.Attribute | ast.Subscript) and effect.source is not None:
                return name, "assignment"  # of a buffer, or of an item: what the line calls makes the new value
    if effect.source is None:
        return None, None
    if inner is not own and effect.type not in _CONTAINERS:
        assigned = next((child for child in parse_line(inner.code).nodes if isinstance(child, ast.Assign)), None)
        if assigned is not None and isinstance(assigned.targets[0], ast.Attribute):
            return f"{name}.{assigned.targets[0].attr}", "attribute"
    call = next((node for node in line.nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)), None)
    return name, call.func.attr if call is not None and isinstance(call.func, ast.Attribute) else "assignment"


_DEQUES = ("deque", "collections.deque")
_GROWING = frozenset(("append", "appendleft", "extend", "extendleft", "insert"))
_MAXLEN = (
    "where this deque has a `maxlen`, results can be wrong: torch traces it as unbounded (seen on 2.11 and 2.15), so compiled code still "
    "reads the item that a full deque drops"
)
_CONTAINERS = frozenset(("list", "dict", "set", "deque", "collections.deque", "OrderedDict", "defaultdict", "cell"))


def _changed(run: Run) -> Iterator[Changed]:
    """The failed guard that torch names first for each recompile, if it is on the state of an object."""
    frames = {frame.id: frame for frame in run.frames}
    for event in run.recompiles:
        frame = frames.get(event.frame)
        for reason in event.reasons[:1] if frame is not None else ():
            guard = parse_reason(reason)
            if guard.kind not in _NOT_STATE and guard.kind not in _TENSOR_PROPERTY and frame is not None:
                yield Changed(guard, frame)


class _ChangedObjects:
    """The failed guards, found by the object that they look at; sorted by its name, since a log can have 25,000 and as many objects."""

    def __init__(self, changed: Iterable[Changed]) -> None:
        self._all = list(changed)
        self._others = dict.fromkeys(range(len(self._all)))
        self._found: dict[tuple[_Code, str], tuple[Changed, ...]] = {}
        self._of_code: dict[_Code, list[tuple[str, int]]] = {}
        for index, item in enumerate(self._all):
            looked = _WHOLE.sub(lambda match: match[1] or match[2], item.guard.source)
            self._of_code.setdefault(_code(item.frame), []).append((looked, index))
        for guards in self._of_code.values():
            guards.sort()

    def of(self, frame: Frame, source: str) -> tuple[Changed, ...]:
        """Those of the frame's code on an object or on something in it: `m.pos`, `len(m.history)` for `L['m'].pos`, `L['m'].history`."""
        key = _code(frame), readable(source)
        if key not in self._found:
            guards, wanted = self._of_code.get(key[0], []), key[1]
            ranges = ((wanted, f"{wanted}\0"), *((f"{wanted}{sign}", f"{wanted}{chr(ord(sign) + 1)}") for sign in ".[("))
            found = [index for low, high in ranges for _, index in guards[bisect_left(guards, (low,)) : bisect_left(guards, (high,))]]
            for index in found:
                self._others.pop(index, None)
            self._found[key] = tuple(self._all[index] for index in sorted(found))
        return self._found[key]

    def others(self) -> list[Changed]:
        """Those that nobody has asked for."""
        return [self._all[index] for index in self._others]


def _with_recompiles(fact: Fact, changed: Sequence[Changed]) -> Fact:
    if not changed:
        detail = "Dynamo makes the change after the compiled graph has run (replayed side effect); no guard on it failed in this run"
        return replace(fact, effects=(Effect("free", "observed", detail),))
    return replace(fact, code=codes.PYTHON_RECOMPILES, effects=(_recompile(changed),))


def _recompile(changed: Sequence[Changed]) -> Effect:
    guard = changed[0].guard
    source = readable(guard.source)
    said = f"{source} was {guard.expected}" if guard.expected is not None else f"the guard on {source} failed"
    detail = f"a guard depends on the changed object ({said}): {plural(len(changed), 'recompile')} in this run"
    return Effect("recompile", "observed", detail)


def _changed_outside(changed: list[Changed], lines: Container[tuple[str, int | None]], run: Run) -> Iterator[Fact]:
    """State that compiled code reads and that changed between two calls without compiled code doing it."""
    grouped: dict[tuple[str, str | None, int | None], list[Changed]] = {}
    for item in changed:
        if _is_state(item.guard) and not _is_passed(item, run):
            grouped.setdefault((item.guard.source, item.frame.file, item.frame.line), []).append(item)
    for group in grouped.values():
        yield _outside(group, lines, run)


def _is_state(guard: FailedGuard) -> bool:
    """Whether the source is state of an object or of a module, not an argument that is simply another one in each call."""
    return guard.kind in ("value", "length", "keys", "contains", "attribute") and ("." in guard.source or is_global(guard.raw_source))


def _is_passed(changed: Changed, run: Run) -> bool:
    """Whether the object is an argument of the compiled function: whether each call got the same one is not recorded.

    Where its own `forward` reads the value it is a module, of which programs rarely pass another one; the doubt of the fact still says so.
    True without the source of the function, as of a text: nothing then tells an argument from what the function closes over.
    """
    if changed.guard.origin is not None and changed.guard.origin.function == "forward" and changed.frame.name != "forward":
        return False
    frame, root = changed.frame, re.match(r"(?:len\()?(?:L\[')?(\w+)", changed.guard.raw_source)
    if root is None or is_global(changed.guard.raw_source):
        return False
    source = None if frame.file is None or frame.line is None else parse_function(run.blocks.get((frame.file, frame.line)))
    return source is None or root[1] in source.parameters


def _outside(group: list[Changed], lines: Container[tuple[str, int | None]], run: Run) -> Fact:
    guard, frame = group[0].guard, group[0].frame
    read = None if guard.origin is None else full_place(guard.origin, run)
    doubt = "what makes this change is not recorded: code that is not compiled, or compiled code that knows the object by another name"
    if not guard.raw_source.startswith(("self.", "L['self']", "len(self.")) and not is_global(guard.raw_source):
        doubt += ", or another object is passed"
    if read is not None and (read.file, read.line) in lines:
        doubt = "after a graph break the code that changes it knows it under another name: this line reads and changes it"
    elif read is not None:
        doubt += "; the line shown is where compiled code reads the value"
    elif guard.origin is not None:
        doubt += f"; compiled code reads the value in line {guard.origin.line} of {guard.origin.file} (torch cuts the names of files)"
    return Fact(
        code=codes.PYTHON_RECOMPILES,
        frame=frame,
        input=_dynamo_name(guard),
        kind="python",
        effects=(_recompile(group),),
        sites=(Site(read, "read", None),) if read is not None else (),
        doubts=(doubt,),
        unknown=_UNKNOWN if read is not None else {**_UNKNOWN, "sites": doubt},
    )


def _dynamo_name(guard: FailedGuard) -> str:
    """`L['m'].t` for torch's `m.t`: recompile reasons leave out the `L[...]` of local variables."""
    raw = re.sub(r"^(?:len\((.*)\)|keys of (.*)|.* in (.*))$", lambda found: found[1] or found[2] or found[3] or "", guard.raw_source)
    match = re.match(r"^([A-Za-z_]\w*)(.*)$", raw)
    return raw if match is None or re.match(r"^[LG]\[", raw) or "(" in f"{match[1]}{match[2][:1]}" else f"L['{match[1]}']{match[2]}"
