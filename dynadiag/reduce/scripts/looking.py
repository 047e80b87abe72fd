"""A run of a program without the compiler that tells its facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dynadiag.reduce.scripts.facts import Facts, FactsOf
from dynadiag.reduce.scripts.oracle import Conditions, see
from dynadiag.reduce.scripts.program import Program


def observe(program: Program, conditions: Conditions) -> Facts:
    """Run the program once more; nothing is known of one that does not end well."""
    seen = see(program, replace(conditions, until=None, cpu_s=None), eager=True, look=True)
    if seen.ended is not None or seen.refused is not None:
        return Facts(key=program.key, cpu_s=seen.cpu_s)
    return Facts(key=program.key, lines=seen.lines, values=seen.values, cpu_s=seen.cpu_s)


def asked_once(conditions: Conditions, spend: Callable[[float], None]) -> FactsOf:
    """A function that looks at the first program that it is asked about, and remembers what it saw; `spend` is told the CPU seconds."""
    known: list[Facts] = []

    def facts_of(program: Program) -> Facts:
        if not known:
            known.append(observe(program, conditions))
            spend(known[0].cpu_s)
        return known[0]

    return facts_of
