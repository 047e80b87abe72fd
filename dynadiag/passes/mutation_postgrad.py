"""Writes that inductor did not do in place, seen in its post-grad graph: what torch's counters miss for `index_put` and scatter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from dynadiag.facts.graph_writes import PRIVATE_OPERATOR, place
from dynadiag.model import codes
from dynadiag.model.graph import Node
from dynadiag.model.run import Frame, Run
from dynadiag.passes.mutation_errors import made_inside
from dynadiag.passes.mutation_facts import Effect, Fact, site_of, size_text
from dynadiag.passes.mutation_graphs import GraphView, read_nodes
from dynadiag.source.line import parse_line
from dynadiag.trace import argument_names

_INFERENCE = re.compile(r"^arg(\d{1,6})_1$")
_TRAINING = re.compile(r"^primals_(\d{1,6})$")
_SCATTERS = re.compile(
    r"\.(?:index_put|scatter|scatter_add|scatter_reduce|select_scatter|slice_scatter|as_strided_scatter|diagonal_scatter|index_copy|index_add|"
    r"masked_scatter|index_fill)\."
)
_VIEW = re.compile(r"\.(?:as_strided|view|reshape|select|slice|permute|t|transpose|squeeze|unsqueeze|expand|alias)\.")
_COPY = re.compile(r"\.copy_\.")
_CLONE = re.compile(r"\.clone\.")
_INPLACE = re.compile(r"_\.\w+$")


def whole_copies(view: GraphView) -> frozenset[int]:
    """The inputs into which inductor's graph copies the result of a scatter that was not done in place, by number.

    Every written input ends in a `copy_` there. One whose value is computed elementwise costs nothing: inductor stores the value where it
    belongs (`MutationLayoutSHOULDREMOVE.realize_into` in torch/_inductor/ir.py, 2.11 to 2.15), so those are not among them.
    """
    found: set[int] = set()
    for graph in view.post_grad:
        nodes = read_nodes(graph, _COPY.search, _SCATTERS.search)
        by_name = {node.name: node for node in nodes}
        for node in nodes:
            if not _COPY.search(node.target) or len(node.args) < 2:
                continue
            index = _index(node.args[0])
            if index is not None and _from_scatter(node.args[1], by_name):
                found.add(index)
    return frozenset(found)


def _index(name: str) -> int | None:
    inference, training = _INFERENCE.match(name), _TRAINING.match(name)
    return int(inference[1]) if inference else int(training[1]) - 1 if training else None


def _from_scatter(name: str, nodes: Mapping[str, Node], depth: int = 8) -> bool:
    node = nodes.get(name)
    while node is not None and depth:
        if _SCATTERS.search(node.target):
            return True
        if not _VIEW.search(node.target) or not node.args:
            return False
        node, depth = nodes.get(node.args[0]), depth - 1
    return False


def copy_effect(size: int | None) -> Effect:
    """What the `copy_` after a scatter costs: the whole input."""
    detail = f"inductor could not do the write in place: it makes a changed copy of the whole input and copies {size_text(size)} back"
    return Effect("extra_copy", "derived", detail)


def missed_reinplacing(view: GraphView, run: Run) -> Iterator[Fact]:
    """Tensors made in the graph that inductor clones because an op writes them while their old value is still needed."""
    for graph in view.post_grad:
        nodes = read_nodes(graph, _CLONE.search, _writes)
        users = _users(nodes)
        for node in nodes:
            if _CLONE.search(node.target) and not _is_written_clone(node):
                writer = _writer(node.name, users)
                if writer is not None:
                    yield _missed(view.frame, view, node, writer, run)


def _is_written_clone(node: Node) -> bool:
    """Whether the user's own line asks for the copy: `x.clone()`."""
    return node.location is not None and next(parse_line(node.location.code).methods("clone"), None) is not None


def _users(nodes: Sequence[Node]) -> Mapping[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in nodes:
        for name in argument_names(node.args):
            found.setdefault(name, []).append(node)
    return found


def _writes(op: str) -> bool:
    return PRIVATE_OPERATOR.match(op) is not None or _INPLACE.search(op) is not None


def _writer(name: str, users: Mapping[str, list[Node]], depth: int = 4) -> Node | None:
    """The op that writes the clone, also through a view of it."""
    for user in users.get(name, ()):
        if _writes(user.target):
            return user
        if depth and _VIEW.search(user.target) and (found := _writer(user.name, users, depth - 1)) is not None:
            return found
    return None


def _missed(frame: Frame, view: GraphView, clone: Node, writer: Node, run: Run) -> Fact:
    detail = f"`{writer.target}` writes a tensor whose old value is still needed, so inductor keeps a copy of it (re-inplacing failed)"
    stack = place(writer) or place(clone)
    site = site_of(frame, stack, writer.target, run)
    return Fact(
        code=codes.MISSED_IN_PLACE,
        frame=frame,
        graph=view.graph.id,
        input=made_inside(site, clone, run),
        kind="data",
        where="in_graph",
        effects=(Effect("extra_copy", "derived", detail),),
        sites=(site,),
        bytes_written_back=0,
        unknown={
            "static": "the tensor is made in the graph",
            "bytes_touched": "the post-grad graph was read, not run",
            "no_grad": "not recorded",
        },
    )
