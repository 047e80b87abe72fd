"""Where the programs of `benchmarks/whole_calls.py` say whether they are right, and of a wrong one what the finding has to name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Programs:
    """The programs of one file by name; a wrong one with a piece of the line that the finding has to name."""

    right: dict[str, Callable[[], None]] = field(default_factory=dict)
    wrong: dict[str, tuple[Callable[[], None], str]] = field(default_factory=dict)

    def add_right(self, program: Callable[[], None]) -> Callable[[], None]:
        """Decorate a program of which nothing may be called wrong."""
        self.right[program.__name__] = program
        return program

    def add_wrong(self, expected: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Decorate a program that has to be called wrong."""

        def keep(program: Callable[[], None]) -> Callable[[], None]:
            self.wrong[program.__name__] = program, expected
            return program

        return keep
