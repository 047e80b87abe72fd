"""Compiling in a copy of the process, so that nothing of it reaches the process itself or its caches."""

from __future__ import annotations

import os

import torch


def compile_apart(folder: str) -> None:
    """From now on everything is compiled anew in this process, by one thread, without a cache, with its files in `folder`."""
    from torch._inductor import config

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = folder
    config.compile_threads = 1
    config.force_disable_caches = True
    torch.compiler.reset()
