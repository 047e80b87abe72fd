"""The imports that code to copy needs and that the recorded source of the program does not show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import Run
from dynadiag.source.imports import TORCH, imports_of, name_of_torch, with_torch_as

_MODULES = ("torch", "logging", "warnings", "math")
_USED = {name: re.compile(rf"(?<![\w.]){name}\.(?=[A-Za-z_])") for name in _MODULES}
_IMPORTED = {name: re.compile(rf"^import (?:.*, )?{name}(?:\.[\w.]+)?\s*(?:,|#|$)", re.MULTILINE) for name in _MODULES}
# Names that our advice uses alone, and where they are (`torch/_dynamo/backends/common.py`, 2.11 to 2.15).
_FROM = {"aot_autograd(": "from torch._dynamo.backends.common import aot_autograd"}

_IMPORT = re.compile(r"^(?:import|from) .*", re.MULTILINE)


def with_imports(advice: Advice, where: Location | None, run: Run) -> Advice:
    """The advice with the imports of what its new code names and neither its old code nor the file's recorded source does.

    A line that is rewritten calls torch what its file calls it.
    """
    known = frozenset[str]() if where is None else _known(run).get(where.file, frozenset())
    name = None if where is None or advice.before is None else name_of_torch(imports_of(where.file, run))
    if name is not None and advice.after is not None and TORCH not in known | _names(advice.before or ""):
        advice = replace(advice, after="\n".join(with_torch_as(advice.after.split("\n"), name)))
    needed = tuple(_needed(advice, known))
    return replace(advice, imports=(*advice.imports, *needed)) if needed else advice


def _needed(advice: Advice, known: frozenset[str]) -> Iterator[str]:
    new, known = advice.after or "", known | _names(advice.before or "")
    yield from (f"import {name}" for name, used in _USED.items() if name not in known and used.search(new))
    yield from (statement for call, statement in _FROM.items() if call in new and call not in known)


def _names(text: str) -> frozenset[str]:
    """The modules that a text uses or imports, and the names of `_FROM` in it."""
    code = _IMPORT.sub("", text)
    modules = (name for name, used in _USED.items() if used.search(code) or _IMPORTED[name].search(text))
    return frozenset((*modules, *(call for call in _FROM if call in text)))


@of_last_run
def _known(run: Run) -> Mapping[str, frozenset[str]]:
    """The names in what is recorded of each file: its imports, blocks and functions, the lines of stacks and of calls of torch.compile."""
    found: dict[str, list[str]] = {}
    for (file, _), text in run.blocks.items():
        found.setdefault(file, []).append(text)
    for function in run.functions:
        found.setdefault(function.file, []).append(function.text)
    calls = tuple(call.location for call in run.compile_calls if call.location is not None)
    stacks = [calls, *(event.stack for event in run.breaks), *(frame.callers for frame in run.frames)]
    for place in {place for stack in stacks for place in stack if place.code}:
        found.setdefault(place.file, []).append(str(place.code))
    return {file: _names("\n".join(texts)) for file, texts in found.items()}
