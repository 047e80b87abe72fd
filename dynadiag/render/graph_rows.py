"""Folds the parts of a graph into rows until a picture has at most `ROWS_AT_MOST` of them: the part with the most rows is folded next."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import groupby
from pathlib import Path

from dynadiag.model.graph import Node
from dynadiag.render import wording
from dynadiag.render.graph_parts import Part, Parts, common_modules
from dynadiag.render.operator_classes import MEANINGS, WEIGHT, short_name
from dynadiag.render.picture import Row
from dynadiag.render.sanitise import clean, clean_code

ROWS_AT_MOST = 80
DETAILED = 40
OUTPUTS_AT_MOST = 8
"""Where a graph has more outputs, as the forward graph of a training step has, they are not marked."""

_WINDOWS = 5
_LEVELS = 6
_TELLING = 10
_NAME = 44
_MANY = 6
_WRITES_SHOWN = 2
_LOOKED_AT = 1000
_WRITTEN = 60
_TIP_LINES = 12
_PARTLY = re.compile(r"setitem|index|scatter|masked|put|batch_norm|foreach|resize|set_|operator\.")
Units = list[int]


def fold(made: Parts, apart: Callable[[int], Hashable] = lambda unit: None) -> list[list[Units]]:
    """For each part its rows, each a list of units. Units for which `apart` differs never share a row, except in windows of equal size."""
    total = sum(len(part.units) for part in made.parts)
    levels = [_start(part, total, apart) for part in made.parts]
    rows = [_folded(made, part, level, apart, 1) for part, level in zip(made.parts, levels, strict=True)]
    while sum(map(len, rows)) > ROWS_AT_MOST:
        open_parts = [number for number, level in enumerate(levels) if level < _LEVELS and len(rows[number]) > 1]
        if not open_parts:
            break
        number = max(open_parts, key=lambda item: (len(rows[item]), -item))
        levels[number] += 1
        room = max(2, ROWS_AT_MOST * len(made.parts[number].units) // total - len(made.parts) // 2)
        folded = _folded(made, made.parts[number], levels[number], apart, room)
        if levels[number] < _WINDOWS and len(folded) < min(_TELLING, room // 4):  # from too many rows to hardly any: windows tell more
            levels[number] = _WINDOWS
            folded = _folded(made, made.parts[number], _WINDOWS, apart, room)
        rows[number] = folded
    return rows


def _start(part: Part, total: int, apart: Callable[[int], Hashable]) -> int:
    """The level to begin with; a part of which a reduction keeps nothing is one box."""
    if all(apart(unit) is False for unit in part.units):
        return _LEVELS
    return 0 if total <= DETAILED else 1


def _folded(made: Parts, part: Part, level: int, apart: Callable[[int], Hashable], room: int) -> list[Units]:
    """One part at a level: each unit; views joined; classes joined; source lines joined; windows; one row."""
    classes = [made.view.classes[made.units[unit][0]] for unit in part.units]
    if level >= _WINDOWS:
        size = len(part.units) if level > _WINDOWS else math.ceil(len(part.units) / room)
        return [part.units[start : start + size] for start in range(0, len(part.units), size)]

    def key(at: int) -> Hashable:
        unit = part.units[at]
        alone = (at, apart(unit))
        if level == 0:
            return alone
        if level in (1, 2):
            return (classes[at], apart(unit)) if level == 2 or classes[at] == "view" else alone
        place = made.view.drawn[made.units[unit][0]].location
        where = place and (place.file, place.line if level == 3 else place.function)
        return ((where if where else classes[at]), apart(unit))

    return [[part.units[at] for at in members] for _, members in groupby(range(len(part.units)), key=key)]


def row_of(made: Parts, part: Part, units: Units, base: Path | None) -> Row:
    """The box of some units of one part, with what all its copies have in common."""
    view = made.view
    first = [position for unit in units for position in made.units[unit]]
    every = [position for offset in part.offsets for unit in units for position in made.units[unit + offset]]
    classes = {view.classes[position] for position in first}
    kind = next(name for name in WEIGHT if name in classes)
    if kind != "write" and len(first) > _MANY and len(classes - {"view", "pointwise"}) > 1:
        kind = "folded"
    below = _written(made, every)
    return Row(
        kind=kind,
        name=_name(made, units, first, part.outer is None),
        note=_note(made, first, every),
        below=below,
        alarm=bool(below),
        tip=_tip(made, first, every, base),
        ends=len(view.outputs) <= OUTPUTS_AT_MOST and any(position in view.outputs for position in every),
        outer=part.outer,
        inner=part.inner,
    )


def _name(made: Parts, units: Units, positions: Sequence[int], loose: bool) -> str:
    nodes = [made.view.drawn[position] for position in positions]
    if len(units) > 1 and len({(node.location.file, node.location.line) if node.location else None for node in nodes}) == 1:
        place = nodes[0].location
        if place is not None and place.code and len(nodes) > 3:
            return clean_code(place.code, limit=_NAME)
    names = Counter(short_name(node.target) for node in nodes)
    if len(names) == 1 and len(nodes) > 1:
        ((name, count),) = names.items()
        return f"{clean(name, limit=_NAME - 8)} ×{count:,}"
    if len(nodes) > _MANY:
        return _modules_of(nodes, loose) or clean(f"{len(nodes):,} calls", limit=_NAME)
    listed = [f"{name} ×{count}" if count > 1 else name for name, count in names.items()]
    return clean(", ".join(listed), limit=_NAME)


def _modules_of(nodes: Sequence[Node], loose: bool = False) -> str:
    """`layer.3 … layer.5` for operators of several modules; nothing where the first or the last is in none, or both are in one.

    In a panel they are called without the module around them, which the panel names.
    """
    shared = common_modules(nodes)
    if min(len(nodes[0].modules), len(nodes[-1].modules)) <= len(shared):
        return ""
    ends = [node.modules[len(shared)] for node in (nodes[0], nodes[-1])]
    around = shared[:-1] if loose else shared
    names = [end_of(clean(name.removeprefix(f"{around[-1]}." if around else ""), limit=200), _NAME // 2 - 2) for name in ends]
    return " … ".join(names) if names[0] != names[1] else ""


def _note(made: Parts, positions: Sequence[int], every: Sequence[int]) -> str:
    """The tensor that leaves the row, where all copies make the same one; of a large row its calls."""
    view = made.view
    if len(positions) > _MANY and _modules_of([view.drawn[position] for position in positions]):
        return f"{len(positions):,} calls"
    if len(positions) > _MANY and len({view.drawn[position].target for position in positions}) > 1:
        return clean(wording.top_ops(Counter(short_name(view.drawn[position].target) for position in positions), 3), limit=_NAME)
    step = 1 if len({view.drawn[position].target for position in positions}) == 1 else len(positions)
    texts = {tensor.text for tensor in (view.tensors[position] for position in every[step - 1 :: step]) if tensor is not None}
    if len(texts) == 1:
        return clean(texts.pop(), limit=_NAME)
    return f"{len(texts)} shapes" if texts else ""


def _written(made: Parts, positions: Sequence[int]) -> tuple[str, ...]:
    """`writes bn.running_mean · 256 B`, `writes a, b and 82 more`; bytes only of operators that write all that they are given."""
    view = made.view
    writers = [position for position in positions if position in view.writes]
    names = tuple(dict.fromkeys(name for position in writers for name in view.writes[position]))
    if not names:
        return ()
    shown = names if len(names) <= _WRITES_SHOWN else [min(names[:_LOOKED_AT], key=len)]
    listed = ", ".join(end_of(clean(name, limit=400), _WRITTEN) for name in shown)
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    made_by = [view.tensors[position] if _PARTLY.search(view.drawn[position].target) is None else None for position in writers]
    sizes = [tensor.size for tensor in made_by if tensor is not None and tensor.size is not None]
    return (f"writes {listed}{more}{f' · {bytes_text(sum(sizes))}' if len(sizes) == len(writers) else ''}",)


def end_of(text: str, limit: int) -> str:
    """The text in at most `limit` characters: its end tells names apart."""
    return text if len(text) <= limit else "…" + text[1 - limit :]


def bytes_text(count: int) -> str:
    """`256 B`, `1.5 KiB`, `12 MiB`."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 or value == int(value) else f"{value:.1f} {unit}"


def _tip(made: Parts, positions: Sequence[int], every: Sequence[int], base: Path | None) -> str:
    view = made.view
    lines: dict[str, None] = {}
    if len(every) == 1:
        node = view.drawn[positions[0]]
        lines[f"{clean(node.name, limit=80)} = {clean(node.target, limit=120)}({clean(', '.join(node.args), limit=160)})"] = None
        if node.modules:
            lines[f"in {clean(node.modules[-1], limit=160)}"] = None
    for place in dict.fromkeys(view.drawn[position].location for position in positions):
        if place is not None:
            lines[wording.place(place, base) + (f": {clean_code(place.code, limit=120)}" if place.code else "")] = None
    inputs = list(dict.fromkeys(name for position in every[:2000] for name in view.inputs[position]))
    shown = [*list(lines)[:_TIP_LINES], *([f"and {len(lines) - _TIP_LINES} more lines"] if len(lines) > _TIP_LINES else [])]
    if inputs:
        more = f" and {len(inputs) - 4} more" if len(inputs) > 4 else ""
        shown.append(f"uses {', '.join(clean(name, limit=80) for name in inputs[:4])}{more}")
    return "\n".join(shown)


def legend(rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """The classes of these rows with their meanings, in one order."""
    used = {row.kind for row in rows}
    ends = (("ends", "graph output"),) if any(row.ends for row in rows) else ()
    others = tuple(
        pair for pair in (("folded", "several classes"), ("break", "graph break"), ("kept", "kept"), ("gone", "removed")) if pair[0] in used
    )
    return (*((kind, meaning) for kind, meaning in MEANINGS.items() if kind in used), *ends, *others)
