"""Diagnoses: one pass a file, each a pure function from `Run` to `PassResult`."""

from __future__ import annotations

from dynadiag.passes.base import Pass

ALL_PASSES: tuple[Pass, ...] = ()
