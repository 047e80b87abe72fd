"""The inputs that a repro of torch names: storages saved beside it, read with `weights_only`, or made up when they are not there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from dynadiag.errors import NotRebuildableError, UnreadableInputError
from dynadiag.fx.inputs import contiguous_stride
from dynadiag.json_lines import value_of
from dynadiag.reduce.sources.torch_repro import symbols_of
from dynadiag.trace import sizes

_MOST_BYTES = 64 << 30


_SENSELESS = (
    *(NotRebuildableError, UnpicklingError, KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OSError, EOFError),
)


def stored_inputs(file: Path) -> dict[str, Any]:
    """What `inputs.pt` of a capture holds, made from `arguments.json`: "inputs", "requires_grad", "computed", "homes", and "attributes".

    Missing storages hold normal random numbers (integers: zeros), as torch's own reader makes them (`InputReader.storage`, 2.11).
    Raises UnreadableInputError when a size or a storage makes no sense.
    """
    said = value_of(file.read_text("utf-8"))
    try:
        return _inputs(said)
    except _SENSELESS as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UnreadableInputError(f"the inputs of the repro cannot be created: {line}", exit_code=1) from error


def _inputs(said: Mapping[str, Any]) -> dict[str, Any]:
    symbols = symbols_of(said["arguments"])
    generator = torch.Generator().manual_seed(0)
    storages = [_storage(item, said["folder"], symbols, generator) for item in said["storages"]]
    values = [_value(element, storages, symbols) for element in said["arguments"]]
    homes = [said["storages"][entry["storage"]]["device"] if "storage" in entry else None for entry in said["arguments"]]
    return {
        "inputs": values,
        "requires_grad": [bool(one.get("requires_grad")) for one in said["arguments"]],
        "computed": [bool(one.get("computed")) for one in said["arguments"]],
        "homes": homes,
        "attributes": {one["name"]: _attribute(one, generator) for one in said.get("attributes", ())},
    }


def _attribute(mapping: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """A tensor of the module: its values where torch wrote them, else random ones (integers: zeros), as its script makes them."""
    dtype: torch.dtype = getattr(torch, mapping["dtype"])
    if mapping["values"] is not None:
        value = torch.tensor(mapping["values"], dtype=dtype)
    else:
        count = math.prod(mapping["shape"])
        if not 0 <= count * dtype.itemsize <= _MOST_BYTES:
            raise ValueError(f"a tensor of {count} elements")
        value = torch.randn(count, generator=generator).to(dtype) if dtype.is_floating_point else torch.zeros(count, dtype=dtype)
    return {"value": value.reshape(mapping["shape"]), "home": mapping["device"], "requires_grad": bool(mapping.get("requires_grad"))}


def _storage(
    mapping: Mapping[str, Any], folder: str | None, symbols: Mapping[str, sizes.Number], generator: torch.Generator
) -> torch.UntypedStorage:
    name = mapping["hash"] if isinstance(mapping["hash"], str) and mapping["hash"].isalnum() else None
    if folder is not None and name is not None and (Path(folder) / name).is_file():
        loaded = torch.load(Path(folder) / name, weights_only=True, map_location="cpu")
        # What is saved is an untyped storage, which reading with `weights_only` gives as a typed one of bytes.
        return loaded if isinstance(loaded, torch.UntypedStorage) else loaded._untyped_storage
    dtype: torch.dtype = getattr(torch, mapping["dtype"])
    count = sizes.whole(mapping["bytes"], symbols) // dtype.itemsize
    if not 0 <= count * dtype.itemsize <= _MOST_BYTES:
        raise ValueError(f"a storage of {count} elements")
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(count, generator=generator).to(dtype).untyped_storage()
    return torch.zeros(count, dtype=dtype).untyped_storage()


def _value(mapping: Mapping[str, Any], storages: list[torch.UntypedStorage], symbols: Mapping[str, sizes.Number]) -> Any:
    if "storage" not in mapping:
        return mapping["value"]
    shape = [sizes.whole(text, symbols) for text in mapping["shape"]]
    stride = contiguous_stride(shape) if mapping["stride"] is None else [sizes.whole(text, symbols) for text in mapping["stride"]]
    empty = torch.empty(0, dtype=getattr(torch, mapping["dtype"]))
    made = empty.set_(storages[mapping["storage"]], sizes.whole(mapping["offset"], symbols), tuple(shape), tuple(stride))
    return made.conj() if mapping.get("conj") else made
