"""One captured graph as a picture that fits a bug report: modules as panels, what repeats drawn once, at most about 100 boxes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path, PurePath

from dynadiag.model.graph import Node
from dynadiag.render import wording
from dynadiag.render.graph_parts import Frame, Part, Parts, common_modules, cut, uncut
from dynadiag.render.graph_view import GraphView, graph_view, tensor
from dynadiag.render.operator_classes import MEANINGS, WEIGHT, short_name
from dynadiag.render.picture import Link, Panel, Picture, Row
from dynadiag.render.recorded_graph import RecordedGraph
from dynadiag.render.sanitise import clean, clean_code

# Folds the parts of a graph into rows until a picture has at most `ROWS_AT_MOST` of them: the part with the most rows is folded next.
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


INPUTS_AT_MOST = 8
_TITLE = 40
_HALF = 20
_OPTIMIZER = re.compile(r"_single_tensor_(\w{1,30})\Z")
_Flow = tuple[str, str, int | None]
"""The dtype of a tensor, that of what is made of it, and its bytes."""

_Inputs = tuple[Row, list[str]]
_NUMBER = re.compile(r"\d+")


def graph_picture(
    graph: RecordedGraph,
    *,
    title: str,
    summary: Sequence[str] = (),
    base: Path | None = None,
    ending: Row | None = None,
    kept: Collection[tuple[str, str]] | None = None,
    operators: int | None = None,
) -> Picture:
    """The picture of a graph.

    Args:
        graph: the graph with what was recorded of it.
        title: the head line, sanitised.
        summary: lines under it, sanitised; how many calls it has is added.
        base: user lines below this absolute folder are named relative to it.
        ending: a box after the graph's outputs, for the graph break that ended it.
        kept: names and targets of the nodes that a reduction keeps: all others are grey.
        operators: how many operators a plain run of it dispatches, as the headline of a report counts them.
    """
    label = graph.label
    view = graph_view(graph.nodes, label, graph.writes)
    marks = None if kept is None else [(node.name, node.target) in kept for node in view.drawn]
    made = cut(view, marks)
    rows, owner = _rows(made, base, marks)
    if len(rows) > ROWS_AT_MOST + INPUTS_AT_MOST:
        made = uncut(view)
        rows, owner = _rows(made, base, marks)
    rows, owner = _with_inputs(rows, owner, made, label, marks)
    links = _links(made, owner, rows)
    if ending is not None:
        tails = [number for number, row in enumerate(rows) if row.ends][-3:] or [len(rows) - 1][: len(rows)]
        links += [Link(tail=tail, head=len(rows), strong=True) for tail in tails]
        rows.append(ending)
    rows = rows or [Row(kind="pointwise", name="no calls: inputs and output only")]
    panels = tuple(_panel(frame, made, graph.classes) for frame in made.frames)
    facts = [*summary[:1], _counts(made, operators), *([] if marks is None else [f"{sum(marks):,} kept"]), *_path_text(view)]
    return Picture(
        title=title,
        summary=(" · ".join(facts), *summary[1:]),
        rows=tuple(rows),
        panels=panels,
        links=tuple(links),
        legend=legend(rows),
    )


def _counts(made: Parts, operators: int | None) -> str:
    """`134 calls, which run 151 operators, 1 repeated block drawn once`: one call of torch can run several operators, or none."""
    calls = wording.plural(len(made.view.drawn), "call")
    ran = f", which run{'s' if len(made.view.drawn) == 1 else ''} {wording.plural(operators, 'operator')}" if operators is not None else ""
    blocks = sum(len(frame.offsets) > 1 for frame in made.frames)
    return f"{calls}{ran}" + (f", {wording.plural(blocks, 'repeated block')} drawn once" if blocks else "")


def _path_text(view: GraphView) -> Iterator[str]:
    """`critical path: 88 calls, at most 12 MiB`, for a graph of which some calls can run side by side."""
    path = view.critical_path
    if len(path.calls) < len(view.drawn):
        size = "" if path.most_bytes is None else f", at most {bytes_text(path.most_bytes)}"
        yield f"critical path: {wording.plural(len(path.calls), 'call')}{size}"


def _rows(made: Parts, base: Path | None, marks: Sequence[bool] | None) -> tuple[list[Row], list[int]]:
    """The rows in order, and by unit the row that it is in; units of further blocks are in those of the first."""
    rows: list[Row] = []
    owner = [0] * len(made.units)

    def mark(unit: int) -> bool | None:
        return None if marks is None else marks[made.units[unit][0]]

    for part, folded in zip(made.parts, fold(made, mark), strict=True):
        for units in folded:
            for offset in part.offsets:
                for unit in units:
                    owner[unit + offset] = len(rows)
            row = row_of(made, part, units, base)
            if marks is not None:
                here = [marks[position] for offset in part.offsets for unit in units for position in made.units[unit + offset]]
                row = _marked(row, sum(here), len(here))
            rows.append(row)
    return rows, owner


def _marked(row: Row, kept: int, count: int) -> Row:
    """The row of a reduction's picture: grey when nothing of it is kept, in colour when it is, and told when a part is."""
    if not kept:
        return replace(row, kind="gone", below=(), alarm=False)
    return replace(row, kind="kept", below=row.below if kept == count else (*row.below, f"{kept:,} of {count:,} kept"))


def _with_inputs(
    rows: list[Row], owner: list[int], made: Parts, label: Callable[[str], str], marks: Sequence[bool] | None
) -> tuple[list[Row], list[int]]:
    """The rows with a box for each input of the user's before the panel that uses it first, or one box for all when there are many.

    `owner` grows by one entry for each input, in the order of `GraphView.shown_inputs`. Where a reduction `marks` what it keeps, inputs
    of other operators are grey.
    """
    view = made.view
    first: dict[str, int] = {}
    read = set(view.shown_inputs) if marks is None else set[str]()
    for unit, members in enumerate(made.units):
        for position in members:
            for name in view.inputs[position]:
                first.setdefault(name, owner[unit])
            if marks is not None and marks[position]:
                read.update(view.inputs[position])
    kind = "input" if marks is None else "kept"
    used = [name for name in view.shown_inputs if name in first]
    before: dict[int, list[_Inputs]] = {}
    if len(used) > INPUTS_AT_MOST:
        names = [clean(label(name), limit=40) for name in used]
        box = Row(
            kind=kind if read.intersection(used) else "gone",
            name=f"{len(used):,} inputs",
            note=clean(", ".join(names), limit=34),
            tip="\n".join(names[:12]),
        )
        before[0] = [(box, used)]
    else:
        for name in used:
            made_of = tensor(view.given[name].annotation)
            shown = end_of(clean(label(name), limit=400), _TITLE)
            note = clean(made_of.text, limit=40) if made_of else ""
            box = Row(kind=kind if name in read else "gone", name=shown, note=note, half=len(shown) <= _HALF and len(note) <= _HALF)
            before.setdefault(_begin(rows, first[name]), []).append((box, [name]))
    return _inserted(rows, owner, before, used)


def _begin(rows: Sequence[Row], number: int) -> int:
    """The first row of the panel that this row is in."""
    while number and rows[number].outer is not None and rows[number - 1].outer == rows[number].outer:
        number -= 1
    return number


def _inserted(rows: list[Row], owner: list[int], before: Mapping[int, list[_Inputs]], used: Sequence[str]) -> tuple[list[Row], list[int]]:
    result: list[Row] = []
    moved: list[int] = []
    places: dict[str, int] = {}
    for number, row in enumerate(rows):
        for box, names in before.get(number, ()):
            places |= dict.fromkeys(names, len(result))
            result.append(box)
        moved.append(len(result))
        result.append(row)
    return result, [*(moved[number] for number in owner), *(places[name] for name in used)]


def _links(made: Parts, owner: Sequence[int], rows: Sequence[Row]) -> list[Link]:
    """Arrows between rows, each once, with what flows along the first of them; none inside a row or back to an earlier block."""
    view = made.view
    unit_of = [number for number, unit in enumerate(made.units) for _ in unit]
    used = {name for names in view.inputs for name in names}
    places = dict(zip([name for name in view.shown_inputs if name in used], owner[len(made.units) :], strict=True))
    flows: dict[tuple[int, int], set[_Flow]] = {}
    for position, sources in enumerate(view.sources):
        head = owner[unit_of[position]]
        for source in sources:
            tail = owner[unit_of[source]]
            if tail < head:
                flows.setdefault((tail, head), set()).add(_flow(view, source, position))
        for name in view.inputs[position]:
            if name in places and places[name] < head:
                flows.setdefault((places[name], head), set())
    return [Link(tail=tail, head=head, label=_flow_text(flow)) for (tail, head), flow in sorted(flows.items())]


def _flow(view: GraphView, source: int, position: int) -> _Flow:
    made, result = view.tensors[source], view.tensors[position]
    return (made.dtype, result.dtype if result is not None else made.dtype, made.size) if made is not None else ("", "", None)


def _flow_text(flows: set[_Flow]) -> str:
    """`32 KiB`, `f32 → bf16 · 32 KiB`: what flows along an arrow, and the dtype that it becomes; only what all edges have in common."""
    changes = {(before, after) for before, after, _ in flows}
    sizes = {size for _, _, size in flows}
    before, after = changes.pop() if len(changes) == 1 else ("", "")
    change = f"{clean(before, limit=12)} → {clean(after, limit=12)}" if before != after else ""
    size = sizes.pop() if len(sizes) == 1 else None
    return " · ".join(part for part in (change, bytes_text(size) if size is not None else "") if part)


def _panel(frame: Frame, made: Parts, classes: Mapping[str, str]) -> Panel:
    """`encoder.layer.0 … 11` and `×12 BertLayer, 53 calls`; without modules the function and its lines."""
    nodes = list(made.nodes(frame.first))
    stack = common_modules(nodes)
    count = len(frame.offsets)
    calls = wording.plural(len(nodes), "call")
    if stack and frame.depth:
        path = stack[frame.depth - 1] if count == 1 else stack[-1]
        last = common_modules(made.nodes(unit + frame.offsets[-1] for unit in frame.first)) if count > 1 else stack
        outside = common_modules(made.nodes(made.frames[frame.within].first))[-1:] if frame.within is not None else ()
        title, kind = _range(_within(path), _within(last[-1] if last else "")), clean(classes.get(path, ""), limit=40)
        title = title.removeprefix(f"{_within(outside[0])}.") if outside else title
        if count > 1 and last[-1:] == stack[-1:]:  # it repeats inside one module: not the module does
            title, kind = f"in {title}", ""
        return Panel(title=title, tag=f"×{count:,} {kind}".strip() + f", {calls}" if count > 1 else kind)
    places = [node.location for node in nodes if node.location is not None]
    functions = {(place.file, place.function) for place in places}
    if len(functions) != 1 or len(places) != len(nodes):
        return Panel(title="repeated block" if count > 1 else "", tag=f"×{count:,}, {calls}" if count > 1 else calls)
    ((file, function),) = functions
    lines = sorted(place.line for place in places if place.line is not None)
    where = f"{PurePath(clean(file)).name}:{lines[0]}" + (f"\N{EN DASH}{lines[-1]}" if lines[-1] != lines[0] else "") if lines else ""
    optimizer = _OPTIMIZER.search(function or "") if count > 1 and "/torch/optim/" in file.replace("\\", "/") else None
    title = f"{clean(optimizer[1]).capitalize()} update of one parameter" if optimizer else clean(function or "?", limit=_TITLE)
    return Panel(title=title, tag=f"×{count:,}, {calls}" if count > 1 else where)


def _within(path: str) -> str:
    """A module path without the variable that holds the model, which is no name of a module."""
    root = re.match(r"L\[(['\"])\w+\1\]|G\[(['\"])\w+\2\]", path)
    if root is None:
        return clean(path, limit=400)
    rest = path[root.end() :]
    rest = re.sub(r"\A(?:\.__closure__\[\d+\]\.cell_contents|\.__dict__|\._modules)+", "", rest).lstrip(".")
    return clean(rest, limit=400) or clean(path, limit=_TITLE)


def _range(first: str, last: str) -> str:
    """`layer.0 … 11` for `layer.0` and `layer.11`: paths that differ in one number."""
    a, b = first.split("."), last.split(".")
    apart = [at for at, (name, other) in enumerate(zip(a, b, strict=False)) if name != other]
    if first == last or len(a) != len(b) or len(apart) != 1 or not (_NUMBER.fullmatch(a[apart[0]]) and _NUMBER.fullmatch(b[apart[0]])):
        return end_of(first, _TITLE)
    a[apart[0]] += f" … {b[apart[0]]}"
    return end_of(".".join(a), _TITLE)
