"""What a recorded run of a candidate showed besides exceptions, as failures to compare: breaks, recompiles, fallbacks, calls that differ
from eager. No torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dynadiag import trace
from dynadiag.model import BreakEvent, Change, Fallback, Location, Recompile, Run
from dynadiag.model.parity import WholeCall
from dynadiag.passes.find_fallbacks import find_fallbacks
from dynadiag.passes.find_recompiles import find_recompiles
from dynadiag.passes.find_whole_calls import rank_of_difference
from dynadiag.passes.whole_call_causes import cause_of as cause_of_call
from dynadiag.reduce.core.failure import Failure, without_accidents

WRONG_CALL = "wrong_call"
KINDS = ("graph_break", "recompile", "fallback", "cudagraph_skip", WRONG_CALL)


MARKS = {
    "graph_break": b"dynamo_graph_break_reason",
    "recompile": b"recompile_reasons",
    "fallback": b"compilation_metrics",
    "cudagraph_skip": b'"cudagraph_skip',
    WRONG_CALL: b"dynadiag_whole_call",
}
"""What a log holds that tells of a failure of the kind."""


def failures_in(directory: Path, *kinds: str) -> tuple[Failure, ...]:
    """Everything of these kinds (of all without any) that a run directory tells, in the order in which it happened, each signature once."""
    run = trace.load(directory)
    asked = kinds or KINDS
    everything: list[Failure] = []
    recompiles = find_recompiles(run).recompiles if {"recompile", "fallback"} & set(asked) else ()
    if "graph_break" in asked:
        everything += map(_of_break, run.breaks)
    if "recompile" in asked:
        everything += (failure for recompile in recompiles for failure in _of_recompile(recompile))
    if "fallback" in asked:
        everything += (_of_fallback(fallback, run, recompiles) for fallback in find_fallbacks(run).fallbacks)
    if "cudagraph_skip" in asked:
        everything += _cudagraph_skips(run)
    if WRONG_CALL in asked:
        everything += (_of_whole_call(call) for call in run.whole_calls if call.verdict == "different")
    first: dict[object, Failure] = {}
    for item in everything:
        first.setdefault(item.signature(), item)
    return tuple(first.values())


def _of_break(event: BreakEvent) -> Failure:
    """By its id and what Dynamo says of the place; a break without an id by its reason."""
    place = event.torch_frame or (event.stack[-1] if event.stack else None)
    what = f"{event.gb_id} {event.gb_type}" if event.gb_id else event.gb_type
    context = without_accidents(event.context or "")
    detail = "\n".join(filter(None, (what, _name_of_line(place), event.explanation, event.context, event.skip_reason)))
    return Failure(kind="graph_break", phase="trace", message=f"{what}\n{context}".strip(), detail=detail)


def _of_recompile(event: Recompile) -> Iterator[Failure]:
    """One for each guard that failed: by what changed, and of what."""
    causes: dict[str, list[Change]] = {}
    for change in event.changed:
        causes.setdefault(cause_of(change), []).append(change)
    for cause, changes in causes.items():
        # torch tells of the first guard that fails, which may be one of another name.
        said = [reason for reason in event.reasons if _name_in(cause) in reason]
        texts = filter(None, (_name_of_line(event.own_frame), *(f"{item.kind} of {item.source}" for item in changes), *said))
        yield Failure(kind="recompile", phase="guards", message=f"changed: {cause}", detail="\n".join(texts))
    if not causes:
        said_by_torch = "\n".join(event.reasons)
        yield Failure(kind="recompile", phase="guards", message=f"changed: {without_accidents(said_by_torch)}", detail=said_by_torch)


def cause_of(change: Change) -> str:
    """`size of x.size(0)`: the kind, the last name of the source and what of it.

    The way to the name is left out, since it changes while a script shrinks (`self.net.scale`, `scale`); a value of the stack has no name.
    """
    found = _PROPERTY.search(change.source)
    of = found[0] if found else ""
    names = [name for name in _NAME.findall(change.source[: found.start()] if found else change.source) if name not in _NO_NAMES]
    name = "a value" if not names or names[-1].startswith("___") else names[-1]
    return f"{change.kind} of {name}{of}"


def _name_in(cause: str) -> str:
    return cause.rpartition(" of ")[2].partition(".")[0].removeprefix("a value")


_PROPERTY = re.compile(r"\.(?:size|stride)\(\d+\)$|\.(?:requires_grad|dtype|device|ndim|shape)$")
_NAME = re.compile(r"[^\W\d]\w*")
_NO_NAMES = frozenset(("L", "G", "self", "len", "type", "id", "hasattr", "not", "_modules", "_parameters", "_buffers", "__dict__"))


def _of_fallback(event: Fallback, run: Run, recompiles: Sequence[Recompile]) -> Failure:
    """By its kind and reason without the names of functions, which go while a script shrinks; a limit by what was compiled for last."""
    detail = "\n".join(filter(None, (event.kind, _name_of_line(event.own_frame), event.reason)))
    cause = ""
    if event.kind == "recompile_limit":
        cause = next(
            (
                cause_of(recompile.changed[0])
                for recompile in reversed(recompiles)
                if recompile.changed and _same_code(recompile, event, run)
            ),
            "",
        )
    elif event.kind in _WITH_REASON:
        cause = without_accidents(_OF_FUNCTION.sub("", event.reason))
    return Failure(kind="fallback", phase=event.kind, message=f"{event.kind}: {cause}" if cause else event.kind, detail=detail)


_WITH_REASON = ("skipped_frame", "suppressed_error", "aot_rejected")
_OF_FUNCTION = re.compile(r"^.*? was skipped(?: because of a graph break)?: ", re.DOTALL)


def _same_code(recompile: Recompile, event: Fallback, run: Run) -> bool:
    """Whether both are of one code object: the frame number of torch's "0/1"."""
    frames = [run.frame(name) for name in (recompile.frame, event.frame) if name is not None]
    keys = {(frame.key.process, frame.key.epoch, frame.key.frame) for frame in frames if frame is not None}
    return len(frames) == 2 and len(keys) == 1


def _cudagraph_skips(run: Run) -> Iterator[Failure]:
    """What was told while compiling, and in first calls; the same reason once."""
    compiling = [frame.metrics.cudagraph_skip_reason for frame in run.frames if frame.metrics is not None]
    told = [problem.text for problem in run.problems if problem.kind == "cudagraph_skip"]
    for reason in dict.fromkeys(filter(None, (*compiling, *told))):
        if "mutat" in reason:
            first = reason.splitlines()[0].partition(". Found from")[0]
            yield Failure(kind="cudagraph_skip", phase="compile", message=without_accidents(first), detail=reason)


def _of_whole_call(call: WholeCall) -> Failure:
    """By its measured cause, and where and how it differs first; names and values change while a script shrinks."""
    first = min(call.differences, key=rank_of_difference, default=None)
    differs = [f"{first.where} {first.kind}"] if first is not None else []
    detail = "\n".join(filter(None, (call.name, _name_of_line(call.where), *(difference.detail for difference in call.differences))))
    return Failure(kind=WRONG_CALL, phase="call", message=": ".join([cause_of_call(call).kind, *differs]), detail=detail)


def _name_of_line(location: Location | None) -> str | None:
    if location is None:
        return None
    return f"{Path(location.file).name}:{location.line} {location.code or ''}".strip()
