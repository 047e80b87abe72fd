"""Stacks: the interned ones of `dynamo_start` and the printed ones of tracebacks, as `Location`s."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dynadiag.model.location import Location
from dynadiag.trace.values import as_dict, as_id, as_int, as_list, as_text

_FILE_LINE = re.compile(r'^ *File "(.*)", line (\d{1,9})(?:, in (.*))?$')
_MARKS = frozenset(" ~^")
LONGEST_STACK = 400


def interned_stack(value: object, strings: Mapping[int, str], inherited: Mapping[int, str]) -> tuple[Location, ...]:
    """The locations of a stack whose file names are numbers of torch's intern table (`torch._logging.structured.from_traceback`).

    `inherited` is the table of the process that it was forked from.
    """
    return tuple(_interned(as_dict(entry), strings, inherited) for entry in as_list(value)[-LONGEST_STACK:])


def _interned(entry: Mapping[str, Any], strings: Mapping[int, str], inherited: Mapping[int, str]) -> Location:
    number = as_id(entry.get("filename"))
    name = (strings.get(number) or inherited.get(number)) if number is not None else None
    return Location(name or "<unknown>", as_int(entry.get("line")), as_text(entry.get("name")), _stripped(entry.get("loc")))


def named_stack(value: object) -> tuple[Location, ...]:
    """The locations of a stack as dynadiag's own records hold it: [{file, line, function, code}]."""
    found = []
    for entry in map(as_dict, as_list(value)[-LONGEST_STACK:]):
        file = as_text(entry.get("file"))
        if file is not None:
            found.append(Location(file, as_int(entry.get("line")), as_text(entry.get("function")), _stripped(entry.get("code"))))
    return tuple(found)


def _stripped(value: object) -> str | None:
    text = as_text(value)
    return text.strip() or None if text is not None else None


def printed_stack(lines: Iterable[str]) -> tuple[Location, ...]:
    """The locations in lines of `traceback.format_list` (with or without the marks under the code that Python 3.11 added)."""
    found: list[Location] = []
    for line in lines:
        match = _FILE_LINE.match(line)
        if match:
            found.append(Location(match.group(1), int(match.group(2)), match.group(3)))
        elif found and found[-1].code is None and line.strip() and not _MARKS.issuperset(line):
            last = found[-1]
            found[-1] = Location(last.file, last.line, last.function, line.strip())
    return tuple(found[-LONGEST_STACK:])


@functools.lru_cache(maxsize=4096)
def printed_stack_of(text: str) -> tuple[Location, ...]:
    """`printed_stack` of a whole text; remembered, since the nodes and the compilations of one function print the same stacks."""
    return printed_stack(text.split("\n"))


def is_stack_line(line: str) -> bool:
    """Whether this line begins an entry of a printed stack."""
    return _FILE_LINE.match(line) is not None
