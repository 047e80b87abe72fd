"""The source ladder: the user's own functions line by line, with what became of each line; `ladder_builder` makes it of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

State = Literal["graph", "break", "eager", "unseen", "plain"]
STATES: Mapping[State, str] = {
    "graph": "compiled, in a graph",
    "break": "graph break",
    "eager": "ran in Python",
    "unseen": "ran in Python, not analysed",
    "plain": "no operator in a graph",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One line: its text with the indentation inside the function, what became of it, and what is said at its right.

    `graphs` are those that it is in, `breaks` the ids of the sites at it; `marks` are short (torch's ids), `notes` in words. `bars` is what
    became of it on the ranks that differ (`Ladder.bars`); `state` is that of the others then.
    """

    line: int
    code: str
    state: State
    graphs: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bars: tuple[State, ...] = ()

    @property
    def broke(self) -> bool:
        """Whether a graph break is at it, on whichever rank."""
        return "break" in (self.state, *self.bars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function: where it begins, how deep below the first compiled one, its lines, what is said of it as a whole.

    `matters` unless all that is known of it is that it is in a graph.
    """

    name: str
    file: str
    line: int | None
    depth: int
    rungs: tuple[Rung, ...]
    said: str
    matters: bool


@dataclass(frozen=True, slots=True)
class Fold:
    """Lines that are left out of a short ladder, all in one state."""

    first: int
    last: int
    state: State
    bars: tuple[State, ...] = ()


@dataclass(frozen=True, slots=True)
class Ladder:
    """The functions, callers before what they call; `notes` say what is missing.

    Where not the same became of every line on all ranks, `bars` names those of the wide bar and then of each thin one: `rank 1`.
    """

    functions: tuple[Function, ...] = ()
    notes: tuple[str, ...] = ()
    bars: tuple[str, ...] = ()


def bars_legend(found: Ladder) -> str | None:
    """`wide bar: ranks 0, 2 to 7; thin bars, from the left: rank 1`, or None where all ranks are alike."""
    if not found.bars:
        return None
    wide, *thin = found.bars
    return f"wide bar: {wide}; thin {'bar' if len(thin) == 1 else 'bars, from the left'}: {'; '.join(thin)}"


def that_matter(found: Ladder) -> list[Function]:
    """The functions that a short ladder shows, the outermost of them at depth 0."""
    shown = [function for function in found.functions if function.matters and function.rungs]
    least = min((item.depth for item in shown), default=0)
    return [replace(element, depth=element.depth - least) for element in shown]


def folded(rungs: Sequence[Rung], *, keep: int = 1) -> Iterator[Rung | Fold]:
    """A short ladder: of lines alike that follow each other the first `keep`, and a fold for the others; plain lines are left out.

    Lines with something at their right always stay, and so do breaks.
    """
    shown = [item for item in rungs if item.notes or set(item.bars) | {item.state} != {"plain"}]
    run: list[Rung] = []
    for rung in shown:
        if run and (
            (rung.state, rung.bars) != (run[0].state, run[0].bars) or rung.graphs[:1] != run[0].graphs[:1] or rung.notes or rung.broke
        ):
            yield from _run_of(run, keep)
            run = []
        run.append(rung)
    yield from _run_of(run, keep)


def _run_of(run: Sequence[Rung], keep: int) -> Iterator[Rung | Fold]:
    keep = max(keep, int(any(rung.notes or rung.broke for rung in run[:1])))
    if len(run) <= keep + 1:
        yield from run
    else:
        yield from run[:keep]
        yield Fold(run[keep].line, run[-1].line, run[0].state, run[0].bars)
