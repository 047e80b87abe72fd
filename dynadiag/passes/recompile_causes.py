"""What caused a row of recompiles: whose source it is, and what else the log says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.changes.recompile_cause import Cause, CompiledCode, PrintedGuard, Split
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.guard_sources import dimension, readable, stripped
from dynadiag.facts.lookups import is_from_text
from dynadiag.facts.user_frames import (
    bare_name,
    callers,
    full_place,
    function_words,
    is_generated,
    is_module_entry,
    is_own_file,
    is_torchs_file,
    normal_path,
    of_last_run,
    resume_line,
    source_function,
)
from dynadiag.model.graph import MutationRecord
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, Frame, Run, SourceFunction
from dynadiag.passes.break_chain import resume_frames
from dynadiag.passes.guard_parts import FailedGuard
from dynadiag.passes.stack_values import ON_STACK
from dynadiag.passes.transitions import ChangedSource, CodeObject, RecompileStep
from dynadiag.source.changed_objects import Changes, changed_beside, changed_objects
from dynadiag.source.function import Function, parse_function
from dynadiag.source.imports import imports_of
from dynadiag.trace import side_effects

# Sizes that are compiled one by one because a parameter has them, whose sizes torch keeps static (`tensor_always_has_static_shape`,
# `torch/_dynamo/utils.py`, 2.11 and 2.15): the guard that fails first may be that of another tensor with the same sizes.
_Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]


def static_parameter(row: ChangedSource, code: CodeObject, run: Run) -> str | None:
    """The parameter that keeps this size static: itself, or one with the same size in each compilation; None where there is none.

    Established: what is compared with a static size becomes one, and both went through the same sizes, more than one.
    """
    named = dimension(row.source) if row.kind == "size" and row.dynamic_since is None else None
    if named is None:
        return None
    tensor, index = named
    parameters, others = _shapes(run)
    met = [
        (parameters.get(frame.id, {}), others.get(frame.id, {})) for frame in code.frames if frame.id in parameters or frame.id in others
    ]
    if any(tensor in held for held, _ in met):
        return tensor
    sizes = [given[tensor][index] if tensor in given and index < len(given[tensor]) else None for _, given in met]
    if None in sizes or len(set(sizes)) < 2:
        return None
    names = dict.fromkeys(name for held, _ in met for name in held)
    return next(
        (
            name
            for name in names
            if all(name in held for held, _ in met)
            and any(
                all(at < len(held[name]) and held[name][at] == size for (held, _), size in zip(met, sizes, strict=True)) for at in range(8)
            )
        ),
        None,
    )


@of_last_run
def _shapes(run: Run) -> tuple[_Shapes, _Shapes]:
    """By frame the shapes of the parameters that it was given, and those of all other tensors, by their readable names."""
    found: tuple[dict[str, dict[str, tuple[int, ...]]], dict[str, dict[str, tuple[int, ...]]]] = ({}, {})
    for traced_input in run.traced_inputs:
        if traced_input.shape is not None:
            found[0 if traced_input.is_parameter else 1].setdefault(traced_input.frame, {})[readable(traced_input.source)] = (
                traced_input.shape
            )
    return found


# Recompiles that are none of a change: another compiled module came to the code through which torch enters all of them.
#
# A compiled nn.Module of torch's own classes is entered through one function for all modules (`inner` of
# `torch/_dynamo/external_utils.py`, 2.11 and 2.15). The first call of a second module then fails the guards of the first one's version,
# by the size of its input for example.
Parameters = Mapping[str, frozenset[tuple[str, tuple[int, ...] | None]]]


def parameters(run: Run) -> Parameters:
    """The parameters of each frame, by frame id: their sources and shapes tell modules apart."""
    found: dict[str, set[tuple[str, tuple[int, ...] | None]]] = {}
    for traced_input in run.traced_inputs:
        if traced_input.is_parameter:
            found.setdefault(traced_input.frame, set()).add((traced_input.source, traced_input.shape))
    return {frame: frozenset(held) for frame, held in found.items()}


def parts_with_parameters(run: Run) -> Mapping[str, frozenset[str]]:
    """The attributes of each frame's object that are modules with parameters, by frame id: `lin` for `self.lin.weight`."""
    found: dict[str, set[str]] = {}
    for traced_input in run.traced_inputs:
        part = _PART.match(stripped(traced_input.source)) if traced_input.is_parameter else None
        if part is not None:
            found.setdefault(traced_input.frame, set()).add(part[1] or part[2])
    return {frame: frozenset(names) for frame, names in found.items()}


# torch writes `L['self'].__dict__['_modules']['lin']` for a module that counts its calls, since such an attribute changes.
_PART = re.compile(r"self\.(?:(?:__dict__\[')?_modules(?:'\])?\['(\w+)'\]|(?!_|__dict__)(\w+)[.\[])")


def told_apart(code: CodeObject, held: Parameters) -> CodeObject:
    """The code object with what other modules' versions had failed on left out, and `module` as the cause where nothing else is left."""
    frames = {frame.key.text: frame.id for frame in code.frames}
    return replace(code, steps=tuple(_told(step, frames, held) for step in code.steps))


def _told(step: RecompileStep, frames: Mapping[str, str], held: Parameters) -> RecompileStep:
    others = [guard for guard in step.guards if _of_another(guard, step, frames, held)]
    if not others:
        return step
    same = tuple(guard for guard in step.guards if guard.entry is not None and guard not in others)
    module = FailedGuard("module", "module", None, None, others[0].text, entry=others[0].entry, raw_source="fn")
    return replace(step, guards=same or (module,))


def _of_another(guard: FailedGuard, step: RecompileStep, frames: Mapping[str, str], held: Parameters) -> bool:
    mine, theirs = held.get(step.frame.id), held.get(frames.get(guard.entry or "", ""))
    if not mine or not theirs or (step.frame.outcome == "failed" and mine <= theirs):  # a failed compilation had not read all of them
        return False
    return _differ(dict(mine), dict(theirs)) and "Guard failed on a parameter" not in guard.text


def _differ(mine: Mapping[str, object], theirs: Mapping[str, object]) -> bool:
    """Whether the parameters are those of two modules. One module may use other parts of itself: what both versions read is the same."""
    both = mine.keys() & theirs.keys()
    return not both or any(mine[source] != theirs[source] for source in both)


# Code that has compiled versions of its own only because a graph break split the graph of what calls it.
_Function = tuple[int, int, str, str | None]


@dataclass(frozen=True, slots=True)
class Splits:
    """The breaks of a run, looked up by the frame that exists because of one."""

    resumed: Mapping[str, BreakEvent]
    broken: Mapping[_Function, tuple[Frame, ...]]
    breaks: Mapping[str, tuple[BreakEvent, ...]]

    @classmethod
    def of_run(cls, run: Run) -> Splits:
        """The breaks of the run with what goes on after each."""
        resumed: dict[str, BreakEvent] = {}
        for position, frames in resume_frames(run).items():
            for frame in frames:
                resumed.setdefault(frame, run.breaks[position])
        broken: dict[_Function, list[Frame]] = {}
        for item in run.frames:
            if item.outcome in ("broke", "skipped") and item.file is not None:
                broken.setdefault((item.key.process, item.key.epoch, item.file, source_function(item.name)), []).append(item)
        breaks: dict[str, list[BreakEvent]] = {}
        for event in run.breaks:
            breaks.setdefault(event.frame, []).append(event)
        return cls(resumed, {key: tuple(found) for key, found in broken.items()}, {key: tuple(found) for key, found in breaks.items()})

    def of(self, frames: Iterable[Frame]) -> Split | None:
        """The break that all of these compilations of one code object are due to, that of the first; None if one of them is due to none.

        A compilation whose callers are not recorded (torch refused it at the limit) tells nothing.
        """
        found = [self._of(frame) for frame in frames if frame.callers or frame.stack or resume_line(frame.name) is not None]
        return found[0] if found and None not in found else None

    def _of(self, frame: Frame) -> Split | None:
        at = resume_line(frame.name)
        if at is not None:
            event = self.resumed.get(frame.id) or self._through(
                (place for places in self.breaks.values() for place in places), frame.file, at
            )
            return None if event is None else Split(function_words(frame.name, frame.file), event.torch_frame, event.gb_id)
        for place in _inside(callers(frame)):
            event = self._at(place, frame)
            if event is not None:
                return Split(function_words(bare_name(place.function), place.file), event.torch_frame, event.gb_id)
        return None

    def _at(self, place: Location, frame: Frame) -> BreakEvent | None:
        """The break of the calling code at this call, else one after which the whole calling function runs eager."""
        key = (frame.key.process, frame.key.epoch, place.file, source_function(bare_name(place.function)))
        found = [item for item in self.broken.get(key, ()) if item.id != frame.id and (item.record or 0) <= (frame.record or 0)]
        # One file has many functions called `forward`: it is the nearest one that begins above the call.
        begins = max((element.line for element in found if element.line is not None and element.line <= (place.line or 0)), default=None)
        events = [event for entry in found if entry.line == begins for event in self.breaks.get(entry.id, ())]
        return self._through(events, place.file, place.line) or next((event for event in events if event.skips_frame), None)

    @staticmethod
    def _through(events: Iterable[BreakEvent], file: str | None, line: int | None) -> BreakEvent | None:
        return next((event for event in events if any((location.file, location.line) == (file, line) for location in event.stack)), None)


def _inside(stack: Sequence[Location]) -> Iterable[Location]:
    """The callers from the innermost out to the compiled callable through which torch was entered."""
    for place in reversed(stack):
        if bare_name(place.function) == "compile_wrapper" and normal_path(place.file).endswith("torch/_dynamo/eval_frame.py"):
            return
        yield place


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the advice for all rows of a code object is chosen by.

    `parts` are its attributes that are modules, `changes` what its calls change of Python's objects.
    """

    compiled: CompiledCode
    parts: frozenset[str]
    changes: Changes


def is_library(frame: Frame, run: Run) -> bool:
    """Whether the code of the frame is none of the user's."""
    if frame.file is None:
        return False
    if is_generated(Location(frame.file, frame.line, frame.name)):  # a dataclass: its code belongs to who calls it
        caller = next((location for location in reversed(callers(frame)) if not is_generated(location)), None)
        return caller is not None and not is_own_file(caller.file, run)
    return not is_own_file(frame.file, run)


def cause_of(row: ChangedSource, code: CodeObject, facts: Facts, run: Run) -> Cause:
    """What the advice for one row is chosen by."""
    guard = row.guards[0]
    origin = next((guard.origin for guard in row.guards if guard.origin is not None), None)
    # Where torch 2.15 turns a float that had become symbolic back into a constant (`_dynamo/output_graph.py`).
    parts = facts.parts | _children(run).get(stripped(guard.raw_source).rpartition(".")[0], frozenset())
    made_constant = any(
        "remove_tensorify_specialized_graphargs" in f"{failed_guard.text} {failed_guard.origin}" for failed_guard in row.guards
    )
    hint = next((guard.hint for guard in row.guards if guard.hint), None)
    return Cause(
        code=facts.compiled,
        guard=PrintedGuard(raw_source=guard.raw_source, text=guard.text, hint=hint, origin=origin),
        kind="module" if row.source == "module" and is_module_entry(code.named.file) else row.kind,
        source=row.source,
        values=row.values,
        foreign=_foreign(row, code.named, facts.compiled, run),
        on_parameter=any("Guard failed on a parameter" in guard.text for guard in row.guards),
        dynamic=False if made_constant else (row.dynamic_since is not None) if code.symbols else None,
        made_constant=made_constant,
        beside=changed_beside(guard.raw_source, facts.changes, _tensor_names(run)),
        set_at=row.set_at,
        parameter=static_parameter(row, code, run),
        function=_function(code.named, origin, parts, run),
        reader=_reader(row.source.rpartition(".")[2], origin, parts, run),
    )


@of_last_run
def _tensor_names(run: Run) -> frozenset[str]:
    """The last names of the tensors that compiled code met: `mu` for `self._buffers['mu']` and for `self.mu`."""
    return frozenset(found[1] for traced_input in run.traced_inputs if (found := _LAST_NAME.search(traced_input.source)) is not None)


_LAST_NAME = re.compile(r"(\w+)(?:['\"]\])?$")


def changes_of(code: CodeObject, run: Run) -> Changes:
    """What the calls of this code object change of Python's objects."""
    known = changed_objects(run)
    return frozenset().union(*(known.get(frame.id, ()) for frame in code.frames))


def has_one_group(code: CodeObject, run: Run) -> bool | None:
    """Whether the code object was given tensors of the optimizer's first parameter group and of no other one; None for a text."""
    groups = _groups(run)
    if is_from_text(run) and not groups:
        return None
    return set().union(*(groups.get(frame.id, ()) for frame in code.frames)) == {"0"}


def changes_objects(code: CodeObject, run: Run) -> bool:
    """Whether the first call changed Python objects, also where the function goes on after a break: a guard on one may have failed with
    the first that torch names.
    """
    first = code.frames[0]
    return (first.key.process, first.file, source_function(first.name)) in _writing(run)


@of_last_run
def _writing(run: Run) -> frozenset[tuple[int, str | None, str | None]]:
    """The functions whose first compilations change Python objects that a guard may look at."""
    first: dict[tuple[int, int, int | None], str] = {}
    for frame in run.frames:
        first.setdefault((frame.key.process, frame.key.epoch, frame.key.frame), frame.id)
    frames = frozenset(first.values())
    records = [
        mutation_record
        for mutation_record in run.mutation_records
        if mutation_record.kind == "side_effects" and mutation_record.frame in frames
    ]
    found = (run.frame(record.frame) for record in records if _is_guarded(record))
    return frozenset((item.key.process, item.file, source_function(item.name)) for item in found if item is not None)


def _is_guarded(record: MutationRecord) -> bool:
    """Whether a later call may find another object than this one did; the tensors of a module's buffers are not told apart."""
    try:
        changed = [
            side_effect.source for side_effect in side_effects(record.payload) if side_effect.source is not None
        ]  # others were made by the call
    except UnreadableInputError:
        return True
    return any("___stack" not in name and not name.endswith("._buffers") for name in changed)


def takes_float32(code: CodeObject, run: Run) -> bool:
    """Whether the code object was given tensors, all of the type that a Python number becomes."""
    types = _types(run)
    return set().union(*(types.get(frame.id, ()) for frame in code.frames)) == {"torch.float32"}


@of_last_run
def _types(run: Run) -> Mapping[str, set[str | None]]:
    """The types of the tensors that each frame was given; a number of Python's is none, though torch makes a tensor of it."""
    found: dict[str, set[str | None]] = {}
    for traced_input in run.traced_inputs:
        if not traced_input.source.startswith("___as_tensor("):
            found.setdefault(traced_input.frame, set()).add(traced_input.dtype)
    return found


@of_last_run
def _children(run: Run) -> Mapping[str, frozenset[str]]:
    """The attributes of each object that are modules with parameters, by its source in any frame: `lin` of `self`."""
    found: dict[str, set[str]] = {}
    for traced_input in run.traced_inputs:
        for match in _CHILD.finditer(source := stripped(traced_input.source)):
            found.setdefault(source[: match.start()], set()).add(match[1])
    return {owner: frozenset(names) for owner, names in found.items()}


# torch writes `L['self'].__dict__['_modules']['lin']` for a module that counts its calls, since such an attribute changes.
_CHILD = re.compile(r"(?:\.__dict__\['_modules'\]|\._modules)\['(\w+)'\]")


def _reader(attribute: str, origin: Location | None, parts: frozenset[str], run: Run) -> Function | None:
    """The recorded function with the line that read the attribute, if no other one has an attribute of the name."""
    found = _readers(run).get(attribute, ())
    having = [source_function for source_function in found if not any(_encloses(source_function, other) for other in found)]
    place = full_place(origin, run) if len(having) == 1 and origin is not None and origin.line is not None else None
    if place is None or place.line is None:
        return None
    inside = having[0].file == place.file and 0 <= place.line - having[0].line <= having[0].text.count("\n")
    function = parse_function(having[0].text, imports_of(having[0].file, run)) if inside else None
    return None if function is None else replace(function, parts=parts)


def _encloses(source_function: SourceFunction, other: SourceFunction) -> bool:
    """Whether the other function is defined inside this one."""
    end, ends = (each.line + each.text.count("\n") for each in (source_function, other))
    return source_function is not other and source_function.file == other.file and source_function.line < other.line and ends <= end


@of_last_run
def _readers(run: Run) -> Mapping[str, Sequence[SourceFunction]]:
    """The recorded functions that name an attribute without calling it, by its name."""
    found: dict[str, list[SourceFunction]] = {}
    for function in run.functions:
        for name in set(_ATTRIBUTE.findall(function.text)):
            found.setdefault(name, []).append(function)
    return found


_ATTRIBUTE = re.compile(r"\.(\w+)\b(?!\()")


@of_last_run
def _groups(run: Run) -> Mapping[str, set[str]]:
    """The numbers of the optimizer's groups whose tensors each frame was given."""
    found: dict[str, set[str]] = {}
    for traced_input in run.traced_inputs:
        if (group := _GROUP.search(traced_input.source)) is not None:
            found.setdefault(traced_input.frame, set()).add(group[1])
    return found


_GROUP = re.compile(r"\.param_groups\[(\d+)\]")


def recorded_source(frame: Frame, run: Run) -> Function | None:
    """The compiled function as recorded."""
    if frame.file is None or frame.line is None:
        return None
    return parse_function(run.blocks.get((frame.file, frame.line)), imports_of(frame.file, run))


def _function(frame: Frame, origin: Location | None, parts: frozenset[str], run: Run) -> Function | None:
    """The compiled function as recorded, if it is what read the source."""
    found = recorded_source(frame, run)
    found = None if found is None else replace(found, parts=parts)
    if found is None or frame.file is None or frame.line is None or origin is None or origin.line is None:
        return found
    whole = full_place(origin, run)
    return (
        found if whole is not None and whole.file == frame.file and 0 <= origin.line - frame.line < (found.node.end_lineno or 0) else None
    )


# What a caller passes, and what can be asked of it: `x.size(0)`, `kwargs['ids'].dtype`; not what it holds inside.
_PLAIN = re.compile(
    r"(?:len\()?(?!self\b)(?:args\[\d+\]|kwargs\[['\"]\w+['\"]\]|(?:\w*kwargs|args)|[A-Za-z_]\w*)\)?"
    r"(?:\.(?:size|stride)\(\d+\)|\.dim\(\)|\.dtype|\.device(?:\.index)?|\.requires_grad|\.storage_offset\(\))?$"
)
_ANYWHERE = frozenset(
    {"global_state", "function_mode", "backend", "dim_marking", "module", "aliasing", "unknown", "unexpected", "invalidated"}
)


def _foreign(row: ChangedSource, frame: Frame, code: CompiledCode, run: Run) -> bool:
    """Whether what changed is a library's: not an argument of a call that the user's own line makes, nor read by the user's own code."""
    if row.kind in _ANYWHERE or ".param_groups[" in row.source:  # the learning rate is the user's, though torch reads it
        return False
    readers = [place for guard in row.guards[:1] for place in guard.stack if not is_torchs_file(place.file)]
    if readers and is_own_file(readers[-1].file, run) and not is_generated(readers[-1]):
        return code.split is not None and row.source.startswith(ON_STACK)
    if code.library and not is_module_entry(frame.file):
        entered_by_library = bool(frame.callers) and not code.calls.entered
        parts = [part for part in re.split(r", (?![^\[(]*[\])])", row.source) if part]
        plain = all(_PLAIN.match(part) for part in parts) and row.kind not in ("function", "identity")
        return entered_by_library or not plain or code.split is not None
    if code.split is not None and row.source.startswith(ON_STACK):
        return True
    return bool(readers) and ("." in row.source or "[" in row.source) and not _PLAIN.match(row.source)
