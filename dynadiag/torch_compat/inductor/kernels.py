"""The kernels that inductor writes, with the nodes that each computes; and operators that keep eager's kernel."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

_SOURCES = re.compile(r"^\s*# (?:Topologically Sorted|Unsorted) Source Nodes: \[([^\]]*)\]")
_CALLED = re.compile(r"\bextern_kernels\.(\w+)\(|\btorch\.ops\.([\w.]+)\(")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel that inductor wrote (`text`), or a library's that it calls (`text` is the call); `nodes` are the names of Dynamo's nodes."""

    name: str
    language: str
    nodes: frozenset[str]
    text: str


@contextlib.contextmanager
def written_kernels() -> Iterator[list[Kernel]]:
    """A list that fills with the kernels that inductor writes inside, and the libraries' that it calls.

    There are none where it takes a graph from a cache.
    `define_kernel(source, nodes, ...)` of each scheduling writes one and gives its name (torch/_inductor/codegen, 2.11 to 2.15).
    """
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.graph import GraphLowering

    found: list[Kernel] = []
    with contextlib.ExitStack() as stack:
        for scheduling, language in ((CppScheduling, "C++"), (TritonScheduling, "Triton")):
            stack.enter_context(mock.patch.object(scheduling, "define_kernel", _noting(scheduling, language, found)))
        stack.enter_context(mock.patch.object(GraphLowering, "save_output_code", lambda code: found.extend(_called_libraries(code))))
        yield found


def _noting(scheduling: Any, language: str, found: list[Kernel]) -> Any:
    from torch._inductor.utils import get_kernel_metadata
    from torch._inductor.virtualized import V

    original = scheduling.define_kernel

    def define_kernel(self: Any, source: str, nodes: Any, *more: Any) -> Any:
        name = original(self, source, nodes, *more)
        words, _ = get_kernel_metadata(nodes, V.graph.wrapper_code)
        found.append(Kernel(name=str(name), language=language, nodes=_names_in(words), text=source))
        return name

    return define_kernel


def _called_libraries(code: str) -> Iterator[Kernel]:
    """The kernels of libraries that a module calls; the comment before each names its nodes (`get_kernel_metadata`, 2.11 to 2.15)."""
    nodes: frozenset[str] = frozenset()
    for line in code.splitlines():
        if named := _names_in(line):
            nodes = named
        elif nodes and line.strip():
            called = _CALLED.search(line)
            if called is not None:
                yield Kernel(name=called[1] or called[2], language="library", nodes=nodes, text=line.strip())
            nodes = frozenset()


def _names_in(comment: str) -> frozenset[str]:
    sources = _SOURCES.match(comment)
    return frozenset(name.strip() for name in sources[1].split(",") if name.strip()) if sources is not None else frozenset()


@contextlib.contextmanager
def eager_kernels(operators: Collection[Any]) -> Iterator[None]:
    """Inside, inductor calls eager's kernel for these operators: no decomposition and no lowering of its own.

    `decompositions` and `lowerings` are dicts by overload; what is no lowering becomes a fallback (`GraphLowering.call_function` with
    `implicit_fallbacks`, 2.11 to 2.15).
    """
    import torch._inductor.decomposition
    import torch._inductor.lowering

    decomposition: Any = torch._inductor.decomposition
    lowering: Any = torch._inductor.lowering
    tables = (decomposition.decompositions, decomposition.extra_random_decomps)
    with contextlib.ExitStack() as stack:
        for table in (*tables, lowering.lowerings):
            stack.enter_context(mock.patch.dict(table))
            for operator in operators:
                table.pop(operator, None)
        for operator in operators:
            lowering.lowerings[operator] = lowering.fallback_handler(operator, add_to_fallback_set=False)
        _forget_tables(decomposition)
        try:
            yield
        finally:
            stack.close()
            _forget_tables(decomposition)


def is_decomposed(operator: Any) -> bool:
    """Whether inductor replaces the operator by others."""
    from torch._inductor import decomposition

    return operator in decomposition.select_decomp_table()


def _forget_tables(decomposition: Any) -> None:
    decomposition.fast_random_decomps.cache_clear()


def is_random(operator: Any) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())


def is_operator(target: Any) -> bool:
    """Whether the target of a node is an overload of an operator."""
    return isinstance(target, torch._ops.OpOverload)
