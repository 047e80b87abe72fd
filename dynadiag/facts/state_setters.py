"""The user's own lines that set a state of torch which compiled code is guarded on."""

from __future__ import annotations

import ast

from dynadiag.facts.statements import parsed_module
from dynadiag.facts.user_frames import is_own_file
from dynadiag.model.location import Location
from dynadiag.model.run import Run
from dynadiag.torch_state import SETTERS


def lines_that_set(state: str, run: Run) -> tuple[Location, ...]:
    """The recorded lines with a call that sets this state, in the order of their files; empty where none was recorded."""
    names = SETTERS.get(state, ())
    found = [
        Location(file, line, None, text)
        for (file, line), text in (run.blocks.items() if names else ())
        if "\n" not in text and is_own_file(file, run) and _calls(text, names)
    ]
    return tuple(sorted(found, key=lambda location: (location.file, location.line or 0)))


def _calls(text: str, names: tuple[str, ...]) -> bool:
    tree = parsed_module(text) or parsed_module(f"{text} pass")
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else ()
    return any((call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")) in names for call in calls)
