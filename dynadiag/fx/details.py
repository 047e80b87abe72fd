"""What our recorder knows of a live graph beyond its text (`dynadiag_graph`): real sizes, sources, shared storage. Trusts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynadiag.fx.inputs import InputSpec

_PLAIN_CLASSES = ("Tensor", "Parameter", "Buffer", "UninitializedParameter", "FakeTensor", "FunctionalTensor")


def detail_specs(details: Mapping[str, Any] | None) -> dict[str, InputSpec]:
    """Specs by placeholder name, for the inputs of which the record says enough. Records of another form give nothing."""
    return _specs(details, "inputs")


def attribute_specs(details: Mapping[str, Any] | None) -> dict[str, InputSpec]:
    """Specs by attribute name, of the parameters and buffers that the graph holds itself."""
    return _specs(details, "attributes")


def _specs(details: Mapping[str, Any] | None, key: str) -> dict[str, InputSpec]:
    specs: dict[str, InputSpec] = {}
    entries = details.get(key) if isinstance(details, Mapping) else None
    for entry in flat_entries(entries):
        if isinstance(entry.get("name"), str):
            spec = _spec(entry)
            if spec is not None:
                specs[spec.name] = spec
    return specs


def flat_entries(entries: object) -> Iterator[Mapping[str, Any]]:
    """The entries, each list input replaced by its items, as AOTAutograd counts inputs."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            items = entry.get("items")
            yield from [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else [entry]


def stack_traces(details: Mapping[str, Any] | None) -> dict[str, str]:
    """Stack trace by node name, as recorded."""
    return {name: text for name, (_, text) in _node_strings(details).items() if text}


def module_stacks(details: Mapping[str, Any] | None) -> dict[str, str]:
    """Module stack by node name, as recorded text."""
    return {name: text for name, (text, _) in _node_strings(details).items() if text}


def operator_schemas(details: Mapping[str, Any] | None) -> dict[str, str]:
    """Schema by operator name, for the operators that torch does not bring."""
    found = details.get("operators") if isinstance(details, Mapping) else None
    return (
        {name: text for name, text in found.items() if isinstance(name, str) and isinstance(text, str)}
        if isinstance(found, Mapping)
        else {}
    )


def _node_strings(details: Mapping[str, Any] | None) -> dict[str, tuple[str | None, str | None]]:
    if not isinstance(details, Mapping):
        return {}
    strings, nodes = details.get("strings"), details.get("nodes")
    if not isinstance(strings, Sequence) or not isinstance(nodes, Sequence):
        return {}
    found = {}
    for entry in nodes:
        if isinstance(entry, Sequence) and len(entry) >= 3 and isinstance(entry[0], str):
            found[entry[0]] = (_string(strings, entry[1]), _string(strings, entry[2]))
    return found


def _string(strings: Sequence[Any], index: Any) -> str | None:
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(strings):
        return None
    return strings[index] if isinstance(strings[index], str) else None


def _spec(entry: Mapping[str, Any]) -> InputSpec | None:
    name, source = entry["name"], entry.get("source")
    source = source if isinstance(source, str) else None
    number = _scalar(entry)
    if number is not None:
        return InputSpec(name=name, kind="symbol", source=source, value=number, basis="recorded")
    shape, stride = _ints(entry.get("shape")), _ints(entry.get("stride"))
    dtype, device = entry.get("dtype"), entry.get("device")
    if shape is None or not isinstance(dtype, str):
        return None
    if stride is not None and len(stride) != len(shape):
        return None
    return InputSpec(
        name=name,
        kind="tensor",
        source=source,
        shape=shape,
        stride=stride,
        dtype=dtype.removeprefix("torch."),
        device=device if isinstance(device, str) else None,
        offset=_int(entry.get("offset", entry.get("storage_offset"))) or 0,
        storage=_int(entry.get("storage")),
        storage_bytes=_int(entry.get("storage_bytes")),
        requires_grad=entry.get("requires_grad") if isinstance(entry.get("requires_grad"), bool) else None,
        leaf=entry.get("is_leaf") is not False,
        static=_text(entry.get("static")),
        subclass=_subclass(entry.get("type")),
        basis="recorded",
    )


def _subclass(kind: Any) -> str | None:
    return kind if isinstance(kind, str) and kind not in _PLAIN_CLASSES else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _scalar(entry: Mapping[str, Any]) -> int | float | bool | None:
    for key in ("value", "scalar", "hint"):
        value = entry.get(key)
        if isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, str):
            for kind in (int, float):
                try:
                    return kind(value)
                except ValueError:
                    continue
    return None


def _int(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 2**63 else None
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16 else None


def _ints(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    numbers = [_int(item) for item in value]
    return None if any(number is None for number in numbers) else tuple(number for number in numbers if number is not None)
