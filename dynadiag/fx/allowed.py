"""What a name in a printed graph may stand for. The whole rule is in `docs/graphs.md`; the tables are in `dynadiag.torch_compat`.

A graph from a log may call: torch's functions on tensors, registered operators of known namespaces, tensor methods by name, Python's
operators, a listed few of builtins and `math`. It may pass: constants, dtypes, layouts, memory formats, devices, operators, sub graphs.
Anything else is refused by name, before anything runs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dynadiag.dotted_names import lies_in
from dynadiag.errors import NotRebuildableError, shorten
from dynadiag.fx import backward_calls
from dynadiag.torch_compat.dispatch import functions, operators


@functools.cache
def constants() -> Mapping[str, object]:
    """Names that stand for a value: "torch.float32", "inf", "NoneType"."""
    kinds = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
    found: dict[str, object] = {f"torch.{name}": value for name, value in vars(torch).items() if isinstance(value, kinds)}
    found.update(inf=math.inf, nan=math.nan, NoneType=type(None), Ellipsis=Ellipsis)
    found.update({f"builtins.{kind.__name__}": kind for kind in (int, float, bool)})
    return found


def function(name: str, *, extra_namespaces: frozenset[str] = frozenset()) -> Callable[..., Any]:
    """The function with this printed name. Raises NotRebuildableError, naming it, when a graph from a log may not call it."""
    if lies_in(name, "torch.ops"):
        return operator(name, extra_namespaces=extra_namespaces)
    found = functions.function_table().get(name) or functions.rare_function(name)
    if found is None and name.startswith(backward_calls.OPERATORS):
        said = shorten(name.removeprefix(backward_calls.OPERATORS), 80)
        raise NotRebuildableError(f"it calls `{said}`, a backward function in C++ that exists only while compiled autograd runs")
    if found is None:
        raise NotRebuildableError(f"it calls `{shorten(name, 80)}`, which is not in the allow-list of functions")
    return found


def operator(name: str, *, extra_namespaces: frozenset[str] = frozenset()) -> Callable[..., Any]:
    """The operator with this printed name ("torch.ops.aten.add.Tensor")."""
    found = operators.find_operator(tuple(name.split(".")[2:]), extra_namespaces=extra_namespaces)
    if isinstance(found, str):
        raise NotRebuildableError(f"it calls `{shorten(name, 80)}`, which {found}")
    return found


def method(name: str) -> str:
    """The name itself. Raises NotRebuildableError when a graph from a log may not call a method of this name."""
    if name not in functions.tensor_methods():
        raise NotRebuildableError(f"it calls the method `{shorten(name, 80)}`, which is not in the allow-list of tensor methods")
    return name


def attribute(name: str) -> str:
    """The name itself. Raises NotRebuildableError when a graph from a log may not read an attribute of this name."""
    if name not in functions.tensor_attributes():
        raise NotRebuildableError(f"it reads the attribute `{shorten(name, 80)}`, which is not in the allow-list of tensor attributes")
    return name
