"""How each kind of value is spelled in Python that we write: the one door from values of a log to written code.

Whatever a log says is a value of a fixed kind here or nothing: a dtype is one that this torch has, a device a known kind and a number,
sizes are integers of 64 bits, a name is an identifier, a constant one of Python's plain literals. What has no spelling raises
NotRebuildableError.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Sequence
from typing import Any

import torch

from dynadiag.errors import NotRebuildableError, shorten
from dynadiag.fx import allowed
from dynadiag.torch_compat.dispatch.functions import words

DEVICE_KINDS = words("cpu cuda fpga hpu ideep ipu lazy maia meta mkldnn mps mtia npu opencl opengl privateuseone ve vulkan xla xpu")
_DEVICE = re.compile(rf"(?:{'|'.join(sorted(DEVICE_KINDS))})(?::\d{{1,4}})?", re.ASCII)
_CODING = re.compile(r"coding(?=[:=])")
_LARGEST = 2**63 - 1
_LONGEST_BITS = 1024  # beyond 4,300 digits Python itself refuses to print an integer


def dtype(name: str | None) -> torch.dtype:
    """The dtype "float32" of this torch."""
    found = allowed.constants().get(f"torch.{name}")
    if not isinstance(found, torch.dtype):
        raise NotRebuildableError(f"{shorten(str(name), 40)} is a dtype that this torch does not have")
    return found


def dtype_text(name: str | None) -> str:
    """The dtype "float32" as "torch.float32"."""
    return str(dtype(name))


def device_text(name: str | None) -> str:
    """The device ("cuda:0") as a literal."""
    if name is None or _DEVICE.fullmatch(name) is None:
        raise NotRebuildableError(f"it uses the device {shorten(str(name), 40)}, which torch does not know")
    return repr(name)


def sizes(values: Sequence[int]) -> str:
    """A shape or strides as a tuple."""
    return repr(tuple(whole(value) for value in values))


def whole(value: object) -> int:
    """The value, if it is an integer that is no bool, not negative and fits 64 bits."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise NotRebuildableError(f"it contains the size {shorten(str(value)[:100], 40)}")
    return value


def number(value: object) -> int:
    """The value, if it is an integer that is no bool and fits 64 bits."""
    if type(value) is not int or abs(value) > _LARGEST:
        raise NotRebuildableError(f"it contains the number {shorten(str(value)[:100], 40)}")
    return value


def constant(value: Any) -> str:
    """A plain literal: None, a bool, a number, a text, or `...`; infinity and NaN by a call of `float`."""
    if isinstance(value, float) and type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if type(value) is complex:
        return f"complex({constant(value.real)}, {constant(value.imag)})"
    if value is Ellipsis:
        return "..."
    if value is None or type(value) in (bool, str) or (type(value) is int and value.bit_length() <= _LONGEST_BITS):
        return repr(value)
    raise NotRebuildableError(f"it contains a value of type {type(value).__name__}, which cannot be written as source")


def identifier(name: str) -> str:
    """The name itself, if Python takes it for a variable or an argument."""
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        raise NotRebuildableError(f"it contains the name `{shorten(name, 80)}`, which is not a plain name")
    return name


def path(name: str) -> str:
    """A dotted name ("sub.weight") of plain names."""
    return ".".join(identifier(part) for part in name.split("."))


def comment(text: str, limit: int) -> str:
    """Text for a comment: on one line, cut, and never read as the declaration of an encoding (PEP 263: `# coding: utf-7`)."""
    return _CODING.sub("coding ", shorten(text, limit))
