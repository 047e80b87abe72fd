"""One captured graph as a sketch that a person can read: inputs and output folded into the nodes, big graphs collapsed.

Placeholders and the output tuple connect everything with everything, and a page is read from top to bottom; so they are no boxes of their
own, and a picture has at most `BOXES_AT_MOST` boxes of which at most `DEPTH_AT_MOST` lie on one path.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path, PurePath

from dynadiag.model.graph import Node
from dynadiag.render import wording
from dynadiag.render.sanitise import clean, clean_code
from dynadiag.render.sketch import Arrow, Box, Look, Sketch, depth
from dynadiag.trace import argument_names

BOXES_AT_MOST = 300
DEPTH_AT_MOST = 80
_BOXES_AT_LEAST = 8
_WINDOWS = 40
_LABEL = 40
_TIP_LINES = 12
_SHAPE = re.compile(r"[A-Za-z]\w*\[[^\]]*\]")
_STATE = re.compile(r"_(parameters|buffers)_")
_KEYWORDS = frozenset({"and_", "or_", "not_", "is_"})
_AUGMENTED = frozenset(
    f"operator.{name}"
    for name in (
        "setitem",
        "iadd",
        "isub",
        "imul",
        "itruediv",
        "ifloordiv",
        "imod",
        "ipow",
        "imatmul",
        "iand",
        "ior",
        "ixor",
        "ilshift",
        "irshift",
    )
)
Key = Callable[[Node], Hashable]


@dataclass(frozen=True, slots=True)
class _Wires:
    """Which nodes are drawn, and what each of them uses: `sources` by position in `drawn`, `inputs` by placeholder name."""

    drawn: tuple[Node, ...]
    sources: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[str, ...], ...]
    outputs: frozenset[int]
    folded: int


@dataclass(frozen=True, slots=True)
class _Level:
    """One way to draw the graph: runs of consecutive nodes, each run one box, and in words how they were made."""

    runs: tuple[range, ...]
    how: str | None
    last: bool = False


def graph_sketch(nodes: Sequence[Node], *, title: Sequence[str], base: Path | None = None, ending: Box | None = None) -> Sketch:
    """The sketch of a graph.

    Args:
        nodes: the graph's nodes in order, as `trace.graph_nodes` gives them.
        title: lines above the picture, sanitised.
        base: user lines below this absolute folder are named relative to it.
        ending: a box after the graph's outputs, for the graph break that ended it.
    """
    wires = _wires(nodes)
    level, arrows = _first_that_fits(wires)
    boxes = [_box(run, wires, base) for run in level.runs]
    if ending is not None:
        tails = [number for number, run in enumerate(level.runs) if not wires.outputs.isdisjoint(run)] or [len(boxes) - 1]
        arrows = [*arrows, *((tail, len(boxes)) for tail in tails[-4:] if tail >= 0)]
        boxes.append(ending)
    notes = (
        [f"{wording.plural(wires.folded, 'input, attribute and output node')} folded into the nodes that use them"] if wires.folded else []
    )
    strong = len(level.runs)
    return Sketch(
        title=(*title, *notes, *((level.how,) if level.how else ())),
        boxes=tuple(boxes) or (Box(lines=("no nodes besides inputs and output",)),),
        arrows=tuple(Arrow(tail=tail, head=head, strong=head == strong) for tail, head in arrows),
    )


def _wires(nodes: Sequence[Node]) -> _Wires:
    drawn = tuple(node for node in nodes if node.op not in ("placeholder", "get_attr", "output"))
    hidden = {
        spelling: node.name for node in nodes if node.op in ("placeholder", "get_attr") for spelling in (node.name, _folded(node.name))
    }
    positions = {node.name: number for number, node in enumerate(drawn)}
    sources, inputs = [], []
    for number, node in enumerate(drawn):
        names = argument_names(node.args)
        sources.append(tuple(positions[name] for name in names if positions.get(name, number) < number))
        uses = (hidden.get(name) or hidden.get(_folded(name)) for name in names if name not in positions)
        inputs.append(tuple(name for name in uses if name))
    ends = argument_names(text for node in nodes if node.op == "output" for text in node.args)
    outputs = frozenset(positions[name] for name in ends if name in positions)
    return _Wires(drawn, tuple(sources), tuple(inputs), outputs, len(nodes) - len(drawn))


def _folded(name: str) -> str:
    """A name without what `torch.fx` changes when an argument (`L_x_`, `..._LayerNorm_`) becomes a node (`l_x_`, `..._layer_norm_`)."""
    return "~" + name.replace("_", "").lower()


def _first_that_fits(wires: _Wires) -> tuple[_Level, list[tuple[int, int]]]:
    """The most detailed level within the limits that still tells something; the last one, equal windows, always fits."""
    for level in _levels(wires.drawn):
        if (level.how and not level.last and len(level.runs) < _BOXES_AT_LEAST) or len(level.runs) > BOXES_AT_MOST:
            continue
        arrows = _arrows(level.runs, wires)
        if depth(len(level.runs), tuple(arrows)) <= DEPTH_AT_MOST:
            break
    return level, arrows


def _levels(drawn: Sequence[Node]) -> Iterator[_Level]:
    """Ways to draw these nodes, from the most detailed to the coarsest."""
    yield _Level(tuple(range(number, number + 1) for number in range(len(drawn))), None)
    for depth_shown in range(max((len(node.modules) for node in drawn), default=0), 0, -1):
        yield _collapsed(_runs(drawn, partial(_modules, count=depth_shown)), f"by module, {wording.plural(depth_shown, 'level')} deep")
    yield _collapsed(_runs(drawn, _line), "by source line")
    yield _collapsed(_runs(drawn, _function), "by function")
    size = math.ceil(len(drawn) / _WINDOWS) or 1
    windows = tuple(range(start, min(start + size, len(drawn))) for start in range(0, len(drawn), size))
    yield _collapsed(windows, f"of {size} nodes each", last=True)


def _collapsed(runs: tuple[range, ...], how: str, *, last: bool = False) -> _Level:
    return _Level(runs, f"{sum(map(len, runs)):,} nodes collapsed into {wording.plural(len(runs), 'box', 'boxes')} {how}", last)


def _modules(node: Node, *, count: int) -> Hashable:
    return node.modules[:count]


def _line(node: Node) -> Hashable:
    return node.location and (node.location.file, node.location.line)


def _function(node: Node) -> Hashable:
    return node.location and (node.location.file, node.location.function)


def _runs(drawn: Sequence[Node], key: Key) -> tuple[range, ...]:
    """Runs of consecutive nodes with one key; being intervals of a topological order they form no cycle. No key is no run."""
    runs: list[range] = []
    start = 0
    for value, members in groupby(drawn, key=key):
        length = len(list(members))
        runs += [range(start, start + length)] if value else [range(start + item, start + item + 1) for item in range(length)]
        start += length
    return tuple(runs)


def _arrows(runs: Sequence[range], wires: _Wires) -> list[tuple[int, int]]:
    owner = [number for number, run in enumerate(runs) for _ in run]
    pairs = {(owner[source], owner[position]): None for position, sources in enumerate(wires.sources) for source in sources}
    return [pair for pair in pairs if pair[0] != pair[1]]


def _box(run: range, wires: _Wires, base: Path | None) -> Box:
    inputs = tuple(dict.fromkeys(name for number in run for name in wires.inputs[number]))
    visible = [name for name in inputs if not _STATE.search(name)]
    ends = not wires.outputs.isdisjoint(run)
    look: Look = "output" if ends else "folded" if len(run) > 1 else _look(wires.drawn[run[0]], visible)
    lines = _one_node(wires.drawn[run[0]]) if len(run) == 1 else _many_nodes([wires.drawn[number] for number in run])
    tip = _tip([wires.drawn[number] for number in run], inputs, base)
    return Box(lines=(*lines, *_inputs_line(visible)), look=look, tip=tip)


def _look(node: Node, inputs: Sequence[str]) -> Look:
    return "inplace" if _writes_in_place(node.target) else "input" if inputs else "plain"


def _writes_in_place(target: str) -> bool:
    """Whether the name says so: torch's in-place ops end in one underscore (`add_`, `aten.copy_.default`), `operator.and_` is none."""
    parts = target.split(".")
    names = parts[-2:] if "ops" in parts[:-2] else parts[-1:]
    return target in _AUGMENTED or any(name.endswith("_") and not name.endswith("__") and name not in _KEYWORDS for name in names)


def _inputs_line(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield _cut(f"in: {names[0]}") if len(names) == 1 else f"in: {len(names)} inputs"


def _cut(text: str) -> str:
    return clean(text, limit=_LABEL)


def _short(target: str) -> str:
    """`linear` for `torch.nn.functional.linear` and `torch._C._nn.linear`, `add.Tensor` for `torch.ops.aten.add.Tensor`."""
    parts = clean(target, limit=400).split(".")
    return _cut(".".join(parts[-2:]) if "ops" in parts[:-2] else parts[-1])


def _one_node(node: Node) -> tuple[str, ...]:
    shape = _SHAPE.match(node.annotation or "")
    return (_short(node.target), *((_cut(shape[0]),) if shape else ()))


def _many_nodes(nodes: Sequence[Node]) -> tuple[str, ...]:
    counts = Counter(_short(node.target) for node in nodes)
    return (_heading(nodes), wording.plural(len(nodes), "node"), _cut(wording.top_ops(counts, 3)))


def _heading(nodes: Sequence[Node]) -> str:
    """What these nodes have in common: the module, the source line, the function, or else the first and the last name."""
    modules = _common_modules(nodes)
    if modules:
        return _end(clean(modules[-1], limit=200))
    place = nodes[0].location
    if place is not None and len(set(map(_line, nodes))) == 1:
        return clean_code(place.code or place.file, limit=_LABEL)
    if place is not None and len(set(map(_function, nodes))) == 1:
        lines = sorted(node.location.line for node in nodes if node.location and node.location.line is not None)
        span = f":{lines[0]}-{lines[-1]}" if lines else ""
        return _end(f"{clean(place.function or '', limit=80)} {PurePath(clean(place.file)).name}{span}".strip())
    return _cut(f"{nodes[0].name} ... {nodes[-1].name}")


def _common_modules(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The modules that all these nodes are in, outermost first."""
    shared: tuple[str, ...] | None = None
    for node in nodes:
        known = node.modules if shared is None else shared
        length = next((index for index, pair in enumerate(zip(known, node.modules, strict=False)) if pair[0] != pair[1]), len(node.modules))
        shared = known[: min(length, len(known))]
    return shared or ()


def _end(text: str) -> str:
    """The text in at most `_LABEL` characters: its head and its end tell most, so the middle goes."""
    return text if len(text) <= _LABEL else text[:12] + "..." + text[15 - _LABEL :]


def _tip(nodes: Sequence[Node], inputs: Sequence[str], base: Path | None) -> str:
    lines = dict.fromkeys(_user_line(node, base) for node in nodes)
    first = [f"{clean(node.name, limit=80)} = {clean(node.target, limit=120)}" for node in nodes[:1]] if len(nodes) == 1 else []
    shown = [*first, *list(lines)[:_TIP_LINES], *([f"and {len(lines) - _TIP_LINES} more lines"] if len(lines) > _TIP_LINES else [])]
    uses = [f"uses {', '.join(clean(name, limit=80) for name in inputs[:4])}" + (f" and {len(inputs) - 4} more" if len(inputs) > 4 else "")]
    return "\n".join([line for line in shown if line] + (uses if inputs else []))


def _user_line(node: Node, base: Path | None) -> str:
    if node.location is None:
        return ""
    code = f": {clean_code(node.location.code, limit=120)}" if node.location.code else ""
    return wording.place(node.location, base) + code
