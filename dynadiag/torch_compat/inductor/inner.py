"""Inductor's inner compiler, which gets an ATen graph as it is: without Dynamo, AOTAutograd, decompositions and their passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.fx import GraphModule


def inner_compiled(module: GraphModule, options: Mapping[str, Any], enter: Callable[[str], None]) -> Callable[..., Any]:
    """A function that compiles the graph for its arguments and calls it; `enter` is told "compile" and "call" before each.

    `options` are inductor's, by name. `compile_fx_inner(graph, example_inputs)` gives a function of one list
    (`torch/_inductor/compile_fx.py`, 2.11 to 2.15).
    """
    import torch._inductor.config
    from torch._inductor.compile_fx import compile_fx_inner

    def call(*values: Any) -> Any:
        enter("compile")
        with torch._inductor.config.patch(dict(options)):
            made: Any = compile_fx_inner(module, list(values))
        enter("call")
        return made(list(values))

    return call


def inner_options(mode: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """What `torch.compile(mode=..., options=...)` sets in inductor's configuration."""
    from torch._inductor import list_mode_options

    of_mode = list_mode_options(mode) if mode not in (None, "default") else {}
    return {name.replace("-", "_"): value for name, value in {**of_mode, **options}.items()}
