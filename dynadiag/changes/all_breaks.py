"""What the advice for one break asks of all breaks of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dynadiag.facts.user_frames import joined_stack, of_last_run, resume_line, source_function
from dynadiag.model.location import Location
from dynadiag.model.report import GraphBreak
from dynadiag.model.run import BreakEvent, Run

_OPTIMIZER = re.compile(r"[/\\]torch[/\\]optim[/\\]")
_DYNAMO = re.compile(r"[/\\]torch[/\\]_dynamo[/\\]")
PACKED = re.compile(r"\bPackedSequence\b|\bpack(?:_padded)?_sequence\b")
_MOST_CONTEXTS = 20
READS, SIZES = frozenset(("GB0124", "GB0033", "GB0109")), frozenset(("GB0036", "GB0037"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AllBreaks:
    """What the advice for one break asks of all of them: processes and epochs in which sequences are packed, in which compiled code trains;
    the lines of compiled functions at which they, or what they call, broke; with their code the lines that broke with ids of one set;
    by file the lines on the stack of any break, and those at which an exception was raised; where all code was compiled but for breaks at
    numbers that are read; the lines that broke in the compiled function itself, not (or not only) inlined into another one; by
    the line that broke those that called its function; the lines at which a function goes on after a break.
    """

    packing: frozenset[tuple[int, int] | None]
    training: frozenset[tuple[int, int] | None]
    calling: frozenset[tuple[str, int | None]]
    places: Mapping[tuple[tuple[int, int] | None, frozenset[str]], Mapping[tuple[str, int | None], str | None]]
    contexts: Mapping[tuple[str | None, Location | None], Mapping[str, None]]
    on_the_way: Mapping[str, frozenset[int | None]]
    raised: Mapping[str, frozenset[int | None]]
    only_reads: frozenset[tuple[int, int] | None]
    itself: frozenset[Location]
    callers: Mapping[Location, frozenset[str | None]]
    goes_on: frozenset[tuple[str | None, int | None]]


@of_last_run
def all_breaks(run: Run) -> AllBreaks:
    """What all breaks of the run have in common, found once."""
    packs: set[tuple[int, int] | None] = set()
    training: set[tuple[int, int] | None] = set()
    calling: set[tuple[str, int | None]] = set()
    places: dict[tuple[tuple[int, int] | None, frozenset[str]], dict[tuple[str, int | None], str | None]] = {}
    contexts: dict[tuple[str | None, Location | None], dict[str, None]] = {}
    way: dict[str, set[int | None]] = {}
    raised: dict[str, set[int | None]] = {}
    reads: set[str] = set()
    itself: set[Location] = set()
    called: dict[Location, set[str | None]] = {}
    elsewhere: set[tuple[int, int] | None] = set()
    for event in run.breaks:
        if event.gb_id in READS:
            reads.add(event.frame)
        else:
            elsewhere.add(epoch_of(event, run))
        if event.torch_frame is not None and in_function_itself(event, run):
            itself.add(event.torch_frame)
        stack = whole_stack(event, run)
        for location in stack:
            way.setdefault(location.file, set()).add(location.line)
        if event.torch_frame is not None and event.gb_id in READS and stack[-1:] == (event.torch_frame,):
            called.setdefault(event.torch_frame, set()).add(stack[-2].code if len(stack) > 1 else None)
        if event.gb_id == "GB0088" and event.torch_frame is not None:
            raised.setdefault(event.torch_frame.file, set()).add(event.torch_frame.line)
        said = contexts.setdefault((event.gb_id, event.torch_frame), {})
        if len(said) < _MOST_CONTEXTS:
            said[event.context or ""] = None
        file = entered_file(event, run)
        calling.update((item.file, item.line) for item in event.stack if file and item.file == file)
        training.update((epoch_of(event, run),) if event.gb_id == "GB0123" or _of_optimizer(event) else ())
        packs.update((epoch_of(event, run),) if PACKED.search(event.context or "") else ())
        ids = next((some for some in (READS, SIZES) if event.gb_id in some), None)
        if event.torch_frame is not None and ids is not None:
            places.setdefault((epoch_of(event, run), ids), {})[event.torch_frame.file, event.torch_frame.line] = event.torch_frame.code
    return AllBreaks(
        packing=frozenset(packs),
        training=frozenset(training),
        calling=frozenset(calling),
        places=places,
        contexts=contexts,
        on_the_way={file: frozenset(lines) for file, lines in way.items()},
        raised={file: frozenset(lines) for file, lines in raised.items()},
        only_reads=frozenset({(frame.key.process, frame.key.epoch) for frame in run.frames} - elsewhere - _uncompiled(run, reads)),
        itself=frozenset(itself),
        callers={place: frozenset(lines) for place, lines in called.items()},
        goes_on=frozenset((element.file, resume_line(element.name)) for element in run.frames),
    )


def _uncompiled(run: Run, reads: set[str]) -> set[tuple[int, int]]:
    """The processes and epochs with a frame that was not compiled, those aside that break at a number that is read."""
    return {(frame.key.process, frame.key.epoch) for frame in run.frames if frame.outcome != "compiled" and frame.id not in reads}


def in_function_itself(event: BreakEvent | GraphBreak, run: Run) -> bool:
    """Whether the break is in the compiled function itself, not in one that was inlined into it."""
    frame = run.frame(event.frame if isinstance(event, BreakEvent) else (*event.frames, "")[0])
    last = event.stack[-1] if event.stack else None
    return frame is not None and last is not None and source_function(last.function) == source_function(frame.name)


def _of_optimizer(event: BreakEvent) -> bool:
    """Whether this break is in an optimizer."""
    files = any(_OPTIMIZER.search(frame.file) for frame in event.stack)
    return files or re.search(r"\bOptimizer\.|torch\.optim\.", event.context or "") is not None


def entered_file(event: BreakEvent | GraphBreak, run: Run) -> str:
    """The file of the function that Dynamo compiled when it broke."""
    frame = run.frame(event.frame if isinstance(event, BreakEvent) else (*event.frames, "")[0])
    return "" if frame is None else frame.file or ""


def whole_stack(event: BreakEvent | GraphBreak, run: Run) -> tuple[Location, ...]:
    """The whole stack of the break: where its frame was entered, then what it inlined."""
    frame = run.frame(event.frame) if isinstance(event, BreakEvent) else None
    stack = event.stack if frame is None else joined_stack(frame.stack, event.stack)
    return tuple(location for location in stack if not _DYNAMO.search(location.file))


def epoch_of(event: BreakEvent | GraphBreak, run: Run) -> tuple[int, int] | None:
    """The process and the reset epoch of a break; None where its frame is not known."""
    frame = run.frame(event.frame if isinstance(event, BreakEvent) else (*event.frames, "")[0])
    return None if frame is None else (frame.key.process, frame.key.epoch)
