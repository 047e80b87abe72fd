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
from dynadiag.passes.find_uncaught import lost_handler

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
        inputs = [item for item in call.differences if item.where == "input"]
        detached = {item.index for item in call.differences if item.kind == "requires_grad"}
        for difference in call.differences:
            if difference.kind == "value" and difference.where == "output" and inputs:
                continue
            if difference.kind == "alias" and difference.index in detached:
                continue  # one tensor was given for two outputs, which is why it carries no gradient
            if difference.kind == "both_raise":
                yield from _past_handler(difference, call, run)
            else:
                yield _wrong(difference, call, run)


def _past_handler(difference: Difference, call: ParityCall, run: Run) -> Iterator[Wrong]:
    """What the graph raised in eager too, where a clause of the program's catches it there: `eager` then names that clause."""
    lost = lost_handler(difference.eager, difference.stack, run)
    if lost is not None:
        clause = f"`{lost.clause.code}` ({short_place(lost.clause)})"
        yield Wrong(codes.RAISES_WHERE_EAGER_DOES_NOT, call, replace(difference, eager=clause), None, lost.raising)


def _wrong(difference: Difference, call: ParityCall, run: Run) -> Wrong:
    if difference.kind == "raises":
        write = _shared_write(call)
        return Wrong(
            codes.RAISES_WHERE_EAGER_DOES_NOT, call, difference, write.input if write else None, _line(write, run) if write else None
        )
    if difference.kind == "accepts":
        return Wrong(codes.DOES_WHAT_EAGER_REFUSES, call, difference, None, own_frame(difference.stack, run))
    if difference.where == "gradient":
        return Wrong(codes.WRONG_GRADIENT, call, difference, difference.name, own_frame(difference.stack, run))
    if difference.kind == "overwritten":
        return Wrong(codes.OVERWRITTEN_LATER, call, difference, None, own_frame(difference.stack, run))
    if difference.where == "input":
        writes = [write for write in call.writes if write.input == difference.name]
        # What is not written itself was written through another input that shares its memory.
        writes = writes or [write for write in (_shared_write(call),) if write is not None]
        lines = [line for write in writes if (line := _line(write, run)) is not None]
        return Wrong(codes.WRONG_INPUT, call, difference, difference.name, lines[-1] if lines else None)
    if difference.kind == "value":
        write = _shared_write(call)
        if write is not None:
            return Wrong(codes.WRONG_INPUT, call, difference, write.input, _line(write, run))
        return Wrong(codes.WRONG_OUTPUT, call, difference, None, own_frame(difference.stack, run))
    return Wrong(
        codes.OTHER_ALIASES if difference.kind == "alias" else codes.OTHER_METADATA,
        call,
        difference,
        None,
        own_frame(difference.stack, run),
    )


def _shared_write(call: ParityCall) -> ParityWrite | None:
    """The last write of an input whose memory overlaps another input's."""
    overlapping = {name for text, other, how in call.shared if how != "one storage" for name in (text, other)}
    return next((write for write in reversed(call.writes) if write.input in overlapping), None)


def _line(write: ParityWrite, run: Run) -> Location | None:
    return own_frame(write.stack, run)


def in_words(difference: Difference) -> str:
    """The difference as a sentence without its end: what eager gives and what the compiled call gave."""
    subject = {"input": readable(difference.name), "gradient": f"the gradient of {readable(difference.name)}"}.get(
        difference.where, f"output {difference.index}"
    )
    after = " after the call" if difference.where == "input" else ""
    if difference.kind == "both_raise":
        return f"the compiled call raised {difference.compiled}; in eager {difference.eager} catches it, but a graph contains no `try`"
    if difference.kind == "raises":
        return f"the compiled call raised {difference.compiled}; in eager it does not"
    if difference.kind == "accepts":
        return f"in eager it {difference.eager}; the compiled call {readable(difference.compiled)}"
    if difference.kind == "overwritten":
        seen = f"{difference.eager} before this call, {difference.compiled} after it"
        return f"{difference.name}{_at(difference)}, still held: {seen}{_count(difference)}"
    if difference.kind == "alias":
        return f"{subject} and {readable(difference.name)}: {difference.eager} in eager, {difference.compiled} compiled"
    if difference.kind == "missing" and difference.where == "gradient":
        return f"{subject}: {difference.eager} in eager, {difference.compiled} compiled"
    if difference.kind != "value":
        return f"{subject}{after}: {difference.kind.replace('_', ' ')} {difference.eager} in eager, {difference.compiled} compiled"
    return f"{subject}{after}{_at(difference)}: {difference.eager} in eager, {difference.compiled} compiled{_count(difference)}"


def _at(difference: Difference) -> str:
    return "" if not difference.first_wrong else f" at {list(difference.first_wrong)}"


def _count(difference: Difference) -> str:
    most = "" if difference.largest is None else f", by up to {difference.largest:.3g}"
    return most if difference.elements is None else f", {difference.wrong_elements} of {plural(difference.elements, 'element')} wrong{most}"


def calls_in_words(calls: Iterable[ParityCall]) -> str:
    """Which calls: "call 2", "calls 1, 2 and 3 more"."""
    numbers = unique(str(call.call) for call in calls)
    return f"call{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def sharing_in_words(call: ParityCall) -> str | None:
    """How the inputs of the call shared memory; None when they did not."""
    found = [f"{readable(name)} and {readable(other)} ({how})" for name, other, how in call.shared]
    return None if not found else f"inputs shared memory: {listed(found)}"
