"""What log lines of torch carry in front of the message, in every shape that people paste: ranks, colours, times, compile ids."""

from __future__ import annotations

import re
from typing import NamedTuple

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
RANK = re.compile(r"^\s*(?:\[?(default|trainer|rank|worker)?\s?(\d{1,6})(?:\|\d+)?\]:|\[[\w.-]{1,100}?(\d{1,6})\|?\d{0,9}\]:|(\d{1,6}): )")
GLOG = re.compile(r"^([VDIWEC])(\d{4} \d\d:\d\d:\d\d(?:[.,]\d+)?) (\d{1,40}+) ?(\S[^\]]*?:\d+)\](?: \[(!?[\d/_!-]+)\])?(?: \[__(\w+)\])? ?")
BRACKET = re.compile(r"^\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)\](?: \[(!?[\d/_!-]+)\])? ([\w.]+)(?:\.__(\w+))?: \[(\w+)\] ?")
_NAMED = re.compile(r"^(torch[\w.]*): \[(DEBUG|INFO|WARNING|ERROR|CRITICAL)\] ?")
_PLAIN = re.compile(r"^(?:\d{4}-\d\d-\d\d[ T][\d:.,]+ ?)?\[?(DEBUG|INFO|WARNING|ERROR)\]?[: ]+(torch[\w.]*)(?:\.__(\w+))?[: ]+")


_FIRST = "VDIWECt[0123456789"  # how what a logger puts in front of a message begins
# How a line begins that has any prefix at all; a superset.
_MAY_BEGIN = re.compile(r"(?m)^\s*(?:[\[\d]|[VDIWEC]\d|torch|default|trainer|rank|worker|DEBUG|INFO|WARN|ERROR)|\x1b")


class Prefix(NamedTuple):
    """What stood in front of a message; all None for a bare line."""

    rank: int | None = None
    stamp: str | None = None
    pid: int | None = None
    place: str | None = None
    compile_id: str | None = None
    artifact: str | None = None
    level: str | None = None
    old_style: bool = False

    @property
    def known(self) -> bool:
        """Whether the line carried a prefix of a logger at all."""
        return self.level is not None


BARE = Prefix()


def without_escapes(text: str) -> str:
    """A text without colours and other escape sequences of terminals."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def split_line(line: str) -> tuple[Prefix, str]:
    """A line's prefix and its message, without colour escapes."""
    line = without_escapes(line)
    rank, line = _rank(line)
    first = line[:1]
    if first not in _FIRST:
        return (Prefix(rank=rank) if rank is not None else BARE), line
    match = GLOG.match(line) if first in "VDIWEC" else None
    if match:
        level, stamp, pid, place, compile_id, artifact = match.groups()
        number = int(pid) or None if len(pid) < 19 else None  # 0: not known
        return Prefix(rank, stamp, number, place, compile_id, artifact, level), line[match.end() :]
    match = BRACKET.match(line) if first == "[" else None
    if match:
        stamp, compile_id, place, artifact, level = match.groups()
        return Prefix(rank, stamp, None, place, compile_id, artifact, level, old_style=True), line[match.end() :]
    match = _NAMED.match(line) if first == "t" else None
    if match:
        return Prefix(rank, None, None, match.group(1), None, None, match.group(2), old_style=True), line[match.end() :]
    match = _PLAIN.match(line) if first != "t" else None
    if match:
        return Prefix(rank, None, None, match.group(2), None, match.group(3), match.group(1), old_style=True), line[match.end() :]
    return (Prefix(rank=rank) if rank is not None else BARE), line


def _rank(line: str) -> tuple[int | None, str]:
    if not line[:1].isspace() and line[:1] not in "[0123456789drtw":
        return None, line
    match = RANK.match(line)
    if match is None:
        return None, line
    number = int(match[match.lastindex or 0])
    # A space behind the prefix belongs to it where the text would begin with one alone; torch writes "[rank0]: " before indented lines too.
    begin = match.end()
    space = line[begin : begin + 2]
    indented = len(space) == 2 and space[1].isspace()
    return number, line[begin + (space[:1].isspace() and (not indented or match[1] == "rank")) :]


def strip_prefixes(text: str) -> str:
    """A text cut out of a log, without the prefixes of its lines."""
    if _MAY_BEGIN.search(text) is None:
        return text
    return "\n".join(split_line(line)[1] for line in text.split("\n"))
