"""Cuts a graph into parts for a picture: repeated blocks drawn once, modules as panels nested two deep, and units of equal operators.

A *unit* is one node, or several equal ones that follow one another. All numbers of units are positions in `Parts.units`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from dynadiag.model.graph import Node
from dynadiag.render.graph_view import GraphView

# Finds what repeats in a sequence of operators: blocks that follow one another with the same operators and the same wiring inside.
REPEATS_AT_MOST = 16
_CANDIDATES = 24
_GRAM = 3
_PHASES_AT_MOST = 400
_WORK_AT_MOST = 400_000


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` blocks of `length` nodes each, the first at `start`."""

    start: int
    length: int
    count: int

    @property
    def end(self) -> int:
        """The position behind the last block."""
        return self.start + self.length * self.count


Phase = Callable[[int, int], tuple[float, ...]]
"""How good a block is that begins here and has this length: the smallest wins."""


def repeats(tokens: Sequence[Hashable], sources: Sequence[Sequence[int]], phase: Phase, *, least: int = 6) -> list[Repeat]:
    """The repeats worth folding in order, none inside another: each saves at least `least` nodes, the one that saves most is taken first;
    the longest parts without one are searched first, up to `REPEATS_AT_MOST` are found.

    Args:
        tokens: what each node does; equal tokens may be the same step of two blocks.
        sources: by node, the positions that it uses. Blocks are alike only when what they use inside themselves is.
        phase: where a block begins, when there is a choice.
        least: nodes that folding must save.
    """
    known: dict[Hashable, int] = {}
    numbers = [known.setdefault(token, len(known)) for token in tokens]
    found: list[Repeat] = []
    waiting = [(0, len(numbers))]
    while waiting and len(found) < REPEATS_AT_MOST:
        waiting.sort(key=lambda part: part[1] - part[0])
        low, high = waiting.pop()
        best = _best(numbers, low, high, sources, phase, least) if high - low > least else None
        if best is not None:
            found.append(best)
            waiting += [(low, best.start), (best.end, high)]
    return sorted(found, key=lambda repeat: repeat.start)


def _best(numbers: Sequence[int], low: int, high: int, sources: Sequence[Sequence[int]], phase: Phase, least: int) -> Repeat | None:
    """The repeat between these positions that saves most and is wired alike."""
    runs = [run for period in _candidates(numbers, low, high) for run in _runs(numbers, low, high, period)]
    runs.sort(key=lambda run: (-(run[1] - run[0] - run[2]), run[2], run[0]))
    for start, end, period in runs[:_CANDIDATES]:
        if (end - start) // period * period - period < least:
            continue
        repeat = _wired(_aligned(start, end, period, phase), sources)
        if repeat is not None and (repeat.count - 1) * repeat.length >= least:
            return repeat
    return None


def _candidates(numbers: Sequence[int], low: int, high: int) -> list[int]:
    """Distances at which the same few operators come again, the most frequent first; never 1, which is one operator many times."""
    last: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for position in range(low, high - _GRAM + 1):
        gram = tuple(numbers[position : position + _GRAM])
        if (before := last.get(gram)) is not None:
            distances[position - before] += 1
        last[gram] = position
    weighed = sorted(distances.items(), key=lambda item: (-item[1] - item[0] / 2, item[0]))
    return [distance for distance, _ in weighed if distance > 1][:_CANDIDATES]


def _runs(numbers: Sequence[int], low: int, high: int, period: int) -> Iterator[tuple[int, int, int]]:
    """The longest stretches in which each node is that of one period before: start, end, period; at least two blocks long."""
    same = map(int.__eq__, numbers[low + period : high], numbers[low : high - period])
    position = low
    for equal, members in groupby(same):
        length = sum(1 for _ in members)
        if equal and length >= period:
            yield position, position + length + period, period
        position += length


def _aligned(start: int, end: int, period: int, phase: Phase) -> Repeat:
    """Where the blocks of a stretch begin; a stretch is often longer than its blocks, since what surrounds them is alike."""
    slack = min((end - start) % period, period - 1, _PHASES_AT_MOST, max(_WORK_AT_MOST // period, 0))
    best = min(range(start, start + slack + 1), key=lambda first: (*phase(first, period), first))
    return Repeat(best, period, (end - best) // period)


def _wired(repeat: Repeat, sources: Sequence[Sequence[int]]) -> Repeat | None:
    """The longest part whose blocks use the same nodes inside themselves."""

    def inside(block: int) -> list[tuple[int, ...]]:
        first = repeat.start + block * repeat.length
        return [tuple(source - first for source in sources[first + step] if source >= first) for step in range(repeat.length)]

    shapes = [inside(block) for block in range(repeat.count)]
    best, position = Repeat(repeat.start, repeat.length, 0), 0
    for _, members in groupby(shapes):
        count = len(list(members))
        if count > best.count:
            best = Repeat(repeat.start + position * repeat.length, repeat.length, count)
        position += count
    return best if best.count > 1 else None


SMALL = 24
"""A graph of so few operators is drawn as it is: nothing is joined."""

OUTER_AT_MOST = 14
_LARGE_PANEL = 20
_PANEL_AT_LEAST = 3


@dataclass(slots=True)
class Part:
    """Units that follow one another in one panel. `copies` are the numbers of nodes' units by which further blocks lie behind these."""

    units: list[int]
    outer: int | None = None
    inner: int | None = None
    offsets: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Frame:
    """A panel: the units of its first block, how often they come, and how many operators a block has."""

    first: tuple[int, ...]
    offsets: tuple[int, ...]
    depth: int
    """How many modules deep it is; 0 for a panel that is no module."""

    within: int | None = None
    """The panel around it."""


@dataclass(slots=True)
class Parts:
    """The graph cut up: `frames` are the panels that `Part.outer` and `Part.inner` number."""

    view: GraphView
    units: list[range]
    parts: list[Part] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    def nodes(self, units: Iterable[int]) -> Iterator[Node]:
        """The nodes of these units."""
        return (self.view.drawn[position] for unit in units for position in self.units[unit])


def uncut(view: GraphView) -> Parts:
    """The graph as one part: what is left when it has more parts than a picture has room for."""
    made = Parts(view, [range(i, i + 1) for i in range(len(view.drawn))])
    made.parts.append(Part(list(range(len(made.units)))))
    return made


def cut(view: GraphView, marks: Sequence[bool] | None = None) -> Parts:
    """The parts of a graph in order. `marks` may set nodes apart (those that a reduction keeps): equal operators are joined only where
    their marks are equal, too.
    """
    made = Parts(view, _units(view, marks) if len(view.drawn) > SMALL else [range(i, i + 1) for i in range(len(view.drawn))])
    sources = _unit_sources(made)
    found = repeats(_tokens(made, marks), sources, _Phase(made, sources).score) if len(view.drawn) > SMALL else []
    room = max(2, OUTER_AT_MOST // (len(found) + 1))
    position = 0
    for repeat in [*found, Repeat(len(made.units), 0, 0)]:
        _add_panels(made, list(range(position, repeat.start)), room)
        if repeat.count:
            _repeated(made, repeat, sources, marks)
        position = repeat.end
    return made


def _key(node: Node) -> Hashable:
    return node.op, node.target


def _units(view: GraphView, marks: Sequence[bool] | None) -> list[range]:
    """Equal nodes that follow one another, of one module or of siblings that hold nothing else, such as `query`, `key` and `value`."""
    inside = Counter(node.modules[:depth] for node in view.drawn for depth in range(1, len(node.modules) + 1))
    found, start = [], 0
    keys = [(_key(node), marks[number] if marks else None) for number, node in enumerate(view.drawn)]
    for _, members in groupby(range(len(keys)), key=keys.__getitem__):
        length = len(list(members))
        modules = Counter(view.drawn[position].modules for position in range(start, start + length))
        siblings = len({module[:-1] for module in modules}) == 1 and all(inside[pair] == count for pair, count in modules.items() if pair)
        if len(modules) == 1 or siblings:
            found.append(range(start, start + length))
        else:
            for _, group in groupby(range(start, start + length), key=lambda position: view.drawn[position].modules):
                same = list(group)
                found.append(range(same[0], same[-1] + 1))
        start += length
    return found


def _unit_sources(made: Parts) -> list[tuple[int, ...]]:
    owner = [number for number, unit in enumerate(made.units) for _ in unit]
    return [
        tuple(sorted({owner[source] for position in unit for source in made.view.sources[position]} - {number}))
        for number, unit in enumerate(made.units)
    ]


def _tokens(made: Parts, marks: Sequence[bool] | None) -> list[Hashable]:
    return [(_key(made.view.drawn[unit[0]]), len(unit), marks[unit[0]] if marks else None) for unit in made.units]


def common_modules(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The modules that all these nodes are in, outermost first."""
    shared: tuple[str, ...] | None = None
    for node in nodes:
        if shared is None:
            shared = node.modules
        else:
            length = next((index for index, (a, b) in enumerate(zip(shared, node.modules, strict=False)) if a != b), len(node.modules))
            shared = shared[: min(length, len(shared))]
        if not shared:
            return ()
    return shared or ()


@dataclass(slots=True)
class _Phase:
    """Where a repeated block begins best: as deep inside one module as can be, then where little crosses, then at its first line."""

    made: Parts
    sources: Sequence[Sequence[int]]

    def score(self, first: int, length: int) -> tuple[float, ...]:
        inside = range(first, first + length)
        depth = len(common_modules(self.made.nodes(inside)))
        behind = self.sources[first + length : first + 2 * length]
        crossing = len({source for sources in behind for source in sources if source in inside})
        line = self.made.view.drawn[self.made.units[first][0]].location
        return (-depth, crossing, (line.line or 0) if line is not None else 0)


def _repeated(made: Parts, repeat: Repeat, sources: Sequence[Sequence[int]], marks: Sequence[bool] | None) -> None:
    """The panel of a repeated block, with what repeats inside it as a panel of its own."""
    offsets = tuple(block * repeat.length for block in range(repeat.count))
    body = list(range(repeat.start, repeat.start + repeat.length))
    outer = _frame(made, body, offsets, len(common_modules(made.nodes(body))))
    inside = [tuple(source - repeat.start for source in sources[unit] if source >= repeat.start) for unit in body]
    tokens = _tokens(made, marks)
    phase = _Phase(made, sources)
    found = repeats([tokens[unit] for unit in body], inside, lambda first, length: phase.score(repeat.start + first, length), least=4)
    position = 0
    for part in [*found, Repeat(len(body), 0, 0)]:
        _modules_inside(made, body[position : part.start], outer, offsets)
        if part.count:
            first = body[part.start : part.start + part.length]
            steps = tuple(block * part.length for block in range(part.count))
            inner = _frame(made, first, steps, len(common_modules(made.nodes(first))), outer)
            made.parts.append(Part(first, outer, inner, tuple(a + b for a in offsets for b in steps)))
        position = part.end


def _frame(made: Parts, units: Sequence[int], offsets: tuple[int, ...], depth: int, within: int | None = None) -> int:
    made.frames.append(Frame(tuple(units), offsets, depth, within))
    return len(made.frames) - 1


def _add_panels(made: Parts, units: list[int], room: int) -> None:
    """The panels of what does not repeat: modules, or functions where no module is known."""
    if not units:
        return
    groups = (_opened if any(node.modules for node in made.nodes(units)) else _functions)(made, units, room)
    for members, depth in groups:
        if depth is None or len(members) < _PANEL_AT_LEAST:
            made.parts.append(Part(members))
        else:
            _modules_inside(made, members, _frame(made, members, (0,), depth), (0,))


def _functions(made: Parts, units: list[int], room: int) -> list[tuple[list[int], int | None]]:
    def place(unit: int) -> Hashable:
        where = made.view.drawn[made.units[unit][0]].location
        return where and (where.file, where.function)

    groups = [(key, list(members)) for key, members in groupby(units, key=place)]
    if len(groups) > room or (len(groups) == 1 and not made.frames and len(units) == len(made.units)):
        return [(units, None)]
    return [(members, 0 if key else None) for key, members in groups]


def _opened(made: Parts, units: list[int], room: int) -> list[tuple[list[int], int | None]]:
    """Groups of units by module: large ones are opened, level by level, while there is room for their children."""
    root = len(common_modules(node for node in made.view.drawn if node.modules))
    groups: list[tuple[list[int], int | None]] = list(_children(made, units, root - 1)) if root else [(units, 0)]
    closed: set[int] = set()
    while len(groups) < room:
        large = [
            (len(members) if depth > root else len(made.units), -at)
            for at, (members, depth) in enumerate(groups)
            if depth is not None and members[0] not in closed
        ]
        size, at = max(large, default=(0, 0))
        members, depth = groups[-at]
        if size == 0 or depth is None or (size <= _LARGE_PANEL and depth > root):
            break
        children = list(_children(made, members, depth))
        if len(children) == 1 and children[0][1] is not None:
            groups[-at] = children[0]
        elif len(groups) + len(children) > room + 1 or not any(deeper is not None for _, deeper in children):
            closed.add(members[0])
        else:
            groups[-at : -at + 1] = children
    deepest = [(members, depth if depth is None else max(depth, len(common_modules(made.nodes(members))))) for members, depth in groups]
    return [(members, depth if depth and depth > root else None) for members, depth in deepest]


def _children(made: Parts, units: Sequence[int], depth: int) -> Iterator[tuple[list[int], int | None]]:
    """Runs of units by their module one level deeper; those that are in none there have no depth."""

    def module(unit: int) -> tuple[str, ...] | None:
        stack = made.view.drawn[made.units[unit][0]].modules
        return stack[: depth + 1] if len(stack) > depth else None

    for key, members in groupby(units, key=module):
        yield list(members), depth + 1 if key else None


def _modules_inside(made: Parts, units: list[int], outer: int, offsets: tuple[int, ...]) -> None:
    """Parts of one outer panel: modules one level deeper than what its units share, and what is between them."""
    if not units:
        return
    depth = max(len(common_modules(made.nodes(units))), made.frames[outer].depth)
    for members, deeper in _children(made, units, depth):
        if deeper is None or len(members) < _PANEL_AT_LEAST or len(members) == len(made.frames[outer].first):
            made.parts.append(Part(members, outer, None, offsets))
        else:
            made.parts.append(Part(members, outer, _frame(made, members, (0,), deeper, outer), offsets))
    _joined(made)


def _joined(made: Parts) -> None:
    """Parts without an inner panel that follow one another in one outer panel become one."""
    joined: list[Part] = []
    for part in made.parts:
        last = joined[-1] if joined else None
        alike = last is not None and (last.outer, last.inner, last.offsets) == (part.outer, None, part.offsets)
        if last is not None and alike and part.outer is not None and part.inner is None:
            last.units = [*last.units, *part.units]
        else:
            joined.append(part)
    made.parts[:] = joined
