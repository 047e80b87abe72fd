"""Programs recorded in the tests' own process, where only what was compiled is asked for: one of their own would import torch first."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch

import dynadiag


def recorded_here(script: Path, out: Path) -> None:
    """Runs a script as `__main__` under `observe`, with nothing compiled before it, and leaves nothing compiled behind."""
    torch._dynamo.reset()
    try:
        with dynadiag.observe(out), torch.random.fork_rng():
            runpy.run_path(str(script), run_name="__main__")
    finally:
        torch._dynamo.reset()
