"""What calls compared with eager (`explain --parity`) say of mutations: inputs that are silently wrong, writes that nobody declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dynadiag.facts.user_frames import own_frame, source_function
from dynadiag.model import codes
from dynadiag.model.run import Frame, Location, Run
from dynadiag.passes.mutation_facts import Effect, Fact, Site, sorted_effects
from dynadiag.passes.parity_calls import Wrong, in_words, sharing_in_words, wrong_things

_KINDS = frozenset(("data", "metadata", "storage"))
_IF_MOVED = "when torch, unaware of the write, moves or drops the call, or reads a value from before it"
# "Written on a tensor made in the graph": not where that tensor turned out to be an input.


def with_parity(facts: Sequence[Fact], run: Run) -> Iterator[Fact]:
    """The facts, those of an input that was seen to be wrong with that as their worst effect; and a fact for each input that had none."""
    wrong = [one for one in wrong_things(run) if one.code == codes.WRONG_INPUT and one.input is not None]
    by_input: dict[tuple[object, ...], list[Wrong]] = {}
    for one in wrong:
        by_input.setdefault(_input_of(run.frame(one.call.frame) if one.call.frame else None, one.input), []).append(one)
    places = {one.where for one in wrong}
    told: set[int] = set()
    for fact in facts:
        mine = by_input.get(_input_of(fact.frame, fact.input), []) if fact.kind in _KINDS else []
        told.update(map(id, mine))
        if fact.code == codes.MADE_IN_GRAPH and _lines(fact) & places:
            continue
        yield replace(fact, effects=sorted_effects((*fact.effects, *map(_effect, mine)))) if mine else fact
    for one in wrong:
        frame = run.frame(one.call.frame) if one.call.frame else None
        if id(one) not in told and frame is not None:
            yield _fact(one, frame)
    yield from _undeclared({(one.call.frame, one.input) for one in wrong}, run)


def _undeclared(wrong: set[tuple[str | None, str | None]], run: Run) -> Iterator[Fact]:
    """Writes that an operator was seen to make without declaring them, in calls whose results were eager's all the same."""
    for call in run.parity:
        frame = run.frame(call.frame) if call.frame else None
        for write in call.writes if call.verdict == "equal" and frame is not None else ():
            if frame is None or write.declared or (call.frame, write.input) in wrong:
                continue
            where = own_frame(write.stack, run)
            detail = (
                f"seen in call {call.call}: {write.op} wrote it and does not declare that; even so, the compared calls had eager's results"
            )
            yield Fact(
                code=codes.UNDECLARED_WRITE,
                frame=frame,
                input=write.input,
                kind="data",
                effects=(Effect("silent_wrong", "predicted", detail, condition=_IF_MOVED),),
                sites=() if where is None else (Site(where, write.op),),
            )


def _lines(fact: Fact) -> set[Location | None]:
    return {site.where for site in fact.sites}


def _input_of(frame: Frame | None, name: str | None) -> tuple[object, ...]:
    """What a wrong input and a fact must agree in to be about the same: the function and the input."""
    return () if frame is None else (frame.file, source_function(frame.name), name)


def _effect(one: Wrong) -> Effect:
    sharing = sharing_in_words(one.call)
    detail = f"seen in call {one.call.call}: {in_words(one.difference)}" + ("" if sharing is None else f"; {sharing}")
    return Effect("silent_wrong", "observed", detail)


def _fact(one: Wrong, frame: Frame) -> Fact:
    op = next((write.op for write in one.call.writes if write.input == one.input), None)
    sites = () if one.where is None else (Site(one.where, op),)
    return Fact(code=codes.WRONG_INPUT, frame=frame, input=str(one.input), kind="data", effects=(_effect(one),), sites=sites)
