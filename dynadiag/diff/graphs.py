"""Which graphs of two runs are the same, and which operators came and went in the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dynadiag.diff.result import GraphChange
from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.user_frames import project_path, source_function
from dynadiag.graphs.structure import Structure, is_same, structure_of
from dynadiag.model.graph import Graph
from dynadiag.model.report import Report
from dynadiag.trace import graph_nodes, read_payload

_LONGEST_TEXT_BYTES = 8 << 20
_MOST_PAIRS = 10_000
"""Beyond as many, what is left of a function is paired in order."""
_NO_OPERATORS = frozenset({"placeholder", "output", "get_attr"})


@dataclass(frozen=True)
class _One:
    graph: Graph
    function: str
    structure: Structure | None


def compared_graphs(old: Report, new: Report) -> tuple[int, list[GraphChange]]:
    """How many of Dynamo's graphs are the same in both runs, and what is not.

    Equal graphs of one function are paired first, then equal graphs of different functions, then what is left of one function, most alike
    first.
    """
    left = [_graphs(old), _graphs(new)]
    same = _paired(left, lambda a, b: a.function == b.function and _equal(a, b))
    moved = _paired(left, _equal)
    changed = list(_most_alike(left))
    changes = [_change("moved", a, b) for a, b in moved]
    changes += [_change("changed", a, b) for a, b in changed]
    changes += [_change("lost", item, None) for item in left[0]] + [_change("gained", None, element) for element in left[1]]
    return len(same), sorted(changes, key=lambda graph_change: (graph_change.function, graph_change.old or "", graph_change.new or ""))


def _graphs(report: Report) -> list[_One]:
    """The graphs that compiled frames run, with the function that a person wrote."""
    kept = kept_graphs(report.run)
    known = {graph.id: graph for graph in report.run.graphs}
    found = []
    for frame in report.run.frames:
        name = source_function(frame.name) or "an unnamed function"
        function = f"{name} ({project_path(frame.file, report.run)})" if frame.file is not None else name
        found += [_One(known[text], function, _structure(known[text])) for text in kept.get(frame.id, ())]
    return found


def _structure(graph: Graph) -> Structure | None:
    if graph.text is None or graph.text.length > _LONGEST_TEXT_BYTES:
        return None
    try:
        nodes = graph_nodes(read_payload(graph.text))
    except OSError:
        return None
    return structure_of(nodes) if nodes else None


def _equal(item: _One, other: _One) -> bool:
    """Exactly, where both texts are there; else by their operators."""
    if item.structure is None or other.structure is None:
        return item.structure is other.structure and item.graph.ops == other.graph.ops and item.graph.nodes == other.graph.nodes
    return is_same(item.structure, other.structure)


def _paired(left: list[list[_One]], fits: Callable[[_One, _One], bool]) -> list[tuple[_One, _One]]:
    """Pairs of what fits, in the order of the old run; they are taken out of what is left."""
    pairs = []
    by_digest: dict[object, list[_One]] = {}
    for item in left[1]:
        by_digest.setdefault(_key(item), []).append(item)
    for element in left[0]:
        candidates = by_digest.get(_key(element), [])
        found = next((other for other in candidates if fits(element, other)), None)
        if found is not None:
            candidates.remove(found)
            pairs.append((element, found))
    taken = {id(entry) for pair in pairs for entry in pair}
    for side in left:
        side[:] = [one for one in side if id(one) not in taken]
    return pairs


def _key(item: _One) -> object:
    return frozenset(item.graph.ops.items()) if item.structure is None else item.structure.digest


def _most_alike(left: list[list[_One]]) -> Iterator[tuple[_One, _One]]:
    """What is left of each function in both runs, paired by how many operators are in both."""
    for function in dict.fromkeys(item.function for item in left[0]):
        olds, news = ([element for element in side if element.function == function] for side in left)
        few = len(olds) * len(news) <= _MOST_PAIRS
        pairs = ((n, m) for n in range(len(olds)) for m in range(len(news))) if few else ((n, n) for n in range(min(len(olds), len(news))))
        ranked = sorted((-_shared(olds[n], news[m]) if few else 0, n, m) for n, m in pairs)
        used_old: set[int] = set()
        used_new: set[int] = set()
        for _, n, m in ranked:
            if n not in used_old and m not in used_new:
                used_old.add(n)
                used_new.add(m)
                left[0].remove(olds[n])
                left[1].remove(news[m])
                yield olds[n], news[m]


def _shared(item: _One, other: _One) -> int:
    return sum((Counter(item.graph.ops) & Counter(other.graph.ops)).values())


def _change(what: str, old: _One | None, new: _One | None) -> GraphChange:
    before, after = (Counter({} if item is None else _operators(item.graph)) for item in (old, new))
    named: Sequence[_One] = [element for element in (old, new) if element is not None]
    return GraphChange(
        what=what,  # type: ignore[arg-type]
        function=named[0].function,
        old=None if old is None else old.graph.id,
        new=None if new is None else new.graph.id,
        came=dict(sorted((after - before).items())),
        went=dict(sorted((before - after).items())),
        moved_to=named[-1].function if what == "moved" else None,
        calls=_calls(old, new) if what == "changed" and before == after else None,
    )


def _calls(old: _One | None, new: _One | None) -> tuple[str, str] | None:
    """The first calls of one operator that the other graph does not have, as `mul(%, 2.0)`."""
    if old is None or new is None or old.structure is None or new.structure is None:
        return None
    was, now = Counter(old.structure.labels), Counter(new.structure.labels)
    came = {name.partition("(")[0]: name for name in reversed(list(now - was))}
    pairs = ((text, came.get(text.partition("(")[0])) for text in was - now)
    return next(((gone.partition(" ")[2], new.partition(" ")[2]) for gone, new in pairs if new is not None and " " in gone), None)


def _operators(graph: Graph) -> dict[str, int]:
    return {name: count for name, count in graph.ops.items() if name not in _NO_OPERATORS}
