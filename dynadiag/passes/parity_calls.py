"""What the parity pass and the mutation pass ask of compared calls: which input was wrong, through which line, and in which words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dynadiag.facts.guard_sources import readable
from dynadiag.facts.user_frames import own_frame
from dynadiag.facts.wording import listed, plural, short_place, unique
from dynadiag.model import codes
from dynadiag.model.difference import Difference
from dynadiag.model.location import Location
from dynadiag.model.parity import ParityCall, ParityWrite
from dynadiag.model.run import Run
from dynadiag.passes.lost_handlers import lost_handler

_METADATA = frozenset(("shape", "stride", "dtype", "device", "requires_grad", "missing"))


@dataclass(frozen=True, slots=True)
class Wrong:
    """One difference of one call; `input` is the written input behind it (or None) and `where` the user's line."""

    code: str
    call: ParityCall
    difference: Difference
    input: str | None
    where: Location | None


def wrong_things(run: Run) -> Iterator[Wrong]:
    """Every difference that a finding is about: of a call with a wrong input its inputs, else its outputs; and differences of memory."""
    for call in run.parity:
        inputs = [one for one in call.differences if one.where == "input"]
        for one in call.differences:
            if one.kind == "value" and one.where == "output" and inputs:
                continue
            if one.kind == "both_raise":
                yield from _past_handler(one, call, run)
            else:
                yield _wrong(one, call, run)


def _past_handler(one: Difference, call: ParityCall, run: Run) -> Iterator[Wrong]:
    """What the graph raised in eager too, where a clause of the program's catches it there: `eager` then names that clause."""
    lost = lost_handler(one.eager, one.stack, run)
    if lost is not None:
        clause = f"`{lost.clause.code}` ({short_place(lost.clause)})"
        yield Wrong(codes.RAISES_WHERE_EAGER_DOES_NOT, call, replace(one, eager=clause), None, lost.raising)


def _wrong(one: Difference, call: ParityCall, run: Run) -> Wrong:
    if one.kind == "raises":
        write = _shared_write(call)
        return Wrong(codes.RAISES_WHERE_EAGER_DOES_NOT, call, one, write.input if write else None, _line(write, run) if write else None)
    if one.kind == "accepts":
        return Wrong(codes.DOES_WHAT_EAGER_REFUSES, call, one, None, own_frame(one.stack, run))
    if one.where == "gradient":
        return Wrong(codes.WRONG_GRADIENT, call, one, one.name, own_frame(one.stack, run))
    if one.kind == "overwritten":
        return Wrong(codes.OVERWRITTEN_LATER, call, one, None, own_frame(one.stack, run))
    if one.where == "input":
        writes = [write for write in call.writes if write.input == one.name]
        lines = [line for write in writes if (line := _line(write, run)) is not None]
        return Wrong(codes.WRONG_INPUT, call, one, one.name, lines[-1] if lines else None)
    if one.kind == "value":
        write = _shared_write(call)
        if write is not None:
            return Wrong(codes.WRONG_INPUT, call, one, write.input, _line(write, run))
        return Wrong(codes.WRONG_OUTPUT, call, one, None, own_frame(one.stack, run))
    return Wrong(codes.OTHER_ALIASES if one.kind == "alias" else codes.OTHER_METADATA, call, one, None, own_frame(one.stack, run))


def _shared_write(call: ParityCall) -> ParityWrite | None:
    """The last write of an input whose memory overlaps another input's."""
    overlapping = {name for one, other, how in call.shared if how != "one storage" for name in (one, other)}
    return next((write for write in reversed(call.writes) if write.input in overlapping), None)


def _line(write: ParityWrite, run: Run) -> Location | None:
    return own_frame(write.stack, run)


def in_words(one: Difference) -> str:
    """The difference as a sentence without its end: what eager gives and what the compiled call gave."""
    subject = {"input": readable(one.name), "gradient": f"the gradient of {readable(one.name)}"}.get(one.where, f"output {one.index}")
    after = " after the call" if one.where == "input" else ""
    if one.kind == "both_raise":
        return f"the compiled call raised {one.compiled}; in eager {one.eager} catches it, but a graph contains no `try`"
    if one.kind == "raises":
        return f"the compiled call raised {one.compiled}; in eager it does not"
    if one.kind == "accepts":
        return f"in eager it {one.eager}; the compiled call {readable(one.compiled)}"
    if one.kind == "overwritten":
        return f"{one.name}{_at(one)}, still held: {one.eager} before this call, {one.compiled} after it{_count(one)}"
    if one.kind == "alias":
        return f"{subject} and {readable(one.name)}: {one.eager} in eager, {one.compiled} compiled"
    if one.kind == "missing" and one.where == "gradient":
        return f"{subject}: {one.eager} in eager, {one.compiled} compiled"
    if one.kind != "value":
        return f"{subject}{after}: {one.kind.replace('_', ' ')} {one.eager} in eager, {one.compiled} compiled"
    return f"{subject}{after}{_at(one)}: {one.eager} in eager, {one.compiled} compiled{_count(one)}"


def _at(one: Difference) -> str:
    return "" if not one.first_wrong else f" at {list(one.first_wrong)}"


def _count(one: Difference) -> str:
    most = "" if one.largest is None else f", by up to {one.largest:.3g}"
    return most if one.elements is None else f", {one.wrong_elements} of {plural(one.elements, 'element')} wrong{most}"


def calls_in_words(calls: Iterable[ParityCall]) -> str:
    """Which calls: "call 2", "calls 1, 2 and 3 more"."""
    numbers = unique(str(call.call) for call in calls)
    return f"call{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def sharing_in_words(call: ParityCall) -> str | None:
    """How the inputs of the call shared memory; None when they did not."""
    found = [f"{readable(one)} and {readable(other)} ({how})" for one, other, how in call.shared]
    return None if not found else f"inputs shared memory: {listed(found)}"
