"""How the time of each pass grows: every pass is fed many things of one kind, then twice as many.

    python benchmarks/pass_growth.py [--number 10000] [--kind recompiles,breaks,...]

Kinds: recompiles, breaks, failures, problems, graphs, mutations (traced inputs, side effects) and ranks; each once all in one frame (or
of one function) and once spread over as many. Printed for each pass and kind that takes over 0.1 CPU seconds: the seconds for both numbers
and their ratio; 2.3 is the target, 4 is quadratic. `report` is `report.build`: all passes, which share
what they asked of the run before, and what it adds to them. Exit status 1 when a
ratio is above the target. Needs no torch.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dynadiag import report
from dynadiag.model.graph import Graph, MutationRecord, TracedInput
from dynadiag.model.location import Location, PayloadRef
from dynadiag.model.run import BreakEvent, CompileKey, Frame, Problem, Process, RecompileEvent, Run, RunInfo
from dynadiag.passes import ALL_PASSES

TARGET = 2.3
_NOISE_S = 0.1
_SCRIPT = "/home/me/project/train.py"
_GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 4]"):
        l_x_ = L_x_

         # File: /home/me/project/train.py:11 in step, code: x.add_(1)
        add_: "f32[4, 4]" = l_x_.add_(1);  l_x_ = None
        return (add_,)
"""


def main() -> int:
    """Prints a line for each pass and kind that takes noticeable time; 1 when one grows faster than the target."""
    options = _options()
    over = 0
    with tempfile.TemporaryDirectory(prefix="dynadiag-growth-") as folder:
        log = Path(folder) / "payloads.log"
        for kind in options.kind or KINDS:
            for spread in (False, True):
                over += _grow(kind, KINDS[kind], options.number, spread=spread, log=log)
    return 1 if over else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--kind", type=lambda text: text.split(","))
    return parser.parse_args()


def _grow(kind: str, make: Make, number: int, *, spread: bool, log: Path) -> int:
    place = f"{kind}, {'each in a frame of its own' if spread else 'one frame'}"
    seconds: dict[str, list[float]] = {}
    for count in (number, 2 * number):
        run = make(count, spread, log)
        gc.disable()  # its rounds through the whole run, some tenths of a second each, fall into one pass or the other by chance
        for name, work in _works():
            began = time.process_time()
            work(run)
            seconds.setdefault(name, []).append(time.process_time() - began)
        gc.enable()
    over = 0
    for name, (once, twice) in seconds.items():
        if twice > _NOISE_S:
            ratio = twice / max(once, _NOISE_S / 4)
            over += ratio > TARGET
            mark = "  OVER" if ratio > TARGET else ""
            print(f"{place:42} {name:26} {once:8.2f} s {twice:8.2f} s  x{ratio:.2f}{mark}", flush=True)
    return over


def _works() -> Iterator[tuple[str, Callable[[Run], object]]]:
    for item in ALL_PASSES:
        yield item.__name__, item  # type: ignore[attr-defined]
    yield "report", report.build


Make = Callable[[int, bool, Path], Run]


def _frames(number: int, spread: bool, **facts: Any) -> list[Frame]:
    return [_frame(at, code=at if spread else 0, compile=0 if spread else at, **facts) for at in range(number)]


def _frame(at: int, *, code: int = 0, compile: int = 0, process: int = 0, **facts: Any) -> Frame:
    line = 10 + 10 * code
    stack = (Location(_SCRIPT, 5, "<module>", "main()"), Location(_SCRIPT, line, f"step{code}", "y = x + 1"))
    values: dict[str, Any] = {
        "attempts": 1,
        "name": f"step{code}",
        "file": _SCRIPT,
        "line": line,
        "outcome": "compiled",
        "stack": stack,
        **facts,
    }
    return Frame(id=f"f{at}", key=CompileKey(process, 0, code, compile), **values)


def _run(frames: Sequence[Frame], *, processes: int = 1, **facts: Any) -> Run:
    ranks = processes > 1
    of_run = tuple(
        Process(index=at, log=f"rank_{at}.log", pid=100 + at, rank=at if ranks else None, config={"dynamo": {}}, argv=(_SCRIPT,))
        for at in range(processes)
    )
    return Run(info=RunInfo(cwd="/home/me/project"), processes=of_run, frames=tuple(frames), **facts)


def _recompiles(number: int, spread: bool, log: Path) -> Run:
    codes = number if spread else 1
    frames: list[Frame] = []
    events: list[RecompileEvent] = []
    for code in range(codes):
        frames.append(_frame(len(frames), code=code))
        for compile in range(1, number // codes + 1):
            reason = f"{code}/{compile - 1}: tensor 'x' size mismatch at index 0. expected {compile + 1}, actual {compile + 2}"
            events.append(RecompileEvent(frame=f"f{len(frames)}", reasons=(reason, f"{code}/{compile - 1}: self.k == {compile}")))
            frames.append(_frame(len(frames), code=code, compile=compile))
    return _run(frames, recompiles=tuple(events))


def _breaks(number: int, spread: bool, log: Path) -> Run:
    frames = _frames(number, True, outcome="broke") if spread else [_frame(0, outcome="broke")]
    events = []
    for at in range(number):
        line = 11 + 10 * at
        where = Location(_SCRIPT, line, f"step{at if spread else 0}", f"print(x{at})")
        event = BreakEvent(
            frame=frames[at if spread else 0].id, attempt=0, gb_id="GB0059", gb_type="print", explanation=None, hints=(), context=None,
            stack=(Location(_SCRIPT, 5, "<module>", "main()"), where), torch_frame=where,
        )  # fmt: skip
        events.append(event)
    return _run(frames, breaks=tuple(events))


def _failures(number: int, spread: bool, log: Path) -> Run:
    frames = _frames(number, spread, outcome="failed", error="RuntimeError: no such luck")
    return _run(frames)


def _problems(number: int, spread: bool, log: Path) -> Run:
    kinds = ("error", "suppressed_error", "recompile_limit", "disabled", "no_graph", "aot_rejected", "backend_error", "unlogged_skip",
             "backward_error", "cudagraph_skip", "cudagraph_partition", "cudagraph_rerecord", "cudagraph_sizes", "cached_code")  # fmt: skip
    frames = _frames(number, True) if spread else [_frame(0)]
    problems = []
    for at in range(number):
        where = Location(_SCRIPT, 11 + 10 * at, "step", f"f(x{at})")
        frame = frames[at if spread else 0].id
        text = f"RuntimeError: number {at}"
        problems.append(Problem(kind=kinds[at % len(kinds)], process=0, text=text, frame=frame, location=where, stack=(where,)))
    return _run(frames, problems=tuple(problems))


def _graphs(number: int, spread: bool, log: Path) -> Run:
    log.write_text("".join(f"\t{line}\n" for line in _GRAPH.splitlines()))
    text = PayloadRef(str(log), 0, log.stat().st_size)
    frames = _frames(number, True) if spread else [_frame(0)]
    graphs = tuple(
        Graph(id=f"g{at}", frame=frames[at if spread else 0].id, kind="dynamo", attempt=0, nodes=3, ops={"add_": 1}, text=text)
        for at in range(number)
    )
    return _run(frames, graphs=graphs)


def _mutations(number: int, spread: bool, log: Path) -> Run:
    frames = _frames(number, True) if spread else [_frame(0)]
    effect = {"name": "side_effects", "effects": [{"kind": "attribute", "object": "self", "name": "n", "stack": []}]}
    log.write_text(f"\t{json.dumps(effect)}\n")
    payload = PayloadRef(str(log), 0, log.stat().st_size)
    names = [frames[at if spread else 0].id for at in range(number)]
    records = tuple(MutationRecord(kind="side_effects", frame=name, attempt=0, payload=payload, record=at) for at, name in enumerate(names))
    inputs = tuple(
        TracedInput(frame=name, source=f"L['x{at}']", shape=(4,), stride=(1,), dtype="torch.float32", device="cpu", requires_grad=False,
                    is_leaf=True, is_parameter=False, storage=at)
        for at, name in enumerate(names)
    )  # fmt: skip
    return _run(frames, mutation_records=records, traced_inputs=inputs)


def _ranks(number: int, spread: bool, log: Path) -> Run:
    """Ranks that all do the same, or (`spread`) each at a line of its own."""
    frames = [_frame(at, process=at, code=at if spread else 0) for at in range(number)]
    return _run(frames, processes=number)


KINDS: dict[str, Make] = {
    "recompiles": _recompiles,
    "breaks": _breaks,
    "failures": _failures,
    "problems": _problems,
    "graphs": _graphs,
    "mutations": _mutations,
    "ranks": _ranks,
}

if __name__ == "__main__":
    sys.exit(main())
