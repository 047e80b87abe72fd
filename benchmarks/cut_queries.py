"""How many questions the search of `minify` asks with and without the graph's edges, on recorded graphs with planted sets of operators.

    python benchmarks/cut_queries.py RUN ...

Planted are: one operator; two to five that read one another in a row (what a fused kernel gets wrong); two operators anywhere; three
anywhere. A graph is wide where its longest chain has at most half of its operators.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import networkx

from dynadiag import trace
from dynadiag.errors import DynadiagError
from dynadiag.graphs.view import as_networkx
from dynadiag.reduce.core import search
from dynadiag.reduce.graphs.cutting import NEAR
from dynadiag.render.recorded_graph import recorded_graph

_SAMPLES = 12


class Counting:
    """Fails where all needed operators are there; counts different questions."""

    def __init__(self, needed: Iterable[int]) -> None:
        self._needed, self.asked = frozenset(needed), set[frozenset[int]]()

    def __call__(self, kept: frozenset[int]) -> bool:
        """Whether it fails with these."""
        self.asked.add(kept)
        return self._needed <= kept


def planted(graph: networkx.DiGraph[int], chance: random.Random) -> Iterable[tuple[str, Sequence[int]]]:
    """Kinds of planted sets with the operators."""
    items = list(graph)
    for _ in range(_SAMPLES):
        yield "one", chance.sample(items, 1)
        row = [chance.choice(items)]
        while len(row) < chance.randint(2, 5) and (users := list(graph.successors(row[-1]))):
            row.append(chance.choice(users))
        if len(row) > 1:
            yield "in a row", row
        yield "two anywhere", chance.sample(items, 2)
        if len(items) > 3:
            yield "three anywhere", chance.sample(items, 3)


def main() -> None:
    """Print the sums."""
    chance = random.Random(0)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for path in map(Path, sys.argv[1:]):
        run = trace.load(path)
        for recorded in run.graphs:
            try:
                nodes = [node for node in recorded_graph(recorded).nodes if node.is_call]
            except DynadiagError:
                continue
            if not 10 <= len(nodes) <= 2000:
                continue
            number = {node.name: at for at, node in enumerate(nodes)}
            graph = networkx.relabel_nodes(as_networkx(nodes), number)
            width = "wide" if 2 * len(networkx.dag_longest_path(graph)) <= len(graph) else "narrow"
            modules = {number[node.name]: node.modules[-1] if node.modules else None for node in nodes}
            for kind, needed in planted(graph, chance):
                entry = sums[width, kind]
                entry[0] += 1

                def ways(first: int, last: int, graph: networkx.DiGraph[int] = graph) -> frozenset[int]:
                    return frozenset(networkx.descendants(graph, first) & networkx.ancestors(graph, last) | {first, last})

                def close(last: int, graph: networkx.DiGraph[int] = graph) -> frozenset[int]:
                    return frozenset(networkx.ego_graph(graph.reverse(copy=False), last, radius=NEAR))

                for at, (near, between) in ((1, (None, None)), (2, (close, ways))):
                    fails = Counting(needed)
                    left = search.cut(range(len(graph)), fails, blocks=modules.__getitem__, near=near, between=between)
                    assert set(search.one_minimal(left, fails)) == set(needed)
                    entry[at] += len(fails.asked)
    for (width, kind), (count, without, with_edges) in sorted(sums.items()):
        print(
            f"| {width} | {kind} | {count} | {without / count:.1f} | {with_edges / count:.1f} | {100 * (with_edges / without - 1):+.0f} % |"
        )


if __name__ == "__main__":
    main()
