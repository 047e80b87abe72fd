"""What differs between two captured graphs: numbers in a call, and calls that came, went or changed, each at its line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from dynadiag.diff.compare import source_line
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.lookups import kept_graphs
from dynadiag.graphs.structure import structure_of
from dynadiag.model.graph import Graph, Node
from dynadiag.model.run import Frame, Run
from dynadiag.start.result import Cause
from dynadiag.trace import graph_nodes, read_payload

_LONGEST_TEXT_BYTES = 8 << 20
_MOST_COMPARED = 3000
_MOST_CAUSES = 4
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)(?![\w.])|\b(?:True|False|None)\b")
_LAYOUT = frozenset({"placeholder", "output", "get_attr"})
DYNAMO = ("dynamo",)
AOT = ("aot_inference", "aot_forward", "aot_joint", "aot_backward")


def graph_causes(old: Run, was: Frame, new: Run, now: Frame, kinds: Sequence[str]) -> list[Cause]:
    """The first differences between the graphs of two compilations, of one of these kinds; () where they do the same or cannot be read."""
    before, after = _nodes(old, was, kinds), _nodes(new, now, kinds)
    found: list[Cause] = []
    for one, other in zip(before, after, strict=False):
        for cause in _changes(one, other, new, now):
            if cause not in found:
                found.append(cause)
            if len(found) >= _MOST_CAUSES:
                return found
    return found


def input_name_causes(old: Run, was: Frame, new: Run, now: Frame) -> list[Cause]:
    """Graphs that do the same with inputs of other names or in another order: AOTAutograd's key has the source of each input."""
    for one, other in zip(_nodes(old, was, DYNAMO), _nodes(new, now, DYNAMO), strict=False):
        names = [_input_names(nodes) for nodes in (one, other)]
        if names[0] != names[1]:
            at = next((at for at, pair in enumerate(zip(*names, strict=False)) if pair[0] != pair[1]), min(map(len, names)))
            shown = [", ".join(listed[at : at + 3]) or "none" for listed in names]
            wanted = names[1][at] if at < len(names[1]) else None
            first = next((node for node in other if node.location is not None and wanted in node.args), None)
            place = None if first is None else source_line(first.location, new)
            what = "the order of the graph's inputs" if sorted(names[0]) == sorted(names[1]) else "the names of the graph's inputs"
            return [Cause(kind="operators", what=what, old=shown[0], new=shown[1], place=place)]
    return []


def _input_names(nodes: Sequence[Node]) -> list[str]:
    return [node.name for node in nodes if node.op == "placeholder"]


def _nodes(run: Run, frame: Frame, kinds: Sequence[str]) -> list[tuple[Node, ...]]:
    if kinds == DYNAMO:
        kept = frozenset(kept_graphs(run).get(frame.id, ()))
        graphs: list[Graph] = [graph for graph in run.graphs if graph.id in kept]
    else:
        graphs = [graph for graph in run.graphs if graph.frame == frame.id and graph.kind in kinds and graph.attempt == frame.attempts - 1]
        graphs.sort(key=lambda graph: kinds.index(graph.kind))
    found = []
    for graph in graphs:
        if graph.text is None or graph.text.length > _LONGEST_TEXT_BYTES:
            continue
        try:
            found.append(graph_nodes(read_payload(graph.text)))
        except UnreadableInputError:
            continue
    return found


def _changes(old: Sequence[Node], new: Sequence[Node], run: Run, frame: Frame) -> Iterator[Cause]:
    """The differences of two graphs in the order of the new one."""
    was, now = structure_of(old), structure_of(new)
    if was is None or now is None:
        return
    left, right = list(was.labels), list(now.labels)
    begin = next((at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other), min(len(left), len(right)))
    end = 0
    while end < min(len(left), len(right)) - begin and left[-1 - end] == right[-1 - end]:
        end += 1
    left, right = left[begin : len(left) - end], right[begin : len(right) - end]
    if not left and not right:
        if _input_names(old) == _input_names(new):  # else they read the same inputs, which stand in another order
            yield from _rewired(was.reads, now.reads, new, run)
        return
    if Counter(map(_head, left)) == Counter(map(_head, right)) and list(map(_head, left)) != list(map(_head, right)):
        yield _operator_cause(old[begin : begin + len(left)], new[begin : begin + len(right)], run, (), "the order of the traced operators")
        return
    if len(left) != len(right) and max(len(left), len(right)) > _MOST_COMPARED:
        blocks = [("replace", 0, len(left), 0, len(right))]
    elif len(left) == len(right) and all(_head(one) == _head(other) for one, other in zip(left, right, strict=True)):
        blocks = [("replace", at, at + 1, at, at + 1) for at in range(len(left)) if left[at] != right[at]]
    else:
        blocks = [block for block in SequenceMatcher(None, left, right, autojunk=False).get_opcodes() if block[0] != "equal"]
    for _, a, b, c, d in blocks:
        olds, news = old[begin + a : begin + b], new[begin + c : begin + d]
        yield from _block(olds, news, left[a:b], right[c:d], run, frame, new[begin + d : begin + d + 1])


def _head(label: str) -> str:
    return label.partition("(")[0]


def _block(
    old: Sequence[Node], new: Sequence[Node], left: Sequence[str], right: Sequence[str], run: Run, frame: Frame, after: Sequence[Node]
) -> Iterator[Cause]:
    if len(old) == len(new):
        for one, other, was, now in zip(old, new, left, right, strict=True):
            if was == now:
                continue
            if _head(was) == _head(now) and (changed := _numbers(was, now)):
                for before, value in changed:
                    yield _number_cause(before, value, other, run, frame)
            else:
                yield _operator_cause((one,), (other,), run, after)
        return
    yield _operator_cause(old, new, run, after)


def _numbers(was: str, now: str) -> list[tuple[str, str]]:
    """The constants that differ where two calls differ in nothing else."""
    if _NUMBER.sub("#", was) != _NUMBER.sub("#", now):
        return []
    pairs = zip(_NUMBER.findall(was), _NUMBER.findall(now), strict=True)
    return [(before, value) for before, value in pairs if before != value]


def _number_cause(old: str, new: str, node: Node, run: Run, frame: Frame) -> Cause:
    """Also by the name that a guard of the frame shows for it."""
    guards = () if frame.guards is None else (*frame.guards.watched, *frame.guards.examples)
    compared = re.compile(rf"==\s*{re.escape(new)}(?![\w.])")
    names = {readable(guard.source) for guard in guards if guard.source and compared.search(guard.code)}
    name = next(iter(names)) if len(names) == 1 else None
    what = f"the number `{name}`" if name else "a number in the code"
    return Cause(kind="constant", what=what, old=old, new=new, place=source_line(node.location, run), cure=_PASS_TENSOR, name=name)


_PASS_TENSOR = "Where the number changes from start to start, pass it as a tensor: it is then no part of the compiled code"


def _operator_cause(old: Sequence[Node], new: Sequence[Node], run: Run, after: Sequence[Node], what: str = "the traced operators") -> Cause:
    """Calls that differ, at the line of the first new one; where calls only went, at that of the call that follows."""
    went, came = _names(old), _names(new)
    inputs = [node.name for node in new if node.op == "placeholder"] if not came and not went else []
    node = next((item for item in (*new, *after, *old) if item.location is not None), None)
    what = f"the graph has other inputs ({', '.join(inputs[:3])})" if inputs else what
    if not came and not went and not inputs:
        what = "what the graph gives back"
    place = None if node is None else source_line(node.location, run)
    return Cause(kind="operators", what=what, old=went or None, new=came or None, place=place)


def _names(nodes: Sequence[Node]) -> str:
    names = [node.target.removeprefix("torch.ops.") for node in nodes if node.op not in _LAYOUT]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _rewired(was: Sequence[Sequence[int]], now: Sequence[Sequence[int]], new: Sequence[Node], run: Run) -> Iterator[Cause]:
    """Equal calls that read other values."""
    at = next((at for at, (one, other) in enumerate(zip(was, now, strict=True)) if tuple(one) != tuple(other)), None)
    if at is not None:
        node = new[at]
        yield Cause(kind="operators", what=f"what `{node.target}` reads", place=source_line(node.location, run))
