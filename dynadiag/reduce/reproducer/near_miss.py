"""The closest graph that does not fail, beside the one that does: what tells them apart, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dynadiag.reduce.graphs.candidate import CALLS, Candidate, graphs_in
from dynadiag.reduce.graphs.inputs import Input, TensorInput


def difference(failing: Candidate, passing: Candidate) -> str:
    """How the passing graph differs from the failing one, such as "it lacks relu" or "input 0 has the shape (1,) instead of (2,)"."""
    found = list(_differences(failing, passing))
    return "; ".join(found) if found else "it differs in how its values are connected"


def _differences(failing: Candidate, passing: Candidate) -> Iterator[str]:
    ours, theirs = Counter(_operators(failing)), Counter(_operators(passing))
    lacks, has = sorted((ours - theirs).elements()), sorted((theirs - ours).elements())
    if lacks and has:
        yield f"it has {_listed(has)} instead of {_listed(lacks)}"
    elif lacks or has:
        yield f"it lacks {_listed(lacks)}" if lacks else f"it also has {_listed(has)}"
    elif (changed := _changed_arguments(failing, passing)) is not None:
        yield changed
    if not lacks and not has and (item := _results(failing)) != (other := _results(passing)):
        yield f"it returns {_counted(other, 'value')} instead of {item}"
    if len(failing.calls) != len(passing.calls):
        yield f"it is called {_counted(len(passing.calls), 'time')} instead of {len(failing.calls)}"
    elif len(failing.inputs) == len(passing.inputs):
        for number, (one_call, other_call) in enumerate(zip(failing.calls, passing.calls, strict=True)):
            where = f" of call {number + 1}" if len(failing.calls) > 1 else ""
            for position, (one_input, other_input) in enumerate(zip(one_call.inputs, other_call.inputs, strict=True)):
                yield from (f"input {position}{where} {text}" for text in _input(one_input, other_input))
    elif not lacks and not has:
        yield f"it has {_counted(len(passing.inputs), 'input')} instead of {len(failing.inputs)}"
    gone = [name for name, _ in failing.configs if name not in dict(passing.configs)]
    if gone:
        yield f"it does not set {_listed(gone)}"


def _operators(candidate: Candidate) -> list[str]:
    nodes = [node for module in graphs_in(candidate.module) for node in module.graph.nodes]
    return [_name(node.target) for node in nodes if node.op in CALLS]


def _name(target: object) -> str:
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _changed_arguments(failing: Candidate, passing: Candidate) -> str | None:
    """The first operator that is called in another way; None when all are called alike."""
    ones, others = ([node for node in candidate.module.graph.nodes if node.op in CALLS] for candidate in (failing, passing))
    for item, other in zip(ones, others, strict=False):
        if (repr(item.args), repr(item.kwargs)) != (repr(other.args), repr(other.kwargs)):
            return f"{_name(other.target)} is called with {_call(other)} instead of {_call(item)}"
    return None


def _call(node: object) -> str:
    args, kwargs = getattr(node, "args", ()), getattr(node, "kwargs", {})
    text = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
    return f"({text})" if len(text) <= 120 else f"({text[:117]}...)"


def _results(candidate: Candidate) -> int:
    (output,) = [node for node in candidate.module.graph.nodes if node.op == "output"] or [None]
    result = output.args[0] if output is not None else ()
    return len(result) if isinstance(result, tuple | list) else 1


def _input(tensor_input: Input, other: Input) -> Iterator[str]:
    if not isinstance(tensor_input, TensorInput) or not isinstance(other, TensorInput):
        if tensor_input.key() != other.key():
            yield "has a different value"
        return
    for what in ("shape", "stride", "dtype", "device"):
        before, after = getattr(tensor_input, what), getattr(other, what)
        if before != after and not (what == "stride" and tensor_input.shape != other.shape):
            yield f"has the {what} {after} instead of {before}"
    if tensor_input.requires_grad and other.requires_grad and tensor_input.leaf != other.leaf:
        yield "is a leaf" if other.leaf else "is computed from another tensor"
    if tensor_input.requires_grad != other.requires_grad:
        yield "requires grad" if other.requires_grad else "does not require grad"
    if (tensor_input.fill, tensor_input.high) != (other.fill, other.high) or (
        tensor_input.fill == "data" and tensor_input.token != other.token
    ):
        yield (
            f"contains {_FILLS[other.fill]} instead of {_FILLS[tensor_input.fill]}"
            if tensor_input.fill != other.fill
            else "contains different values"
        )


_FILLS = {"data": "the real values", "random": "random numbers", "ones": "ones", "zeros": "zeros"}
