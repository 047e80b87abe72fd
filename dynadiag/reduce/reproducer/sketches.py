"""`before.svg` and `after.svg`: the captured graph and what is left of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dynadiag.model.run import Node
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.reproducer.graph_outcome import write_text
from dynadiag.render.backends import draw
from dynadiag.render.graph_sketch import graph_sketch
from dynadiag.trace import graph_nodes


def draw_both(before: Candidate, after: Candidate, out: Path) -> tuple[Mapping[str, str | None], str | None]:
    """Write both pictures; gives their names by "before" and "after", None for one that could not be drawn, and then the reason."""
    titles = (f"before: {before.nodes} nodes", f"after: {after.nodes} nodes")
    sketches = [graph_sketch(_nodes(one), title=[title]) for one, title in zip((before, after), titles, strict=True)]
    names: dict[str, str | None] = {}
    why = None
    for name, drawing in zip(("before", "after"), draw(sketches), strict=True):
        if drawing.suffix != ".svg":
            names[name], why = None, "; ".join(drawing.falls)
            continue
        write_text(drawing.text, out / f"{name}.svg")
        names[name] = f"{name}.svg"
    return names, why


def _nodes(candidate: Candidate) -> tuple[Node, ...]:
    """The nodes as the text of the graph shows them, with the modules that the capture knew."""
    module = own_copy(candidate.module)
    text = module.print_readable(print_output=False, include_stride=True, include_device=True)
    modules = {node.name: _modules(node.meta.get("dynadiag_module_stack")) for node in candidate.module.graph.nodes}
    return tuple(replace(node, modules=modules.get(node.name, ())) for node in graph_nodes(text))


def _modules(stack: object) -> tuple[str, ...]:
    return tuple(stack.split(" > ")) if isinstance(stack, str) and stack else ()
