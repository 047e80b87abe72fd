"""What a page shows of single compilations: references to the texts of the back end and of the guards, and facts about symbolic shapes."""

from __future__ import annotations

from typing import Any, Literal

from dynadiag.model.compiled import GuardCost, Listing, ShapeFact
from dynadiag.model.location import PayloadRef
from dynadiag.trace.builders import FrameBuilder, ProcessBuilder, RunBuilder, attempt_of
from dynadiag.trace.records import Record
from dynadiag.trace.stacks import interned_stack
from dynadiag.trace.values import BadRecordError, as_dict, as_float, as_id, as_text, as_texts

_LONGEST = 2000
_MOST_SOURCES = 20


def listing(kind: Literal["output_code", "guards"], run: RunBuilder, process: ProcessBuilder, record: Record, frame: FrameBuilder) -> None:
    """A text of a frame that stays in the log, if there is room for one more."""
    what, letter = ("texts of output code", "o") if kind == "output_code" else ("guard trees", "t")
    if record.payload_length and run.room.take(what):
        name = f"{letter}{run.room.kept[what] - 1}"
        text = PayloadRef(process.log, record.payload_offset, record.payload_length)
        run.listings.append(Listing(name, kind, frame.id, attempt_of(record.header), text))


def output_code(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`inductor_output_code`: the Python file that Inductor wrote (`torch/_inductor/graph.py`)."""
    listing("output_code", run, process, record, run.frame_of(process, record.header))


def specialized(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`symbolic_shape_specialization`: a symbol became a constant after all."""
    values = as_dict(record.value)
    _fact(run, process, record, "specialized", values.get("symbol"), values)


def guard_added(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`guard_added_fast`: a condition on symbols that the compiled code relies on."""
    values = as_dict(record.value)
    _fact(run, process, record, "guard", values.get("expr"), values)


def unbacked(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`create_unbacked_symbol`: a size or number that depends on data. Its user stack is under `user_stack`."""
    values = as_dict(record.value)
    _fact(run, process, record, "unbacked", values.get("symbol"), values)


def guard_cost(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_guard_cost`: what one check of a guard set and of its parts took."""
    facts = record.object()
    checks, whole, root = as_id(facts.get("checks")), as_float(facts.get("whole_us")), as_float(facts.get("root_us"))
    if not checks or whole is None or root is None:
        raise BadRecordError("guard_cost is mistyped")
    frame = run.frame_of(process, record.header)
    parts = {
        run.share(source): spent
        for source, value in as_dict(facts.get("parts")).items()
        if (spent := as_float(value)) is not None and run.room.take("timed parts of guards", len(source))
    }
    run.guard_costs.append(
        GuardCost(frame=frame.id, attempt=attempt_of(record.header), checks=checks, whole_us=whole, root_us=root, parts=parts)
    )


def _fact(
    run: RunBuilder, process: ProcessBuilder, record: Record, kind: Literal["specialized", "guard", "unbacked"], said: Any, values: Any
) -> None:
    text = as_text(said)
    if text is None:
        raise BadRecordError("shape record is mistyped")
    frame = run.frame_of(process, record.header)
    if not run.room.take("facts of shapes", len(text[:_LONGEST])):
        return
    value, why = as_text(values.get("value")) or as_text(values.get("vr")), as_text(values.get("reason"))
    fact = ShapeFact(
        kind=kind,
        frame=frame.id,
        attempt=attempt_of(record.header),
        text=run.share(text[:_LONGEST]),
        sources=run.share(tuple(source[:_LONGEST] for source in as_texts(values.get("sources"))[:_MOST_SOURCES])),
        value=None if value is None else run.share(value[:_LONGEST]),
        why=None if why is None else run.share(why[:_LONGEST]),
        stack=run.share(interned_stack(values.get("user_stack"), process.strings, process.inherited)),
    )
    run.shape_facts[fact] = None
