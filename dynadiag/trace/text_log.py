"""Reads plain text logs: `TORCH_LOGS` output, warnings and tracebacks, pasted with whatever stood in front of their lines.

Lines are put together to messages (torch 2.2 and newer repeats the prefix on every line, older versions print it once), and each message
that `text_events` knows becomes a fact. Everything else is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dynadiag.trace.drafts import RunDraft
from dynadiag.trace.text_events import TextEvents, starts_message
from dynadiag.trace.text_prefix import Prefix, split_line

LONGEST_MESSAGE = 2_000_000
LONGEST_LINE = 100_000
_MOST_OPEN = 64


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


class TextReader:
    """Takes the lines of a log that are no records and finds what torch said in them."""

    def __init__(self, run: RunDraft, log: str) -> None:
        self.events = TextEvents(run, log)
        self.open: dict[tuple[int | None, int | None], Message] = {}

    def line(self, raw: str, offset: int, length: int) -> None:
        """One line of the log, `length` bytes long at `offset`."""
        prefix, text = split_line(raw.rstrip("\r")[:LONGEST_LINE])
        writer = (prefix.rank, prefix.pid)
        message = self.open.get(writer)
        if message is not None and self._belongs(message, prefix, text):
            message.whole = message.whole and offset == message.end + 1
            message.end = offset + length
            message.add(text)
            return
        if not prefix.known and prefix.rank is None and message is None and not starts_message(text, bare=True):
            return
        if message is not None:
            self.events.take(message.prefix, message.lines, self._place(message))
        if len(self.open) >= _MOST_OPEN:
            self.end()
        self.open[writer] = Message(prefix, offset, offset + length, [text])

    def _belongs(self, message: Message, prefix: Prefix, text: str) -> bool:
        """Whether a line goes on with a message: the same prefix again, or none behind one of old torch; never when it begins another."""
        goes_on = prefix == message.prefix or (message.prefix.old_style and not prefix.known)
        return goes_on and not starts_message(text, bare=not prefix.known)

    def _place(self, message: Message) -> tuple[int, int] | None:
        return (message.begin, message.end - message.begin) if message.whole else None

    def end(self) -> None:
        """The log is at its end: what is still open is complete."""
        for message in self.open.values():
            self.events.take(message.prefix, message.lines, self._place(message))
        self.open.clear()
