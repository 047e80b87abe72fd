"""Which messages Dynamo can give later (`reorderable_logging_functions`): those of the compiled function itself, and no others.

Dynamo keeps what a function says with that function (`debug_locals`) and replays it where the graph ends, for the compiled function only
(`OutputGraph.codegen_suffix`, torch 2.11 and 2.15): what an inlined function says is lost without a word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dynadiag.facts.lookups import compiled_in_epochs
from dynadiag.facts.user_frames import is_standard_library, of_last_run, source_function
from dynadiag.model.location import Location
from dynadiag.model.report import GraphBreak
from dynadiag.model.run import BreakEvent, Frame, Run
from dynadiag.source.effects import said_later_is_lost, written_later
from dynadiag.source.place import function_around

THIS_LINE = ""
_KINDS = re.compile(r"\b(\w+Variable)\b")
_CONSTANTS = frozenset({"ConstantVariable", "SizeVariable", "BuiltinVariable"})
_SAYS = re.compile(
    r"builtin (print) \[|<built-in function (print|warn)>|module: _warnings, qualname: (warn)\b|<\w+ [^\n]*? \(\w+\)>\.(\w+), args"
)
_MOST_SITES = 2000


def in_compiled_function(frame: Frame | None, stack: Sequence[Location], run: Run) -> bool:
    """Whether the innermost line is in the compiled function itself: inlined into none, and called by none that is compiled."""
    if frame is None or not stack:
        return False
    last, key, compiled = stack[-1], (frame.key.process, frame.key.epoch), compiled_in_epochs(run)
    itself = last.file == frame.file and source_function(last.function) == source_function(frame.name)
    return itself and not any((location.file, source_function(location.function), *key) in compiled for location in stack[:-1])


def unheard(event: BreakEvent | GraphBreak, run: Run) -> Mapping[str, str]:
    """What Dynamo would lose if it were to say it later, with the inlined function that says it.

    By name: `print`, `warn`, the method of a logger, for all lines that broke between the same resets, since the option applies to each
    ("" where a line says it that would tell other values later, or nothing);
    and `THIS_LINE` where the line of this break is such a one.
    """
    names = (event.frame,) if isinstance(event, BreakEvent) else event.frames
    frame = run.frame(names[0]) if names else None
    if frame is None:
        return {THIS_LINE: "", "print": "", "warn": ""}  # nothing is known of where it stands
    by_name, by_line = _inlined(run).get((frame.key.process, frame.key.epoch), ({}, {}))
    place = event.torch_frame or (event.stack[-1] if event.stack else None)
    own = by_line.get(place) if place is not None else None
    return by_name if own is None else {**by_name, THIS_LINE: own}


@of_last_run
def _inlined(run: Run) -> Mapping[tuple[int, int], tuple[dict[str, str], dict[Location, str]]]:
    """By process and epoch the names of what is said in inlined functions, and the lines there."""
    found: dict[tuple[int, int], tuple[dict[str, str], dict[Location, str]]] = {}
    for event in run.breaks:
        frame = run.frame(event.frame)
        stack = event.stack
        while stack and is_standard_library(stack[-1].file):
            stack = stack[:-1]
        said = _SAYS.search(event.context or "")
        if frame is None or not stack:
            continue
        names, lines = found.setdefault((frame.key.process, frame.key.epoch), ({}, {}))
        if in_compiled_function(frame, stack, run):
            if said is not None and _is_other_later(event, stack[-1], run):
                names.setdefault(next(group for group in said.groups() if group), "")
            continue
        function = source_function(stack[-1].function) or ""
        if said is not None:
            names[next(item for item in said.groups() if item)] = function
        if event.torch_frame is not None and len(lines) < _MOST_SITES:
            lines.setdefault(event.torch_frame, function)
    return found


def _is_other_later(event: BreakEvent, line: Location, run: Run) -> bool:
    """Whether the message of the line may be lost, or have other values, where it is given after the graph."""
    place = function_around(run, line.file, line.line)
    constant = frozenset(_KINDS.findall(event.context or "")) <= _CONSTANTS
    return place is not None and (said_later_is_lost(place) or (not constant and written_later(place)))
