"""Why nothing is advised for a cause of recompiles: what each change costs, where that is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from dynadiag.changes.recompile_cause import Cause, Split
from dynadiag.facts.wording import listed, short_place, unique

# Around an optimizer's step torch breaks on purpose: nobody can cure that (2.11 to 2.15).
_TORCHS_OWN_BREAK = re.compile(r"/torch/(?:optim/optimizer|_dynamo/external_utils)\.py$")
_TRAINER = re.compile(r"(?:^|/)(?:lightning|pytorch_lightning)/")
_OF_TENSORS = frozenset({"size", "stride", "rank", "dtype", "device", "requires_grad", "dispatch_keys", "module"})
_EACH = "takes its own compiled version"
_TWO = 2
_NUMBER = re.compile(r"-?\d[\d.e+-]*")


def split_off(cause: Cause) -> Split | None:
    """The break without which the code would have no versions of its own, unless it is one that torch makes on purpose.

    Established: each of its recompiles was entered from code that a break ended at that call, or that runs eager because of a break. What
    the program keeps itself (a count, a list that grows, an argument) would recompile the outer code as well.
    """
    stack = "___stack" in cause.source
    return cause.code.split if is_split(cause) and (stack or (cause.kind in _OF_TENSORS and not cause.code.resumed)) else None


def split_reason(splits: Sequence[Split]) -> str:
    """In one sentence that these breaks are why the code has versions of its own."""
    breaks = unique(
        f"{split.gb_id or 'a graph break'}{'' if split.place is None else f' at {short_place(split.place)}'}" for split in splits
    )
    outer = unique(item.outer for item in splits)
    end, those = ("ends", "that break") if len(breaks) == 1 else ("end", "those breaks")
    graphs = "graph" if len(outer) == 1 else "graphs"
    all_breaks, all_outer = (listed(names, between=" and " if len(names) == _TWO else ", ") for names in (breaks, outer))
    return f"This code has its own versions only because {all_breaks} {end} the {graphs} of {all_outer}: they go with {those}."


def is_split(cause: Cause) -> bool:
    """Whether a break that somebody can end gives the code its own versions."""
    place = None if cause.code.split is None else cause.code.split.place
    return cause.code.split is not None and not (place is not None and _TORCHS_OWN_BREAK.search(place.file.replace("\\", "/")))


def reason(cause: Cause) -> str | None:
    """One sentence about what each further change costs; None where nothing is known."""
    if cause.guard.origin is not None and _TRAINER.search(cause.guard.origin.file.replace("\\", "/")):
        return _LIGHTNING
    if cause.kind in ("value", "type") and "None" in cause.values and len(cause.values) == _TWO:
        return _NONE
    if cause.kind == "value" and cause.source.endswith(".training"):
        return "Training and evaluation are two programs, with one version each."
    if cause.kind == "size":
        return None if {"0", "1"}.isdisjoint(cause.values) else _SMALL
    if cause.kind in ("identity", "function") and cause.guard.origin is not None and cause.guard.origin.file.endswith("optim/optimizer.py"):
        return f"Each optimizer {_EACH}: torch begins the steps of all of them in one function."
    found = _REASONS.get(cause.kind)
    return found(cause) if callable(found) else found


def _value(cause: Cause) -> str | None:
    if cause.dynamic is True:
        return None
    once = len(cause.values) == _TWO and all(map(_NUMBER.fullmatch, cause.values))
    if once and not (cause.code.dynamic_false or "allow_unspec_int_on_nn_module" in (cause.guard.hint or "")):
        return "torch makes a number dynamic once it has changed, unless the code needs to know it."
    if _OF_MODULE.match(cause.source) and cause.values and all(map(_FLOAT.fullmatch, cause.values)):
        return (
            f"Each value of a float that an object holds {_EACH}. A tensor of one element in its place (of a module, a buffer: "
            "`register_buffer`) changes without one."
        )
    return f"Each value that the code needs to know {_EACH}."


_OF_MODULE = re.compile(r"self\.(?!param_groups)\w+(?:\.\w+)*$")
_FLOAT = re.compile(r"-?\d+\.\d[\de+-]*")
_LIGHTNING = (
    "Lightning's own state changes with each step, also because of `self.log`: compile the network inside the LightningModule, not the "
    "LightningModule."
)
_NONE = "With it and without it (None) are two programs, with one version each."
_SMALL = "torch compiles the sizes 0 and 1 separately: one extra version, not one per call."
_REASONS: Mapping[str, str | Callable[[Cause], str | None]] = {
    "value": _value,
    "none": _NONE,
    "zero_one": _SMALL,
    "module": f"Each of several compiled modules {_EACH}: torch enters all of its own classes through one function.",
    "type": f"Each type {_EACH}.",
    "function": f"Each function object {_EACH}.",
    "identity": f"Each object {_EACH}.",
    "length": f"Each number of elements {_EACH}.",
    "keys": f"Each set of keys, in each order, {_EACH}.",
    "key_order": "torch compiles each order of the keys separately.",
    "contains": f"Each set of keys {_EACH}.",
    "attribute": "With the attribute and without it are two programs, with one version each.",
    "requires_grad": "With and without a gradient are two programs, with one version each.",
    "dispatch_keys": "Calls under `torch.inference_mode()`, or with tensors made under it, are a program of their own, with one version.",
    "dtype": f"Each dtype {_EACH}.",
    "device": f"Each device {_EACH}.",
    "stride": f"Each memory layout {_EACH}.",
    "rank": f"Each number of dimensions {_EACH}.",
    "aliasing": "The same tensor twice and two tensors are two programs, with one version each.",
    "condition": "Each side of a condition on a size or number " + _EACH + ".",
    "global_state": f"Each setting of torch (gradients, autocast and the like) {_EACH}.",
    "function_mode": f"Each torch function mode {_EACH}.",
    "invalidated": "The object that a version was compiled for is gone, and so is the version.",
}
