"""The comments that FX prints above the nodes of a graph ("# File: train.py:7 in forward, code: x = x + 1"), read back. No torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

# torch/fx/graph.py `append_stacktrace_summary` and `_ParsedStackTrace.get_summary_str` (same words in 2.11 and 2.15).
_FILE = re.compile(r"File: (?P<file>.*?):(?P<line>\d+) in (?P<function>[^,]*), code: (?P<code>.*)$")
_COMMENT = re.compile(r"^\s*#")


@dataclass(frozen=True, slots=True)
class StackNote:
    """The user line that a comment names."""

    file: str
    line: int
    function: str
    code: str

    @property
    def stack_trace(self) -> str:
        """The note spelled as a Python stack trace, as `node.meta["stack_trace"]` holds it."""
        return f'  File "{self.file}", line {self.line}, in {self.function}\n    {self.code}\n'


def is_comment(line: str) -> bool:
    """Whether the line holds nothing but a comment."""
    return _COMMENT.match(line) is not None


def read_note(line: str) -> StackNote | None:
    """The user line that this comment names; None when it says that there is none ("No stacktrace found for following nodes")."""
    found = _FILE.search(line)
    if found is None or len(found["line"]) > 9:
        return None
    return StackNote(found["file"], int(found["line"]), found["function"].strip(), found["code"].strip())
