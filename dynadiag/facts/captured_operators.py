"""At which of the user's lines the operators of the recorded graphs stand, each code object counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dynadiag import trace
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.lookups import code_key, kept_graphs
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.run import Run

_NO_OPERATORS = frozenset(("placeholder", "get_attr", "output"))
_MOST_GRAPHS = 200


@of_last_run
def captured_operators(run: Run) -> Mapping[tuple[str, int], int]:
    """The operators by file and line, of the first version of each compiled function; the innermost line may be a library's."""
    codes: set[object] = set()
    wanted: set[str] = set()
    kept = kept_graphs(run)
    for frame in run.frames:
        if frame.id in kept and code_key(frame) not in codes:
            codes.add(code_key(frame))
            wanted.update(kept[frame.id])
    found: Counter[tuple[str, int]] = Counter()
    for graph in [graph for graph in run.graphs if graph.id in wanted][:_MOST_GRAPHS]:
        try:
            text = "" if graph.text is None else trace.read_payload(graph.text)
        except UnreadableInputError:
            continue
        for node in trace.graph_nodes(text):
            if node.op not in _NO_OPERATORS and node.location is not None and node.location.line is not None:
                found[node.location.file, node.location.line] += 1
    return found
