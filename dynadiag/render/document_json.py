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
        {name: value for name, value in asdict(_plain(one)).items() if name != "row"}
        | {"items": [[[asdict(part) for part in cell] for cell in one.row(item)] for item in one.items]}
        for one in told.sections
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


def _headline(one: dict[str, Any]) -> Headline:
    return Headline(word=_text(one.get("word")), what=_text(one.get("what")), said=_text(one.get("said")), tone=_tone(one))


def _section(one: dict[str, Any]) -> Section:
    block, depth = one.get("block"), one.get("depth")
    return Section(
        title=_text(one.get("title")),
        said=_text(one.get("said")),
        lines=_texts(one.get("lines")),
        columns=_each(one.get("columns"), _column),
        items=[tuple(_each(cell, _part) for cell in _list(row)) for row in _list(one.get("items"))],
        unit=_text(one.get("unit")),
        closing=_text(one.get("closing")),
        as_entries=bool(one.get("as_entries")),
        points=_texts(one.get("points")),
        block=_block(block) if isinstance(block, dict) else None,
        pictures=_pairs(one.get("pictures")),
        brief=bool(one.get("brief")),
        depth=max(1, min(6, depth)) if isinstance(depth, int) else 2,
    )


def _column(one: dict[str, Any]) -> Column:
    return Column(_text(one.get("heading")), bool(one.get("numeric")), bool(one.get("fold")), _text(one.get("label")))


def _block(one: dict[str, Any]) -> Block:
    language = one.get("language")
    return Block(text=_text(one.get("text")), language=language if language in _LANGUAGES else "text")


def _part(one: dict[str, Any]) -> Part:
    return Part(_text(one.get("text")), _limit(one.get("limit")), bool(one.get("code")), _text(one.get("before")), _tone(one))


def _tone(one: dict[str, Any]) -> Tone:
    return next((tone for tone in _TONES if tone == one.get("tone")), "plain")


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(pair[0]), _text(pair[1])) for pair in _list(value) if isinstance(pair, list) and len(pair) == 2)


def _limit(value: Any) -> int:
    return max(1, min(_MOST, value)) if isinstance(value, int) else _MOST


def _plain(one: Section) -> Section:
    return Section(**{name: getattr(one, name) for name in one.__slots__ if name not in ("items", "row")})


def _without_sections(told: Document) -> Document:
    return Document(**{name: getattr(told, name) for name in told.__slots__ if name != "sections"})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _list(value: Any) -> list[Any]:
    return value[:_MOST] if isinstance(value, list) else []


def _each(value: Any, made: Callable[[dict[str, Any]], _Made]) -> tuple[_Made, ...]:
    return tuple(made(one) for one in _list(value) if isinstance(one, dict))
