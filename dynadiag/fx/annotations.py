"""What FX prints beside a value ("f32[s0, 4][4, 1]cuda:0", "Sym(s0)"), taken apart. No torch.

Printed by torch/fx/graph.py `emit_node` with the dtype abbreviations of torch/utils/_dtype_abbrs.py (2.11 and 2.15).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DTYPE_NAMES = {
    "bf16": "bfloat16",
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f4e2m1fnx2": "float4_e2m1fn_x2",
    "c32": "complex32",
    "c64": "complex64",
    "c128": "complex128",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "b8": "bool",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
}
_TENSOR = re.compile(r"^(?P<dtype>[a-z]+\d+\w*)\[(?P<shape>[^\]]*)\](?:\[(?P<stride>[^\]]*)\])?(?P<device>[a-z][\w:]*)?$")
_WRAPPED = re.compile(r"^(?P<class>[A-Za-z_]\w*)\((?P<inside>.*)\)$")


@dataclass(frozen=True, slots=True)
class TensorNote:
    """A tensor as annotated: sizes and strides as text (numbers or symbolic expressions), None where nothing was printed.

    `wrapper` is the class when it is no plain tensor ("Parameter", "DTensor", "TwoTensor").
    """

    dtype: str
    shape: tuple[str, ...]
    stride: tuple[str, ...] | None
    device: str | None
    wrapper: str | None = None


@dataclass(frozen=True, slots=True)
class SymbolNote:
    """A symbolic int, float or bool: its expression as printed."""

    expression: str


def parse_annotation(text: str | None) -> TensorNote | SymbolNote | None:
    """What the annotation says; None when it says nothing that we know."""
    if text is None:
        return None
    text = text.strip()
    plain = _TENSOR.match(text)
    if plain is not None:
        return _tensor(plain, None)
    wrapped = _WRAPPED.match(text)
    if wrapped is None:
        return None
    if wrapped["class"] == "Sym":
        return SymbolNote(wrapped["inside"].strip())
    core = _leading_tensor(wrapped["inside"])
    return None if core is None else _tensor(core, wrapped["class"])


def _tensor(found: re.Match[str], wrapper: str | None) -> TensorNote | None:
    dtype = DTYPE_NAMES.get(found["dtype"])
    if dtype is None:
        return None
    stride = None if found["stride"] is None else split_sizes(found["stride"])
    return TensorNote(dtype, split_sizes(found["shape"]), stride, found["device"], wrapper)


def _leading_tensor(inside: str) -> re.Match[str] | None:
    """The tensor at the start of a wrapper's text: "f32[4][1]cpu, S(0)" of a DTensor, or "f32[4][1]cpu" of a Parameter."""
    whole = _TENSOR.match(inside)
    if whole is not None:
        return whole
    end = inside.find(", ", inside.rfind("]"))
    return None if end < 0 else _TENSOR.match(inside[:end])


def split_sizes(text: str) -> tuple[str, ...]:
    """The sizes between two brackets; commas inside parentheses ("Max(1, s0)") do not part them."""
    parts: list[str] = []
    depth, start = 0, 0
    for position, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    parts.append(text[start:].strip())
    return tuple(part for part in parts if part)
