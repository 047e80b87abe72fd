"""Arms that take turns: rounds in random order until every verdict stands or the budget is used up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynadiag.bench.arms import AGAIN, ArmSpec
from dynadiag.bench.outcome import ArmResult, BenchResult
from dynadiag.bench.process import ArmEndedError, ArmFailedError, ArmProcess
from dynadiag.bench.verdict import SHORTEST_S, Budget, calls_for, enough, orders
from dynadiag.private_view.view import View

# Blocks are so many times longer than what lies between them (a process rests until its threads sleep; on a busy machine an arm waits for
# a core), so that little of the time lies outside them; what waiting alone asks for is limited.
_BLOCK_PER_REST, _LONGEST_S = 8, 0.2

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """How to measure. `timeout_s` is what one command to an arm may take; `log_folder` keeps what the arms print (else it is dropped).

    `prepare_together` checks and compiles all arms at once: sooner ready on a machine with many cores, but compile seconds are then those
    of a busy machine. `remeasure` measures the device's ceilings anew where they are kept from an earlier run.
    `prices` asks what each graph break costs. `keep` is given what is finished as it comes: who is ended early has that. With a `view` the
    user's files are afterwards as they were.
    """

    budget: Budget = field(default_factory=Budget)
    in_process: bool = False
    python: str | None = None
    timeout_s: float = 900.0
    seed: int = 0
    log_folder: Path | None = None
    prepare_together: bool = False
    remeasure: bool = False
    prices: bool = False
    keep: Callable[[BenchResult], None] = lambda _result: None
    view: View | None = None


@dataclass(kw_only=True)
class Runner:
    """An arm that takes part: where it runs, and its row. `block` are the words of a command that times calls."""

    spec: ArmSpec
    process: ArmProcess
    row: ArmResult
    renew: Callable[[], ArmProcess]
    call_s: float = 0.0
    block: Mapping[str, Any] = field(default_factory=lambda: {"what": "block"})

    def ask(self, what: str, options: BenchOptions, on_phase: Callable[[str], None] = lambda _phase: None, **more: Any) -> Any:
        """One command to this arm."""
        command = {"do": what, "arm": self.spec.name, **more}
        return self.process.ask(command, timeout_s=options.timeout_s, on_phase=on_phase)


class RoundLoop:
    """Times `runners`, the list that `failed` may shorten; the samples go to the rows of `result`.

    `called` stands before each round's number in what `progress` is told.
    """

    def __init__(
        self,
        result: BenchResult,
        runners: list[Runner],
        options: BenchOptions,
        *,
        failed: Callable[[Runner, ArmFailedError], None],
        progress: Progress,
        called: str = "round",
    ) -> None:
        self._result = result
        self._runners = runners
        self._options = options
        self._failed = failed
        self._progress = progress
        self._called = called
        self._baseline = result.arms[0].name
        self._ended = False
        self._outside_s, self._blocks = 0.0, 0

    def run_rounds(self) -> None:
        """Rounds until every arm is settled or the budget is used up; a round in which an arm fails is not counted."""
        self._result.time.budget, self._result.time.settled = self._options.budget, False
        if not self._can_go_on():
            return
        began = time.monotonic()
        try:
            self._go_round(began)
        finally:
            self._result.time.phases_s["rounds"] = time.monotonic() - began

    def _names(self) -> list[str]:
        names = [runner.spec.name for runner in self._runners]
        return [*names, AGAIN] if self._options.in_process and names else names

    def _can_go_on(self) -> bool:
        return self._baseline in self._names() and AGAIN in self._names()

    def _go_round(self, began: float) -> None:
        """The rounds themselves."""
        self._result.time.timed_s, self._result.time.outside_share = 0.0, None
        drawn = orders(self._names(), seed=self._options.seed)
        while True:
            blocks = self._round(next(drawn))
            if blocks is None:
                if self._ended or not self._can_go_on() or len(self._names()) < 2:
                    break
                drawn = orders(self._names(), seed=self._options.seed + self._result.rounds + 1)
                continue
            self._result.rounds += 1
            self._result.time.timed_s += self._keep(blocks)
            elapsed_s = time.monotonic() - began
            self._result.time.outside_share = 1 - self._result.time.timed_s / elapsed_s
            self._progress(f"{self._called} {self._result.rounds}", self._left_s(elapsed_s))
            if self._done(elapsed_s):
                break

    def _round(self, order: Sequence[str]) -> dict[str, Any] | None:
        blocks = {}
        by_name = {runner.spec.name: runner for runner in self._runners}
        for name in order:
            runner = by_name.get(name) or by_name[self._baseline]
            calls = runner.row.calls_per_block or calls_for(runner.call_s)
            runner.row.calls_per_block = calls
            asked = time.monotonic()
            try:
                blocks[name] = runner.ask(options=self._options, calls=calls, **runner.block)
            except ArmEndedError as ended:
                self._result.notes.append(f"{name}: {ended.message}; no further rounds were timed")
                self._ended = True
                return None
            except ArmFailedError as error:
                self._failed(runner, error)
                return None
            shortest_s = self._shortest_s(blocks[name], time.monotonic() - asked)
            if blocks[name]["wall_s"] < shortest_s:
                runner.row.calls_per_block = max(calls + 1, calls_for(blocks[name]["wall_s"] / calls, shortest_s))
        return blocks

    def _shortest_s(self, block: Mapping[str, Any], took_s: float) -> float:
        """How long the next block of this arm has to be at least, after one that took so long with its question and answer."""
        self._blocks += 1
        self._outside_s += max(0.0, took_s - block["wall_s"])
        waiting_s = min(_LONGEST_S, _BLOCK_PER_REST * self._outside_s / self._blocks)
        return max(SHORTEST_S, _BLOCK_PER_REST * float(block.get("rest_s", 0.0)), waiting_s)

    def _keep(self, blocks: dict[str, Any]) -> float:
        rows = {row.name: row for row in (*self._result.arms, self._result.same_again) if row is not None}
        for name, block in blocks.items():
            row = rows[name]
            row.samples_ms.append(block["wall_s"] * 1e3 / block["calls"])
            if block["device_s"] is not None:
                row.device_samples_ms.append(block["device_s"] * 1e3 / block["calls"])
            row.late_blocks += block["late"]
        return float(sum(block["wall_s"] for block in blocks.values()))

    def _left_s(self, elapsed_s: float) -> float:
        budget = self._options.budget
        per_round = elapsed_s / self._result.rounds
        return min(max(0.0, budget.max_s - elapsed_s), (budget.max_rounds - self._result.rounds) * per_round)

    def _done(self, elapsed_s: float) -> bool:
        rows = [row for row in (*self._result.arms, self._result.same_again) if row is not None]
        samples = {row.name: row.samples_ms for row in rows if len(row.samples_ms) == self._result.rounds}
        why = enough(samples, baseline=self._baseline, same_again=AGAIN, elapsed_s=elapsed_s, budget=self._options.budget)
        self._result.time.settled = why == "settled"
        return bool(why)
