"""Compiling in a copy of the process, so that nothing of it reaches the process itself or its caches."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch


def compile_beside() -> None:
    """From now on this thread of a copied process compiles by itself, since the threads and processes that would help are not copied, and
    leaves no graph in a cache. The libraries of kernels stay where they are: the process itself needs the same. Options are those of a
    thread (2.15).
    """
    names = "_inductor.config", "_functorch.config", "_inductor.async_compile"
    loaded: list[Any] = [sys.modules.get(f"torch.{name}") for name in names]
    inductor, functorch, pools = loaded
    if pools is not None:
        pools.AsyncCompile.pool.cache_clear()
    if inductor is not None:
        inductor.compile_threads = 1
        inductor.fx_graph_cache = False
    if functorch is not None:
        functorch.enable_autograd_cache = False


def compile_apart(folder: str) -> None:
    """From now on everything is compiled anew in this process, by one thread, without a cache, with its files in `folder`."""
    from torch._inductor import config

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = folder
    config.compile_threads = 1
    config.force_disable_caches = True
    torch.compiler.reset()
