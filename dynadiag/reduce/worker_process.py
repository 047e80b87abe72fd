"""What both worker processes do: read the job, speak JSON lines, end when they are asked to, remember what they found out.

A worker prints one JSON line a query (`{"nodes": ..., "queries": ...}`) and at the end one with `"done"` or `"error"`. An interrupt ends
the search after the query that runs; the best so far is still written and proven.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import dynadiag
from dynadiag.children.answer_cache import AnswerCache, remembering, variables
from dynadiag.children.forked import end_running, end_with_parent
from dynadiag.errors import DynadiagError
from dynadiag.json_lines import Speaker
from dynadiag.reduce.core.failure import environment_trouble
from dynadiag.reduce.core.reducer import Progress, Stopped
from dynadiag.reduce.reproducer.result_files import machine_facts, write_text
from dynadiag.torch_compat.inductor.cpp_answers import remembered

_AGAIN_S = 0.5
_speaker = Speaker()


def serve(job_file: str, reduce: Callable[[dict[str, Any], Interrupts, float], None]) -> int:
    """Do the job: `reduce` gets it with the interrupts and the time at which it began. Gives the exit status.

    Any error is told in a line; the traceback of one of ours goes to the log.
    """
    began = time.monotonic()
    _speaker.take_stdout()
    try:
        job = json.loads(Path(job_file).read_text("utf-8"))
        # A command that is killed takes its worker along, also while this imports torch: with `--resume` a second one would write the same
        # journal.
        end_with_parent(job.get("parent") or os.getppid())
        torch.set_num_threads(1)
        interrupts = Interrupts()
        with remembering(_open_known(job)):
            reduce(job, interrupts, began)
    except DynadiagError as error:
        say(error=error.message, slug=error.slug, exit_code=error.exit_code)
        return 1
    except Stopped:
        say(error="interrupted before the failure was confirmed: there is nothing to write (continue with --resume)", exit_code=130)
        return 130
    except Exception as error:  # noqa: BLE001 - our own error: its traceback goes to the log, one line to the person
        traceback.print_exc()
        say(error=f"the reducer failed (see worker.log): {type(error).__name__}: {error}", exit_code=2)
        return 2
    return 0


def _open_known(job: dict[str, Any]) -> AnswerCache:
    """What an earlier run found out, where it ran on this machine with this torch; else the job does not resume, which is said."""
    environment = {"dynadiag": dynadiag.__version__, **machine_facts(with_gpu=False), **variables()}
    known = AnswerCache(Path(job["out"]) / "known.jsonl", environment=environment, resume=bool(job["resume"]))
    if known.changed is not None:
        say(note=f"the earlier run's answers are not reused: {known.changed}")
        job["resume"] = False
    return known


class Interrupts:
    """The first Ctrl-C asks for an end, which the search gives after the question that runs; the second is Python's own."""

    def __init__(self) -> None:
        self.asked = False
        self._at_once = False
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGALRM, self._on_alarm)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked, True
        end_running()
        if self._at_once:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
        if again or self._at_once:
            raise KeyboardInterrupt

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        """Python drops what is raised in a callback around a fork (logging's, 3.11): it is raised until somebody gets it."""
        if self._at_once:
            raise KeyboardInterrupt

    def until_interrupted(self, out: Path, work: Callable[[Callable[[], None]], None]) -> None:
        """Do the work, which Ctrl-C ends at once: the files are then what they were when the work last called its argument.

        Where an end was asked for before, nothing is done.
        """
        texts: dict[str, str] = {}

        def keep() -> None:
            texts.update({name: (out / name).read_text("utf-8") for name in ("repro_min.py", "minify.json") if (out / name).is_file()})

        keep()
        try:
            self._at_once = True
            if self.asked:
                raise KeyboardInterrupt
            work(keep)
        except KeyboardInterrupt:
            self._at_once = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            for name, text in texts.items():
                write_text(text, out / name)
            say(done=True, proven=False, output="")
        finally:
            self._at_once = False

    def check(self) -> None:
        """Raise Stopped when an end was asked for."""
        if self.asked:
            raise Stopped


@contextlib.contextmanager
def kernels_kept(out: Path) -> Iterator[None]:
    """What inductor compiles in a child is there for the next one, until the end of this process."""
    for left in out.glob("kernels-*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    folder = None
    if "torch._inductor.cpp_builder" in sys.modules:
        with contextlib.suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix="kernels-", dir=out))
    if folder is None:
        yield
        return
    try:
        with remembered(folder, lambda error: environment_trouble(error) is not None):
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def asked_of(job: Mapping[str, Any], interrupts: Interrupts, show: Callable[[Progress], None]) -> dict[str, Any]:
    """What the job says of the options that all reductions have (`core.reduction.Options`)."""
    return {
        **{name: job[name] for name in ("timeout_s", "kind", "match", "resume")},
        "said": tuple(job["said"]) if job.get("said") else None,
        "journal": Path(job["out"]) / "journal.jsonl",
        "on_query": show,
        "wait": interrupts.check,
    }


def show(progress: Progress) -> None:
    """Say how far the search is."""
    best = progress.best.nodes if progress.best is not None else None
    say(nodes=best, queries=progress.queries.total(), phase=progress.phase)


def say(**message: Any) -> None:
    """One line to who started this process."""
    _speaker.say(message)
