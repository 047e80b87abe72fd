"""One row of the transition table as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dynadiag.errors import NotRebuildableError
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.user_frames import of_last_run, own_frame, resume_line, source_function
from dynadiag.facts.wording import listed, short_place
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.run import Frame, Run
from dynadiag.model.sentences import capital
from dynadiag.passes.transitions import KEY_ORDER, ChangedSource
from dynadiag.trace.sizes import evaluate


# Where a size or number that torch had made dynamic became a constant again: a guard that fails on it names the tensor, not that line.
def constant_at(row: ChangedSource, run: Run) -> Location | None:
    """The user's line that made the source of a row a constant in the compilations that its recompiles led to."""
    known = _lines(run)
    places = [known[which] for step in row.steps if (which := (step.frame.id, row.source)) in known]
    return next((place for place in places if places.count(place) == len(places)), None)


@of_last_run
def _lines(run: Run) -> Mapping[tuple[str, str], Location]:
    """By frame and readable source (`symbolic_shape_specialization`, 2.11 and 2.15)."""
    found: dict[tuple[str, str], Location] = {}
    for fact in run.shape_facts:
        place = own_frame(fact.stack, run) if fact.kind == "specialized" else None
        if place is not None:
            found |= {(fact.frame, readable(source)): place for source in fact.sources}
    return found


# `get_and_maybe_log_recompilation_reasons` (torch/_dynamo/guards.py, 2.11 to 2.15) calls it a bug; threads at the compile lock do it too.
_UNEXPECTED = (
    "torch names no guard that failed: all of them pass when it checks again, as happens when another thread compiled the same code "
    "meanwhile; in a single-threaded program this is a bug in torch"
)


_STACK = re.compile(r"___stack\d+")
_READ = frozenset({"value", "none", "type", "length", "keys", KEY_ORDER, "contains", "attribute", "identity", "function", "condition"})
_CODES = {
    "size": codes.SIZE,
    "value": codes.VALUE_OR_TYPE,
    "none": codes.VALUE_OR_TYPE,
    "nan": codes.VALUE_OR_TYPE,
    "type": codes.VALUE_OR_TYPE,
    "module": codes.VALUE_OR_TYPE,
    "function": codes.IDENTITY,
    "identity": codes.IDENTITY,
    "dtype": codes.TENSOR_PROPERTY,
    "device": codes.TENSOR_PROPERTY,
    "stride": codes.TENSOR_PROPERTY,
    "rank": codes.TENSOR_PROPERTY,
    "requires_grad": codes.TENSOR_PROPERTY,
    "dispatch_keys": codes.TENSOR_PROPERTY,
    "global_state": codes.GLOBAL_STATE,
    "function_mode": codes.GLOBAL_STATE,
    "length": codes.CONTAINER,
    "keys": codes.CONTAINER,
    KEY_ORDER: codes.CONTAINER,
    "contains": codes.CONTAINER,
    "attribute": codes.CONTAINER,
    "backend": codes.BACKEND,
    "condition": codes.CONDITION,
    "zero_one": codes.CONDITION,
    "duck_size": codes.CONDITION,
    "aliasing": codes.SAME_TENSOR,
    "invalidated": codes.FREED_OBJECT,
    "dim_marking": codes.DIM_MARKING,
}
# By frame the shape of each tensor that is no parameter, by its readable source.
Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]
# A view's base is no tensor of the program, nor is what torch made while it traced.
_NOT_PASSED = re.compile(r"\._base\b|^__meta_utils")


def row_sentence(row: ChangedSource) -> str:
    """`row_text` with a capital letter where it begins with a word, not with a name or torch's own text."""
    worded = row.kind in ("condition", "zero_one", "duck_size", "dispatch_keys", "invalidated") or row.said
    return capital(row_text(row)) if worded else row_text(row)


def row_text(row: ChangedSource) -> str:
    """One line of the transition table: "`x.size(0)`: 4 -> 8 -> 9, dynamic since [0/1]"."""
    if row.kind == "unexpected":
        return _UNEXPECTED
    if row.kind == "unknown":
        return row.guards[0].text or "a guard failed"
    if row.kind == "invalidated":
        return f"{row.text} was freed, and the version that was compiled for it serves no more calls"
    another = "another type" if row.kind == "type" else "another value"
    values = [another, *row.values] if row.first_unknown else list(row.values)
    shown = values if len(values) <= 6 else [*values[:4], f"({len(values) - 5} more)", values[-1]]
    shown = [_STACK.sub("value", name) for name in shown]
    joined = ", ".join(shown) if row.kind in ("condition", "zero_one", "duck_size") else " -> ".join(shown)
    if row.last_unknown and joined and row.kind not in ("condition", "zero_one", "duck_size"):
        joined += f" -> {another}"
    dynamic = f", dynamic since [{row.dynamic_since}]" if row.dynamic_since else ""
    if row.kind == "module":
        return "Another compiled module was called through the entry code that all of them share"
    said = {
        "condition": f"a condition on {row.text}",
        "zero_one": f"the condition that {row.text} is neither 0 nor 1",
        "duck_size": f"sizes that were equal at first: {row.text}",
        "dispatch_keys": f"the dispatch keys of {row.text}",
    }.get(row.kind, row.text)
    return f"{said}{': ' + joined if joined else ' changed'}{dynamic}{_read_at(row)}{_constant_at(row)}"


_NAMES = re.compile(r"[A-Za-z_]\w*")
_LAST_NAME = re.compile(r"(?:\.|\[['\"])([A-Za-z_]\w*)['\"\])]*$")
_EVERYWHERE = frozenset({"self", "len", "size", "keys", "of", "in", "is", "not"})


def _read_at(row: ChangedSource) -> str:
    """The lines that set it, else the line that the guard is for, as torch recorded it.

    ", read at model.py:12 (`if self.step > 3:`)" where that line names what changed.
    """
    if row.set_at:
        return f", set at {listed([f'{short_place(location)} (`{location.code}`)' for location in row.set_at])}"
    origin = next((guard.origin for guard in row.guards if guard.origin is not None), None) if row.kind in _READ else None
    if origin is None or not origin.code:
        return ""
    names = set(_NAMES.findall(row.source)) - _EVERYWHERE  # the value of a stack has none
    last = _LAST_NAME.search(row.source)  # the line of a guard for `g.name` or `g["name"]` may read another part of `g` only
    needed = {last[1]} if last is not None else names
    known = not row.said and not needed.isdisjoint(_NAMES.findall(origin.code))
    return f", {'read at' if known else 'guarded for'} {short_place(origin)} (`{origin.code}`)"


def _constant_at(row: ChangedSource) -> str:
    """The line that needs to know the value, where torch had made it dynamic: a dictionary that is keyed by a length, say."""
    place = row.constant_at
    origins = [guard.origin for guard in row.guards if guard.origin is not None]
    if place is None or any((origin.line, origin.code) == (place.line, place.code) for origin in origins):
        return ""
    return f", made a constant at {short_place(place)}{f' (`{place.code}`)' if place.code else ''}"


def recompile_code(kind: str | None) -> str:
    """The `DR…` code of a kind of change; None when no change could be read."""
    return codes.UNKNOWN_REASON if kind is None else _CODES.get(kind, codes.UNKNOWN_REASON)


def input_shapes(run: Run) -> Shapes:
    """The shapes of all tensors that Dynamo met, in the call that each frame was compiled for."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for traced_input in run.traced_inputs:
        # An array of NumPy keeps torch's name, which no line of the program has: it cannot be marked.
        source = traced_input.source if "___from_numpy" in traced_input.source else readable(traced_input.source)
        if not traced_input.is_parameter and traced_input.shape is not None and not _NOT_PASSED.search(source):
            found.setdefault(traced_input.frame, {})[source] = traced_input.shape
    return found


def _compiled_anew(frames: Sequence[Frame], shapes: Shapes) -> bool:
    """Whether the first compilation with other sizes than the first one's came to as much as that."""
    first = frames[0]
    other = next((frame for frame in frames[1:] if shapes.get(frame.id, shapes[first.id]) != shapes[first.id]), None)
    return other is None or other.outcome in ({"compiled", "broke"} if first.outcome == "broke" else {"compiled"})


def rest_was_skipped(first: Frame, run: Run) -> bool:
    """Whether code of the same function behind a break was not compiled, as where Dynamo does not trace what it does with a symbol."""
    return (first.file, source_function(first.name)) in _skipped_rests(run)


@of_last_run
def _skipped_rests(run: Run) -> frozenset[tuple[str | None, str | None]]:
    skipped = (frame for frame in run.frames if frame.outcome == "skipped" and resume_line(frame.name) is not None)
    return frozenset((item.file, source_function(item.name)) for item in skipped)


def varying_sizes(frames: Sequence[Frame], rows: Sequence[ChangedSource], shapes: Shapes) -> tuple[tuple[str, int], ...]:
    """The tensors and dimensions whose sizes differ between the calls; empty where marking them would not make all of them dynamic.

    That is so where one of them was 0 or 1 in the first call (a later one has its own version, marked or not), or a constant to torch, and
    where a tensor was not there in one of the calls, or with another number of dimensions: a size that was marked is tied to one that was
    not then. Nor where the call with the first other size was not compiled, or broke where the first one did not: marked, the first call
    would not be either.
    """
    met = [shapes[frame.id] for frame in frames if frame.id in shapes]
    if not met or frames[0].id not in shapes or any(row.kind == "size" and row.dynamic_since is None for row in rows):
        return ()
    if not _compiled_anew(frames, shapes):
        return ()
    first, found = met[0], dict.fromkeys(source for mapping in met for source in mapping)
    varying: list[tuple[str, int]] = []
    for source in found:
        seen = [item[source] for item in met if source in item]
        if source not in first or len({len(shape) for shape in seen}) > 1:
            return ()
        varying += [(source, index) for index, sizes in enumerate(zip(*seen, strict=False)) if len(set(sizes)) > 1]
    missing = any(source not in element for source, _ in varying for element in met)  # `None` in a later call, which cannot be marked
    return () if missing or any(first[source][index] in (0, 1) for source, index in varying) else tuple(varying)


# How many versions of a function the conditions on its sizes ask for, whatever is dynamic: `if n % 2:` has one for each side.
#
# The conditions are those that torch recorded for the versions with symbols (`guard_added_fast`,
# `torch/fx/experimental/symbolic_shapes.py`, 2.11 to 2.15). Their texts come from strangers' logs: they are parsed and computed, never
# run.
_SYMBOL = re.compile(r"\bs\d+\b")
_SIZE = re.compile(r"(?P<source>.+)\.size\((?P<index>\d{1,3})\)")
_MOST_SYMBOLS = 8


def sides_met(frames: Sequence[Frame], varying: Sequence[tuple[str, int]], shapes: Shapes, run: Run) -> int:
    """How many versions the recorded calls need if all that varies is dynamic from the first call on: 1 without a condition on it.

    Sizes that were the same in the first call are one symbol to torch: a call in which they differ has a version of its own.
    """
    sizes = [
        {pair: shapes[frame.id][pair[0]][pair[1]] for pair in varying if pair[0] in shapes[frame.id]}
        for frame in frames
        if frame.id in shapes
    ]
    first = sizes[0] if sizes else {}
    same = [(entry, other) for number, entry in enumerate(first) for other in list(first)[:number] if first[entry] == first[other]]
    conditions = sorted({condition for frame in frames for condition in _conditions(run).get(frame.id, ())})
    sides = {
        (*(met.get(item) == met.get(other) for item, other in same), *(_holds(text, names, met) for text, names in conditions))
        for met in sizes
    }
    return max(1, len(sides))


_Names = tuple[tuple[str, tuple[str, int]], ...]


@of_last_run
def _conditions(run: Run) -> Mapping[str, set[tuple[str, _Names]]]:
    """By frame the conditions that its version relies on, with what their symbols are; those on anything but sizes are left out."""
    symbols: dict[tuple[str, str], tuple[str, int]] = {}
    for symbol in run.symbols:
        if (size := _SIZE.fullmatch(readable(symbol.source))) is not None:
            symbols[symbol.frame, symbol.symbol] = size["source"], int(size["index"])
    found: dict[str, set[tuple[str, _Names]]] = {}
    for fact in run.shape_facts:
        used = sorted(set(_SYMBOL.findall(fact.text))) if fact.kind == "guard" else []
        if 0 < len(used) <= _MOST_SYMBOLS and all((fact.frame, item) in symbols for item in used):
            found.setdefault(fact.frame, set()).add((fact.text, tuple((element, symbols[fact.frame, element]) for element in used)))
    return found


def _holds(text: str, names: _Names, sizes: Mapping[tuple[str, int], int]) -> bool | None:
    """Whether the condition holds in a call; None where it cannot be computed from the sizes that vary."""
    if not all(size in sizes for _, size in names):
        return None
    try:
        return bool(evaluate(text, {name: sizes[size] for name, size in names}))
    except NotRebuildableError:
        return None
