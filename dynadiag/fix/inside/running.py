"""One run of the program for a proof: as `python SCRIPT` would run it, with new texts of its files, eagerly or compiled, and observed.

    python -P -m dynadiag.fix.inside.running JOB.json

does it in a fresh process, which a recorder may listen to; the worker forks a child for it.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import os
import random
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import dynadiag
from dynadiag.capture import overlay
from dynadiag.capture.compiled_calls import CompiledCalls
from dynadiag.capture.losses import shifted
from dynadiag.capture.reach import seed_generators
from dynadiag.capture.script import UserCodeError, one_line, run_script
from dynadiag.files import write_file
from dynadiag.torch_compat.dynamo.counters import eager_random_numbers

CHOOSE, SELECT, WATCH, NUMBER = "dynadiag_choose__", "dynadiag_select__", "dynadiag_watch__", "dynadiag_number__"
"""Names that instrumented texts call: around the condition of an `if`, around the first argument of a `torch.where`, around a function
that is watched without being compiled, and around a number that is given as a tensor. Python changes names in classes that begin with two
underscores."""

_streams: list[Any] = []
_LONGEST_ERROR = 300


@dataclass(frozen=True, kw_only=True)
class RunJob:
    """A run: the script (`module`: its name where it runs as `python -m`), its arguments and folder; `texts` are new texts by file.

    `backend` takes the place of the script's own when it is compiled. `values` is the file for what calls were given and gave, `log` the
    folder for a recording, `output` that for what the program prints (`stdout`, `stderr`). `force` says which way conditions go, by number.
    With `noise`, a seed, sums are off by what the order of adding may do; with `rounds` besides, every value by a rounding. `launched`: it
    runs in each process of a launcher, which have folders of their own in `output` with all that they write. `whole`: what the program has
    made is noted when it ends, too. `reseed`: that many is added to each seed that the program gives.
    """

    script: str
    arguments: Sequence[str]
    folder: str
    output: str
    texts: Mapping[str, str] = field(default_factory=dict)
    eager: bool = True
    backend: str | None = None
    module: str | None = None
    values: str | None = None
    log: str | None = None
    vary: int = 0
    noise: int = 0
    rounds: bool = False
    force: Mapping[str, bool] = field(default_factory=dict)
    most_calls: int = 5
    cap_bytes: int = 2 << 30
    launched: bool = False
    whole: bool = False
    reseed: int = 0

    def to_json(self) -> dict[str, Any]:
        """For `RunJob(**...)`."""
        return asdict(self)


def run_job(job: RunJob) -> dict[str, Any]:
    """How the program ended: `exit_status`, `raised` (its class) and `said` (its words), whether it `read_stdin`, `full` (what calls gave
    took too much room), `sides` by condition.
    """
    os.chdir(job.folder)
    _redirect(Path(job.output))
    overlay.install(job.texts)
    sys.argv = [job.script, *job.arguments]  # by which the recorder knows whose project it is
    sides: dict[str, set[bool]] = {}
    told: dict[str, Any] = {"exit_status": 0, "raised": None, "full": False, "backends": []}
    with contextlib.nullcontext() if job.log is None else dynadiag.observe(job.log, force=True):
        watch = _Watch(job)
        _install_conditions(job.force, sides, watch)
        try:
            ended = run_script(
                job.script,
                job.arguments,
                watched={"torch": watch.begin, "numpy.random": lambda module: _begin_numpy(module, job.reseed)},
                module=job.module,
            )
            told["exit_status"] = _status(ended)
        except UserCodeError as error:
            cause = error.__cause__ or error
            traceback.print_exception(cause)
            told |= {"exit_status": 1, "raised": type(cause).__name__, "said": one_line(cause)[:_LONGEST_ERROR]}
        except KeyboardInterrupt:
            told |= {"exit_status": 130, "raised": "KeyboardInterrupt"}
        sys.stdout.flush()
        told |= watch.end()
    return told | {"read_stdin": _input.asked, "sides": {name: sorted(seen) for name, seen in sides.items()}}


class _Watch:
    """Begins when torch is imported."""

    def __init__(self, job: RunJob) -> None:
        self._job = job
        self._log: Any = None
        self._backends: set[str] = set()
        self._drawing = False

    def begin(self, torch: ModuleType) -> None:
        """Every run draws the same numbers, unless the program seeds its generators itself."""
        from dynadiag.fix.inside.observing import CallLog

        job = self._job
        seed_generators(job.reseed)
        if job.reseed:
            _shift_seeds(torch, job.reseed)
        if job.noise:
            from dynadiag.torch_compat.dispatch.rounding import begin_noise

            begin_noise(job.noise, rounds=job.rounds)
        program = None
        if job.whole:
            from dynadiag.fix.inside.program_state import ProgramState

            program = ProgramState()
            program.install()
        self._log = CallLog(most=job.most_calls, cap_bytes=job.cap_bytes, vary=job.vary, program=program)
        calls = CompiledCalls(self._log.before, eager=job.eager, change=self._options)
        calls.install()
        setattr(builtins, WATCH, calls.watch)
        setattr(builtins, NUMBER, self._log.tensor_of)

    def _options(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        backend = given.get("backend", "inductor")
        self._backends.add(backend if isinstance(backend, str) else "a function")
        if not self._job.eager and not self._drawing:
            self._drawing = True
            eager_random_numbers().__enter__()
        if self._job.backend is None or self._job.eager:
            return given
        return {**{name: item for name, item in given.items() if name not in ("mode", "options")}, "backend": self._job.backend}

    def notes(self) -> bool:
        """Whether a call runs now that is compared."""
        return self._log is not None and bool(self._log.active)

    def end(self) -> dict[str, Any]:
        """What was seen, written to the file that the job names."""
        if self._log is None:
            return {}
        self._log.end()
        if self._job.values is not None:
            self._log.save(self._job.values)
        return {"full": self._log.full, "backends": sorted(self._backends)}


def _shift_seeds(torch: ModuleType, shift: int) -> None:
    """Other random numbers than the program asks for, as if it had been written with another seed."""
    for owner, name in ((torch, "manual_seed"), (torch.random, "manual_seed"), (random, "seed")):
        setattr(owner, name, shifted(getattr(owner, name), shift))


def _begin_numpy(module: ModuleType, shift: int) -> None:
    module.seed(shift)
    if shift:
        module.__dict__["seed"] = shifted(module.seed, shift)


def _install_conditions(force: Mapping[str, bool], sides: dict[str, set[bool]], watch: _Watch) -> None:
    def choose(name: str, value: Any) -> bool:
        chosen = force[name] if name in force else bool(value)
        if watch.notes():
            sides.setdefault(name, set()).add(chosen)
        return chosen

    def select(name: str, condition: Any) -> Any:
        if name not in force:
            return condition
        chosen = sys.modules["torch"].ones_like(condition, dtype=sys.modules["torch"].bool)
        return chosen if force[name] else ~chosen

    for name, function in ((CHOOSE, choose), (SELECT, select)):
        setattr(builtins, name, function)


def _status(ended: str) -> int:
    found = re.fullmatch(r" with exit status (-?\d+)", ended)
    return 0 if not ended else int(found[1]) & 255 if found else 1


class _NoInput(io.RawIOBase):
    """An input without anything in it, which knows whether somebody asked for more."""

    asked = False

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def readinto(self, buffer: Any) -> int:
        self.asked = True
        return 0


_input = _NoInput()


def _redirect(folder: Path) -> None:
    """What the program prints goes into files, and it reads nothing."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    _input.asked = False
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_input), encoding="utf-8")
    for number, name in ((1, "stdout"), (2, "stderr")):
        written = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        os.dup2(written, number)
    # A stream that somebody opened on these descriptors closes them when it goes.
    _streams.extend((sys.stdout, sys.stderr))
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, errors="backslashreplace", closefd=False) for number in (1, 2))


def main(job_file: str) -> None:
    """Do one job in this process; the reply goes beside it."""
    file = Path(job_file)
    job, reply = RunJob(**json.loads(file.read_text("utf-8"))), file.with_suffix(".reply")
    if job.launched:
        del sys.path[0]  # the folder of now, since launchers run modules without -P
        folder = Path(job.output) / f"rank {int(os.environ['RANK']):05d}"
        folder.mkdir()
        job, reply = replace(job, output=str(folder), values=str(folder / "values")), folder / "reply"
    told = run_job(job) | {"ranks": int(os.environ.get("LOCAL_WORLD_SIZE", "1"))}
    write_file(reply, json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1])
