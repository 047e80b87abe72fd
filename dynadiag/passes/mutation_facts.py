"""What the rule families of the mutation pass share: one mutation before equal ones are merged, its effects, and texts for sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dynadiag.facts.user_frames import joined_stack, own_frame
from dynadiag.model.location import Location
from dynadiag.model.report import Certainty
from dynadiag.model.run import Frame, Run

# Worst first (DESIGN): what a list of effects is sorted by. A kind that is not in it comes last.
ORDER: Final[tuple[str, ...]] = (
    "silent_wrong",
    "error",
    "eager_fallback",
    "graph_break",
    "recompile",
    "cudagraph_skip",
    "copy_back",
    "extra_copy",
    "free",
)


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect. `condition` says when it comes if it did not (or would not) come in the mode of this run."""

    kind: str
    basis: Certainty
    detail: str
    condition: str | None = None

    def plain(self) -> Mapping[str, str]:
        """The effect as `report.json` has it."""
        found = {"kind": self.kind, "basis": self.basis, "detail": self.detail}
        return found if self.condition is None else found | {"condition": self.condition}


@dataclass(frozen=True, slots=True)
class Site:
    """One writing op: the user's own line (`where`) and, when the write itself is in a library, that place."""

    where: Location | None
    op: str | None
    inner: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenInput:
    """What is known of the written input: its name in the user's words, whether its address is fixed, and what shares its memory."""

    known_as: str | None = None
    static: bool | None = None
    requires_grad: bool | None = None
    aliases: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One mutation as one source tells it; `unknown` maps fields that are None to the reason."""

    code: str
    frame: Frame
    input: str
    kind: str
    effects: tuple[Effect, ...] = ()
    sites: tuple[Site, ...] = ()
    graph: str | None = None
    where: str | None = None
    bytes_touched: int | None = None
    bytes_written_back: int | None = None
    no_grad: bool | None = None
    given: WrittenInput = WrittenInput()
    doubts: tuple[str, ...] = ()
    refusal: str | None = None
    frames: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


def severity_of(kind: str) -> int:
    """The place of an effect in the order, 0 for the worst."""
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def sorted_effects(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Each kind, basis and condition once, worst first; of equal ones the first detail is kept."""
    kept: dict[tuple[str, str, str | None], Effect] = {}
    for effect in effects:
        kept.setdefault((effect.kind, effect.basis, effect.condition), effect)
    found = sorted(kept.values(), key=lambda item: (severity_of(item.kind), item.condition is not None))
    costly = any(element.kind != "free" and element.condition is None for element in found)
    return tuple(entry for entry in found if entry.kind != "free" or not costly)


def worst(effects: Iterable[Effect]) -> str | None:
    """The worst kind of those that hold without a condition; "free" is the least; None when nothing is known."""
    kinds = [effect.kind for effect in effects if effect.condition is None]
    return min(kinds, key=severity_of) if kinds else None


def site_of(frame: Frame, stack: tuple[Location, ...], op: str | None, run: Run) -> Site:
    """The write at the end of a stack that begins in the frame, with the user's own line: also when the user only called a library."""
    inner = stack[-1] if stack else None
    above = frame.callers or frame.stack
    begin = Location(frame.file, frame.line, frame.name) if frame.file else None
    entry = (*above, begin) if begin is not None else above
    own = own_frame(stack, run) or own_frame(joined_stack(entry, stack), run) or own_frame(above, run)
    return Site(own or inner, op, None if inner == own else inner)


def size_text(size: int | None) -> str:
    """A size as people read it: 4 KiB for 4096, exact below 1 KiB."""
    if size is None:
        return "an unknown number of bytes"
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size} bytes"
