"""The program of an arm's process: takes commands as JSON lines, does one at a time, answers each with one line.

    python -P -m dynadiag.bench.inside.main READ_FD WRITE_FD

The process that has a command is the one that runs; the others wait for theirs. That is the baton.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dynadiag.bench.inside.arm import Arm
from dynadiag.errors import DynadiagError


def main() -> None:
    """Serve commands until the other side closes the pipe or says "quit"."""
    commands = os.fdopen(int(sys.argv[1]), "r", encoding="utf-8")
    replies = os.fdopen(int(sys.argv[2]), "w", encoding="utf-8")
    os.set_inheritable(commands.fileno(), False)
    os.set_inheritable(replies.fileno(), False)
    arms: dict[str, Arm] = {}

    def say(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    for line in commands:
        command = json.loads(line)
        if command["do"] == "quit":
            break
        say(_answer(command, arms, say))
        sys.stdout.flush()
    # Interpreters with CUDA and compile workers take seconds to leave in order, and nothing is left to be saved.
    sys.stderr.flush()
    os._exit(0)


def _answer(command: dict[str, Any], arms: dict[str, Arm], say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The reply to one command: its result, or what went wrong in one line (the traceback goes to the arm's log)."""
    try:
        return {"result": _do(command, arms, lambda phase: say({"phase": phase}))}
    except DynadiagError as error:
        traceback.print_exc()
        return {"error": error.slug, "text": error.message, "exit_code": error.exit_code}
    except ImportError as error:
        traceback.print_exc()
        return {"error": "torch-unsupported", "text": f"torch cannot be imported: {error}", "exit_code": 3}
    except Exception as error:  # noqa: BLE001 - the border around user code
        traceback.print_exc()
        kind = "out-of-memory" if type(error).__name__ in ("OutOfMemoryError", "MemoryError") else "user-code"
        return {"error": kind, "text": _one_line(error), "exit_code": 2}


def _do(command: dict[str, Any], arms: dict[str, Arm], phase: Callable[[str], None]) -> Any:
    name = command["arm"]
    if command["do"] == "load":
        _settings(command)
        arms[name] = Arm.load(command, phase, shared=list(arms.values()))
        return arms[name].about()
    arm = arms[name]
    if command["do"] == "prepare":
        return arm.prepare(phase, save=command.get("save"), same_as=command.get("same_as"))
    if command["do"] == "warm":
        return arm.warm()
    if command["do"] == "block":
        return asdict(arm.block(int(command["calls"])))
    if command["do"] == "finish":
        return arm.finish()
    raise DynadiagError(f"an arm knows no command {command['do']!r}")


def _settings(command: dict[str, Any]) -> None:
    """What the whole process needs before the program is loaded."""
    sys.argv = [command["target"]]
    folder = command.get("folder")
    if folder:
        os.chdir(Path(folder))


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}" if text else type(error).__name__


if __name__ == "__main__":
    main()
