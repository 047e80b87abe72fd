"""A process that has imported torch's compiler and compiled nothing, forked for further runs of a proof. No torch in this file.

To import torch and Dynamo costs 3.5 to 4 of the 5 CPU seconds of a small reproducer (torch 2.15): the reducer has paid them already.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from dynadiag.children.forked import end_with_parent
from dynadiag.children.worker import Channel, WorkerEndedError
from dynadiag.json_lines import Speaker

OUTPUT = "output"


class Template:
    """The process. It is forked where nothing was compiled yet, and must have no thread of torch's; `close` counts its CPU seconds in."""

    def __init__(self) -> None:
        self._path, self._imported_from = sys.path[1:], _imported_from()
        asked, answered = os.pipe(), os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # as in `forked`: no lock of another thread is taken
            self._pid = os.fork()
        if self._pid == 0:
            os.close(asked[1])
            os.close(answered[0])
            _serve(parent, asked[0], answered[1])
        os.close(asked[0])
        os.close(answered[1])
        self._channel = Channel(asked[1], answered[0])
        self.child: int | None = None

    @functools.cached_property
    def path(self) -> list[str] | None:
        """Where a run looks for modules, behind its own folder: without PYTHONPATH. None where a module came from nowhere else."""
        if "PYTHONPATH" not in os.environ:
            return self._path
        path = _path_without_the_users()
        elsewhere = (name for name, folder in self._imported_from.items() if folder not in path and name not in _OURS)
        return None if not path or any(elsewhere) else path

    def run_file(self, file: Path, *, environment: Mapping[str, str], timeout_s: float) -> tuple[int | None, str]:
        """Run the file as `python FILE` in its folder, with these variables alone; gives what `proving.run_fresh` gives.

        Raises OSError when the process is gone.
        """
        output = file.parent.with_name(OUTPUT)
        job = {"file": str(file), "environment": dict(environment), "output": str(output), "path": self.path}
        try:
            self.child = (self._channel.ask(job) or {}).get("child")
            ended = self._channel.hear(timeout_s)
            if ended is None and self.child is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.child, signal.SIGKILL)
                self._channel.hear()
        except WorkerEndedError:
            raise OSError("the process from which proofs are forked has ended") from None
        self.child = None
        printed = output.read_bytes().decode("utf-8", "replace") if output.exists() else ""
        return None if ended is None else ended["status"], printed

    def close(self) -> None:
        """End it, with a run that is not over."""
        self._channel.close()
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


_OURS = ("dynadiag", "dynadiag_cli", "__main__", "__mp_main__")


def _imported_from() -> dict[str, str]:
    """The entry of `sys.path` that each package and module at the top came from; those of no file have none."""
    specs = {name: getattr(module, "__spec__", None) for name, module in list(sys.modules.items()) if "." not in name}
    origins = {name: spec.origin for name, spec in specs.items() if spec is not None and spec.has_location and spec.origin}
    return {name: str(Path(origin).parents[1 if Path(origin).stem == "__init__" else 0]) for name, origin in origins.items()}


def _path_without_the_users() -> list[str]:
    """`sys.path` of an interpreter that has no PYTHONPATH, without its first entry; nothing where it does not say."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    try:
        said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
        return [str(entry) for entry in json.loads(said.splitlines()[-1])]
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return []


_now: Template | None = None


@contextlib.contextmanager
def template() -> Iterator[None]:
    """Inside, proofs may be forked from this process as it is now."""
    global _now
    _now = Template()
    try:
        yield
    finally:
        _now.close()
        _now = None


def template_now() -> Template | None:
    """The process that proofs are forked from, None where there is none."""
    return _now


def _serve(parent: int, reading: int, writing: int) -> None:
    """In the template: fork for each job, say the process id, then how it ended. Never returns."""
    try:
        end_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        me, speaker = os.getpid(), Speaker(writing)
        with os.fdopen(reading, "r", encoding="utf-8") as jobs:
            for line in jobs:
                child = os.fork()
                if child == 0:
                    os.close(writing)
                    end_with_parent(me)
                    _run(json.loads(line))
                speaker.say({"child": child})
                _, ended = os.waitpid(child, 0)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signal.SIGKILL)  # what it started and left behind
                speaker.say({"status": os.waitstatus_to_exitcode(ended)})
    finally:
        os._exit(0)


def _run(job: Mapping[str, object]) -> None:
    """In the child: the program as the main program. Never returns."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        file = Path(str(job["file"]))
        _set_up_process(file, Path(str(job["output"])), job["environment"])
        sys.path[:] = [str(file.parent), *(job["path"] if isinstance(job["path"], list) else ())]
        gc.freeze()
        gc.enable()
        try:
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            main.__file__ = str(file)
            exec(compile(file.read_bytes(), str(file), "exec", dont_inherit=True), vars(main))
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
        except BaseException as error:  # noqa: BLE001 - the border around a program: what an interpreter prints of it, without this frame
            traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        atexit._run_exitfuncs()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 255)


def _set_up_process(file: Path, output: Path, environment: object) -> None:
    """The folder, variables, streams and path of `python FILE`."""
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(source, target)
    sys.stdin = os.fdopen(0, "r")
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, errors="replace") for number in (1, 2))
    os.environ.clear()
    os.environ.update(environment if isinstance(environment, dict) else {})
    tempfile.tempdir = None
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # Python's own generator is seeded after a fork, numpy's is not
    os.chdir(file.parent)
    sys.argv = [file.name]
