"""The plain ways to read a recording, understood without Typer, whose import takes longer than a log of a few MB.

Only what is certain is taken: `explain`, one recording, and the few options below, each spelled whole. Everything else (an abbreviation, an
option that is given twice, a script, anything wrong) is left to Typer, which understands these lines in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.trace.sources import is_recording, recording_at

_VALUES = {"--format": "format", "-f": "format", "--output": "output", "-o": "output"}
_FORMATS = frozenset({"text", "json", "md", "html"})


@dataclass(frozen=True)
class Reading:
    """A recording to read, and the fields of `showing.ShowOptions` that the command line sets."""

    path: Path
    options: dict[str, Any]


def reading(words: list[str]) -> Reading | None:
    """What a command line asks for, None when only Typer can tell."""
    if words[:1] != ["explain"]:
        return None
    options: dict[str, Any] = {}
    targets = []
    rest = iter(words[1:])
    for word in rest:
        name, given, value = word.partition("=")
        if word == "--full" and "full" not in options:
            options["full"] = True
        elif word == "--no-pictures" and "renderer" not in options:
            options["renderer"] = None
        elif name in _VALUES and _VALUES[name] not in options and (not given or name.startswith("--")):
            options[_VALUES[name]] = value if given else next(rest, "")
        elif word.startswith("-"):
            return None
        else:
            targets.append(word)
    return _certain(targets, options)


def _certain(targets: list[str], options: dict[str, Any]) -> Reading | None:
    """The reading when all of it is as it should be."""
    output = options.get("output", "-")
    plain = output == "-" or (output and not output.startswith("-"))
    if len(targets) != 1 or not targets[0] or not plain or options.get("format", "text") not in _FORMATS:
        return None
    try:
        return Reading(recording_at(Path(targets[0])), options) if is_recording(Path(targets[0])) else None
    except (DynadiagError, OSError, ValueError):
        return None
