"""Runs of the program and what came of them: forked from the worker while searching, in a fresh process at the end."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dynadiag import report, trace
from dynadiag.children.forked import START_WITHOUT_GC
from dynadiag.children.worker import Worker, WorkerEndedError, last_line_of
from dynadiag.errors import DynadiagError
from dynadiag.files import make_folder_inside, read_small, write_inside
from dynadiag.fix.inside.running import RunJob
from dynadiag.json_lines import parsed
from dynadiag.model.report import Report
from dynadiag.private_view.consent import Apart
from dynadiag.private_view.view import View
from dynadiag.record import RecordOptions, Target, record

_LARGEST_OUTPUT = 64 << 20
LARGEST_REPLY = 4 << 20
TIMES = 20.0
SEEDED = {"PYTHONHASHSEED": "0"}
_WARNED = re.compile(r"/.+?:\d+: \w*Warning: ")
ALONE = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}

Ask = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run went. `ended` is False where the process crashed or took too long, and `why` says so.

    `said` is what it raised, in a line; `read_stdin`: it asked for input, of which there is none.
    `warned` is how often each warning was shown (`FILE:LINE: CATEGORY: words`).
    `values` is the file of what calls were given and gave; `sides` which way each marked condition went; `full`: that took too much room;
    `changes` the fields of its job that were not as always; `free` are attributes that may be bound to other tensors than in the reference,
    `settings` those that are not compared.
    """

    ended: bool
    why: str | None = None
    exit_status: int | None = None
    raised: str | None = None
    said: str | None = None
    read_stdin: bool = False
    stdout: str = ""
    warned: Mapping[str, int] = field(default_factory=dict)
    values: Path | None = None
    full: bool = False
    sides: Mapping[str, Sequence[bool]] = field(default_factory=dict)
    backends: Sequence[str] = ()
    report: Report | None = None
    cpu_s: float = 0.0
    changes: Mapping[str, Any] = field(default_factory=dict)
    free: Sequence[str] = ()
    settings: Sequence[str] = ()


class RunServer:
    """The process that has imported torch and forks; what it prints goes into `worker.log` in a folder. `training`: the script trains."""

    def __init__(self, folder: Path, *, training: bool) -> None:
        self._log = folder / "worker.log"
        command = [sys.executable, "-P", "-c", START_WITHOUT_GC, "dynadiag.fix.worker", *(["training"] if training else [])]
        with self._log.open("wb") as log:
            self._worker = Worker(command, log=log, environment={**os.environ, **ALONE, **SEEDED})
        with self._whole():
            self._worker.hear()

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Its reply to a message. Raises DynadiagError where it has none."""
        with self._whole():
            reply = self._worker.ask(message) or {}
        if "error" in reply:
            raise DynadiagError(f"a proof could not be made (see {self._log}): {reply['error']}")
        return reply

    def close(self) -> None:
        """End it."""
        self._worker.close()

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """What is said where the process is gone."""
        try:
            yield
        except WorkerEndedError:
            raise DynadiagError(f"the process that runs proofs has ended: {last_words(self._log)}") from None


class Runner:
    """Makes runs, each in a folder of its own below `folder`; `ask` is answered by `fix.worker`.

    `fresh`: the last one is made in a process of its own, as the user would. `on_device`: the script used another device than the CPU. A
    run may take `timeout_s`, or some times what another one took on this machine as it is now. With `apart` no run leaves a file behind,
    and the first one is the last where the user does not agree to what cannot be kept apart. `edited`: another text than the reference's is
    compared with it by what both have; `compared` is then what the last comparison was made of (`inside.judging_edits.EditComparison`).
    """

    def __init__(
        self,
        folder: Path,
        base: RunJob,
        ask: Ask,
        *,
        timeout_s: float,
        fresh: bool = True,
        on_device: bool = False,
        apart: Apart | None = None,
        edited: bool = False,
    ) -> None:
        self.runs = 0
        self.compared: Mapping[str, Any] = {}
        self._edited = edited
        self.cpu_s = 0.0
        self._folder, self._base, self._ask, self._timeout_s, self._fresh = folder, base, ask, timeout_s, fresh
        self._on_device = on_device
        self._apart = apart
        self._numbers = itertools.count(1)
        self._longest_s = 0.0

    def run_program(self, *, recorded: bool = False, **changes: Any) -> Outcome:
        """One run in a child; `changes` are fields of its job."""
        folder = make_folder_inside(self._folder, f"{next(self._numbers):03d}")
        job = replace(self._base, output=str(folder), values=str(folder / "values"), **(changes | {"texts": self._with_base(changes)}))
        if recorded:
            job = replace(job, log=str(folder / "run"))
        begun = time.monotonic()
        view = None if self._view is None else self._view.dumps()
        message = {"do": "run", "job": job.to_json(), "timeout_s": self._limit_s, "on_device": self._on_device, "view": view}
        reply = self._ask(message)
        self._agree()
        self._longest_s = max(self._longest_s, time.monotonic() - begun if reply.get("ended") else 0.0)
        self.runs += 1
        self.cpu_s += float(reply.get("cpu_s", 0.0))
        outcome = outcome_of(reply, folder, folder / "run" if recorded and reply.get("ended") else None)
        return replace(outcome, changes=changes)

    def _with_base(self, changes: Mapping[str, Any]) -> Mapping[str, str]:
        return {**self._base.texts, **changes.get("texts", {})}

    def compare_fewer_calls(self, most: int) -> str:
        """From now on note only so many calls of each callable; gives the memory limit, for people."""
        self._base = replace(self._base, most_calls=min(most, self._base.most_calls))
        return f"{self._base.cap_bytes / (1 << 30):.1f} GiB"

    @property
    def _view(self) -> View | None:
        return None if self._apart is None else self._apart.view

    def _agree(self) -> None:
        """Go on only where the user lets runs reach what the one that is over did."""
        if self._apart is not None:
            self._apart.agree()

    @property
    def _limit_s(self) -> float:
        """On a machine whose processors are shared by more processes than they are, a run gets less of them."""
        return max(self._timeout_s, TIMES * self._longest_s) * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))

    def last(self, texts: Mapping[str, str]) -> Outcome:
        """One run with the script's own back end, recorded as `explain` does."""
        if not self._fresh:
            return self.run_program(recorded=True, eager=False, texts=texts)
        folder = make_folder_inside(self._folder, f"{next(self._numbers):03d}")
        texts = self._with_base({"texts": texts})
        job = replace(self._base, output=str(folder), values=str(folder / "values"), texts=texts, eager=False)
        file = write_inside(folder, "job.json", json.dumps(job.to_json()))
        target = Target(kind="command", argv=(sys.executable, "-P", "-m", "dynadiag.fix.inside.running", str(file)))
        directory = folder / "run"
        options = RecordOptions(out=directory, timeout_s=self._limit_s, environment=SEEDED, view=self._view)
        done = record(target, options)
        if done.interrupted or done.told_to_end is not None:
            raise KeyboardInterrupt
        self.runs += 1
        try:
            reply = parsed(read_small(file.with_suffix(".reply"), LARGEST_REPLY)) or {}
        except OSError:
            reply = {}
        if not reply:
            reply = {"ended": False, "why": f"the process ended with exit status {done.exit_status}"}
        return outcome_of({"ended": True, **reply}, folder, directory if done.directory is not None else None)

    def difference(
        self, reference: Outcome, other: Outcome, again: Outcome | None = None, noisy: Sequence[Outcome] = (), *, rounds: bool = False
    ) -> tuple[str | None, Mapping[str, int]]:
        """What differs first between two runs in what calls were given and gave, and how many calls of each callable were compared.

        `rounds`: the back end of the other may have rounded in other places than eager.
        """
        noise = [str(outcome.values) for outcome in noisy]
        message = {
            "do": "compare",
            "reference": str(reference.values),
            "other": str(other.values),
            "noisy": noise,
            "free": list(other.free),
            "settings": list(other.settings),
            "edited": self._edited,
            "rounds": rounds,
        }
        reply = self._ask(message | ({"again": str(again.values)} if again is not None else {}))
        self.compared = reply
        return reply["difference"], reply["calls"]

    def gradients(self, outcome: Outcome) -> bool:
        """Whether a gradient can flow through an observed call."""
        return bool(self._ask({"do": "gradients", "reference": str(outcome.values)})["gradients"])


def outcome_of(reply: Mapping[str, Any], folder: Path, log: Path | None) -> Outcome:
    """What a run said and left in its folder; `log` is the folder of its recording."""
    values = folder / "values"
    return Outcome(
        ended=bool(reply.get("ended")),
        why=reply.get("why"),
        exit_status=reply.get("exit_status"),
        raised=reply.get("raised"),
        said=reply.get("said"),
        read_stdin=bool(reply.get("read_stdin")),
        stdout=_text(folder / "stdout"),
        warned=Counter(row for row in _text(folder / "stderr").splitlines() if _WARNED.match(row)),
        values=values if values.is_file() else None,
        full=bool(reply.get("full")),
        sides=reply.get("sides", {}),
        backends=reply.get("backends", ()),
        report=None if log is None else report_on(log),
        cpu_s=float(reply.get("cpu_s", 0.0)),
    )


def report_on(directory: Path) -> Report:
    """The report on a recording of ours."""
    return report.build(trace.load(directory))


def _text(path: Path) -> str:
    try:
        return read_small(path, _LARGEST_OUTPUT).decode("utf-8", "backslashreplace")
    except OSError:
        return ""


def last_words(log: Path) -> str:
    """The last line that was printed into a file."""
    return last_line_of(log) or f"nothing was printed, see {log}"
