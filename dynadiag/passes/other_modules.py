"""Recompiles that are none of a change: another compiled module came to the code through which torch enters all of them.

A compiled nn.Module of torch's own classes is entered through one function for all modules (`inner` of `torch/_dynamo/external_utils.py`,
2.11 and 2.15). The first call of a second module then fails the guards of the first one's version, by the size of its input for example.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dynadiag.facts.guard_sources import stripped
from dynadiag.model.run import Run
from dynadiag.passes.guard_parts import FailedGuard
from dynadiag.passes.transitions import CodeObject, Step

Parameters = Mapping[str, frozenset[tuple[str, tuple[int, ...] | None]]]


def parameters(run: Run) -> Parameters:
    """The parameters of each frame, by frame id: their sources and shapes tell modules apart."""
    found: dict[str, set[tuple[str, tuple[int, ...] | None]]] = {}
    for traced_input in run.traced_inputs:
        if traced_input.is_parameter:
            found.setdefault(traced_input.frame, set()).add((traced_input.source, traced_input.shape))
    return {frame: frozenset(held) for frame, held in found.items()}


def parts_with_parameters(run: Run) -> Mapping[str, frozenset[str]]:
    """The attributes of each frame's object that are modules with parameters, by frame id: `lin` for `self.lin.weight`."""
    found: dict[str, set[str]] = {}
    for traced_input in run.traced_inputs:
        part = _PART.match(stripped(traced_input.source)) if traced_input.is_parameter else None
        if part is not None:
            found.setdefault(traced_input.frame, set()).add(part[1] or part[2])
    return {frame: frozenset(names) for frame, names in found.items()}


# torch writes `L['self'].__dict__['_modules']['lin']` for a module that counts its calls, since such an attribute changes.
_PART = re.compile(r"self\.(?:(?:__dict__\[')?_modules(?:'\])?\['(\w+)'\]|(?!_|__dict__)(\w+)[.\[])")


def told_apart(code: CodeObject, held: Parameters) -> CodeObject:
    """The code object with what other modules' versions had failed on left out, and `module` as the cause where nothing else is left."""
    frames = {frame.key.text: frame.id for frame in code.frames}
    return replace(code, steps=tuple(_told(step, frames, held) for step in code.steps))


def _told(step: Step, frames: Mapping[str, str], held: Parameters) -> Step:
    others = [guard for guard in step.guards if _of_another(guard, step, frames, held)]
    if not others:
        return step
    same = tuple(guard for guard in step.guards if guard.entry is not None and guard not in others)
    module = FailedGuard("module", "module", None, None, others[0].text, entry=others[0].entry, raw_source="fn")
    return replace(step, guards=same or (module,))


def _of_another(guard: FailedGuard, step: Step, frames: Mapping[str, str], held: Parameters) -> bool:
    mine, theirs = held.get(step.frame.id), held.get(frames.get(guard.entry or "", ""))
    if not mine or not theirs or (step.frame.outcome == "failed" and mine <= theirs):  # a failed compilation had not read all of them
        return False
    return _differ(dict(mine), dict(theirs)) and "Guard failed on a parameter" not in guard.text


def _differ(mine: Mapping[str, object], theirs: Mapping[str, object]) -> bool:
    """Whether the parameters are those of two modules. One module may use other parts of itself: what both versions read is the same."""
    both = mine.keys() & theirs.keys()
    return not both or any(mine[source] != theirs[source] for source in both)
