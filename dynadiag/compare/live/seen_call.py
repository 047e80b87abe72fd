"""All that a whole call of a compiled callable gave and left, noted in a copy of the process: results, state, gradients, exceptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from dynadiag.capture.process_copy import run_in_new_thread
from dynadiag.capture.reach import RandomStates, State, find_state
from dynadiag.compare.calls import weights
from dynadiag.compare.notes import PLAIN, Entry, Notes
from dynadiag.torch_compat.dynamo.apart import compile_beside
from dynadiag.torch_compat.pytree import tree_leaves

_DEEPEST = 6
_TEXT = 300


@dataclass(frozen=True)
class Before:
    """What is kept of the state before a call: versions of its tensors, its objects by name, which stay alive until the call is over, and
    where the random numbers of torch were.
    """

    versions: Mapping[str, int]
    objects: Mapping[int, tuple[str, Any]]
    drawn: str | None

    @classmethod
    def of(cls, state: State) -> Before:
        """As it is now."""
        versions = {name: held.tensor._version for name, held in state.held.items() if not held.tensor.is_inference()}
        objects: dict[int, tuple[str, Any]] = {}
        for name, slot in state.slots.items():
            if _is_object(value := slot.get()):
                objects.setdefault(id(value), (name, value))
        return cls(versions, objects, RandomStates.now(wake_numpy=False).digests()["torch"])


def _is_object(value: Any) -> bool:
    return not isinstance(value, (*PLAIN, torch.Tensor, type)) and not callable(value)


def note_call(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], before: Before, ended: Callable[[], Any], cap_bytes: int
) -> list[Entry]:
    """What `ended` gives or raises, what the call then left of the state that `function` and its arguments reach, and its gradients.

    Only in a copy of the process: a backward is run.
    """
    notes = Notes(cap_bytes)
    try:
        result = ended()
    except Exception as error:  # noqa: BLE001 - border: the program's own call
        return [("raised", "the call", _raised(error))]
    with torch.no_grad():
        state = find_state(function, args, kwargs)
        entries = [*notes.of_results(result, state), ("output", "its form", _form(result, 0)), *notes.of_state(state, "left")]
        entries = [entry for entry in entries if entry[0] != "lengths"]
        entries += _of_autograd(result, state, before)
        entries += _of_objects(state, before)
    return entries + (_gradients(result, state, notes) if torch.is_grad_enabled() else [])


def _raised(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:_TEXT]


def _form(value: Any, depth: int) -> str:
    """Its types, and in which order its parts come."""
    kind = type(value).__qualname__
    if depth > _DEEPEST or not isinstance(value, tuple | list | dict):
        return "a value" if isinstance(value, (torch.Tensor, *PLAIN)) else kind
    if isinstance(value, dict):
        return f"{kind}({', '.join(f'{key!r:.40}: {_form(item, depth + 1)}' for key, item in value.items())})"
    return f"{kind}({', '.join(_form(item, depth + 1) for item in value)})"


def _of_autograd(result: Any, state: State, before: Before) -> list[Entry]:
    """Whether what requires grad was computed, so that a gradient flows on; and which tensors of before count as written since."""
    computed = [
        ("autograd", f"output {at}", "a leaf without a gradient function" if leaf.is_leaf else "with a gradient function")
        for at, leaf in enumerate(tree_leaves(result))
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    written = [
        ("version", name, "counts as written" if state.held[name].tensor._version != version else "counts as unwritten")
        for name, version in before.versions.items()
        # A batch norm's means change in eager without counting as written; it matters to a backward of what requires grad.
        if name in state.held and state.held[name].tensor.requires_grad
    ]
    return [*computed, *written]


def _of_objects(state: State, before: Before) -> list[Entry]:
    """Which object of before each name means now, and how long it is."""
    found: list[Entry] = []
    for name, slot in state.slots.items():
        value = slot.get()
        if not _is_object(value):
            continue
        known = before.objects.get(id(value))
        found.append(("object", name, f"what {known[0]} was" if known is not None else f"a new {type(value).__qualname__}"))
        if isinstance(value, list | dict | set) or hasattr(value, "maxlen"):
            found.append(("length", name, len(value)))
    return found


def _gradients(result: Any, state: State, notes: Notes) -> list[Entry]:
    """The gradients that reach each tensor of the state from a fixed loss of all results."""
    parts = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.grad_fn is not None]
    parts = [part for part in parts if part.is_floating_point()]
    if not parts:
        return []
    wanted = {name: held.tensor for name, held in state.held.items() if held.tensor.requires_grad}
    for tensor in wanted.values():
        if tensor.is_leaf:
            tensor.grad = None
        else:
            tensor.retain_grad()
    raised: list[Entry] = []

    def run_backward() -> None:
        compile_beside()  # a backward may be compiled only when it is first run
        try:
            torch.autograd.backward(parts, [weights(part).to(part.dtype) for part in parts])
        except Exception as error:  # noqa: BLE001 - border: the program's own backward
            raised.append(("raised", "the backward", _raised(error)))

    run_in_new_thread(run_backward)  # without autocast, outside of which a program's backward runs
    if raised:
        return raised
    return [
        ("backward", name, None if tensor.grad is None else notes.copy("gradient", f"of {name}", tensor.grad))
        for name, tensor in wanted.items()
    ]
