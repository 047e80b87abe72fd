"""Small runs made by hand: one code object, its recompile reasons, and what else a log would say of it."""

from __future__ import annotations

import re
from dataclasses import replace

from dynadiag.model.graph import TracedInput
from dynadiag.model.location import Location
from dynadiag.model.run import CompileKey, CompileMetrics, Frame, Process, RecompileEvent, Run, RunInfo, Symbol

__all__ = ["SCRIPT", "frame", "recompiled", "recorded", "replace"]

SCRIPT = "/home/me/project/train.py"


def frame(
    number: int,
    *,
    compile=0,
    code=0,
    process=0,
    epoch=0,
    name="step",
    file=SCRIPT,
    line=10,
    outcome="compiled",
    metrics=None,
    guards=None,
    call_line=40,
    attempts=1,
):
    return Frame(
        id=f"f{number}",
        key=CompileKey(process, epoch, code, compile),
        attempts=attempts,
        name=name,
        file=file,
        line=line,
        outcome=outcome,
        stack=(
            Location(SCRIPT, 99, "<module>", "main()"),
            Location(SCRIPT, call_line, "main", "loss = step(x)"),
            Location(file or "", line, name),
        ),
        metrics=CompileMetrics(total_s=0.5, cache_size=compile) if metrics is None else metrics,
        guards=guards,
    )


def recompiled(*events, config=None, symbols=(), name="step", **frame_options):
    """A run of one code object compiled once and then once for every entry of `events`, each a list of reasons."""
    frames = [frame(i, compile=i, name=name, **frame_options) for i in range(len(events) + 1)]
    return Run(
        info=RunInfo(cwd="/home/me/project"),
        processes=(Process(index=0, log="a.log", pid=7, config={"dynamo": {}} if config is None else config, argv=(SCRIPT,)),),
        frames=tuple(frames),
        recompiles=tuple(RecompileEvent(frame=f"f{i}", reasons=tuple(reasons)) for i, reasons in enumerate(events, start=1)),
        symbols=tuple(Symbol(frame=f"f{i}", symbol="s0", source=source, value=value) for i, source, value in symbols),
    )


def with_groups(run, *groups):
    """The run with a parameter of each of these groups of an optimizer given to each frame."""
    rest = {"stride": None, "dtype": None, "device": None, "requires_grad": True, "is_leaf": True, "is_parameter": True, "storage": None}
    sources = [f"L['self'].param_groups[{group}]['params'][0]" for group in groups]
    met = tuple(TracedInput(frame=one.id, source=source, shape=(2,), **rest) for one in run.frames for source in sources)
    return replace(run, traced_inputs=met)


def recorded(reasons_by_event, names):
    """A run from the reasons that a real program printed, in the order of its events; compile ids are read from the reasons."""
    frames, events, seen = [], [], {}
    for reasons, name in zip(reasons_by_event, names, strict=True):
        ids = [tuple(int(part) for part in re.match(r"(\d+)/(\d+)", reason).groups()) for reason in reasons]
        code = ids[0][0]
        for compile in range(len(seen.setdefault(code, [])), max(one for _, one in ids) + 2):
            seen[code].append(len(frames))
            frames.append(
                frame(
                    len(frames),
                    code=code,
                    compile=compile,
                    name=name,
                    file="/site-packages/torch/_dynamo/external_utils.py" if name == "inner" else SCRIPT,
                )
            )
        events.append(RecompileEvent(frame=f"f{seen[code][-1]}", reasons=tuple(reasons)))
    return Run(
        info=RunInfo(),
        processes=(Process(index=0, log="a.log", config={"dynamo": {}}),),
        frames=tuple(frames),
        recompiles=tuple(events),
    )
