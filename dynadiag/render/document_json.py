"""A document as JSON and back (`form.json`): what a verb said, for `dynadiag bug` to say again without what is nobody's business."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from dynadiag.render import finite_json
from dynadiag.render.document import Block, Column, Document, Headline, Part, Section, Tone

FORMAT = 1
_TONES: tuple[Tone, ...] = ("plain", "good", "bad", "unclear")
_LANGUAGES = ("python", "text", "diff", "console")
_MOST = 10_000
_Made = TypeVar("_Made")


def dumps(told: Document) -> str:
    """The document as JSON: its rows as cells of parts, whatever made them."""
    sections = [
        {name: value for name, value in asdict(_plain(section)).items() if name != "row"}
        | {"items": [[[asdict(part) for part in cell] for cell in section.row(item)] for item in section.items]}
        for section in told.sections
    ]
    return finite_json.dumps({"format": FORMAT, **asdict(_without_sections(told)), "sections": sections}, indent=1) + "\n"


def loads(text: str) -> Document:
    """The document; ValueError for what is none. Nothing in it is trusted: each value has the type that it must have."""
    try:
        told = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise ValueError("not a form of this version")
    return Document(
        title=_text(told.get("title")),
        facts=_texts(told.get("facts")),
        command=_text(told.get("command")),
        headlines=_each(told.get("headlines"), _headline),
        figures=_pairs(told.get("figures")),
        sections=_each(told.get("sections"), _section),
        name=_text(told.get("name")),
    )


def _headline(record: dict[str, Any]) -> Headline:
    return Headline(word=_text(record.get("word")), what=_text(record.get("what")), said=_text(record.get("said")), tone=_tone(record))


def _section(record: dict[str, Any]) -> Section:
    block, depth = record.get("block"), record.get("depth")
    return Section(
        title=_text(record.get("title")),
        said=_text(record.get("said")),
        lines=_texts(record.get("lines")),
        columns=_each(record.get("columns"), _column),
        items=[tuple(_each(cell, _part) for cell in _list(row)) for row in _list(record.get("items"))],
        unit=_text(record.get("unit")),
        closing=_text(record.get("closing")),
        as_entries=bool(record.get("as_entries")),
        points=_texts(record.get("points")),
        block=_block(block) if isinstance(block, dict) else None,
        pictures=_pairs(record.get("pictures")),
        brief=bool(record.get("brief")),
        depth=max(1, min(6, depth)) if isinstance(depth, int) else 2,
    )


def _column(record: dict[str, Any]) -> Column:
    return Column(_text(record.get("heading")), bool(record.get("numeric")), bool(record.get("fold")), _text(record.get("label")))


def _block(record: dict[str, Any]) -> Block:
    language = record.get("language")
    return Block(text=_text(record.get("text")), language=language if language in _LANGUAGES else "text")


def _part(record: dict[str, Any]) -> Part:
    return Part(
        _text(record.get("text")), _limit(record.get("limit")), bool(record.get("code")), _text(record.get("before")), _tone(record)
    )


def _tone(record: dict[str, Any]) -> Tone:
    return next((tone for tone in _TONES if tone == record.get("tone")), "plain")


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(pair[0]), _text(pair[1])) for pair in _list(value) if isinstance(pair, list) and len(pair) == 2)


def _limit(value: Any) -> int:
    return max(1, min(_MOST, value)) if isinstance(value, int) else _MOST


def _plain(section: Section) -> Section:
    return Section(**{name: getattr(section, name) for name in section.__slots__ if name not in ("items", "row")})


def _without_sections(told: Document) -> Document:
    return Document(**{name: getattr(told, name) for name in told.__slots__ if name != "sections"})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _list(value: Any) -> list[Any]:
    return value[:_MOST] if isinstance(value, list) else []


def _each(value: Any, made: Callable[[dict[str, Any]], _Made]) -> tuple[_Made, ...]:
    return tuple(made(item) for item in _list(value) if isinstance(item, dict))
