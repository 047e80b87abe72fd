"""Whether a reduction ever slips to another failure: planted second bugs and broken machines on the way to one planted bug.

    python benchmarks/minify_slips.py [--only NAME] [--json FILE]

Each case is a backend with bug A (at `torch.relu`) and with something else that smaller graphs run into: another bug, or a machine that
breaks. The graph is reduced with the real oracle; then the truth is asked: the result must fail with bug A alone, in a backend that has
only bug A, and hold `torch.relu`. Anything else is a slip. Prints one line a case: slip or not, final nodes, queries, other failures met.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from dynadiag.children.forked import ChildReport
from dynadiag.reduce.graphs import judge
from dynadiag.reduce.graphs import reduction as reducing
from dynadiag.reduce.graphs.candidate import Candidate, candidate_of
from dynadiag.reduce.graphs.judge import IsolatedOracle, Observation
from dynadiag.reduce.graphs.observing import observe
from dynadiag.reduce.graphs.reduction import Reduction, ReductionOptions, reduce_graph
from dynadiag.reduce.graphs.running import eager_values
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.torch_compat.dynamo.compiling import warm_up

Backend = Callable[[torch.fx.GraphModule, Any], Any]
Fault = Callable[[torch.fx.GraphModule], None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Bug `first` hides behind `second`, which is tried before it; `when` says for which graphs. `isolated` needs a child."""

    name: str
    first: Fault
    second: Fault
    when: Callable[[torch.fx.GraphModule], bool]
    at_call: bool = False
    isolated: bool = False
    timeout_s: float = 60.0
    setting: dict[str, Any] = field(default_factory=dict)


def operators(gm: torch.fx.GraphModule) -> list[Any]:
    """The functions that a graph calls."""
    return [node.target for node in gm.graph.nodes if node.op == "call_function"]


# -- bug A, in several shapes


def bug_a(gm: torch.fx.GraphModule) -> None:
    """The bug that is looked for: a plain exception."""
    raise ValueError(f"relu cannot be lowered in a graph of {len(gm.graph.nodes)} nodes")


def crash_a(gm: torch.fx.GraphModule) -> None:
    """Bug A as a crash."""
    os.kill(os.getpid(), signal.SIGSEGV)


def exit_a(gm: torch.fx.GraphModule) -> None:
    """Bug A as an exit."""
    os._exit(7)


def hang_a(gm: torch.fx.GraphModule) -> None:
    """Bug A as a hang."""
    time.sleep(600)


# -- what else there is


def raises(kind: type[BaseException], *args: Any) -> Fault:
    """A fault that raises."""

    def fault(gm: torch.fx.GraphModule) -> None:
        raise kind(*args)

    return fault


def elsewhere(gm: torch.fx.GraphModule) -> None:
    """The type and the text of bug A, from another function."""
    raise ValueError(f"relu cannot be lowered in a graph of {len(gm.graph.nodes)} nodes")


def wrapped(gm: torch.fx.GraphModule) -> None:
    """Bug A's text inside another chain of exceptions."""
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ValueError("relu cannot be lowered in a graph of 3 nodes") from error


class InvalidCxxCompiler(RuntimeError):  # noqa: N818 - torch's name
    """Named as torch names a missing compiler (torch/_inductor/exc.py, 2.11)."""


def killed(gm: torch.fx.GraphModule) -> None:
    """What the machine does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def segfault(gm: torch.fx.GraphModule) -> None:
    """A crash in another place than `crash_a`."""
    os.kill(os.getpid(), signal.SIGSEGV)


def aborts(gm: torch.fx.GraphModule) -> None:
    """Another signal."""
    os.abort()


def exits(gm: torch.fx.GraphModule) -> None:
    """Another exit status."""
    os._exit(9)


def hangs(gm: torch.fx.GraphModule) -> None:
    """Never ends."""
    time.sleep(600)


def fills_the_disk(gm: torch.fx.GraphModule) -> None:
    """A real write over the limit of the file size (RLIMIT_FSIZE), as a full disk is met."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    Path("full").write_bytes(b"x" * 10_000)


# -- for which graphs


def small(limit: int) -> Callable[[torch.fx.GraphModule], bool]:
    """Graphs of at most so many operators that are no single relu: bug A must be found behind them."""
    return lambda gm: 1 < len(operators(gm)) <= limit


def without(*targets: Any) -> Callable[[torch.fx.GraphModule], bool]:
    """Graphs that lack one of these but hold others."""
    return lambda gm: len(operators(gm)) > 1 and any(target not in operators(gm) for target in targets)


def sin_without_exp(gm: torch.fx.GraphModule) -> bool:
    """The second bug is at `sin`, also alone, once the end of the graph is gone: a trap for the first cut."""
    return torch.sin in operators(gm) and torch.exp not in operators(gm)


_TEXT = "relu cannot be lowered in a graph of 3 nodes"
_MACHINE = [
    ("no compiler: the program is missing", raises(FileNotFoundError, 2, "No such file or directory", "g++")),
    ("no compiler: torch says so", raises(InvalidCxxCompiler, "No working C++ compiler found")),
    ("no headers", raises(RuntimeError, "x.cpp:1:10: fatal error: Python.h: No such file or directory")),
    ("the disk is full", raises(OSError, errno.ENOSPC, "No space left on device")),
    ("the disk is full in the compiler", raises(RuntimeError, "error writing to /tmp/x.s: No space left on device")),
    ("the file is too large", raises(OSError, errno.EFBIG, "File too large")),
    ("the disk is read-only", raises(OSError, errno.EROFS, "Read-only file system")),
    ("too many open files", raises(OSError, errno.EMFILE, "Too many open files")),
    ("an import fails", raises(ImportError, "cannot import name 'x'")),
    ("a package is missing", raises(ModuleNotFoundError, "No module named 'triton'")),
    ("memory runs out", raises(MemoryError)),
    ("memory runs out in the allocator", raises(RuntimeError, "DefaultCPUAllocator: Error code 12 (Cannot allocate memory)")),
    ("memory runs out in the compiler", raises(RuntimeError, "g++: fatal error: Killed signal terminated program cc1plus")),
]
_OTHER_BUGS = [
    ("same type, other text", raises(ValueError, "sin cannot be lowered")),
    ("other type, same text", raises(TypeError, _TEXT)),
    ("same text, other function", elsewhere),
    ("same text, other chain", wrapped),
    ("no text", raises(ValueError)),
    ("an assertion", raises(AssertionError, "assert buf is not None")),
    ("not implemented", raises(NotImplementedError, _TEXT)),
]
CASES = [
    *(Case(name=f"machine: {name}", first=bug_a, second=fault, when=small(9)) for name, fault in _MACHINE),
    *(Case(name=f"bug at sin: {name}", first=bug_a, second=fault, when=sin_without_exp) for name, fault in _OTHER_BUGS),
    *(Case(name=f"bug in small graphs: {name}", first=bug_a, second=fault, when=small(7)) for name, fault in _OTHER_BUGS[:3]),
    Case(name="at the call, other text", first=bug_a, second=raises(ValueError, "cosh"), when=sin_without_exp, at_call=True),
    Case(name="graphs without tanh fail otherwise", first=bug_a, second=elsewhere, when=without(torch.tanh)),
    Case(name="results compared", first=bug_a, second=raises(ValueError, "nan"), when=sin_without_exp, setting={"check": "forward"}),
    Case(name="exception, crash in smaller graphs", first=bug_a, second=segfault, when=small(7), isolated=True),
    Case(name="exception, out-of-memory kill in smaller graphs", first=bug_a, second=killed, when=small(7), isolated=True),
    Case(name="exception, exit in smaller graphs", first=bug_a, second=exits, when=small(7), isolated=True),
    Case(name="exception, the file size limit in smaller graphs", first=bug_a, second=fills_the_disk, when=small(7), isolated=True),
    Case(name="exception, interrupted", first=bug_a, second=raises(KeyboardInterrupt), when=small(7), isolated=True),
    Case(name="crash, exception in smaller graphs", first=crash_a, second=raises(ValueError, "x"), when=small(7), isolated=True),
    Case(name="crash, other signal in smaller graphs", first=crash_a, second=aborts, when=small(7), isolated=True),
    Case(name="crash, same signal in another function", first=crash_a, second=segfault, when=sin_without_exp, isolated=True),
    Case(name="exit, other status in smaller graphs", first=exit_a, second=exits, when=small(7), isolated=True),
    Case(name="exception, hang in smaller graphs", first=bug_a, second=hangs, when=small(2), isolated=True),
    Case(
        name="hang, exception in smaller graphs", first=hang_a, second=raises(ValueError, "x"), when=small(7), isolated=True, timeout_s=5.0
    ),
]


def backend_of(case: Case, *, only_first: bool = False) -> Backend:
    """The backend of a case; with `only_first` bug A alone, which tells the truth."""

    def planted(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def check() -> None:
            if not only_first and case.when(gm):
                case.second(gm)
            if torch.relu in operators(gm):
                case.first(gm)

        def call(*values: Any) -> Any:
            check()
            return gm.forward(*values)

        if case.at_call:
            return call
        check()
        return gm.forward

    return planted


def example() -> Candidate:
    """A graph of 21 operators with one relu in its middle."""
    torch.manual_seed(3)

    def chain(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for _ in range(3):
            x = torch.cos(torch.sin(x @ w)) + x
        x = torch.relu(x - 0.1)
        for _ in range(3):
            x = torch.exp(-torch.tanh(x @ w))
        return x.sum(), x

    return candidate_of(torch.fx.symbolic_trace(chain), [torch.randn(4, 4), torch.randn(4, 4)])


def observe_here(candidate: Candidate, setting: Setting, *, timeout_s: float) -> Observation:
    """What the isolated oracle would see, in this process: for faults that only raise."""
    messages: list[dict[str, Any]] = []
    observe(candidate, setting, messages.append)
    report = ChildReport(messages=tuple(messages), exit_status=0, signal=None, timed_out=False, output="", wall_s=0.0, cpu_s=0.0)
    return judge.observation(report)


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """The whole of hunt and judge, without children."""
    with (
        mock.patch.object(reducing, "observe_isolated", observe_here),
        mock.patch.object(
            IsolatedOracle, "_observed", lambda self, candidate: observe_here(candidate, self.setting, timeout_s=self.timeout_s)
        ),
        mock.patch.object(IsolatedOracle, "values", lambda self, candidate: eager_values(candidate)),
    ):
        yield


def run_case(case: Case) -> dict[str, Any]:
    """Reduce, ask for the truth, and say what came of it."""
    setting = Setting(backend=backend_of(case), **case.setting)
    with contextlib.nullcontext() if case.isolated else in_this_process():
        found = reduce_graph(example(), setting, ReductionOptions(timeout_s=case.timeout_s, simplify=False))
        truth = reducing.observe_isolated(
            found.best, Setting(backend=backend_of(case, only_first=True), **case.setting), timeout_s=case.timeout_s
        )
    return {
        "case": case.name,
        "slip": slipped(found, truth),
        "nodes": found.best.nodes,
        "queries": sum(found.queries.values()),
        "other_failures": sum(found.other_failures.values()),
    }


def slipped(found: Reduction, truth: Observation) -> str | None:
    """Why the result is no bug A; None when it is."""
    if torch.relu not in operators(found.best.module):
        return "the result holds no relu"
    if truth.failure is None:
        return f"bug A alone does not fail on the result ({truth.invalid or 'it passes'})"
    return None if truth.failure.same_as(found.confirmed.failure) else f"another failure was looked for: {found.confirmed.failure.title()}"


def main() -> int:
    """Run the cases; the exit status is 1 when one slipped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run only cases whose name holds this text")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = run_cases([case for case in CASES if options.only in case.name], run_case, options.json)
    slips = count_slips(rows)
    print(f"{slips} slips in {len(rows)} cases")
    return 1 if slips else 0


def run_cases(cases: Sequence[Any], run: Callable[[Any], dict[str, Any]], file: str | None) -> list[dict[str, Any]]:
    """A row for each case, printed as it comes, and all of them in a JSON file where one is named."""
    torch.set_num_threads(1)
    warm_up("eager")
    rows = []
    for case in cases:
        rows.append(run(case))
        print(json.dumps(rows[-1]), flush=True)
    if file:
        Path(file).write_text(json.dumps({"torch": torch.__version__, "cases": rows}, indent=1) + "\n", "utf-8")
    return rows


def count_slips(rows: Sequence[dict[str, Any]]) -> int:
    """How many of the rows slipped."""
    return sum(row["slip"] is not None for row in rows)


if __name__ == "__main__":
    sys.exit(main())
