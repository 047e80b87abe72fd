"""Small hand-made runs for the passes on breaks and fallbacks."""

from dataclasses import replace

import pytest

from dynadiag.model import BreakEvent, CompileKey, CompileMetrics, Frame, Graph, Location, Process, Run, RunInfo

SITE = "/opt/venv/lib/python3.12/site-packages"


class RunMaker:
    """Builds a run frame by frame; record numbers count up as in a log."""

    def __init__(self):
        self.frames, self.graphs, self.breaks, self.record = [], [], [], 0

    def tick(self):
        self.record += 1
        return self.record

    def frame(
        self,
        name,
        *,
        line,
        file="/home/me/proj/train.py",
        key=None,
        outcome="compiled",
        process=0,
        stack=None,
        callers=None,
        metrics=None,
        attempts=1,
    ):
        number = len(self.frames)
        key = key or CompileKey(process, 0, number, 0)
        frame = Frame(
            id=f"f{number}",
            key=key,
            attempts=attempts,
            name=name,
            file=file,
            line=line,
            outcome=outcome,
            stack=tuple(stack or ()),
            callers=tuple(callers or ()),
            metrics=metrics,
            record=self.tick(),
        )
        self.frames.append(frame)
        return frame.id

    def graph(self, frame, attempt=0):
        identifier = f"g{len(self.graphs)}"
        self.graphs.append(Graph(id=identifier, frame=frame, kind="dynamo", attempt=attempt, nodes=3, ops={}, text=None))
        return identifier

    def breaks_at(self, frame, *stack, gb_type="Data-dependent branching", gb_id="GB0170", **fields):
        stack = tuple(stack)
        fields.setdefault("torch_frame", stack[-1] if stack else None)
        event = BreakEvent(
            frame=frame,
            attempt=0,
            gb_id=gb_id,
            gb_type=gb_type,
            explanation=None,
            hints=(),
            context=fields.pop("context", None),
            stack=stack,
            record=self.tick(),
            **fields,
        )
        self.breaks.append(event)
        return event

    def run(self, **fields):
        fields.setdefault("info", RunInfo(command=("python", "train.py"), cwd="/home/me/proj"))
        processes = sorted({frame.key.process for frame in self.frames} or {0})
        fields.setdefault("processes", tuple(Process(index=index, log=f"{index}.log", pid=100 + index) for index in processes))
        return Run(frames=tuple(self.frames), graphs=tuple(self.graphs), breaks=tuple(self.breaks), **fields)


@pytest.fixture
def maker():
    return RunMaker()


@pytest.fixture
def at():
    """A line of the user's script."""
    return lambda line, function="step", code=None: Location("/home/me/proj/train.py", line, function, code)


@pytest.fixture
def library():
    return lambda line, function="helper": Location(f"{SITE}/somelib/core.py", line, function, "return x.item()")


@pytest.fixture
def failed():
    """Metrics of a frame that was not compiled."""
    return lambda kind, reason: CompileMetrics(fail_type=kind, fail_reason=reason)


@pytest.fixture
def ranked():
    """The same run with its processes named as ranks."""
    return lambda run: replace(run, processes=tuple(replace(process, rank=process.index) for process in run.processes))
