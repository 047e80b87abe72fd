"""The program of an arm's process: takes commands as JSON lines, does one at a time, answers each with one line.

    python -P -m dynadiag.bench.inside.main READ_FD WRITE_FD [MODULE...]

The process that has a command is the one that runs; the others wait for theirs. That is the baton.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import dynadiag
from dynadiag.bench.inside.arm import Arm
from dynadiag.bench.inside.looping import LoopRun, find_loop
from dynadiag.bench.inside.shapes import ShapeReplay
from dynadiag.bench.inside.work import measure_ceilings
from dynadiag.capture import overlay
from dynadiag.capture.script import is_out_of_memory, one_line
from dynadiag.errors import DynadiagError, UsageError
from dynadiag.json_lines import Speaker
from dynadiag.torch_compat.versions import require


class Server:
    """Serves commands until the other side closes the pipe or says "quit", and then ends the process.

    A script that is taken over stays in the middle of a call: the commands after that are served from there.
    """

    def __init__(self, commands: int, replies: int) -> None:
        self._commands = os.fdopen(commands, "r", encoding="utf-8")
        self._say = Speaker(replies).say
        os.set_inheritable(commands, False)
        os.set_inheritable(replies, False)
        self._arms: dict[str, Arm] = {}
        self._instead_of: tuple[str, str] | None = None

    def serve(self) -> NoReturn:
        """Do one command after the other."""
        while True:
            command = self._receive()
            self._answer(lambda command=command: self._do(command))  # type: ignore[misc]

    def _receive(self) -> dict[str, Any]:
        line = self._commands.readline()
        command: dict[str, Any] = json.loads(line) if line else {"do": "quit"}
        if command["do"] != "quit":
            return command
        # Interpreters with CUDA and compile workers take seconds to leave in order, and nothing is left to be saved.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _answer(self, work: Callable[[], Any]) -> None:
        """Say what `work` gives, or what went wrong in one line (the traceback goes to the arm's log)."""
        try:
            reply = {"result": work()}
        except DynadiagError as error:
            traceback.print_exc()
            reply = {"error": error.slug, "text": error.message, "calls": getattr(error, "calls", None)}
        except SystemExit as error:
            # Not left to go on: a script that was taken over would seem to have ended before it was.
            traceback.print_exc()
            reply = {"error": "user-code", "text": f"the program exited with status {error.code}"[:300]}
        except ImportError as error:
            traceback.print_exc()
            reply = {"error": "torch-unsupported", "text": f"torch cannot be imported: {error}"}
        except Exception as error:  # noqa: BLE001 - the border around user code
            traceback.print_exc()
            kind = "out-of-memory" if "torch" in sys.modules and is_out_of_memory(error) else "user-code"
            reply = {"error": kind, "text": one_line(error)[:300]}
        self._say(reply)
        sys.stdout.flush()

    def _phase(self, phase: str) -> None:
        self._say({"phase": phase})

    def _load(self, command: dict[str, Any]) -> dict[str, Any]:
        require("bench")
        self._settings(command)
        if command.get("script") is not None:
            self._take_over(command)
        if command.get("loop") is not None:
            self._phase("running up to the loop")
            LoopRun(command["target"], command["arguments"], command["loop"], self._receive, self._answer).run_to_end()
        return self._welcome(command, Arm.load(command, self._phase, shared=list(self._arms.values())))

    def _welcome(self, command: dict[str, Any], arm: Arm) -> dict[str, Any]:
        _check_back_ends(command.get("back_ends", ()))
        self._arms[command["arm"]] = arm
        self._check_version()
        return arm.about()

    def _settings(self, command: dict[str, Any]) -> None:
        """What the whole process needs before the program is loaded."""
        sys.argv = [command["target"], *command.get("arguments", ())]
        folder = command.get("folder")
        if folder:
            os.chdir(Path(folder))
        overlay.install(command.get("texts") or {})
        if command.get("instead_of"):
            self._instead_of = top, copy = command["instead_of"]
            prefer_copy(top, copy)

    def _check_version(self) -> None:
        if self._instead_of is not None:
            refuse_working_tree(*self._instead_of)

    def _take_over(self, command: dict[str, Any]) -> NoReturn:
        """Serve from inside the script's call on; comes back only by an error."""

        def hand_over(make: Callable[[], Arm]) -> NoReturn:
            self._answer(lambda: self._welcome(command, make()))
            self.serve()

        Arm.take_over(command, self._phase, hand_over)

    def _do(self, command: dict[str, Any]) -> Any:
        if command["do"] == "wait":
            return None
        if command["do"] == "find_loop":
            return asdict(find_loop(command["target"], command["arguments"]))
        if command["do"] == "load":
            return self._load(command)
        arm = self._arms[command["arm"]]
        if command["do"] == "prepare":
            if not command.get("check", True):
                return arm.settle(self._phase)
            facts = arm.prepare(self._phase, save=command.get("save"), same_as=command.get("same_as"))
            # Once more: a step may import when it is called.
            self._check_version()
            return facts
        if command["do"] == "warm":
            return arm.warm()
        if command["do"] == "block":
            return asdict(arm.block(int(command["calls"])))
        if command["do"] == "finish":
            return arm.finish()
        if command["do"] == "work":
            return arm.work()
        if command["do"] == "prices":
            return arm.prices(float(command["max_s"]))
        if command["do"] == "ceilings":
            return measure_ceilings()
        if command["do"] == "shapes" and arm.shapes is not None:
            return _about_shapes(arm.shapes, command)
        raise DynadiagError(f"an arm does not know the command {command['do']!r}")


def _check_back_ends(names: Iterable[str]) -> None:
    """Refuse a back end of any arm that nobody has registered, also the program that is loaded now: one that is misspelt is never timed."""
    from dynadiag.torch_compat.dynamo.replaying import is_backend

    for name in names:
        if not is_backend(name):
            raise UsageError(f"torch has no back end {name!r} here: torch._dynamo.list_backends() names those that it has")


def _end_without(commands: int) -> None:
    """End this process and what it started once nobody can send commands any more: who holds it was killed, whatever it is doing."""
    poller = select.poll()
    poller.register(commands, 0)  # nothing but the end
    poller.poll()
    os.killpg(0, signal.SIGKILL)


def _about_shapes(shapes: ShapeReplay, command: dict[str, Any]) -> Any:
    index, what = int(command.get("index", 0)), command["shape"]
    if what == "list":
        return shapes.listed()
    if what == "check":
        return shapes.check(index)
    if what == "settle":
        return shapes.settle()
    if what == "warm":
        return shapes.warm(index)
    if what == "block":
        return asdict(shapes.block(index, int(command["calls"])))
    return shapes.regions(index)


def prefer_copy(top: str, copy: str) -> None:
    """Replace entries of `sys.path` inside the working tree by the same folder of the copy, where that has it."""
    own = Path(dynadiag.__file__).parents[1]
    sys.path[:] = [entry if Path(entry) == own else str(_in_copy(entry, top, copy) or entry) for entry in sys.path]


def refuse_working_tree(top: str, copy: str) -> None:
    """Raise UsageError when a module that the revision has was imported from the working tree: an editable install names that."""
    own = Path(dynadiag.__file__).parent
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or Path(file).is_relative_to(own) or _in_copy(file, top, copy) is None:
            continue
        where = Path(file).relative_to(top)
        raise UsageError(
            f"--git: {name} was imported from the working tree ({where}), not from the revision, so both versions would run the same code; "
            "put its folder on PYTHONPATH or install it without --editable"
        )


def _in_copy(path: str, top: str, copy: str) -> Path | None:
    """Where the copy has a file or folder of the working tree; None where it has none."""
    if not Path(path).is_relative_to(top):
        return None
    found = Path(copy) / Path(path).relative_to(top)
    return found if found.exists() else None


def main(commands: int, replies: int, *early: str) -> NoReturn:
    """Serve for as long as somebody can send commands; what can be imported `early` is there when the first one comes."""
    threading.Thread(target=_end_without, args=(commands,), daemon=True).start()
    for name in early:
        with contextlib.suppress(Exception):  # the program's own import says it
            importlib.import_module(name)
    Server(commands, replies).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
