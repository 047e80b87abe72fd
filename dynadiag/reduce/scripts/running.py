"""In the child: one run of a candidate as `__main__`, recorded, guarded, in a folder of its own; what it raised is told."""

from __future__ import annotations

import argparse
import contextlib
import linecache
import math
import os
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import dynadiag
from dynadiag.capture.reach import seed_generators
from dynadiag.dotted_names import lies_in
from dynadiag.reduce.core.failure import Failure, environment_trouble, from_exception, out_of_memory, ran_out_of_memory
from dynadiag.reduce.scripts.guarding import Guard
from dynadiag.reduce.scripts.recorded_failures import MARKS, failures_in
from dynadiag.reduce.scripts.tracing import Tracer
from dynadiag.torch_compat.dynamo.compiling import header_folder
from dynadiag.torch_compat.dynamo.stopping import stop_compiling_when
from dynadiag.torch_compat.dynamo.user_compiler import raised_in_back_end

FILE = "repro_min.py"
_LARGEST_FILE = 1 << 30
_CONVERTS = ("torch", "_dynamo", "convert_frame.py")
Tell = Callable[[dict[str, Any]], None]
own_folders: list[str] = []
"""Where the compiler of this process writes: what it chose on import its children still write to."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """`log` is where to record, None not to; with it the first `parity_calls` calls are compared with eager. `eager` runs without the
    compiler; `arguments` become `sys.argv[1:]`.

    Once `until` was recorded the rest runs uncompiled. `look` tells which lines run and what values they give. The child is killed when it
    has taken `cpu_s` CPU seconds. The generators of torch, Python and numpy begin with `seed`.
    """

    log: Path | None = None
    parity_calls: int = 0
    eager: bool = False
    arguments: tuple[str, ...] = ()
    until: Failure | None = None
    look: bool = False
    cpu_s: float | None = None
    seed: int = 0


def run_program(text: str, options: RunOptions, tell: Tell) -> None:
    """Run the text and tell how it ended: `ended`, `failure` (with `environment`), and `refused` when the guard stepped in."""
    path = Path(FILE).absolute()
    # Triton makes its folder before inductor names one: in the home directory, which the guard refuses (triton/runtime/cache.py, 3.5).
    os.environ["TRITON_CACHE_DIR"] = str(path.with_name("triton"))
    folders = [os.getcwd(), tempfile.gettempdir(), *([str(options.log)] if options.log is not None else [])]  # noqa: PTH109
    folders += [*_shared_headers(), *own_folders]
    guard = Guard(folders, script=str(path))
    _limit("RLIMIT_FSIZE", _LARGEST_FILE)
    if options.cpu_s is not None:
        _limit("RLIMIT_CPU", math.ceil(time.process_time() + options.cpu_s))
    path.write_text(text, "utf-8")
    code = compile(text, str(path), "exec", dont_inherit=True)
    linecache.clearcache()
    module = _main_module(path, options.arguments)
    _tell_parsed_arguments(tell)
    guard.install()
    _watch_saving(guard)
    tell({"step": "run"})
    # Every run draws the same numbers: torch's generator begins elsewhere in each worker, Python's own in each child.
    seed_generators(options.seed)
    with _recorded(options.log, options.parity_calls), _told(path, text, tell) if options.look else contextlib.nullcontext():
        if options.until is not None and options.log is not None:
            stop_compiling_when(_Watch(options.log, options.until, tell))
        problem = _execute(code, module, eager=options.eager)
    if guard.refusals:
        tell({"refused": guard.refusals[0], "refused_line": guard.line})
    tell(problem if problem is not None else {"ended": True})


def _shared_headers() -> list[str]:
    """The compiler's, not the candidate's: made before the guard would refuse to make it."""
    folder = header_folder()
    with contextlib.suppress(OSError):
        Path(folder or os.curdir).mkdir(parents=True, exist_ok=True)
    return [] if folder is None else [folder]


def _execute(code: types.CodeType, module: types.ModuleType, *, eager: bool) -> dict[str, Any] | None:
    try:
        if eager:
            torch.compiler.set_stance("force_eager")
        exec(code, vars(module))
    except SystemExit as ended:
        return None if ended.code in (None, 0) else {"failure": Failure(kind="exit", phase="run", message=f"exit {ended.code}").to_json()}
    except BaseException as error:  # noqa: BLE001 - the border around a candidate
        # A file that is missing is the script's own matter: it runs in an empty directory.
        trouble = None if isinstance(error, FileNotFoundError) else environment_trouble(error)
        return {"failure": _failure(error).to_json(), "environment": trouble}
    return None


def _failure(error: BaseException) -> Failure:
    """The failure of a script: its own functions and lines are no part of the signature, they go while it shrinks."""
    found = out_of_memory(error, "call") if ran_out_of_memory(error) else from_exception(error, "call")
    compiling = any(lies_in(name, "torch._dynamo.exc", "torch._inductor.exc") for name in found.exceptions) or _while_compiling(error)
    frames = tuple(frame for frame in found.frames if not frame.startswith(f"{FILE}:"))
    phase = ("compile" if raised_in_back_end(error) else "trace") if compiling else "call"
    return replace(found, frames=frames, phase=phase, kind="compile_error" if compiling else found.kind)


def _while_compiling(error: BaseException) -> bool:
    """Whether it came out of Dynamo while it compiled a frame: broken constraints on sizes are raised as they are (2.11 to 2.15)."""
    return any(Path(frame.filename).parts[-3:] == _CONVERTS for frame in traceback.extract_tb(error.__traceback__))


def _main_module(path: Path, arguments: tuple[str, ...]) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__file__ = str(path)
    sys.modules["__main__"] = module
    sys.argv = [str(path), *arguments]
    sys.path[0:0] = [str(path.parent)]
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - it stays open as long as the process
    sys.dont_write_bytecode = True
    return module


@contextlib.contextmanager
def _recorded(log: Path | None, parity_calls: int) -> Iterator[None]:
    if log is None:
        yield
        return
    with dynadiag.observe(log, force=True, parity_calls=parity_calls):
        yield


def _tell_parsed_arguments(tell: Tell) -> None:
    """What `parse_args` gave, so that a pass can put it in its place."""
    plain = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        found = plain(self, *args, **kwargs)
        with contextlib.suppress(TypeError, ValueError):
            if all(value is None or isinstance(value, bool | int | float | str | list) for value in vars(found).values()):
                tell({"namespace": vars(found)})
        return found

    argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign]


def _watch_saving(guard: Guard) -> None:
    """`torch.save` writes in C++ (`PyTorchFileWriter`), which no audit hook sees."""
    plain = torch.save

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        guard.check_write(f)
        plain(obj, f, *args, **kwargs)

    torch.save = torch.serialization.save = save


def _limit(name: str, most: int) -> None:
    """What prints without end shall not fill the disk, and what costs far more than the program it comes from is none the better."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(getattr(resource, name), (most, resource.RLIM_INFINITY if name == "RLIMIT_CPU" else most))


@contextlib.contextmanager
def _told(path: Path, text: str, tell: Tell) -> Iterator[None]:
    tracer = Tracer(str(path), text)
    try:
        with tracer:
            yield
    finally:
        tell({"lines": sorted(tracer.lines), "values": tracer.values})


class _Watch:
    """Whether the log that grows shows the failure by now; read again only when it has a new record that may be it."""

    def __init__(self, log: Path, wanted: Failure, tell: Tell) -> None:
        self._log, self._wanted, self._tell = log, wanted, tell
        self._read: dict[Path, int] = {}

    def __call__(self) -> bool:
        if not self._has_news() or not any(failure.same_as(self._wanted) for failure in failures_in(self._log, self._wanted.kind)):
            return False
        self._tell({"shown": True})
        return True

    def _has_news(self) -> bool:
        """Every log is looked at, so that each record is seen once."""
        told = [self._tells(file) for file in self._log.glob("*.log")]
        return any(told)

    def _tells(self, file: Path) -> bool:
        with file.open("rb") as stream:
            stream.seek(self._read.get(file, 0))
            news = stream.read()
        self._read[file] = self._read.get(file, 0) + len(news)
        return MARKS[self._wanted.kind] in news
