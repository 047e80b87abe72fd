"""The Python side of `dynadiag explain`: diagnose one call, load a recording, or fail a test on a graph break."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from os import PathLike
from typing import Any

from dynadiag import report, trace
from dynadiag.model import CacheEvent, Report


def load(path: str | PathLike[str]) -> Report:
    """Load the report on a run directory, a TORCH_TRACE log, a folder of logs or a text log; torch is not needed.

    Raises `UnreadableInputError` when there is nothing to read.
    """
    return report.build_with_replay(trace.load(path), path)


def explain(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """Diagnose one call of `fn(*args, **kwargs)`, compiled with `torch.compile`'s defaults unless it is already compiled.

    The call is real: it mutates what `fn` mutates and raises what `fn` raises. Dynamo's caches are cleared first, as
    `torch._dynamo.explain` does (`torch.compiler.reset()`), so that the report also covers what an earlier call compiled; other compiled
    functions are recompiled when they are next called.
    """
    from dynadiag.record import observe
    from dynadiag.torch_compat.dynamo.compiled_calls import ensure_compiled, forget_compiled

    compiled = ensure_compiled(fn)
    forget_compiled()
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as directory:
        with observe(directory):
            compiled(*args, **kwargs)
        return load(directory)


def assert_no_graph_breaks(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """Return the report of `explain` on one call; raise an `AssertionError` that names every site if the graph breaks.

    Also fails if nothing was compiled, because then nothing was checked.
    """
    seen = explain(fn, *args, **kwargs)
    if not seen.summary.frames:
        raise AssertionError("nothing was compiled in this call, so graph breaks could not be checked")
    if seen.graph_breaks:
        raise AssertionError("\n".join([f"{len(seen.graph_breaks)} graph break sites:", *map(_one_line, seen.graph_breaks)]))
    return seen


def assert_warm_start(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """Return the report of `explain` on one call; raise an `AssertionError` that names what torch's caches on disk did not give.

    For a program that ran before with the same cache folder. Also fails if no cache was asked, because then nothing was checked.
    """
    seen = explain(fn, *args, **kwargs)
    if not seen.run.caches:
        raise AssertionError("no cache was asked in this call (they are off, or the back end has none), so its start could not be checked")
    if missed := [event for event in seen.run.caches if event.result != "hit"]:
        raise AssertionError("\n".join([f"{len(missed)} cache look-ups were no hits:", *(_one_look_up(event, seen) for event in missed)]))
    return seen


def _one_look_up(event: CacheEvent, seen: Report) -> str:
    frame = None if event.frame is None else seen.run.frame(event.frame)
    where = "unknown place" if frame is None else f"{frame.file}:{frame.line} ({frame.name})"
    return f"  {where}: {event.cache} {event.result}" + (f", {event.why}" if event.why else "")


def _as_html(seen: Report) -> str:
    from dynadiag.render.html import notebook

    return notebook.render(seen)


# A report is plain data and knows no renderer; a notebook asks it for its HTML. People get their reports from here.
Report._repr_html_ = _as_html  # type: ignore[attr-defined]


def _one_line(site: Any) -> str:
    place = site.own_frame or site.torch_frame
    where = f"{place.file}:{place.line}" if place else "unknown place"
    return f"  {where}: {site.gb_id or 'no id'} {site.reason} ({site.events} events)"
