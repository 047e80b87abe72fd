"""What surrounds the graph becomes less: its earlier calls, and options of the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dynadiag.reduce.graphs.candidate import Call, Candidate


def fewer_calls(candidate: Candidate) -> Iterator[Candidate]:
    """One earlier call alone (the first, the last), each one away, the last call away; then each with the inputs of the last."""
    earlier = candidate.earlier
    if len(earlier) > 2:
        yield replace(candidate, earlier=earlier[:1])
        yield replace(candidate, earlier=earlier[-1:])
    for left_out in reversed(range(len(earlier))):
        yield replace(candidate, earlier=(*earlier[:left_out], *earlier[left_out + 1 :]))
    if earlier and earlier[-1].grad is None:
        yield replace(candidate, inputs=earlier[-1].inputs, earlier=earlier[:-1])
    last = Call(candidate.inputs)
    for number, call in enumerate(earlier):
        if call.key() != last.key():
            yield replace(candidate, earlier=(*earlier[:number], last, *earlier[number + 1 :]))


def drop_configs(candidate: Candidate) -> Iterator[Candidate]:
    """All options at once, then each."""
    if len(candidate.configs) > 1:
        yield replace(candidate, configs=())
    for left_out in range(len(candidate.configs)):
        rest = (*candidate.configs[:left_out], *candidate.configs[left_out + 1 :])
        yield replace(candidate, configs=rest)
