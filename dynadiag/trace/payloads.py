"""Payloads that stayed on disk: read again through their `PayloadRef`."""

from __future__ import annotations

import errno
import functools
import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from dynadiag.digests.texts import untab
from dynadiag.errors import UnreadableInputError
from dynadiag.model.location import Location, PayloadRef
from dynadiag.model.mutations import AotInput, AotMetadata, AotOutput, ProbedGraph, ProbedMutation, ProbedWrite, SideEffect
from dynadiag.trace.pasted_text import strip_prefixes
from dynadiag.trace.sources import OpenLog, shown
from dynadiag.trace.stacks import printed_stack_of
from dynadiag.trace.values import BadRecordError, as_bool, as_dict, as_id, as_list, as_text, as_texts, decode, parse_json

LARGEST_PAYLOAD_BYTES = 256 << 20
_LARGEST_UNPACKED = 4 << 30


_HEAD = re.compile(r"^Mutating object of type (.{1,400}?) \((source name|source|no source|unable)(?:: (.{1,2000}))?\)")
_BETWEEN_STACKS = re.compile(r"^ *\*{8} *$", re.MULTILINE)
_MOST_SIDE_EFFECTS = 2_000
_MOST_MUTATIONS = 20_000
_MOST_SITES = 200


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

    def all(self) -> Iterator[tuple[Location, ...]]:
        """The different stacks, in order of appearance."""
        return (printed_stack_of(self._strings[number]) for number in dict.fromkeys(self._numbers.values()))

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


def read_side_effects(text: str) -> tuple[SideEffect, ...]:
    """Each object that the artifact `dynamo_side_effects` names as changed, with its stacks; what is not of this form is left out.

    Written by `SideEffects._format_side_effect_message` (torch/_dynamo/side_effects.py, 2.11 and 2.15); older torch has no such record.
    """
    found: list[SideEffect] = []
    lines: list[str] = []
    for line in [*text.split("\n"), "Mutating "]:
        if line.startswith("Mutating ") and lines:
            effect = _side_effect(lines)
            if effect is not None and len(found) < _MOST_SIDE_EFFECTS:
                found.append(effect)
            lines = []
        if lines or line.startswith("Mutating object"):
            lines.append(line)
    return tuple(found)


def _side_effect(lines: list[str]) -> SideEffect | None:
    match = _HEAD.match(lines[0])
    if match is None:
        return None
    kind, how, name = match.groups()
    parts = _BETWEEN_STACKS.split("\n".join(lines[1:]))
    stacks = tuple(stack for stack in map(printed_stack_of, parts) if stack)
    made_inside = how == "source" and name == "created in torch.compile region"
    return SideEffect(type=kind, source=None if made_inside or how != "source name" else name, variable=_variable(how, name), stacks=stacks)


def _variable(how: str, name: str | None) -> str | None:
    """The name of a variable that an inner function changes (a cell), which torch gives without a source."""
    return name if how == "source" and name is not None and name.isidentifier() else None


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


# Reads what AOTAutograd found out about inputs and outputs: the text artifact `aot_forward_graph_fw_metadata`.
#
# The text is a printed dataclass (`ViewAndMutationMeta`, torch/_functorch/_aot_autograd/schemas.py, 2.11 and 2.15); it is searched by
# patterns and never evaluated. A field that this torch does not print is False.

_INPUT = re.compile(r"InputAliasInfo\(([^()]{0,4000})\)")
_OUTPUT = re.compile(r"OutputAliasInfo\(output_type=<OutputType\.(\w{1,60}): \d{1,4}>.{0,2000}?base_idx=(None|\d{1,9})", re.DOTALL)
_NUMBERS = re.compile(r"[\d,\s]*")
_MUTATED = ("mutates_data=True", "mutates_metadata=True", "storage_resize=True")
_FLAG = re.compile(r"(\w{1,80})=(True|False)")


def read_aot_metadata(text: str) -> AotMetadata | None:
    """The metadata in one payload, or None when it is of no form that we know.

    Of a graph that mutates no input only the number of inputs is read: that is most graphs, and the text of a big one is long.
    """
    if not text.lstrip().startswith("ViewAndMutationMeta("):
        return None
    head, _, rest = text.partition("output_info=[")
    if not any(words in head for words in _MUTATED):
        inputs = (AotInput(),) * head.count("InputAliasInfo(")
    else:
        inputs = tuple(_input(match[1]) for match in _INPUT.finditer(head))
    outputs = tuple(AotOutput(kind=match[1], base=None if match[2] == "None" else int(match[2])) for match in _OUTPUT.finditer(rest))
    static, keeps = _behind(rest, "static_input_indices=["), _behind(rest, "keep_input_mutations=")
    return AotMetadata(
        inputs=inputs,
        outputs=outputs,
        static=_numbers(static) if static else None,
        keeps_mutations=keeps.startswith("True") if keeps.startswith(("True", "False")) else None,
        intermediate_bases=max(_numbers(_behind(rest, "num_intermediate_bases=")), default=0),
    )


def _numbers(text: str) -> frozenset[int]:
    """The numbers that a text begins with, separated by commas."""
    found = _NUMBERS.match(text)
    parts = found[0].split(",") if found else []
    return frozenset(int(part) for part in parts if part.strip().isdecimal() and len(part.strip()) < 10)


def _behind(text: str, name: str) -> str:
    """What follows the first `name` in the text, at most 100,000 characters; empty when it is not there. Faster than a pattern."""
    at = text.find(name)
    return text[at + len(name) : at + len(name) + 100_000] if at >= 0 else ""


@functools.lru_cache(maxsize=256)  # the inputs of a graph differ in few ways
def _input(text: str) -> AotInput:
    flags = {match[1]: match[2] == "True" for match in _FLAG.finditer(text)}

    def flag(name: str) -> bool:
        return flags.get(name, False)

    return AotInput(
        is_leaf=flag("is_leaf"),
        requires_grad=flag("requires_grad"),
        mutates_data=flag("mutates_data"),
        mutates_metadata=flag("mutates_metadata"),
        replaces_storage=flag("mutates_storage_metadata") or flag("mutation_is_shallow_copy_data"),
        resizes_storage=flag("mutation_inductor_storage_resize"),
        hidden_from_autograd=flag("mutations_hidden_from_autograd"),
        under_no_grad=flag("mutations_under_no_grad_or_inference_mode"),
        keep_input_mutations=flag("keep_input_mutations"),
    )
