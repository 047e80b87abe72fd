"""The inputs of calls in files, as `torch.save` takes them: it refuses tensors of several dtypes in one memory.

Such tensors are kept as the bytes of their memory and how they lie in it (torch/serialization.py `persistent_id`, 2.11 to 2.15).
`torch` is a parameter: this is imported where torch is not yet.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynadiag.files import extended, new_file

_BYTES = "dynadiag_bytes"


def to_saved(torch: Any, value: Any) -> Any:
    """The value, in which tuples, lists and dicts may stand, with such tensors replaced."""
    dtypes: dict[int, set[Any]] = {}
    for tensor in _tensors(torch, value):
        dtypes.setdefault(_address_of(tensor), set()).add(tensor.dtype)
    mixed = {place for place, found in dtypes.items() if place and len(found) > 1}
    return _mapped(value, lambda item: _as_bytes(torch, item) if isinstance(item, torch.Tensor) and _address_of(item) in mixed else item)


def from_saved(torch: Any, value: Any) -> Any:
    """What `to_saved` was given; tensors in one memory lie in one memory again."""
    if isinstance(value, dict) and _BYTES in value:
        return _from_bytes(torch, value)
    if isinstance(value, dict):
        return {name: from_saved(torch, item) for name, item in value.items()}
    return type(value)(from_saved(torch, element) for element in value) if type(value) in (tuple, list) else value


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    return type(value)(_mapped(element, change) for element in value) if type(value) in (tuple, list) else change(value)


def _tensors(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ():
        yield from _tensors(torch, item)


def _address_of(tensor: Any) -> int:
    """0 where it has no memory that others could share."""
    with contextlib.suppress(RuntimeError, NotImplementedError):
        return 0 if tensor.device.type == "meta" else int(tensor.untyped_storage().data_ptr())
    return 0


def _as_bytes(torch: Any, tensor: Any) -> dict[str, Any]:
    return {
        _BYTES: torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()),
        "dtype": tensor.dtype,
        "layout": (int(tensor.storage_offset()), tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))),
        "conj": bool(tensor.is_conj()),
        "neg": bool(tensor.is_neg()),
    }


def _from_bytes(torch: Any, saved: Mapping[str, Any]) -> Any:
    memory = saved[_BYTES]
    made = torch.empty(0, dtype=saved["dtype"], device=memory.device).set_(memory.untyped_storage(), *saved["layout"])
    made = made.conj() if saved["conj"] else made
    return torch._neg_view(made) if saved["neg"] else made


MOST_KINDS = 4
"""How many kinds of calls of one graph are kept: more would fill the disk with what seldom matters."""


class EarlierCalls:
    """Writes `region-<pid>-<n>/<order>.pt` for the first call of each kind of each graph in `only` (None: of all graphs), and says in
    `graphs-<pid>.jsonl` which graph belongs to which region.
    """

    def __init__(self, directory: str, *, only: Sequence[int] | None) -> None:
        self._directory = directory
        self._only = None if only is None else frozenset(only)
        self._order = itertools.count()
        self._codes: list[Any] = []
        self._regions: dict[int, int] = {}
        self._names: dict[int, Mapping[str, Any]] = {}
        self._kinds: dict[int, set[Any]] = {}

    def compiling(self, number: int, graph: Any, module: Any) -> None:
        """Note the region of a graph (an OutputGraph, 2.11 to 2.15) and what its inputs are called."""
        code = graph.root_tx.f_code if hasattr(graph, "root_tx") else None
        region = next((at for at, known in enumerate(self._codes) if known is code), len(self._codes)) if code is not None else -1
        if code is not None and region == len(self._codes):
            self._codes.append(code)
        self._regions[number] = region
        self._names[number] = _names(module)
        path = os.path.join(self._directory, f"graphs-{os.getpid()}.jsonl")  # noqa: PTH118
        with os.fdopen(extended(path), "a", encoding="utf-8") as file:
            file.write(json.dumps({"graph": number, "region": region}) + "\n")

    def facts(self, number: int, call: int) -> dict[str, Any]:
        """What is kept with the inputs of a call: its place in the order of all, its grad mode, the names of the inputs."""
        grad = bool(sys.modules["torch"].is_grad_enabled())
        here: dict[str, Any] = {"order": next(self._order), "graph": number, "call": call, "grad": grad}
        here["region"] = self._folder(self._regions.get(number, -1))
        return here | dict(self._names.get(number, {}))

    def _folder(self, region: int) -> str:
        """Its name: processes count their regions each for itself."""
        return f"region-{os.getpid()}-{region}"

    def keep(self, number: int, call: int, values: Sequence[Any], *, just_before: bool) -> None:
        """Write the inputs of a call of a new kind, and of the one just before the captured call."""
        region = self._regions.get(number, -1)
        if region < 0 or (self._only is not None and number not in self._only):
            return
        known = self._kinds.setdefault(number, set())
        kind = kind_of(values)
        if just_before or (kind not in known and len(known) < MOST_KINDS):
            facts = self.facts(number, call)
            folder = os.path.join(self._directory, facts["region"])  # noqa: PTH118
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            save_values(os.path.join(folder, f"{facts['order']:06}.pt"), values, facts)  # noqa: PTH118
        known.add(kind)


def kind_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """What a compiler may have decided by: layouts, dtypes, gradients, which tensors share memory and where, numbers; not the data."""
    torch = sys.modules["torch"]
    memories: dict[int, int] = {}
    return (bool(torch.is_grad_enabled()), *(_kind(torch, value, memories) for value in values))


def _kind(torch: Any, value: Any, memories: dict[int, int]) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__, repr(value)[:100]
    with contextlib.suppress(RuntimeError, NotImplementedError):
        memory = memories.setdefault(value.untyped_storage().data_ptr(), len(memories))
        layout = tuple(map(int, value.shape)), tuple(map(int, value.stride())), int(value.storage_offset())
        return (*layout, str(value.dtype), str(value.device), bool(value.requires_grad), memory)
    return type(value).__name__, str(value.dtype)


def _names(module: Any) -> dict[str, Any]:
    """The names of the inputs, and for each that is a symbolic size where it stands: `[name, dimension]` of a tensor among them."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    symbols = {}
    for node in inputs:
        value = node.meta.get("example_value")
        place = next(_places(inputs, value), None) if hasattr(value, "node") else None
        if place is not None:
            symbols[str(node.target)] = place
    return {"names": [str(node.target) for node in inputs], "symbols": symbols}


def _places(inputs: Sequence[Any], symbol: Any) -> Iterator[list[Any]]:
    for node in inputs:
        for dimension, size in enumerate(getattr(node.meta.get("example_value"), "shape", ())):
            if hasattr(size, "node") and size.node.expr == symbol.node.expr:
                yield [str(node.target), dimension]


def save_values(target: str, values: Sequence[Any], facts: Mapping[str, Any]) -> None:
    """Whole or not at all: the file is complete when it has its name."""
    torch = sys.modules["torch"]
    inputs = to_saved(torch, [_plain_value(torch, value) for value in values])
    wanted = [isinstance(value, torch.Tensor) and bool(value.requires_grad) for value in values]
    homes = [str(value.device) if isinstance(value, torch.Tensor) else None for value in values]
    computed = [isinstance(value, torch.Tensor) and not value.is_leaf for value in values]
    with torch.no_grad(), new_file(*os.path.split(target)) as stream:
        torch.save({"inputs": inputs, "requires_grad": wanted, "homes": homes, "computed": computed, **facts}, stream)


def _plain_value(torch: Any, value: Any) -> Any:
    """What `weights_only` loading reads again."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value.node.hint
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
