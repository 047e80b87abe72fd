"""Reads plain text logs: `TORCH_LOGS` output, warnings and tracebacks, pasted with whatever stood in front of their lines.

Lines are put together to messages (torch 2.2 and newer repeats the prefix on every line, older versions print it once), and each message
that `text_events` knows becomes a fact. Everything else is passed over.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from dynadiag.trace.builders import RunBuilder
from dynadiag.trace.pasted_text import Prefix, decoded, split_line, unwrapped, without_escapes
from dynadiag.trace.sources import shown
from dynadiag.trace.text_blocks import NAMES, goes_on_with_traceback
from dynadiag.trace.text_events import MAY_START, OLD_WARNING, TextEvents, starts_message
from dynadiag.trace.values import decode

LONGEST_MESSAGE = 2_000_000
LONGEST_LINE = 100_000
_MOST_OPEN = 64
# How a line may begin that is the first of a message (`text_events._BARE_STARTS`), a logger's (`text_prefix`) or coloured.
_FIRST = (
    rb"[VDIWEC]\d{4} |\[\d{4}-\d\d-|\d{4}-\d\d-\d\d[ T][\d:.,]++ ?\[?(?:DEBUG|INFO|WARNING|ERROR)|"
    rb"\[?(?:DEBUG|INFO|WARNING|ERROR)\]?[: ]++torch|"
    rb"torch(?:[\w.]{0,100}+: \[|dynamo start|\._?dynamo hit|(?:\._dynamo|dynamo|\._inductor|\._functorch|\.fx|\._sub\w+)\.)|"
    rb"Graph (?:break|Count: )|Recompiling |[wW][oO][nN]'[tT] |TRACED GRAPH|__compiled_fn_|Traceback \(|skipping cudagraph|"
    rb"Counter\(\{|defaultdict\(<class 'collections|stats \[\(|"
    rb"CUDAGraph supports |RuntimeError: Error: accessing|triton\.|(?:" + NAMES.encode() + rb"): |"
    rb"(?:/|[CDE]:)[^\n]{0,400}?[/\\]torch[/\\]_(?:dynamo|inductor|functorch)[/\\][^\s:]{1,200}:\d{1,7}: \w{0,30}Warning: |"
    rb"[^\S\n]*+(?:TREE_GUARD_MANAGER:|\x1b)"
)
# In front of it the number of the rank that wrote a line (`text_prefix._RANK`); a superset.
_NUMBER = rb"[^\S\n]*+(?:\[?(?:default|trainer|rank|worker)?[^\S\n]?\d{1,6}(?:\|\d{1,9})?\]:|\[[\w.|-]{2,111}+\]:|\d{1,6}: )"
_RANK = _NUMBER + rb"[^\S\n]?+"
# The end of a line behind which one of interest begins: while no rank has an open message only where a message begins.
# The first look is at one byte: nearly all lines begin with another.
_BEGIN = rb"\n(?=[VDIWECGRUTBLFPs/_wtdr\[0-9 \t\r\f\v\x1b])"
_ANY_RANK = re.compile(_BEGIN + rb"(?=" + _FIRST + rb"|" + _RANK + rb")")
_NO_RANK = re.compile(_BEGIN + rb"(?=(?:" + _RANK + rb")?(?:" + _FIRST + rb"))")
# Lines of one rank that go on with its message, whatever it is.
_RUN = re.compile(rb"(" + _RANK + rb")(?!" + _FIRST + rb")[^\n]*+(?:\n\1(?!" + _FIRST + rb")[^\n]*+)*+")
_PREFIXES = re.compile(rb"(?m)^" + _NUMBER + rb"(?:[^\S\n](?=\S))?")
_PREFIXES_OF_TORCH = re.compile(rb"(?m)^" + _RANK)
# How many bytes of text must have come for each line that is looked at by itself: those of a logger have 80 and more.
_BYTES_A_LINE = 64
_FEWEST_LINES = 50_000


@dataclass(slots=True)
class Message:
    """A message that is still growing. `begin` and `end` are its bytes in the log, if nothing else came between its lines."""

    prefix: Prefix
    begin: int
    end: int
    lines: list[str] = field(default_factory=list)
    whole: bool = True
    length: int = 0

    def add(self, text: str) -> None:
        """One more line, as long as the message stays within reason."""
        self.length += len(text) + 1
        if self.length < LONGEST_MESSAGE:
            self.lines.append(text)

    def add_lines(self, block: bytes) -> None:
        """Many more lines, as long as the message stays within reason."""
        room = LONGEST_MESSAGE - self.length
        if room > 0:
            text = without_escapes(decode(block[:room]))
            self.length += len(text) + 1
            self.lines.extend(line.rstrip("\r")[:LONGEST_LINE] for line in text.split("\n"))


class TextReader:
    """Takes the lines of a log that are no records and finds what torch said in them."""

    def __init__(self, run: RunBuilder, log: str) -> None:
        self.events = TextEvents(run, log)
        self.name = shown(Path(log.rpartition(os.sep)[2]))
        self.open: dict[tuple[int | None, int | None], Message] = {}
        self.previous: tuple[str, Prefix] | None = None
        self.allowance = _FEWEST_LINES
        self.loose = False  # whether lines without a logger's prefix may go on with a message
        self.moved = False  # whether lines are read that do not lie in the log as they are

    def lines(self, block: bytes, offset: int) -> None:
        """Many lines of the log, which begin at `offset`: most say nothing to us and are not looked at one by one."""
        self.events.allow(len(block))
        self.allowance += len(block) // _BYTES_A_LINE
        if not block.strip(b"\r\n"):
            self._go_on(block, 0, len(block), offset)
            return
        may_warn = b"autograd" in block.lower()
        repeats = not may_warn and b"\x1b" not in block
        position, end = 0, len(block)
        block = b"\n" + block
        while position <= end:
            match = (_ANY_RANK if self.loose else _NO_RANK).search(block, position)
            begin = match.end() if match is not None else end + 2
            if begin > position + 1:
                self._take_bare_lines(block, position + 1, begin - 1, offset - 1, may_warn=may_warn)
            if match is None:
                return
            self.allowance -= 1
            if self.allowance < 0:
                self._leave_out()
                return
            run = _RUN.match(block, begin) if self.loose and not may_warn else None
            if run is not None:
                self._same_rank(run, offset - 1)
                position = run.end()
                continue
            position = block.find(b"\n", begin)
            position = position if position >= 0 else end + 1
            self.line(decode(block[begin:position]), offset + begin - 1, position - begin)
            if repeats and self.previous is not None and position <= end:
                position = self._same_prefix(block, position, offset - 1)
                if self.allowance < 0:
                    return

    def pasted(self, data: bytes) -> None:
        """A whole small text, with whatever stands in front of its lines; where that is nothing, places in the log stay as they are."""
        text = decoded(data)
        plain = decode(data) if text is None else text
        parts = unwrapped(plain)
        if text is None and len(parts) == 1 and parts[0] == plain:
            self.lines(data, 0)
            self.end()
            return
        self.moved = True
        for part in parts:
            self.lines(part.encode("utf-8", "replace"), 0)
            self.end()
        self.moved = False

    def _same_prefix(self, block: bytes, position: int, base: int) -> int:
        """Lines behind one of a logger's that begin with the same prefix and go on with its message; gives where the last of them ends.

        The same as `line` does, without taking each apart; the block has no escapes and no warning of 2022.
        """
        if self.previous is None:
            return position
        message = self.open.get((self.previous[1].rank, self.previous[1].pid))
        if message is None or message.prefix != self.previous[1]:
            return position
        prefix = b"\n" + self.previous[0].encode("utf-8", "replace")
        while block.startswith(prefix, position):
            begin = position + len(prefix)
            end = block.find(b"\n", begin)
            end = end if end >= 0 else len(block)
            if block[begin : begin + 1] == b"[" or end - position > LONGEST_LINE:
                break
            text = decode(block[begin:end]).rstrip("\r")
            if text[:1] in MAY_START and starts_message(text, bare=False):
                break
            self.allowance -= 1
            if self.allowance < 0:
                self._leave_out()
                break
            message.whole = message.whole and base + position == message.end
            message.end = base + end
            message.add(text)
            position = end
        return position

    def _leave_out(self) -> None:
        """The rest of a block is not looked at, because the log consists of lines that are shorter than any of torch."""
        self.end()
        self.events.run.note(f"the lines of {self.name} are very short, so not all of them were read (docs/logs.md names the limits)")

    def _same_rank(self, run: re.Match[bytes], base: int) -> None:
        """Lines that begin with the same rank: they go on with its message, if there is one."""
        prefix, _ = split_line(decode(run[1]))
        message = self.open.get((prefix.rank, None))
        if message is None:
            return
        message.whole = message.whole and base + run.start() == message.end + 1
        message.end = base + run.end()
        if prefix.rank is None:  # brackets that only look like those of a rank
            message.add_lines(run[0])
        else:
            message.add_lines((_PREFIXES_OF_TORCH if b"rank" in run[1] else _PREFIXES).sub(b"", run[0]))

    def _take_bare_lines(self, block: bytes, begin: int, end: int, base: int, *, may_warn: bool) -> None:
        """Bare lines that begin no message: they go on with an open one. `may_warn`: the warnings of 2022 may stand anywhere in a line."""
        while may_warn and (warning := OLD_WARNING.search(block, begin, end)) is not None:
            first = block.rfind(b"\n", begin, warning.start()) + 1 or begin
            last = block.find(b"\n", warning.end(), end)
            last = last if last >= 0 else end
            self._go_on(block, begin, first - 1, base)
            self.line(decode(block[first:last]), base + first, last - first)
            begin = last + 1
        self._go_on(block, begin, end, base)

    def _go_on(self, block: bytes, begin: int, end: int, base: int) -> None:
        message = self.open.get((None, None))
        if message is not None and begin <= end:
            message.whole = message.whole and base + begin == message.end + 1
            message.end = base + end
            message.add_lines(block[begin:end])

    def line(self, raw: str, offset: int, length: int) -> None:
        """One line of the log, `length` bytes long at `offset`."""
        prefix, text = self._split(raw.rstrip("\r")[:LONGEST_LINE])
        writer = (prefix.rank, prefix.pid)
        message = self.open.get(writer)
        if message is not None and self._belongs(message, prefix, text):
            message.whole = message.whole and offset == message.end + 1
            message.end = offset + length
            message.add(text)
            return
        if message is None and (self.events.only_counts(prefix, text) or not (prefix.known or starts_message(text, bare=True))):
            return
        if message is not None:
            self.events.take(message.prefix, message.lines, self._span_in_log(message))
        if len(self.open) >= _MOST_OPEN:
            self.end()
        self.open[writer] = Message(prefix, offset, offset + length, [text])
        self.loose |= prefix.pid is None

    def _split(self, line: str) -> tuple[Prefix, str]:
        """A line's prefix and text; torch repeats the prefix of a message on each of its lines."""
        if self.previous is not None and line.startswith(self.previous[0]) and "\x1b" not in line:
            text = line[len(self.previous[0]) :]
            if not text.startswith("["):
                return self.previous[1], text
        prefix, text = split_line(line)
        self.previous = (line[: len(line) - len(text)], prefix) if prefix.known and not prefix.old_style and line.endswith(text) else None
        return prefix, text

    def _belongs(self, message: Message, prefix: Prefix, text: str) -> bool:
        """Whether a line goes on with a message: the same prefix again, or none behind one of old torch; never when it begins another."""
        goes_on = prefix is message.prefix or prefix == message.prefix or (message.prefix.old_style and not prefix.known)
        if goes_on and not prefix.known and goes_on_with_traceback(message.lines, text):
            return True
        return goes_on and not starts_message(text, bare=not prefix.known)

    def _span_in_log(self, message: Message) -> tuple[int, int] | None:
        return (message.begin, message.end - message.begin) if message.whole and not self.moved else None

    def end(self) -> None:
        """The log is at its end: what is still open is complete."""
        for message in self.open.values():
            self.events.take(message.prefix, message.lines, self._span_in_log(message))
        self.open.clear()
        self.loose = False
