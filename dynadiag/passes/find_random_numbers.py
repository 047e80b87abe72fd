"""Random numbers that compiled code does not draw as eager does: NumPy's come from torch, a sample of Python's is drawn once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dynadiag.errors import UnreadableInputError
from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.user_frames import own_frame
from dynadiag.facts.wording import frame_ranks, listed, plural, short_place, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Effect, Happened, OnProcesses
from dynadiag.model.graph import Graph
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Cost, Finding, PassResult
from dynadiag.model.run import Run
from dynadiag.passes.base import Priority
from dynadiag.source.line import parse_line
from dynadiag.trace import read_payload, side_effects
from dynadiag.trace.graph_text import graph_nodes

# `numpy_to_tensor_wrapper` (`torch/_dynamo/utils.py`) names a traced function so; all of `torch/_numpy/random.py`, 2.11 and 2.15.
_DRAWS = re.compile(r"_wrapped_(random_sample|sample|random|randn?|normal|choice|randint|shuffle|uniform)$")
_MOST_GRAPHS, _MOST_EVIDENCE = 200, 10


# Dynamo draws these while it traces, from a copy of the generator, whose state the compiled code then sets (`RandomVariable`,
# `torch/_dynamo/variables/misc.py`, 2.15); `random()`, `randint()`, `randrange()` and `uniform()` it draws anew in each call.
_DRAWN_ONCE = ("sample", "shuffle")
_SETS_STATE = ("seed", "setstate")


def find_random_numbers(run: Run) -> PassResult:
    """One finding for each line that draws so; in a graph without lines, one for the graph."""
    return PassResult(findings=(*_of_numpy(run), *_drawn_once(run)))


def _of_numpy(run: Run) -> Iterator[Finding]:
    found: dict[Location | None, list[tuple[str, Graph]]] = {}
    graphs = [graph for graph in run.graphs if graph.kind == "dynamo" and any(map(_DRAWS.search, graph.ops))]
    for graph in graphs[:_MOST_GRAPHS]:
        for name, place in _draws(graph):
            found.setdefault(place, []).append((name, graph))
    names = fingerprints([Subject(codes.NUMPY_RANDOM, place) for place in found], run)
    yield from (_finding(place, calls, mark, run) for (place, calls), mark in zip(found.items(), names, strict=True))


def _method_called(place: Location, names: Sequence[str]) -> str | None:
    """Which of these methods the line calls first."""
    call = next(parse_line(place.code).methods(*names), None)
    return call.func.attr if call is not None and isinstance(call.func, ast.Attribute) else None


def _drawn_once(run: Run) -> Iterator[Finding]:
    """Lines that draw from a generator of Python's which lives outside of the compiled code, and which that code does not seed."""
    found: dict[Location, dict[str, str]] = {}
    for record in run.mutation_records:
        frame = run.frame(record.frame)
        if record.kind != "side_effects" or frame is None or record.attempt < frame.attempts - 1:
            continue
        try:
            effects = [
                side_effect
                for side_effect in side_effects(record.payload)
                if side_effect.type == "Random" and side_effect.source is not None
            ]
        except UnreadableInputError:
            continue
        for effect in effects:
            sets = any(_method_called(stack[-1], _SETS_STATE) is not None for stack in effect.stacks)
            for stack in () if sets else effect.stacks:
                drawn = _method_called(stack[-1], _DRAWN_ONCE)
                if drawn is not None:
                    found.setdefault(own_frame(stack, run) or stack[-1], {})[frame.id] = drawn
    names = fingerprints([Subject(codes.DRAWN_ONCE, place) for place in found], run)
    for (place, frames), mark in zip(found.items(), names, strict=True):
        called = listed([f"`{name}`" for name in unique(frames.values())])
        yield Finding(
            id="",
            fingerprint=mark,
            code=codes.DRAWN_ONCE,
            severity=codes.severity_of(codes.DRAWN_ONCE),
            title=f"Every call repeats the first draw of Python's {called}",
            where=place,
            clauses=(
                Happened(f"{called} at {short_place(place)} was drawn once, while torch traced the code"),
                Effect(
                    "Each call of that compiled version uses the same draw and sets Python's generator to the state after it; eager draws "
                    "again"
                ),
            ),
            fix=(
                Advice(
                    slug="draw-before-call",
                    text="Draw before the call and pass the result in. torch compiles one version for each order or choice of other things "
                    "than tensors",
                ),
            ),
            cost=Cost(value=float(len(frames)), unit="compilation" if len(frames) == 1 else "compilations", basis="counted"),
            evidence=tuple(frames)[:_MOST_EVIDENCE],
            rank=(float(Priority.RANKS_DIFFER), -float(len(frames))),
        )


def _draws(graph: Graph) -> Iterator[tuple[str, Location | None]]:
    """The functions of NumPy that the graph stands in for, each with its line."""
    try:
        nodes = graph_nodes("" if graph.text is None else read_payload(graph.text))
    except UnreadableInputError:
        nodes = ()
    calls = [(match[1], node.location) for node in nodes if (match := _DRAWS.search(node.target)) is not None]
    yield from calls or ((match[1], None) for op in graph.ops if (match := _DRAWS.search(op)) is not None)


def _finding(place: Location | None, calls: list[tuple[str, Graph]], mark: str, run: Run) -> Finding:
    functions = listed([f"`np.random.{name}`" for name in unique(name for name, _ in calls)])
    graphs = unique(graph.id for _, graph in calls)
    who = frame_ranks(run, (graph.frame for _, graph in calls))
    return Finding(
        id="",
        fingerprint=mark,
        code=codes.NUMPY_RANDOM,
        severity=codes.severity_of(codes.NUMPY_RANDOM),
        title=f"Compiled code draws different random numbers than eager: torch replaces {functions}",
        where=place,
        clauses=(
            Happened(
                f"In {plural(len(graphs), 'graph')} ({listed(graphs)}) torch's own function takes the place of {functions}"
                f"{f' at {short_place(place)}' if place is not None else ''}"
            ),
            Effect(
                "It draws from torch's generator: `np.random.seed` has no effect on the numbers, and NumPy's generator does not advance"
            ),
            *((OnProcesses(who),) if who else ()),
        ),
        fix=(
            Advice(slug="draw-before-call", text="To have NumPy's numbers, draw them before the call and pass them in as tensors"),
            # `NumpyVariable.call_function` (torch/_dynamo/variables/misc.py, 2.11 to 2.15); both versions then draw as eager does.
            Advice(
                slug="numpy-stream",
                text="Without a change to the function, let NumPy draw by itself: each draw is then a graph break",
                after="torch._dynamo.config.use_numpy_random_stream = True",
                options=("torch._dynamo.config.use_numpy_random_stream",),
            ),
        ),
        cost=Cost(value=float(len(calls)), unit="call" if len(calls) == 1 else "calls", basis="counted", remark="nodes of graphs"),
        evidence=graphs,
        rank=(float(Priority.RANKS_DIFFER), -float(len(calls))),
    )
