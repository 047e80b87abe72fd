"""Payloads that stayed on disk: read again through their `PayloadRef`."""

from __future__ import annotations

import errno
import functools
import os
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from dynadiag.errors import UnreadableInputError
from dynadiag.model.mutations import AotMetadata, ProbedGraph, SideEffect
from dynadiag.model.run import Location, PayloadRef
from dynadiag.trace.aot_metadata import read_aot_metadata
from dynadiag.trace.probe_records import read_probe
from dynadiag.trace.records import untab
from dynadiag.trace.side_effects import read_side_effects
from dynadiag.trace.sources import OpenLog, shown
from dynadiag.trace.stacks import printed_stack_of
from dynadiag.trace.text_prefix import strip_prefixes
from dynadiag.trace.values import BadRecordError, as_dict, as_list, as_texts, decode, parse_json

LARGEST_PAYLOAD_BYTES = 256 << 20
_LARGEST_UNPACKED = 4 << 30


def read_payload(ref: PayloadRef) -> str:
    """The text of a payload without what the log put in front of its lines; UnreadableInputError when the log is gone or was changed."""
    if ref.length > LARGEST_PAYLOAD_BYTES:
        raise UnreadableInputError(f"a payload of {ref.length} bytes in {shown(Path(ref.log))} is too long to read")
    try:
        with OpenLog(ref.log) as log:
            stream = _unpacked(ref.log, os.fstat(log.raw.fileno()).st_mtime_ns) if log.packed else log.stream
            stream.seek(ref.offset)
            data = _read_all(stream, ref.length)
    except (OSError, ValueError, EOFError, zlib.error):
        raise UnreadableInputError(f"{shown(Path(ref.log))} can no longer be read") from None
    if len(data) != ref.length:
        raise UnreadableInputError(f"{shown(Path(ref.log))} is shorter than when it was first read")
    if data.partition(b"\n")[0].endswith(b"\r"):
        data = data.replace(b"\r\n", b"\n")
    return decode(untab(data)) if data.startswith(b"\t") else strip_prefixes(decode(data))


@functools.lru_cache(maxsize=2)
def _unpacked(path: str, changed_ns: int) -> BinaryIO:
    """A packed log's text in a file without a name: to find one payload in the log itself, all before it is unpacked each time."""
    unpacked = tempfile.TemporaryFile()  # noqa: SIM115  closed when nobody refers to it any more
    with OpenLog(path) as log:
        while part := log.read(1 << 20):
            if unpacked.tell() > _LARGEST_UNPACKED:
                raise OSError(errno.EFBIG, "its text is too long")
            unpacked.write(part)
    return cast(BinaryIO, unpacked)


def _read_all(stream: BinaryIO, length: int) -> bytes:
    parts = []
    while length > 0 and (part := stream.read(min(length, 1 << 24))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def graph_details(ref: PayloadRef) -> Mapping[str, Any]:
    """What a `dynadiag_graph` artifact says of a graph (inputs, nodes, strings, grad mode); UnreadableInputError when it is damaged."""
    try:
        return as_dict(parse_json(read_payload(ref), "not JSON"))
    except BadRecordError:
        raise UnreadableInputError(f"the details of a graph in {shown(Path(ref.log))} are damaged") from None


class NodeStacks:
    """By node of one graph: the whole stack of user code, outermost frame first, as `dynadiag_graph` holds it; parsed when asked for."""

    def __init__(self, details: Mapping[str, Any]) -> None:
        self._strings = as_texts(details.get("strings"))
        count = len(self._strings)
        self._numbers: dict[str, int] = {
            node[0]: node[2]
            for node in as_list(details.get("nodes"))
            if type(node) is list and len(node) == 3 and type(node[0]) is str and type(node[2]) is int and 0 <= node[2] < count
        }

    def get(self, name: str) -> tuple[Location, ...]:
        """The stack of a node, () when none was recorded."""
        number = self._numbers.get(name)
        return printed_stack_of(self._strings[number]) if number is not None else ()


def aot_metadata(ref: PayloadRef) -> AotMetadata | None:
    """What AOTAutograd says of a graph's inputs and outputs; None for a text of no known form, UnreadableInputError when it is gone."""
    return read_aot_metadata(read_payload(ref))


def side_effects(ref: PayloadRef) -> tuple[SideEffect, ...]:
    """The Python objects that a frame changes; UnreadableInputError when the log is gone."""
    return read_side_effects(read_payload(ref))


def probe_result(ref: PayloadRef) -> ProbedGraph | None:
    """What the probe found in a graph; None when the record is damaged, UnreadableInputError when the log is gone."""
    try:
        return read_probe(as_dict(parse_json(read_payload(ref), "not JSON")))
    except BadRecordError:
        return None
