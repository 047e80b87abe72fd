"""Programs recorded in the tests' own process, where only what was compiled is asked for: one of their own would import torch first."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

import dynadiag


def recorded_here(script: Path, out: Path, *arguments: str) -> None:
    """Runs a script as `__main__` under `observe`, with nothing compiled before it, and leaves nothing compiled behind."""
    torch._dynamo.reset()
    try:
        with dynadiag.observe(out), torch.random.fork_rng(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [str(script), *arguments])
            runpy.run_path(str(script), run_name="__main__")
    finally:
        torch._dynamo.reset()
