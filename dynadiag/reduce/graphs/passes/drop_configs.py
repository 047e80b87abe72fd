"""Compiler options that are not needed for the failure go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dynadiag.reduce.graphs.candidate import Candidate


def drop_configs(candidate: Candidate) -> Iterator[Candidate]:
    """All options at once, then each."""
    if len(candidate.configs) > 1:
        yield replace(candidate, configs=())
    for left_out in range(len(candidate.configs)):
        rest = (*candidate.configs[:left_out], *candidate.configs[left_out + 1 :])
        yield replace(candidate, configs=rest)
