"""Programs of several processes, which a launcher starts: what it is told of the script, and runs of a proof as launches of their own.

Each rank runs `inside.running` in the place of the script, with the same new texts of its files. What every rank's calls gave is compared
with what the same rank's gave before.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dynadiag.errors import UsageError
from dynadiag.files import make_folder_inside, read_small, write_inside
from dynadiag.fix.inside.running import RunJob
from dynadiag.fix.runs import ALONE, LARGEST_REPLY, SEEDED, Ask, Outcome, Runner, last_words, outcome_of, report_on
from dynadiag.json_lines import parsed
from dynadiag.private_view.consent import Apart
from dynadiag.record import RecordOptions, Target, record

_MODULES: Final = (("torch.distributed.run",), ("torch.distributed.launch",))
_MODULE: Final = ("-m", "--module")
_RUNNING: Final = "dynadiag.fix.inside.running"


def split(command: Sequence[str], folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The launcher of a command with its options (nothing where that is Python), and the script, or `-m` and a module, with its arguments.

    Raises UsageError for another launcher.
    """
    words = tuple(command)
    name = Path(words[0]).name
    launches = name == "torchrun" or (words[1:2] == ("-m",) and words[2:3] in _MODULES)
    if not launches and name.startswith("python"):
        return (), words[1:]
    if not launches:
        raise UsageError(f"fix knows one launcher, torchrun, and cannot start its proofs with `{name[:40]}`: pass the script, or -m MODULE")
    for at in range(1 if name == "torchrun" else 3, len(words)):
        if words[at] in _MODULE:
            return words[:at], ("-m", *words[at + 1 :])
        if words[at].endswith((".py", ".pyw")) and (folder / words[at]).is_file():
            return words[:at], words[at:]
    raise UsageError(f"no script is found behind {name}: fix changes a script, or the module behind -m")


class LaunchedRunner(Runner):
    """Makes every run as a launch of its own. The values of an outcome are a folder, with one for each rank."""

    def __init__(
        self, folder: Path, base: RunJob, ask: Ask, launch: Sequence[str], *, timeout_s: float, apart: Apart | None = None
    ) -> None:
        super().__init__(folder, replace(base, launched=True), ask, timeout_s=timeout_s, apart=apart)
        self._launch = launch

    def run_program(self, *, recorded: bool = False, **changes: Any) -> Outcome:
        """One launch; `changes` are fields of its job."""
        return replace(self._launched(changes, {**ALONE, **SEEDED}, recorded=recorded), changes=changes)

    def last(self, texts: Mapping[str, str]) -> Outcome:
        """One launch with the script's own back end."""
        return self._launched({"eager": False, "texts": texts}, SEEDED, recorded=True)

    def _launched(self, changes: Mapping[str, Any], environment: Mapping[str, str], *, recorded: bool) -> Outcome:
        folder = make_folder_inside(self._folder, f"{next(self._numbers):03d}")
        job = replace(self._base, output=str(folder), **changes)
        file = write_inside(folder, "job.json", json.dumps(job.to_json()))
        target = Target(kind="command", argv=(*self._launch, "-m", _RUNNING, str(file)))
        options = RecordOptions(
            out=folder / "run", timeout_s=self._limit_s, environment=environment, output=folder / "launch", view=self._view
        )
        begun, before = time.monotonic(), os.times()
        done = record(target, options)
        if done.interrupted or done.told_to_end is not None:
            raise KeyboardInterrupt
        self._agree()
        after = os.times()
        self.runs += 1
        cpu_s = sum(after[2:4]) - sum(before[2:4])
        self.cpu_s += cpu_s
        replies = {
            rank.name: parsed(read_small(rank / "reply", LARGEST_REPLY)) or {} for rank in _ranks(folder) if (rank / "reply").is_file()
        }
        count = next((int(mapping["ranks"]) for mapping in replies.values()), 0)
        if not count or len(replies) < count:
            why = f"{count - len(replies) if count else 'all'} of its ranks did not end: {last_words(folder / 'launch')}"
            return Outcome(ended=False, why=why, cpu_s=cpu_s)
        self._longest_s = max(self._longest_s, time.monotonic() - begun)
        ranks = [outcome_of({**reply, "ended": True}, folder / name, None) for name, reply in sorted(replies.items())]
        return _together(ranks, folder, report_of=folder / "run" if recorded else None, cpu_s=cpu_s)

    def difference(
        self, reference: Outcome, other: Outcome, again: Outcome | None = None, noisy: Sequence[Outcome] = (), *, rounds: bool = False
    ) -> tuple[str | None, Mapping[str, int]]:
        """What differs first in any rank, and how many calls of each callable in each rank were compared."""
        first: str | None = None
        calls: dict[str, int] = {}
        for rank in _names(reference):
            outcomes = [_of_rank(outcome, rank) for outcome in (reference, other, *([] if again is None else [again]), *noisy)]
            behind = outcomes[2:] if again is None else outcomes[3:]
            differs, found = super().difference(outcomes[0], outcomes[1], None if again is None else outcomes[2], behind, rounds=rounds)
            calls |= {f"{name} of {rank}": count for name, count in found.items()}
            if first is None and differs is not None:
                first = f"{rank}: {differs}"
        return first, calls

    def gradients(self, outcome: Outcome) -> bool:
        """Whether a gradient can flow through an observed call of any rank."""
        return any(super(LaunchedRunner, self).gradients(_of_rank(outcome, rank)) for rank in _names(outcome))


def _together(ranks: Sequence[Outcome], folder: Path, *, report_of: Path | None, cpu_s: float) -> Outcome:
    """The outcomes of all ranks as one: the first that failed says how it ended."""
    failed = next((rank for rank in ranks if rank.exit_status or rank.raised), ranks[0])
    warned = sum((Counter(outcome.warned) for outcome in ranks), Counter[str]())
    sides = {name: sorted({side for element in ranks for side in element.sides.get(name, ())}) for item in ranks for name in item.sides}
    return Outcome(
        ended=True,
        exit_status=failed.exit_status,
        raised=failed.raised,
        said=failed.said,
        read_stdin=any(entry.read_stdin for entry in ranks),
        stdout="".join(one.stdout for one in ranks),
        warned=warned,
        values=folder if all(one.values is not None for one in ranks) else None,
        full=any(one.full for one in ranks),
        sides=sides,
        backends=sorted({name for one in ranks for name in one.backends}),
        report=None if report_of is None else report_on(report_of),
        cpu_s=cpu_s,
    )


def _ranks(folder: Path) -> list[Path]:
    return sorted(folder.glob("rank *"))


def _names(outcome: Outcome) -> Iterator[str]:
    assert outcome.values is not None
    yield from (rank.name for rank in _ranks(outcome.values))


def _of_rank(outcome: Outcome, rank: str) -> Outcome:
    assert outcome.values is not None
    return replace(outcome, values=outcome.values / rank / "values")
