"""What stands around a break: who calls the function that it is in, which other lines broke, how much of the work the line holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from dynadiag.advice.reads import scalar_calls
from dynadiag.advice.source import dotted, parse_line
from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.user_frames import is_own_file, of_last_run, resume_line
from dynadiag.model.run import Location, Run

_CALLBACK = re.compile(r"hook|callback|processor|criteria", re.IGNORECASE)


def taken_by(own: Location | None, stack: tuple[Location, ...], run: Run) -> str:
    """The function of a library that takes what the user's own function returns, where its line names it a hook, callback or the like."""
    places = [] if own is None else [index for index, one in enumerate(stack) if (one.file, one.line) == (own.file, own.line)]
    caller = stack[places[-1] - 1] if places and places[-1] else None
    if caller is None or is_own_file(caller.file, run) or not _CALLBACK.search(f"{caller.code} {caller.function}"):
        return ""
    called = next((node for node in parse_line(caller.code).nodes if isinstance(node, ast.Call)), None)
    return (dotted(called.func) if called is not None else None) or caller.function or ""


def is_resumed(frames: tuple[str, ...], run: Run) -> bool:
    """Whether all these frames go on after a graph break."""
    found = [run.frame(one) for one in frames]
    return bool(found) and all(one is not None and resume_line(one.name) is not None for one in found)


def hidden_reads(code: str | None, gb_id: str | None) -> bool:
    """Whether the line broke since an operator on it reads a number (`table[i, j] += 1`), which the line itself does not show."""
    if gb_id != "GB0033" or not code:
        return False
    line = parse_line(code)
    shown = any(True for _ in line.methods("equal", "allclose", "tolist")) or any(
        isinstance(node, ast.Call) and (dotted(node.func) or "").startswith(("math.", "np.", "numpy.", "random.")) for node in line.nodes
    )
    return not shown and not scalar_calls(line)


def holds_work(own: Location | None, run: Run) -> bool:
    """Whether at least half of the nodes of all captured graphs belong to frames that the user's line leads to."""
    under, whole = (0, 0) if own is None else (_nodes_under(run).get((own.file, own.line), 0), _all_nodes(run))
    return whole > 0 and 2 * under >= whole


@of_last_run
def _nodes_by_frame(run: Run) -> Mapping[str, int]:
    graphs = {graph.id: graph.nodes or 0 for graph in run.graphs}
    return {frame: sum(graphs[one] for one in kept) for frame, kept in kept_graphs(run).items()}


@of_last_run
def _all_nodes(run: Run) -> int:
    return sum(_nodes_by_frame(run).values())


@of_last_run
def _nodes_under(run: Run) -> Mapping[tuple[str, int | None], int]:
    found: dict[tuple[str, int | None], int] = {}
    for frame in run.frames:
        nodes = _nodes_by_frame(run).get(frame.id, 0)
        for place in {(one.file, one.line) for one in (*frame.stack, *frame.callers)} if nodes else ():
            found[place] = found.get(place, 0) + nodes
    return found
