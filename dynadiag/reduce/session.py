"""`dynadiag minify SCRIPT` without its printing: capture, then the worker process, whose messages are handed on. Imports no torch."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from dynadiag.children.forked import START_WITHOUT_GC
from dynadiag.children.worker import Worker
from dynadiag.errors import DynadiagError, OutputError, UsageError
from dynadiag.files import extended, read_small, write_inside
from dynadiag.json_lines import value_of
from dynadiag.reduce.core.failure import SILENT, Said
from dynadiag.reduce.reproducer.proving import DROPPED
from dynadiag.reduce.sources.failing_script import Suspect
from dynadiag.reduce.sources.recording import seals_of

Message = Mapping[str, Any]
_LARGEST_JOB_BYTES = 64 << 20
_GOES_ON = "--resume with --out"
_MARKER = ".so.load_ok"
"""Stands beside a probe that was compiled and loaded (`torch/_inductor/cpu_vec_isa.py`, 2.15; 2.11 has none)."""
_MOST_PROBES = 50


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """`timeout_s` is for the first run of the captured graph; `kind` and `match` choose the failure; `resume` continues a journal;
    `memory_limit_mib` is what a run of the graph may take besides what the process has; `ablation` runs the result with each layer of the
    compiler for the report (None: with those that the guilty layer was found by); `level` is auto, dynamo or aot; `bisect` looks for the
    guilty pass and option; `jobs` candidates are tested at once (None: half the cores, at most four). `command` is what was typed, in the
    report. With `keep_outputs` the runs of the script leave the files that they write.
    """

    timeout_s: float = 300.0
    kind: str | None = None
    match: str | None = None
    resume: bool = False
    ablation: bool | None = None
    memory_limit_mib: int | None = None
    level: str = "auto"
    bisect: bool = True
    jobs: int | None = None
    backend: str | None = None
    as_script: bool = False
    capture_always: bool = False
    command: str = ""
    keep_outputs: bool = False

    def check_match(self) -> None:
        """Raise UsageError where `match` is no regular expression."""
        try:
            re.compile(self.match or "")
        except re.error as error:
            raise UsageError(f"--match {self.match!r} is not a valid regular expression: {error}") from error


def reduce_captured(
    captures: Sequence[Path], suspect: Suspect | None, out: Path, options: SessionOptions, on_message: Callable[[Message], None]
) -> Message:
    """Run the worker on captured graphs, the first that fails is reduced; gives `minify.json`.

    Raises DynadiagError with the worker's own message and exit status when it ends without a result.
    """
    job = {
        "captures": [str(path) for path in captures],
        "seals": seals_of(captures),
        "out": str(out),
        "call": suspect.call if suspect is not None and suspect.phase != "compile" else None,
        "backward": suspect is not None and suspect.phase == "after",
        "timeout_s": options.timeout_s,
        "hangs": suspect is not None and suspect.hangs,
        "kind": options.kind,
        "match": options.match,
        "said": suspect.said if suspect is not None and options.kind not in SILENT else None,
        "resume": options.resume,
        "ablation": options.ablation,
        "memory_limit_mib": options.memory_limit_mib,
        "level": options.level,
        "bisect": options.bisect,
        "jobs": options.jobs,
        "command": options.command,
    }
    copy_compiler_probes(users_cache(), out / "compile-cache")
    return _worked("dynadiag.reduce.graph_worker", {**job, **(_known_before(out) if options.resume else {})}, out, on_message)


def reduce_script(
    script: Path,
    arguments: Sequence[str],
    out: Path,
    options: SessionOptions,
    on_message: Callable[[Message], None],
    *,
    why: str,
    said: Said | None = None,
) -> Message:
    """Run the worker for scripts; gives `minify.json`, whose `level_why` is `why`. Raises as `reduce_captured` does.

    `said` is what the exception said that is meant.
    """
    job = {
        "script": str(script.absolute()),
        "arguments": list(arguments),
        "out": str(out),
        "timeout_s": options.timeout_s,
        "kind": options.kind,
        "match": options.match,
        "said": said,
        "resume": options.resume,
        "command": options.command,
        "level_why": why,
    }
    return _worked("dynadiag.reduce.script_worker", job, out, on_message)


def _known_before(out: Path) -> Message:
    """What the interrupted run knew of the failure in the script, which is not run again."""
    try:
        job = value_of(read_small(out / "job.json", _LARGEST_JOB_BYTES))
        call, said = job.get("call"), job.get("said")
    except (OSError, ValueError, AttributeError):
        return {}
    is_said = isinstance(said, list) and len(said) == 2 and all(isinstance(text, str) for text in said)
    flags = {name: job.get(name) is True for name in ("backward", "hangs")}
    return {"call": call if type(call) is int else None, "said": said if is_said else None, **flags}


def _worked(module: str, job: Mapping[str, Any], out: Path, on_message: Callable[[Message], None]) -> Message:
    _write(out, "job.json", json.dumps({**job, "parent": os.getpid()}, indent=1))
    last = _run_worker(module, out / "job.json", out, on_message)
    if "error" in last:
        raise DynadiagError(str(last["error"]), slug=str(last.get("slug", "not-reduced")), exit_code=int(last.get("exit_code", 1)))
    result: Message = json.loads((out / "minify.json").read_text("utf-8"))
    result = {**result, "questions_cpu_s": result["cpu_s"], "cpu_s": round(sum(os.times()[:4]), 2)}
    _write(out, "minify.json", json.dumps(result, indent=1) + "\n")
    return result


def _write(out: Path, name: str, text: str) -> None:
    """Whole or not at all: `--resume` goes by it."""
    try:
        write_inside(out, name, text)
    except OSError as error:
        raise OutputError(f"cannot write {out / name}: {error.strerror or error}") from error


def _run_worker(module: str, job: Path, out: Path, on_message: Callable[[Message], None]) -> Message:
    """Start the worker, hand its messages on, and give the last one; what it prints besides goes into `worker.log`."""
    last: Message = {"error": f"the reducer ended without a result; see {out / 'worker.log'}"}
    command = [sys.executable, "-c", START_WITHOUT_GC, module, str(job)]
    with os.fdopen(_log(out / "worker.log"), "wb") as log:
        worker = Worker(command, log=log, environment=worker_environment(out), is_asked=False, alone_in="group")
    with contextlib.closing(worker), _interrupts_to(worker) as presses:
        for message in worker.messages():
            on_message(message)
            last = message if {"done", "error"} & set(message) else last
        worker.wait()
    if presses and not {"done", "slug", "exit_code"} & set(last):
        written = f"the best result so far is {out / 'repro_min.py'}" if (out / "repro_min.py").exists() else "nothing was written"
        raise DynadiagError(f"interrupted: {written}; continue with {_GOES_ON} {out}", slug="interrupted", exit_code=130)
    return last


def _log(path: Path) -> int:
    try:
        return extended(path, keep_bytes=0)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def _interrupts_to(worker: Worker) -> Iterator[list[int]]:
    """Ctrl-C goes to the worker: once asks for the best so far, twice ends it. Gives the interrupts so far."""
    presses: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        presses.append(number)
        if len(presses) == 1:
            worker.send_signal(signal.SIGINT)
        else:
            worker.send_signal(signal.SIGKILL, to_all=True)

    def end(number: int, frame: FrameType | None) -> None:
        worker.send_signal(signal.SIGKILL, to_all=True)
        sys.exit(128 + number)

    before = signal.signal(signal.SIGINT, pass_on), signal.signal(signal.SIGTERM, end)
    try:
        yield presses
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])


def worker_environment(out: Path) -> dict[str, str]:
    """One thread, a compile cache of its own, CUDA looked at without being initialised (a child could not use it after a fork), and large
    tensors in large pages, so that to copy inputs of gigabytes costs each child less (`c10/core/impl/alloc_cpu.cpp`, 2.11 to 2.15).
    """
    environment = {name: value for name, value in os.environ.items() if name not in DROPPED}
    return environment | {
        "OMP_NUM_THREADS": "1",
        "THP_MEM_ALLOC_ENABLE": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(out / "compile-cache"),
    }


def users_cache(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of inductor's cache in the user's own processes (`torch/_inductor/runtime/cache_dir_utils.py`, 2.11 to 2.15)."""
    named = environment.get("TORCHINDUCTOR_CACHE_DIR")
    if named:
        return Path(named)
    try:
        user = getpass.getuser()
    except (KeyError, ImportError, OSError):
        return None
    return Path(tempfile.gettempdir()) / ("torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user))


def copy_compiler_probes(cache: Path | None, to: Path) -> int:
    """Copy what inductor found out about the C++ compiler (7 to 9 CPU seconds with an empty cache, torch 2.15); gives how many probes.

    Only files of this user: a folder of that name may be anybody's. No graph is copied.
    """
    copied = 0
    if cache is None or cache.resolve() == to.resolve():
        return 0
    with contextlib.suppress(OSError):
        for marker in sorted(cache.glob(f"*/*{_MARKER}"))[:_MOST_PROBES]:
            copied += _copy(marker, to / marker.parent.name)
    return copied


def _copy(marker: Path, folder: Path) -> bool:
    stem = marker.name.removesuffix(_MARKER)
    files = [marker.with_name(f"{stem}{ending}") for ending in (".cpp", ".so", _MARKER)]
    if not all(_is_ours(file) for file in files):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy2(file, folder / file.name)
    return True


def _is_ours(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and (not hasattr(os, "getuid") or file.stat().st_uid == os.getuid())
