"""The timeline of profiled calls, read from its payload: lines of numbers that strangers may have written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dynadiag.errors import UnreadableInputError
from dynadiag.model.compiled import Ask, CallSpan, Node, Timeline
from dynadiag.model.location import PayloadRef
from dynadiag.trace.payloads import read_payload
from dynadiag.trace.sources import shown
from dynadiag.trace.values import BadRecordError, as_dict, as_float, as_list, as_text, parse_json

_MOST_LINES = 100_000
_MOST_NUMBERS = 400
_LARGEST = 1 << 53
_LONGEST_TEXT = 400
_KINDS = frozenset({"call", "region", "lookup", "graph", "inner"})


def read_timeline(ref: PayloadRef) -> Timeline:
    """What a `dynadiag_timeline` artifact says; UnreadableInputError when it is damaged or gone."""
    try:
        return timeline_from(as_dict(parse_json(read_payload(ref), "not JSON")))
    except BadRecordError:
        raise UnreadableInputError(f"the timeline of profiled calls in {shown(Path(ref.log))} is damaged") from None


def timeline_from(facts: Mapping[str, Any]) -> Timeline:
    """The timeline of an artifact's content; BadRecordError for lines that are none."""
    starter = as_float(facts.get("starter"))
    return Timeline(
        spans=tuple(map(_span, _lines(facts.get("spans")))),
        asks=tuple(map(_ask, _lines(facts.get("asks")))),
        nodes=tuple(map(_node, _lines(facts.get("nodes")))),
        starter=-1 if starter is None else int(starter),
        period_ns=as_float(facts.get("period_ns")) or None,
        untimed=(as_text(facts.get("untimed")) or "")[:_LONGEST_TEXT] or None,
        how=(as_text(facts.get("how")) or "")[:_LONGEST_TEXT],
        too_long="too_long" in facts,
    )


def _lines(value: object) -> Iterator[str]:
    lines = as_list(value)
    if len(lines) > _MOST_LINES:
        raise BadRecordError("timeline is too long")
    for line in lines:
        if not isinstance(line, str):
            raise BadRecordError("timeline is mistyped")
        yield line


def _numbers(words: list[str]) -> list[int]:
    if len(words) > _MOST_NUMBERS or not all(len(word) < 18 and word.removeprefix("-").isdecimal() for word in words):
        raise BadRecordError("timeline is mistyped")
    numbers = [int(word) for word in words]
    if len(numbers) < 2 or not all(-1 <= number <= _LARGEST for number in numbers) or numbers[1] < numbers[0]:
        raise BadRecordError("timeline is mistyped")
    return numbers


def _span(line: str) -> CallSpan:
    words = line.split(" ", 3)
    if words[0] not in _KINDS or len(words) < 3:
        raise BadRecordError("timeline is mistyped")
    begin, end = _numbers(words[1:3])
    return CallSpan(words[0], begin, end, words[3][:200] if len(words) > 3 else "")


def _ask(line: str) -> Ask:
    begin, end, *others = _numbers(line.split(" "))
    if len(others) < 2 or len(others) % 3 != 2 or others[0] < 0:
        raise BadRecordError("timeline is mistyped")
    events, waited, *work = others
    return Ask(begin, end, events, min(waited, end - begin), tuple(zip(work[::3], work[1::3], work[2::3], strict=True)))


def _node(line: str) -> Node:
    numbers = _numbers(line.split(" "))
    if len(numbers) != 4:
        raise BadRecordError("timeline is mistyped")
    return Node(numbers[0], numbers[1], numbers[2] if numbers[2] >= 0 else None, numbers[3] > 0)
