"""A training script run compiled, in eager, and in eager with other rounding and seeds: where its losses leave eager's. No torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from dynadiag.capture.losses import GRAPHS, LOSSES, VARIABLE, LossSettings
from dynadiag.errors import DynadiagError, NothingFoundError
from dynadiag.numerics.loss_band import LossBand, guilty_graph
from dynadiag.numerics.result import CurveKeys, CurveOutcome
from dynadiag.record import RecordOptions, Target, record

_T = TypeVar("_T")
Say = Callable[[str], None]
_NOISY = (1, 2)
_SHIFTS = (1, 2)


@dataclass(frozen=True)
class _Run:
    """The losses of one run, and the graphs that it handed to a back end."""

    losses: tuple[float, ...]
    graphs: tuple[int, ...] = ()


@dataclass
class WholeRun:
    """Runs a script, each run in its own folder; `done` are the runs in words, in order."""

    program: Target
    folder: Path
    steps: int
    timeout_s: float
    say: Say
    done: list[str] = field(default_factory=list)

    def compare(self) -> CurveKeys:
        """Where the losses of the script leave eager's, and the graph that makes them. Raises NothingFoundError where there are none."""
        compiled = self._run("as it is")
        if not compiled.losses:
            raise NothingFoundError("no loss was seen: `backward` was called on no tensor of one value")
        if not compiled.graphs:
            raise NothingFoundError("no graph was compiled: there is nothing to compare")
        eager = self._run("in eager", eager=True)
        if not eager.losses:
            raise NothingFoundError("the script has no loss in eager: nothing can be compared")
        band = LossBand(eager.losses)
        if eager.losses == compiled.losses:
            return self._told(band, compiled, "equal")
        noisy = [self._run(f"in eager with other rounding, {seed} of {len(_NOISY)}", eager=True, noise=seed).losses for seed in _NOISY]
        band = LossBand(eager.losses, noisy)
        if band.leaves_at(compiled.losses) is None:
            return self._told(band, compiled, "rounding")
        seeded = [self._run(f"in eager with other seeds, {shift} of {len(_SHIFTS)}", eager=True, shift=shift).losses for shift in _SHIFTS]
        band = LossBand(eager.losses, noisy, seeded)
        if band.leaves_at(self._run("with eager's random numbers", same_random=True).losses) is None:
            return self._told(band, compiled, "random_numbers")

        known: dict[frozenset[int], bool] = {}

        def stays_with(kept: Sequence[int]) -> bool:
            if (key := frozenset(kept)) not in known:
                left_out = tuple(sorted(set(compiled.graphs) - key))
                which = (
                    f"with graph {', '.join(map(str, sorted(key)))} compiled and the others in eager" if key else "with each graph in eager"
                )
                run = self._run(which, eager_graphs=left_out, same_random=True)
                known[key] = band.leaves_at(run.losses) is None
            return known[key]

        known[frozenset(compiled.graphs)] = False  # the run with eager's random numbers
        if not stays_with(()):
            return self._told(band, compiled, "tracing")
        guilty = guilty_graph(compiled.graphs, stays_with)
        if guilty is None:
            return self._told(band, compiled, "several_graphs")
        others = [graph for graph in compiled.graphs if graph != guilty]
        return self._told(band, compiled, "graph", guilty, others_stay=stays_with(others) if others else None)

    def _run(self, words: str, **settings: object) -> _Run:
        self.say(f"run {len(self.done) + 1} of the script: {words}")
        self.done.append(words)
        folder = self.folder / f"run-{len(self.done)}"
        folder.mkdir(parents=True, exist_ok=True)
        wanted = LossSettings(directory=str(folder), steps=self.steps, **settings)  # type: ignore[arg-type]
        options = RecordOptions(
            out=folder / "recording",
            force=True,
            timeout_s=self.timeout_s,
            output=folder / "output.txt" if len(self.done) > 1 else None,
            environment={VARIABLE: wanted.dumps()},
        )
        result = record(self.program, options)
        if result.told_to_end is not None:
            raise DynadiagError("interrupted while the script ran", slug="interrupted", exit_code=128 + result.told_to_end)
        if result.interrupted:
            raise KeyboardInterrupt
        losses = max((_numbers(path, float) for path in sorted(folder.glob(LOSSES.format("*")))), key=len, default=())
        graphs = max((_numbers(path, int) for path in sorted(folder.glob(GRAPHS.format("*")))), key=len, default=())
        return _Run(tuple(losses), tuple(graphs))

    def _told(
        self, band: LossBand, compiled: _Run, outcome: CurveOutcome, graph: int | None = None, *, others_stay: bool | None = None
    ) -> CurveKeys:
        leaves = None if outcome == "equal" else band.leaves_at(compiled.losses)
        return {
            "outcome": outcome,
            "leaves_at": None if leaves is None else leaves + 1,
            "graph": graph,
            "others_stay": others_stay,
            "graphs": len(compiled.graphs),
            "steps": [
                {
                    "step": step + 1,
                    "eager": eager,
                    "compiled": compiled.losses[step] if step < len(compiled.losses) else None,
                    "rounding": band.rounding(step),
                    "seeds": band.seeds(step),
                }
                for step, eager in enumerate(band.eager)
            ],
            "runs": list(self.done),
        }


def _numbers(path: Path, make: Callable[[str], _T]) -> Sequence[_T]:
    with contextlib.suppress(OSError, ValueError):
        return [make(line) for line in path.read_text("utf-8").splitlines()]
    return ()
