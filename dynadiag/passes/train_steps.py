"""Whole train steps under torch.compile: `zero_grad`, `backward` and the optimizer's `step` each break the graph of one function.

None of the three is traced by default (`Optimizer.zero_grad` is on the skip list, `Tensor.backward` is GB0123, `torch/optim/optimizer.py`
breaks on purpose in `_use_grad`; torch 2.11 and 2.15), and one change ends all of them: so they are told once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dynadiag.changes.train_step import APART, COMPILE_APART, MAY_DIFFER, compile_once
from dynadiag.facts.user_frames import is_own_file, normal_path, source_function
from dynadiag.facts.wording import short_place, unique
from dynadiag.model.report import Advice, GraphBreak
from dynadiag.model.run import Run

_BESIDE = re.compile(r"lr_scheduler|LRScheduler|GradScaler")  # what belongs to a step and is none by itself
_Group = tuple[GraphBreak, ...]


def joined_train_steps(run: Run, groups: Iterable[Sequence[GraphBreak]]) -> tuple[_Group, ...]:
    """The groups of sites (one an own line), those that are parts of one compiled train step put together, in their first order."""
    joined: dict[object, list[_Group]] = {}
    for number, group in enumerate(map(tuple, groups)):
        joined.setdefault(_function(run, group) or number, []).append(group)
    result: list[_Group] = []
    for parts in joined.values():
        whole = tuple(site for part in parts for site in part)
        result.extend([whole] if is_train_step(whole) else parts)
    return tuple(result)


def is_train_step(group: Sequence[GraphBreak]) -> bool:
    """True for sites of two or three different parts of a train step."""
    return len({part for site in group if _belongs(site) for part in _parts(site)}) > 1


def _belongs(site: GraphBreak) -> bool:
    return site.unadvised == APART or any(advice.slug == COMPILE_APART for advice in site.advice)


def _beside(site: GraphBreak) -> bool:
    return _belongs(site) or _BESIDE.search(site.context or "") is not None


def _function(run: Run, group: _Group) -> object | None:
    """The compiled function in which a part of a train step broke first; of a library's function the user's that called it."""
    site = next(
        (
            graph_break
            for graph_break in group
            if _beside(graph_break) and graph_break.own_frame is not None and graph_break.own_frame.line is not None
        ),
        None,
    )
    frame = None if site is None else run.frame(site.frames[0])
    if site is None or site.own_frame is None or frame is None or frame.name is None:
        return None
    if frame.file is None or is_own_file(frame.file, run):
        return frame.file, source_function(frame.name)
    return site.own_frame.file, source_function((site.own_frame.function or "").rpartition(".")[2])


def _parts(site: GraphBreak) -> tuple[str, ...]:
    """Which parts of a train step a site is, from what torch says of it, or the user's line where that names the call."""
    said = " ".join((site.reason, site.context or "", *site.other_reasons))
    named = tuple(part for part in ("zero_grad", "backward") if part in said)
    if named:
        return named
    code = "" if site.own_frame is None else site.own_frame.code or ""
    inside = site.torch_frame is not None and normal_path(site.torch_frame.file).endswith("torch/optim/optimizer.py")
    if not inside and re.search(r"\.backward\(", code):
        return ("backward",)
    return ("update" if not inside and re.search(r"\.update\(", code) else "step",)


def train_step_title(run: Run, group: Sequence[GraphBreak]) -> str:
    """For example "A whole train step is compiled: zero_grad(), backward() and step() break the graph of train_step"."""
    parts = unique(f"{part}()" for site in _in_order(group) if _beside(site) for part in _parts(site))
    frame = next((frame for site in group if _belongs(site) and (frame := run.frame(site.frames[0])) is not None), None)
    own = next((site.own_frame for site in group if _belongs(site) and site.own_frame is not None), None)
    theirs = frame is not None and frame.file is not None and not is_own_file(frame.file, run) and own is not None
    name = source_function(own.function) if theirs and own is not None else None if frame is None else source_function(frame.name)
    return f"A whole train step is compiled: {_and(parts)} break the graph of {name or 'one function'}"


def _and(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _is_backward(site: GraphBreak) -> bool:
    return "backward" in _parts(site)


def train_step_main(group: Sequence[GraphBreak]) -> GraphBreak:
    """The site that the finding points at: the backward call, else the first line."""
    ordered = [site for site in _in_order(group) if _belongs(site)]
    return next(filter(_is_backward, ordered), ordered[0])


def train_step_lines(group: Sequence[GraphBreak]) -> list[str]:
    """Each own line with torch's ids of what breaks on it, in the order of the file: "`loss.backward()` (train.py:12, GB0123)"."""
    lines: dict[tuple[str, int | None], list[GraphBreak]] = {}
    for site in _in_order(group):
        if site.own_frame is not None:
            lines.setdefault((site.own_frame.file, site.own_frame.line), []).append(site)
    return [_line(sites) for sites in lines.values()]


def _line(sites: Sequence[GraphBreak]) -> str:
    own = sites[0].own_frame
    code = own.code if own is not None and own.code else None
    ids = ", ".join(unique(f"{site.gb_id or 'no id'}{_inside(site)}" for site in sites))
    return f"`{code}` ({short_place(own)}, {ids})" if code else f"{short_place(own)} ({ids})"


def _inside(site: GraphBreak) -> str:
    """Where Dynamo really stopped, when that is inside the call."""
    own, place = site.own_frame, site.torch_frame
    return "" if own is None or place is None or own.file == place.file else f" inside the call, at {short_place(place)}"


def _in_order(group: Sequence[GraphBreak]) -> list[GraphBreak]:
    return sorted(group, key=lambda site: (normal_path(site.own_frame.file), site.own_frame.line or 0) if site.own_frame else ("", 0))


def is_step_alone(group: Sequence[GraphBreak]) -> bool:
    """True for a compiled function that computes nothing but `optimizer.step()`: no graph lies before or behind it."""
    return all(_belongs(site) and _parts(site) == ("step",) and not (site.graphs_before or site.graphs_after) for site in group)


def train_step_advice(group: Sequence[GraphBreak]) -> tuple[Advice, ...]:
    """The change that ends all of them, once and with every line."""
    codes = [site.own_frame.code for site in _in_order(group) if _beside(site) and site.own_frame is not None and site.own_frame.code]
    what = _and([f"`{code}`" for code in unique(codes)]) or "the rest of the step"
    found = {advice.after: advice for site in group for advice in site.advice if advice.slug == COMPILE_APART}
    if len(found) != 1 or any(site.unadvised == APART for site in group):
        return ()
    ((after, first),) = found.items()
    in_place = (after or "").endswith(".compile()")
    model = (after or "").removesuffix(".compile()" if in_place else ")").rpartition("(")[2]
    text = f"Do not compile the whole train step: leave {what} in plain Python, and {compile_once(model, in_place=in_place)} {MAY_DIFFER}"
    return (Advice(slug=COMPILE_APART, text=text, after=first.after, options=first.options),)
