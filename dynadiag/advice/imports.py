"""The imports that code to copy needs and that the recorded source of the program does not show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import Run

_MODULES = ("torch", "logging", "warnings", "math")
_USED = {name: re.compile(rf"(?<![\w.]){name}\.(?=[A-Za-z_])") for name in _MODULES}
# Names that our advice uses alone, and where they are (`torch/_dynamo/backends/common.py`, 2.11 to 2.15).
_FROM = {"aot_autograd(": "from torch._dynamo.backends.common import aot_autograd"}

_IMPORT = re.compile(r"^(?:import|from) .*", re.MULTILINE)


def with_imports(advice: Advice, where: Location | None, run: Run) -> Advice:
    """The advice with the imports of what its new code names and neither its old code nor the file's recorded source does."""
    needed = tuple(_needed(advice, _source(where, run)))
    return replace(advice, imports=(*advice.imports, *needed)) if needed else advice


def _needed(advice: Advice, known: str) -> Iterator[str]:
    new = advice.after or ""
    old = f"{advice.before or ''}\n{known}"
    code = _IMPORT.sub("", old)
    for name, used in _USED.items():
        imported = rf"^import (?:.*, )?{name}(?:\.[\w.]+)?\s*(?:,|#|$)"
        if used.search(new) and not used.search(code) and not re.search(imported, old, re.MULTILINE):
            yield f"import {name}"
    yield from (statement for call, statement in _FROM.items() if call in new and call not in old)


def _source(where: Location | None, run: Run) -> str:
    return "" if where is None else _sources(run).get(where.file, "")


@of_last_run
def _sources(run: Run) -> Mapping[str, str]:
    """What is recorded of each file: its imports, blocks and functions, the lines of stacks and of calls of torch.compile."""
    found: dict[str, list[str]] = {}
    for (file, _), text in run.blocks.items():
        found.setdefault(file, []).append(text)
    for one in run.functions:
        found.setdefault(one.file, []).append(one.text)
    calls = tuple(call.location for call in run.compile_calls if call.location is not None)
    stacks = [calls, *(event.stack for event in run.breaks), *(frame.callers for frame in run.frames)]
    for place in {place for stack in stacks for place in stack if place.code}:
        found.setdefault(place.file, []).append(str(place.code))
    return {file: "\n".join(texts) for file, texts in found.items()}
