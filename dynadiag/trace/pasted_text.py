"""A small text as torch printed it, without what the ways of pasting put in front of its lines.

People quote logs (`> `), indent them, cut their first line, strip the times, and take them out of containers, CI, pytest and launchers that
have prefixes of their own. A line that torch surely wrote shows what stands in front of it; the lines behind it carry the same, up to the
numbers in it. Nothing is known of any one tool: a prefix consists of times, levels, brackets, quote marks and columns.

What is ambiguous stays as it is. Of a log with records, or of a large one, nothing is changed (`text_log` reads those as they come).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    rank, line = _printed_rank(line)
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


def _printed_rank(line: str) -> tuple[int | None, str]:
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


LARGEST_PASTED = 16 << 20
_LONGEST_LINE = 20_000
_LONGEST_PREFIX = 240
_MOST_PREFIXES = 64
_TIME = r"\d\d:\d\d:\d\d(?:[.,-]\d{1,9})?"
# What may stand in front of torch's own words, piece by piece; a piece takes the spaces behind it only where they belong to it.
_PIECES = re.compile(
    r"(?:(?P<quote>(?:> ?)+|[ \t]*[|│] ?)"
    r"|(?P<time>\[?(?:\d{4}-)?\d\d-\d\d[T ]" + _TIME + r"(?:Z|[+-]\d\d:?\d\d)?\]?[:,]? ?|\[?" + _TIME + r"\]? ?"
    r"|[A-Z][a-z]{2} +\d{1,2} " + _TIME + r" \S{1,80} \S{1,80}: ?)"
    r"|(?P<level>\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|VERBOSE|stderr|stdout|STDERR|STDOUT)\]?:? +(?:F )?|E {2,8}(?=\S))"
    r"|(?P<bracket>\[[^\]\n]{1,80}\](?:<\w{1,12}>)?:? ?)"
    r"|(?P<writer>\([^()\n]{1,120}\):? ?|[A-Za-z][\w.-]{0,80} *\| ?)"
    r"|(?P<mark>(?:\#|//|\*|-) )"
    r"|(?P<space>[ \t]+))"
)
# Lines that torch or Python surely wrote, at their beginning.
_SURE = re.compile(
    r"Traceback \(most recent call last\):|torch\._?dynamo hit |Graph break(?: in user code at |: | \(user stack)"
    r"|Recompiling function \S+ in |(?:WON'T|won't) (?:CONVERT|convert) |skipping cudagraphs? due to "
    r"|(?:torch|triton)(?:\.\w+)*\.[A-Z]\w+: |Graph Count: \d+\s*$|torch\._?dynamo[\w.]*: \["
    r"|   function: '[^']+' \(.*:\d+\)|   last reason: "
)
_OWN = re.compile(r"(?:" + RANK.pattern.lstrip("^") + r" ?)?(?:" + GLOG.pattern.lstrip("^") + r"|" + BRACKET.pattern.lstrip("^") + r")")
_RANKED = re.compile(r"(?:" + RANK.pattern.lstrip("^") + r" ?)(?:" + _SURE.pattern + r")")
_CUT = re.compile(
    r"(?P<place>[^\s\]\[()]*\w\.py:\d{1,7}\])?(?P<id> ?\[!?\d{1,9}(?:/[\d-]{1,9}){1,2}(?:_\d{1,4})?\])?(?P<artifact> ?\[__\w+\])? "
)
_RANK_WORD = re.compile(r"(?:\brank|[_ ]?\bTP|_TP|\bworker|local_rank)[_ =:]?(\d{1,6})\b", re.IGNORECASE)
_FENCE = re.compile(r"^\s*(?:```|~~~|</?(?:details|summary|pre|code)\b)")
_NUMBERS = re.compile(r"\d+")
_LIMIT_CODE = re.compile(r"^\s*function: '[^']+' \(.*:\d{1,9}\)\s*$")
_LIMIT = re.compile(r"^torch\._?dynamo hit ")
_ENTRY = re.compile(r'^( *)File "[^"]*", line \d{1,9}')
_EXCEPTION = re.compile(
    r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Failed|Unsupported|Warning|Exit|Interrupt|Hit|Exceeded|Required|Node|Backend)\b"
)
_HEADS = re.compile(
    r"(?:Traceback \(most recent call last\)|user code(?: at)?|User stack trace|User code traceback|(?:Found from|stack trace) ?):\s*$",
    re.I,
)
_MARKS = frozenset(" ~^")
# The fields of a break's message, and how far torch indents them (`format_graph_break_message`).
_FIELDS = (
    ("Explanation: ", "  "),
    ("Hint: ", "  "),
    ("Developer debug context: ", "  "),
    ("For more details about this graph break, please visit: ", " "),
)
_LEVELS = {"__recompiles": "V", "__recompiles_verbose": "V", "__graph_breaks": "V", "__guards": "V", "__graph_code": "V"}


@dataclass(slots=True)
class _Writer:
    """Whose lines have the same in front of them, and these lines without it; `rank` is what torch would have written there."""

    prefix: re.Pattern[str] | None = None
    rank: str = ""
    lines: list[str] = field(default_factory=list)


def unwrapped(text: str) -> list[str]:
    """The texts in it, one for each writer whose lines are told apart by what stands in front of them."""
    writers = _by_writer(text.removeprefix("\ufeff").split("\n"))
    return ["\n".join(_completed(writer.lines)) for writer in writers if any(map(str.strip, writer.lines))]


def decoded(data: bytes) -> str | None:
    """A text in UTF-16, as PowerShell writes what is redirected into a file; None for all others."""
    return data.decode("utf-16", "replace") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else None


def _by_writer(lines: Sequence[str]) -> list[_Writer]:
    """The lines by writer, in the order in which the writers come; lines that are only indented belong to those without a prefix."""
    shown = list(map(_last_shown, lines))
    prefixes = list(map(_prefix_of, shown))
    known = _writers(prefixes)
    bare = _Writer()
    writer, indent = bare, 0
    for line, prefix in zip(shown, prefixes, strict=True):
        if prefix is not None and not prefix.strip():
            writer, indent = bare, len(prefix)
        elif prefix is not None:
            writer = known.get(_key(prefix), bare)
        else:
            writer = next((item for item in (writer, *known.values()) if item.prefix is not None and item.prefix.match(line)), bare)
        if writer.prefix is not None:
            found = writer.prefix.match(line)
            writer.lines.append(writer.rank + line[len(prefix) if prefix else found.end() if found else 0 :])
            continue
        if _FENCE.match(line):
            line, indent = "", 0
        elif line.strip() and not line[:indent].isspace():
            indent = 0
        bare.lines.append(line[indent:])
    return [bare, *known.values()]


def _writers(prefixes: Sequence[str | None]) -> dict[str, _Writer]:
    """Those whose lines have something in front of torch's words anywhere in the text, which may begin in the middle of a message."""
    known: dict[str, _Writer] = {}
    for prefix in dict.fromkeys(prefixes):
        if prefix and prefix.strip() and len(known) < _MOST_PREFIXES and (key := _key(prefix)) not in known:
            known[key] = _Writer(_pattern(prefix), _rank(prefix))
    return known


def _last_shown(line: str) -> str:
    """A line as a terminal shows it: what a progress bar wrote before a carriage return is gone."""
    line = without_escapes(line.rstrip("\r"))[:_LONGEST_LINE]
    return line.rpartition("\r")[2] if "\r" in line else line


def _prefix_of(line: str) -> str | None:
    """What stands in front of torch's words; "" where nothing does, None for a line that may be anybody's."""
    position = 0
    while position <= _LONGEST_PREFIX:
        if _OWN.match(line, position) or _RANKED.match(line, position) or _SURE.match(line, position) or _cut(line, position) is not None:
            return line[:position]
        piece = _PIECES.match(line, position)
        if piece is None or piece.end() == position:
            return None
        position = piece.end()
    return None


def _cut(line: str, position: int = 0) -> re.Match[str] | None:
    """The end of a logger's prefix whose beginning is missing."""
    found = _CUT.match(line, position)
    if found is None or found.end() == position + 1:
        return None
    sure = found["artifact"] or (found["place"] and found["id"]) or (found["id"] and _SURE.match(line, found.end()))
    return found if sure else None


def _key(prefix: str) -> str:
    """The same for lines of one writer: without times and numbers, but with those in the names of writers."""
    parts = []
    position = 0
    while position < len(prefix):
        piece = _PIECES.match(prefix, position)
        if piece is None:
            parts.append(prefix[position:])
            break
        text = piece[0]
        keep = piece.lastgroup == "writer" or (piece.lastgroup == "bracket" and _RANK_WORD.search(text))
        parts.append(text if keep else _NUMBERS.sub("0", text))
        position = piece.end()
    return "".join(parts)


def _pattern(prefix: str) -> re.Pattern[str]:
    """Matches the prefix with any numbers; its last spaces may be missing where nothing follows."""
    body = prefix.rstrip(" ")
    spaces = len(prefix) - len(body)
    said = "".join(
        _NUMBERS.sub(r"\\d+", re.escape(part)) if number % 2 == 0 else re.escape(part) for number, part in enumerate(_split(body))
    )
    return re.compile(said + (f"(?: {{{spaces}}}|$)" if spaces else ""))


def _split(prefix: str) -> list[str]:
    """The prefix in parts whose numbers may change, and, in between, names of writers, which stay."""
    parts, current, position = [], "", 0
    while position < len(prefix):
        piece = _PIECES.match(prefix, position)
        if piece is None or piece.end() == position:
            current += prefix[position:]
            break
        if piece.lastgroup == "writer" or (piece.lastgroup == "bracket" and _RANK_WORD.search(piece[0])):
            parts += [current, piece[0]]
            current = ""
        else:
            current += piece[0]
        position = piece.end()
    return [*parts, current]


def _rank(prefix: str) -> str:
    """A rank that the prefix names, as torch writes it."""
    found = _RANK_WORD.findall(prefix)
    return f"[rank{found[-1]}]:" if found else ""


@dataclass(slots=True)
class _Stack:
    """The stack that lines of one rank are in: where it began if its first line is missing, and whether it lost its indentation."""

    said: str = ""
    began: int | None = None
    inside: bool = False
    flat: bool = False


def _completed(lines: Sequence[str]) -> list[str]:
    """The lines with what pasting took away.

    That is the front of a logger's prefix, the first line of the warning of a limit, the first line of a traceback, and its indentation.
    """
    whole = _whole_prefixes(lines)
    found: list[str] = []
    stacks: dict[str, _Stack] = {}
    for line in lines:
        full, text = _with_prefix(line, whole)
        rank = _rank_of(full or line)
        if len(stacks) > _MOST_PREFIXES:
            stacks.clear()
        stack = stacks.setdefault(rank, _Stack())
        text, own = (text, "") if full or not rank else (line[len(rank) :].removeprefix(" "), rank)
        if _LIMIT_CODE.match(text) and not _LIMIT.match(stack.said):
            found.append(f"{full}torch._dynamo hit config.recompile_limit")
        if _in_stack(text, stack, found):
            text = f"{'  ' if _ENTRY.match(text) else '    '}{text}"
        if stack.began is not None and not stack.inside:
            found[stack.began] = f"{rank}Traceback (most recent call last):\n{found[stack.began]}"
            stack.began = None
        stack.said = text if text.strip() else stack.said
        text = next((f"{indent}{text}" for start, indent in _FIELDS if text.startswith(start)), text)
        found.append(f"{full}{f'{own} ' if own else ''}{text}" if own or full else text)
    return found


def _in_stack(text: str, stack: _Stack, found: Sequence[str]) -> bool:
    """Takes a line into account; whether it belongs to a stack that lost its indentation."""
    entry = _ENTRY.match(text)
    if entry is not None:
        if not stack.inside:
            stack.began = None if _HEADS.search(stack.said) else len(found)
        stack.inside, stack.flat = True, not entry[1]
        return stack.flat
    if not stack.inside or (text[:1].isspace() and text.strip()):
        return False
    if stack.flat and text.strip() and (_ENTRY.match(stack.said) or _MARKS.issuperset(text)) and not _SURE.match(text):
        return True
    stack.inside = False
    if not _EXCEPTION.match(text):
        stack.began = None
    return False


def _rank_of(line: str) -> str:
    found = RANK.match(line)
    return found[0].strip() if found is not None else ""


def _whole_prefixes(lines: Sequence[str]) -> dict[str, str]:
    """By its end from the source file on, the first prefix that is whole."""
    found: dict[str, str] = {}
    for line in lines:
        match = _OWN.match(line)
        if match is not None:
            cut = re.search(r"\S*\.py:\d+\].*$", match[0])
            if cut is not None:
                found.setdefault(cut[0].rpartition("/")[2].strip(), match[0])
    return found


def _with_prefix(line: str, whole: dict[str, str]) -> tuple[str, str]:
    """A line's prefix, completed where its front is missing, and its text."""
    match = _OWN.match(line)
    if match is not None:
        return match[0], line[match.end() :]
    rank = RANK.match(line)
    body = line[rank.end() :] if rank is not None else line
    cut = _cut(body)
    if cut is None:
        return "", line
    known = whole.get(cut[0].rpartition("/")[2].strip())
    if known is not None:
        return known, body[cut.end() :]
    artifact = (cut["artifact"] or "").strip(" []")
    place = (cut["place"] or "torch:0]").strip()
    parts = [f"{_LEVELS.get(artifact, 'W')}0101 00:00:00.000000 0 {place}", (cut["id"] or "").strip(), (cut["artifact"] or "").strip()]
    return f"{rank[0] if rank is not None else ''}{' '.join(filter(None, parts))} ", body[cut.end() :]
