"""Which loop of a script makes its steps, asked from a process of its own before any arm runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dynadiag.bench.arms import ArmSpec
from dynadiag.bench.process import ArmFailedError, ArmProcess
from dynadiag.errors import UsageError


def find_loop(arms: Sequence[ArmSpec], start: Callable[[ArmSpec], ArmProcess], *, timeout_s: float) -> tuple[list[ArmSpec], str]:
    """The arms with the line of their common loop, and what one step is, in words; a loop that was named is not looked for.

    The first arm in which a loop is found decides: all run the same file. Raises UsageError with what the first arm said when none has one.
    """
    script = Path(arms[0].target).name
    if arms[0].loop is not None:
        return list(arms), f"one iteration of the loop at {script}:{arms[0].loop}, which was named"
    errors = []
    for arm in arms:
        process = start(arm)
        try:
            found = process.ask({"do": "find_loop", "target": arm.target, "arguments": arm.arguments}, timeout_s=timeout_s)
        except (UsageError, ArmFailedError) as error:
            errors.append(error.message)
            continue
        finally:
            process.kill()
        unit = f"one iteration of the loop at {script}:{found['line']}, {found['what']}"
        return [replace(one, loop=found["line"]) for one in arms], unit
    raise UsageError(errors[0])
