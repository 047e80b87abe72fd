"""Reads `dynadiag_probe` records: what the probe found in one graph. Everything in them is checked again: a log may come from anybody."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from dynadiag.model.mutations import ProbedGraph, ProbedMutation, ProbedWrite
from dynadiag.model.run import Location
from dynadiag.trace.values import as_bool, as_dict, as_id, as_list, as_text, as_texts

_MOST_MUTATIONS = 20_000
_MOST_SITES = 200


def read_probe(values: Mapping[str, Any]) -> ProbedGraph:
    """One record; what is mistyped in it counts as not known."""
    mutations = values.get("mutations")
    return ProbedGraph(
        mutations=None if mutations is None else tuple(map(_mutation, map(as_dict, as_list(mutations)[:_MOST_MUTATIONS]))),
        error=as_text(values.get("error")),
        refusal=as_text(as_dict(values.get("refusal")).get("text")),
        notes=as_texts(values.get("notes")),
    )


def _mutation(values: Mapping[str, Any]) -> ProbedMutation:
    return ProbedMutation(
        index=as_id(values.get("index")),
        name=as_text(values.get("name")) or "?",
        source=as_text(values.get("source")),
        kinds=as_texts(values.get("kinds")),
        where=as_text(values.get("where")),
        no_grad=as_bool(values.get("no_grad")),
        requires_grad=as_bool(values.get("requires_grad")),
        static=as_text(values.get("static")),
        bytes_touched=as_id(values.get("bytes_touched")),
        bytes_written_back=as_id(values.get("bytes_written_back")),
        aliases=as_texts(values.get("aliases")),
        overlaps=as_texts(values.get("overlaps")),
        sites=tuple(map(_write, map(as_dict, as_list(values.get("sites"))[:_MOST_SITES]))),
    )


def _write(values: Mapping[str, Any]) -> ProbedWrite:
    return ProbedWrite(
        node=as_text(values.get("node")),
        op=as_text(values.get("op")) or "?",
        stack=tuple(_location(entry) for entry in as_list(values.get("stack"))[:100] if entry and type(entry) is list),
        no_grad=as_bool(values.get("no_grad")),
        kind=as_text(values.get("kind")) or ("metadata" if values.get("metadata") is True else "data"),
        through=as_texts(values.get("through")),
        bytes_touched=as_id(values.get("bytes_touched")),
    )


def _location(entry: list[Any]) -> Location:
    padded = entry if len(entry) == 4 else [*entry, None, None, None, None][:4]
    try:
        return _known(*padded)
    except TypeError:  # a list or an object where a text should stand
        return _known.__wrapped__(*padded)


@functools.lru_cache(maxsize=4096, typed=True)  # the writes of one optimizer step share their callers
def _known(file: object, line: object, function: object, code: object) -> Location:
    return Location(as_text(file) or "<unknown>", as_id(line), as_text(function), as_text(code))
