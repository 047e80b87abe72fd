"""Reads `dynadiag_parity` records, and `parity.json` beside the logs. Everything in them is checked: a recording may come from anybody.

`parity.json` is no part of the `Run`: nothing in it happened while the program ran.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from dynadiag.files import read_small
from dynadiag.model.difference import Difference
from dynadiag.model.location import Location
from dynadiag.model.parity import CouldDiffer, ParityCall, ParityWrite, Replayed, StateChange, Verdict, WholeCall, WholeVerdict
from dynadiag.model.run import CompileKey
from dynadiag.trace.builders import ProcessBuilder, RunBuilder, key_of
from dynadiag.trace.records import Record
from dynadiag.trace.sources import find_sources
from dynadiag.trace.stacks import named_stack, printed_stack_of
from dynadiag.trace.values import BadRecordError, as_bool, as_dict, as_float, as_id, as_list, as_text, as_texts, decode, parse_json

_VERDICTS = frozenset(("equal", "different", "not_compared"))
_WHOLE_VERDICTS = _VERDICTS | {"rounding"}
_MADE_ANEW = frozenset(("anew", "eager"))
_MOST = 200
_LONGEST = 2000


def parity(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_parity`: one call that was compared with eager, or why it was not."""
    facts = record.object()
    graph, call, verdict = as_id(facts.get("graph")), as_id(facts.get("call")), as_text(facts.get("verdict"))
    if graph is None or call is None or verdict not in _VERDICTS:
        raise BadRecordError("parity record is mistyped")
    if not run.room.take("compared calls", record.payload_length):
        return
    differences = as_list(facts.get("differences"))
    kept = [as_dict(entry) for entry in differences[:_MOST] if run.room.take("differences of compared calls")]
    found = ParityCall(
        process=process.index,
        frame=_frame(run, process, record, facts),
        graph=graph,
        call=call,
        verdict=cast(Verdict, verdict),
        why=_cut(facts.get("why")),
        shared=tuple(_shared(as_dict(entry)) for entry in as_list(facts.get("shared"))[:_MOST]),
        differences=tuple(map(_difference, kept)),
        more_differences=(as_id(facts.get("more_differences")) or 0) + len(differences) - len(kept),
        writes=tuple(_write(as_dict(entry)) for entry in as_list(facts.get("writes"))[:_MOST]),
        random_values=as_id(facts.get("random_values")) or 0,
        backward=as_bool(facts.get("backward")) is True,
        awaits_backward=as_bool(facts.get("awaits_backward")) is True,
        whole=_pair(facts.get("whole")),
    )
    run.parity.append(found)


def whole_call(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_whole_call`: one call of a compiled callable that was compared with eager, or why it was not."""
    facts = record.object()
    callee, call, verdict = as_id(facts.get("callee")), as_id(facts.get("call")), as_text(facts.get("verdict"))
    if callee is None or call is None or verdict not in _WHOLE_VERDICTS:
        raise BadRecordError("whole_call record is mistyped")
    if not run.room.take("compared calls", record.payload_length):
        return
    differences = as_list(facts.get("differences"))
    kept = [as_dict(entry) for entry in differences[:_MOST] if run.room.take("differences of compared calls")]
    name, file = _cut(facts.get("name")) or "?", _cut(facts.get("file"))
    counts = {key: as_id(facts.get(key)) or 0 for key in ("values", "gradients", "random_values", "unsteady")}
    found = WholeCall(
        process=process.index,
        callee=callee,
        name=name,
        call=call,
        verdict=cast(WholeVerdict, verdict),
        where=None if file is None else Location(file, as_id(facts.get("line")), name),
        why=_cut(facts.get("why")),
        differences=tuple(map(_difference, kept)),
        more_differences=(as_id(facts.get("more_differences")) or 0) + len(differences) - len(kept),
        changes=tuple(_change(as_dict(entry)) for entry in as_list(facts.get("changes"))[:_MOST]),
        full_deques=tuple(text[:_LONGEST] for text in as_texts(facts.get("full_deques"))[:_MOST]),
        compiled_now=as_bool(facts.get("compiled_now")) is True,
        right_when={key: as_bool(value) for key, value in as_dict(facts.get("right_when")).items() if key in _MADE_ANEW},
        **counts,
    )
    run.whole_calls.append(found)


def _change(entry: Mapping[str, Any]) -> StateChange:
    texts = {key: _cut(entry.get(key)) or "" for key in ("what", "name", "was", "now")}
    return StateChange(**texts, where=next(iter(named_stack([entry.get("place")])), None))


def _pair(value: object) -> tuple[int, int] | None:
    numbers = [as_id(item) for item in as_list(value)[:3]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None else None


def _frame(run: RunBuilder, process: ProcessBuilder, record: Record, facts: Mapping[str, Any]) -> str | None:
    """The frame that was compiled: compile ids repeat after a reset, so the record says in which epoch it was."""
    key, epoch = key_of(process, record.header), as_id(facts.get("epoch"))
    if epoch is not None:
        key = CompileKey(key.process, epoch, key.frame, key.compile, key.autograd)
    frame = process.frames.get(key)
    return frame.id if frame is not None else None


def _cut(value: object) -> str | None:
    text = as_text(value)
    return None if text is None else text[:_LONGEST]


def _shared(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    names = [*as_texts(entry.get("inputs")), "?", "?"]
    return names[0][:_LONGEST], names[1][:_LONGEST], (_cut(entry.get("how")) or "?")


def _difference(entry: Mapping[str, Any]) -> Difference:
    first = [as_id(number) for number in as_list(entry.get("first_wrong"))[:_MOST]]
    return Difference(
        kind=_cut(entry.get("kind")) or "?",
        where=_cut(entry.get("where")) or "?",
        index=as_id(entry.get("index")) or 0,
        name=_cut(entry.get("name")) or "?",
        eager=_cut(entry.get("eager")) or "?",
        compiled=_cut(entry.get("compiled")) or "?",
        elements=as_id(entry.get("elements")),
        wrong_elements=as_id(entry.get("wrong_elements")),
        first_wrong=tuple(number for number in first if number is not None) if "first_wrong" in entry and None not in first else None,
        largest=as_float(entry.get("largest")),
        node=_cut(entry.get("node")),
        stack=_stack(entry),
    )


def _write(entry: Mapping[str, Any]) -> ParityWrite:
    return ParityWrite(
        input=_cut(entry.get("name")) or "?",
        declared=as_bool(entry.get("declared")) is not False,
        op=_cut(entry.get("op")),
        stack=_stack(entry),
    )


def _stack(entry: Mapping[str, Any]) -> tuple[Location, ...]:
    text = as_text(entry.get("stack"))
    return () if text is None else printed_stack_of(text[:20_000])


FILE = "parity.json"
_MOST_BYTES = 64 << 20
_MOST_FINDINGS = 1000


def replayed_beside(path: str | os.PathLike[str]) -> tuple[Replayed | None, str | None]:
    """What `dynadiag parity` found for the run directory at a path, and a note when its file is there but cannot be used."""
    sources = find_sources(path)
    return replayed(sources.folder / FILE) if sources.is_run and sources.folder is not None else (None, None)


def replayed(file: Path) -> tuple[Replayed | None, str | None]:
    """What the file says, and a note when it is there but cannot be used."""
    try:
        data = read_small(file, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise BadRecordError(f"larger than {_MOST_BYTES >> 20} MB")
        found = as_dict(parse_json(decode(data), "no JSON"))
        summary = as_dict(found.get("summary"))
        graphs, compared = as_id(summary.get("graphs")), as_id(summary.get("compared"))
        if found.get("schema_version") != 1 or graphs is None or compared is None:
            raise BadRecordError("not written by this dynadiag")
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"{FILE} cannot be read: {error.strerror}"
    except BadRecordError as error:
        return None, f"{FILE} cannot be used: {error.reason}"
    findings = [_finding(as_dict(entry)) for entry in as_list(found.get("findings"))[:_MOST_FINDINGS]]
    told = Replayed(
        torch=_cut(found.get("torch")),
        graphs=graphs,
        compared=compared,
        findings=tuple(finding for finding in findings if finding is not None),
    )
    return told, None


def _finding(entry: Mapping[str, Any]) -> CouldDiffer | None:
    code, title, would = (
        _cut(entry.get("code")),
        _cut(entry.get("title")),
        _cut(entry.get("would")),
    )
    if code is None or title is None or would is None:
        return None
    tensor = as_dict(entry.get("tensor"))
    return CouldDiffer(
        code=code,
        title=title,
        would=would,
        graph=_cut(entry.get("graph")) or "?",
        layer=_cut(entry.get("layer")) or "?",
        where=_cut(tensor.get("where")) or "?",
        name=_cut(tensor.get("name")) or "?",
        source=_cut(tensor.get("source")),
        aspect=_cut(tensor.get("aspect")) or "?",
        eager=_cut(tensor.get("eager")) or "?",
        compiled=_cut(tensor.get("compiled")) or "?",
        elements=as_id(tensor.get("elements")),
        wrong_elements=as_id(tensor.get("wrong_elements")),
        others=as_id(entry.get("others")) or 0,
        line=_line(as_dict(entry.get("where"))),
        test=_cut(entry.get("test")),
    )


def _line(entry: Mapping[str, Any]) -> Location | None:
    file = _cut(entry.get("file"))
    return None if file is None else Location(file, as_id(entry.get("line")), _cut(entry.get("function")), _cut(entry.get("code")))
