"""The order of things for a script: make questions cheap, cut statements, then simplify until nothing helps any more."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dynadiag.reduce.core import search
from dynadiag.reduce.core.journal import Journal
from dynadiag.reduce.core.reducer import Phase, Progress, Reducer, Stopped
from dynadiag.reduce.scripts.oracle import ScriptOracle
from dynadiag.reduce.scripts.passes import ALL_PASSES, ScriptPass
from dynadiag.reduce.scripts.program import Program
from dynadiag.reduce.scripts.slicing import Slicer

_FRUITLESS_LIMIT = 400


class ScriptReducer(Reducer[Program]):
    """The reducer of scripts, which knows each best program so far."""

    def __init__(self, program: Program, oracle: ScriptOracle, *, journal: Journal, on_query: Callable[[Progress], None] | None) -> None:
        super().__init__(program, oracle, journal=journal, on_query=on_query)
        self.adopted = [program]
        """Each best program so far, the original first."""

    def reduce(self, passes: Sequence[ScriptPass] = ALL_PASSES, *, first: Sequence[ScriptPass] = ()) -> bool:
        """Make the best program as simple as can be, `first` with passes that make each question cheaper; False when the search was
        stopped before its end.
        """
        try:
            self.confirm()
            for one in first:
                self._run_pass(one, "cut")
            self._delete("cut", search.cut)
            self._delete("minimal", _one_minimal)
            while self._simplified(passes):
                self._delete("minimal", _one_minimal)
        except Stopped:
            return False
        return True

    def _simplified(self, passes: Sequence[ScriptPass]) -> bool:
        """One round of all passes; whether anything was adopted."""
        adopted = [self._run_pass(one, "simplify") for one in passes]
        return any(adopted)

    def _delete(self, phase: Phase, method: Callable[..., Any]) -> None:
        slicer = Slicer(self.best, whole_functions=phase == "cut")
        method(slicer.items, lambda kept: self._still_fails(slicer.build(kept), phase), blocks=slicer.block_of)

    def _still_fails(self, program: Program, phase: Phase) -> bool:
        return program.key == self.best.key or self._offer(program, phase)

    def _offer(self, program: Program, phase: Phase) -> bool:
        taken = self.offer(program, phase)
        self.adopted += [program] if taken else []
        return taken

    def _run_pass(self, reduction: ScriptPass, phase: Phase) -> bool:
        """Offer what a pass proposes; after each adoption it goes on at the same place of the new best.

        What came before that place was refused for a program that hardly differs; the next round asks again.
        """
        before, asked, again = self.best.key, 0, True
        while again:
            again = False
            for proposal in itertools.islice(self._proposals(reduction), asked, asked + _FRUITLESS_LIMIT):
                if self._offer(proposal, phase):
                    again = True
                    break
                asked += 1
        return self.best.key != before

    def _proposals(self, reduction: ScriptPass) -> Iterator[Program]:
        try:
            yield from reduction(self.best)
        except Exception:  # noqa: BLE001 - the border around one pass
            self.broken_passes[reduction.__name__] = traceback.format_exc()


def _one_minimal(items: Sequence[int], fails: search.Fails, *, blocks: object) -> tuple[int, ...]:
    return search.one_minimal(items, fails)
