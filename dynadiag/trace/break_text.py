"""Takes apart the text of a graph break, whichever of torch's emitters wrote it.

Emitters, read in torch 2.11.0 and 2.15.0:
- `torch/_dynamo/symbolic_convert.py` `log_graph_break`: "Graph break in user code at FILE:LINE", "Graph Break Reason: ...",
  "User code traceback:"; torch up to 2.7 wrote "Reason: Unsupported: ..." instead.
- `torch/_dynamo/convert_frame.py` `ConvertFrame.__call__`: "Graph break: torch.compile cannot properly resume ...", the reason in the
  traceback.
- `torch/_dynamo/exc.py` `unimplemented_with_warning`: "WON'T CONVERT NAME FILE line N" and two framed stacks.
The message itself is made by `torch/_dynamo/exc.py` `format_graph_break_message`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dynadiag.dotted_names import lies_in
from dynadiag.model.location import Location
from dynadiag.trace.stacks import is_stack_line, printed_stack

_SECOND = "*** While handling this graph break, another graph break occurred: ***"
_LINK = re.compile(r"/gb/gb(\d{1,8})\.html")
_PLACE = re.compile(r"^Graph break in user code at (.*):(\d{1,9})$")
_SKIPPED = re.compile(r"torch\.compile will skip tracing the frame (\S+) \((.*) line (\d{1,9})\)")
_WONT = re.compile(r"^WON'T CONVERT (\S+) (.*) line (\d{1,9})\s*$")
_RULE = re.compile(r"^=+( .* =+)?$")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*+): ?(.*)$|^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Unsupported))$")
_SKIPS = ("Failed to handle graph break gracefully. Skipping the function", "Skipping frame because there is a graph break")
_TRACED_FROM = "========== most recent `torch.compile` tracing attempt started here =========="
_FIELDS = (
    ("  Explanation: ", "explanation"),
    ("  Hint: ", "hint"),
    ("  Developer debug context: ", "context"),
    ("  Higher Order Operator: ", "operator"),
    (" For more details about this graph break, please visit: ", "link"),
)
_FIELD_STARTS = tuple(start for start, _ in _FIELDS)
_TAILS = ("from user code:", "Set TORCHDYNAMO_VERBOSE=1", "Set TORCH_LOGS=", "You can suppress this exception and fall back to eager")


@dataclass(frozen=True, slots=True)
class Reason:
    """One formatted reason of a graph break (`format_graph_break_message`): title, explanation, hints, context and the registry's id."""

    gb_type: str
    gb_id: str | None
    explanation: str | None
    hints: tuple[str, ...]
    context: str | None


@dataclass(frozen=True, slots=True)
class BreakText:
    """What a graph break record says: the reason, what torch was doing (`prefix`), why the frame was left (`skip_reason`), and where."""

    reason: Reason
    prefix: str | None
    skip_reason: str | None
    skips_frame: bool
    stack: tuple[Location, ...]
    torch_frame: Location | None
    cause: str | None
    warning: bool


def parse_reason(text: str) -> tuple[Reason, Reason | None]:
    """The reason in a message and, behind torch's "another graph break occurred", the second one."""
    first, _, second = without_tail(text).partition(_SECOND)
    return _one_reason(first), _one_reason(second) if second.strip() else None


def without_tail(text: str) -> str:
    """A message without what `augment_exc_message` hangs on it: "from user code:" and the advice about verbose logs."""
    lines = text.split("\n")
    for position, line in enumerate(lines):
        if line.startswith(_TAILS):
            return "\n".join(lines[:position]).rstrip()
    return text.strip("\n")


def _one_reason(text: str) -> Reason:
    fields: dict[str, list[list[str]]] = {"title": [[]]}
    current = fields["title"][0]
    for line in text.strip("\n").split("\n"):
        if line.startswith(_FIELD_STARTS):
            start, name = next(field for field in _FIELDS if line.startswith(field[0]))
            current = [line[len(start) :]]
            fields.setdefault(name, []).append(current)
        else:
            current.append(line)
    link = _LINK.search(_joined(fields.get("link")) or "")
    return Reason(
        gb_type=_joined(fields["title"]) or "graph break without a reason",
        gb_id=f"GB{link.group(1)}" if link else None,
        explanation=_joined(fields.get("explanation")),
        hints=tuple(filter(None, (_joined([hint]) for hint in fields.get("hint", [])))),
        context=_joined(fields.get("context")),
    )


def _joined(parts: list[list[str]] | None) -> str | None:
    """The lines of a field; torch indents those after the first by four more columns."""
    if not parts:
        return None
    if len(parts[0]) == 1 and parts[0][0][:1] != " ":
        return parts[0][0].strip() or None
    lines = [line.removeprefix("      ").removeprefix("    ") for line in parts[0]]
    return "\n".join(lines).strip() or None


def parse_break(text: str) -> BreakText:
    """Everything that the payload of a `dynamo_graph_break_reason` record says."""
    lines = text.split("\n")
    if lines[0].startswith("WON'T CONVERT"):
        return _warned(lines)
    if lines[0].startswith("Graph break in user code"):
        return _logged(lines)
    return _skipped(lines)


def _logged(lines: list[str]) -> BreakText:
    """The text of `log_graph_break`."""
    lines = _without_mark(lines)
    end = _position(lines, "User code traceback:")
    reason_lines = [lines[1].removeprefix("Graph Break Reason: ").removeprefix("Reason: ")] if len(lines) > 1 else []
    reason_lines += lines[2 : _position(lines, "Stack variable source attribution:", end)]
    prefix, message = _prefix("\n".join(reason_lines))
    reason, second = parse_reason(message)
    stack_end = _end_of_stack(lines, end + 1)
    stack = printed_stack(lines[end + 1 : stack_end])
    skips = prefix is not None and prefix.startswith(_SKIPS)
    return BreakText(
        reason, prefix, _skip_text(second), skips, stack, _torch_frame(lines[0], stack), _cause(lines[stack_end:]), warning=False
    )


def _without_mark(lines: list[str]) -> list[str]:
    """The lines without the one that `torch._dynamo.config.verbose` puts between the callers of the frame and what was traced."""
    mark = _position(lines, _TRACED_FROM)
    before = mark - 1 if mark and not lines[mark - 1].strip() else mark
    after = mark + 2 if not "".join(lines[mark + 1 : mark + 2]).strip() else mark + 1
    return lines if mark == len(lines) else [*lines[:before], *lines[after:]]


def _skipped(lines: list[str]) -> BreakText:
    """The text of `ConvertFrame.__call__`, or an unknown one: the reason is the exception of the traceback, if there is one."""
    start = _position(lines, "The graph break occurred in the following user code:")
    stack_end = _end_of_stack(lines, start + 1)
    stack = printed_stack(lines[start + 1 : stack_end])
    raised = last_exception("\n".join(lines[stack_end:]))
    skips = lines[0].startswith("Graph break: torch.compile cannot properly resume")
    reason, second = parse_reason(raised[1] if raised else "\n".join(lines[:start]))
    skip_reason = _skip_text(second) or (lines[0].removeprefix("Graph break: ") if skips else None)
    return BreakText(
        reason, None, skip_reason, skips, stack, stack[-1] if stack else _frame_named(lines), _cause(lines[stack_end:]), warning=False
    )


def _warned(lines: list[str]) -> BreakText:
    """The text of `unimplemented_with_warning`: an exception that the back end raised and that torch lets fall back."""
    rules = [position for position, line in enumerate(lines) if _RULE.match(line) and line.startswith("==========")]
    middle = next((p for p in rules if "while processing the following code" in lines[p]), len(lines))
    stack = printed_stack(lines[middle:])
    raised = last_exception("\n".join(lines[:middle]))
    reason, second = parse_reason(raised[1] if raised else lines[0])
    match = _WONT.match(lines[0])
    place = Location(match.group(2), int(match.group(3)), match.group(1)) if match else None
    cause = f"{raised[0]}: {raised[1]}".strip() if raised else None
    return BreakText(reason, None, _skip_text(second), False, stack, stack[-1] if stack else place, cause, warning=True)


def _position(lines: list[str], start: str, default: int | None = None) -> int:
    for position, line in enumerate(lines):
        if line.startswith(start):
            return position
    return len(lines) if default is None else default


def _end_of_stack(lines: list[str], start: int) -> int:
    """Where a printed stack that begins at `start` ends: at the first line that is not indented, or at "Traceback"."""
    for position in range(start, len(lines)):
        line = lines[position]
        if line and not line.startswith(" "):
            return position
        if not line and position + 1 < len(lines) and not is_stack_line(lines[position + 1]):
            return position
    return len(lines)


def _prefix(reason: str) -> tuple[str | None, str]:
    """What torch was doing, in front of the message: it ends in a colon and an empty line."""
    head, gap, rest = reason.partition(":\n\n")
    if gap and "\n" not in head and head.startswith(("Encountered graph break", "Failed to handle graph break")):
        return head, rest
    return None, reason


def _torch_frame(line: str, stack: tuple[Location, ...]) -> Location | None:
    match = _PLACE.match(line.rstrip())
    if match is None:
        return stack[-1] if stack else None
    file, number = match.group(1), int(match.group(2))
    same = next((entry for entry in reversed(stack) if entry.file == file and entry.line == number), None)
    return same or Location(file, number)


def _frame_named(lines: list[str]) -> Location | None:
    match = next(filter(None, map(_SKIPPED.search, lines[:4])), None)
    return Location(match.group(2), int(match.group(3)), match.group(1)) if match else None


def _skip_text(second: Reason | None) -> str | None:
    if second is None:
        return None
    return f"{second.gb_type}: {second.explanation}" if second.explanation else second.gb_type


def _cause(lines: list[str]) -> str | None:
    """The first exception of a chain when it is not Dynamo's own: what really went wrong under the graph break."""
    position = _position(lines, "Traceback (most recent call last):")
    raised = _exception_after(lines, position + 1)
    if raised is None or lies_in(raised[0], "torch._dynamo.exc") or raised[0] == "Unsupported":
        return None
    return f"{raised[0]}: {raised[1]}".removesuffix(": ")


def _exception_after(lines: list[str], start: int) -> tuple[str, str] | None:
    """Class and message of the exception whose traceback entries begin at `start`."""
    for position in range(start, len(lines)):
        if lines[position] and not lines[position].startswith(" "):
            match = _EXCEPTION.match(lines[position])
            if match is None:
                return None
            end = next((p for p in range(position + 1, len(lines)) if _ends_message(lines, p)), len(lines))
            return match.group(1) or match.group(3), without_tail("\n".join([match.group(2) or "", *lines[position + 1 : end]]))
    return None


def _ends_message(lines: list[str], position: int) -> bool:
    line = lines[position]
    return line.startswith(("Traceback (most recent call last):", "During handling of the above", "The above exception was"))


def last_exception(text: str) -> tuple[str, str] | None:
    """Class and message of the exception that a printed traceback ends in, or None when there is no traceback."""
    lines = text.split("\n")
    starts = [p for p, line in enumerate(lines) if line.startswith("Traceback (most recent call last):")]
    return _exception_after(lines, starts[-1] + 1) if starts else None
