"""Whether minify keeps to one fault where all that shows is a wrong number: planted slips, and public reports rebuilt as planted faults.

    python benchmarks/minify_causes.py [--only NAME] [--json FILE]

Each case is a backend with fault A, and fault B that shows itself only in graphs that a simplification makes (`+ 1` became `+ 0`, a size
became 1). Both give wrong numbers. A pass of the backend makes each fault, or nothing that can be left out does; the passes ask torch's
bisector as Inductor's do. The graph is reduced and its guilty part named as by `dynadiag minify`. Then the truth is asked: the result fails
with fault A alone, and what is named makes the captured graph right. Anything else is a slip.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.minify_slips import count_slips, in_this_process, observe_here, operators, run_cases
from dynadiag.children.forked import ChildReport
from dynadiag.reduce.graphs import guilty_part, reduction
from dynadiag.reduce.graphs.candidate import Candidate, candidate_of
from dynadiag.reduce.graphs.guilty_part import Change, Suspected
from dynadiag.reduce.graphs.passes import ALL_PASSES
from dynadiag.reduce.graphs.reduction import ReductionOptions, reduce_graph
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.reproducer import finishing
from dynadiag.reduce.reproducer.finishing import ConcludeOptions, Conclusion, conclude
from dynadiag.reduce.reproducer.graph_outcome import Written
from dynadiag.reduce.reproducer.proving import Proof

Graph = torch.fx.GraphModule
Where = Callable[[Graph, Sequence[Any]], bool]
Part = tuple[str, str] | None
"""The subsystem and the name of what makes a fault; None where nothing that can be left out does."""
FOLD, FUSE = ("joint_graph_passes", "fold_pass"), ("post_grad_passes", "fuse_pass")
LOWER = ("lowerings", "aten.relu.default")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Wrong numbers in all results `where` the graph and its inputs are so, made by `part`."""

    where: Where
    part: Part = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """Fault `first` is in the captured graph of `function`, `second` only in graphs that a reduction makes."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[], list[Any]]
    first: Fault
    second: Fault | None = None


def planted(first: Fault, second: Fault | None) -> Callable[[Graph, Sequence[Any]], Any]:
    """A backend with these faults, whose parts ask torch's bisector whether they are left out."""

    def backend(gm: Graph, example_inputs: Sequence[Any]) -> Any:
        from torch._inductor.compiler_bisector import CompilerBisector

        def is_left_out(part: Part) -> bool:
            if part is None:
                return False
            subsystem, name = part
            said = f"target={name}" if subsystem == "lowerings" else name
            if subsystem == "decomposition":
                operator, _, overload = name.rpartition(".")
                said = f"<OpOverload(op={operator!r}, overload={overload!r})>"
            return bool(CompilerBisector.disable_subsystem("inductor", subsystem, lambda: said))

        made = [fault for fault in (first, second) if fault is not None and not is_left_out(fault.part)]

        def call(*values: Any) -> Any:
            wrong = any(fault.where(gm, values) for fault in made)
            results = gm.forward(*values)
            return torch.utils._pytree.tree_map_only(torch.Tensor, _off, results) if wrong else results

        return call

    return backend


def _off(value: torch.Tensor) -> torch.Tensor:
    return value * 1.5 + 1 if value.dtype.is_floating_point else value + 1


# -- where faults show themselves


def has(*targets: Any) -> Where:
    """Graphs with all these operators."""
    return lambda gm, values: all(target in operators(gm) for target in targets)


def named(word: str) -> Where:
    """Graphs with an operator of such a name."""
    return lambda gm, values: any(word in getattr(target, "__name__", str(target)) for target in operators(gm))


def with_number(target: Any, numbers: Callable[[Any], bool]) -> Where:
    """Graphs with an operator that is given such a number."""

    def where(gm: Graph, values: Sequence[Any]) -> bool:
        found = [arg for node in gm.graph.nodes if node.target is target for arg in (*node.args, *node.kwargs.values())]
        return any(type(arg) in (int, float) and numbers(arg) for arg in found)

    return where


def without(target: Any, of: Any) -> Where:
    """Graphs that have `of` and no longer `target`."""
    return lambda gm, values: of in operators(gm) and target not in operators(gm)


def input_is(question: Callable[[torch.Tensor], bool]) -> Where:
    """Calls with such an input."""
    return lambda gm, values: any(isinstance(value, torch.Tensor) and question(value) for value in values)


def both(one: Where, other: Where) -> Where:
    """Where both are so."""
    return lambda gm, values: one(gm, values) and other(gm, values)


def fewer_inputs(count: int) -> Where:
    """Calls with fewer inputs."""
    return lambda gm, values: len(values) < count


def one_result(gm: Graph, values: Sequence[Any]) -> bool:
    """Graphs with one result."""
    return len(next(node for node in gm.graph.nodes if node.op == "output").args[0]) == 1


# -- the captured graphs


def chain(x: torch.Tensor, w: torch.Tensor) -> Any:
    """Operators around a relu, with numbers of every class."""
    x = torch.sin(torch.mul(x, 4.0) @ w)
    x = torch.relu(torch.add(x, 1)) + torch.mul(w, 2.5)
    x = torch.sub(torch.cos(x), 8)
    return torch.exp(torch.clamp(x, -3.0, 5.0)), torch.tanh(x)


def values() -> list[Any]:
    """Inputs of `chain`."""
    torch.manual_seed(3)
    return [torch.randn(4, 4).double() + 0.25, torch.randn(4, 4).double()]


def transposed() -> list[Any]:
    """The same, one in another layout."""
    first, second = values()
    return [first.t(), second]


RELU = Fault(where=has(torch.relu), part=FOLD)
ADD_ONE = Fault(where=with_number(torch.add, lambda number: number != 0), part=FOLD)
_SECOND: dict[str, tuple[Fault, Where]] = {
    "+ 1 becomes + 0": (ADD_ONE, with_number(torch.add, lambda number: number == 0)),
    "* 4 becomes * 1": (Fault(where=with_number(torch.mul, lambda n: n != 1), part=FOLD), with_number(torch.mul, lambda n: n == 1)),
    "* 2.5 becomes a whole number": (
        Fault(where=with_number(torch.mul, lambda n: n != int(n)), part=FOLD),
        both(without(torch.sin, torch.mul), with_number(torch.mul, lambda n: n == int(n))),
    ),
    "- 8 becomes - 1": (Fault(where=with_number(torch.sub, lambda n: n > 1), part=FOLD), with_number(torch.sub, lambda n: abs(n) <= 1)),
    "a bound changes its sign": (
        Fault(where=with_number(torch.clamp, lambda n: n < 0), part=FOLD),
        both(has(torch.clamp), lambda gm, values: not with_number(torch.clamp, lambda n: n < 0)(gm, values)),
    ),
    "an operator goes": (RELU, without(torch.exp, torch.sin)),
    "only one result": (RELU, one_result),
    "zeros": (Fault(where=both(has(torch.relu), input_is(lambda value: bool(value.any()))), part=FOLD), input_is(lambda v: not v.any())),
    "sizes of 1": (
        Fault(where=both(has(torch.relu), input_is(lambda value: value.numel() > 1)), part=FOLD),
        input_is(lambda value: value.numel() == 1),
    ),
    "another dtype": (RELU, input_is(lambda value: value.dtype == torch.float32)),
    "inputs become one": (RELU, fewer_inputs(2)),
    "contiguous": (RELU, both(has(torch.relu), lambda gm, v: all(item.is_contiguous() for item in v))),
    "a matmul goes": (RELU, lambda gm, values: "matmul" not in str(gm.graph) and torch.sin in operators(gm)),
}
_PARTS: dict[str, tuple[Part, Part]] = {
    "another pass": (FOLD, FUSE),
    "no pass then": (FOLD, None),
    "a pass then": (None, FUSE),
    "a lowering": (LOWER, FUSE),
}
SLIPS = [
    Case(
        name=f"{what}: {how}",
        function=chain,
        inputs=transposed if what == "contiguous" else values,
        first=replace(first, part=parts[0]),
        second=Fault(where=second, part=parts[1]),
    )
    for what, (first, second) in _SECOND.items()
    for how, parts in _PARTS.items()
]


# -- public reports of wrong numbers: the operators that were wrong, and what made them so there (facts alone; the programs are new)


def ints(*shapes: tuple[int, ...], dtype: torch.dtype = torch.int64, high: int = 9) -> Callable[[], list[Any]]:
    """Inputs of small integers."""

    def made() -> list[Any]:
        torch.manual_seed(5)
        return [torch.randint(1, high, shape, dtype=dtype) for shape in shapes]

    return made


def floats(*shapes: tuple[int, ...]) -> Callable[[], list[Any]]:
    """Inputs of random numbers."""

    def made() -> list[Any]:
        torch.manual_seed(6)
        return [torch.randn(shape) for shape in shapes]

    return made


def scaled_logits(x: torch.Tensor, w: torch.Tensor) -> Any:
    """A division by a temperature of 1, whose result is written afterwards."""
    logits = torch.div(torch.tanh(x @ w), 1.0)
    return torch.mul(logits, 3.0), torch.softmax(logits, -1)


def positions(x: torch.Tensor) -> Any:
    """A step of 1e9 between integers."""
    at = torch.mul(torch.cumsum(x, 0), 1000000000)
    return torch.add(at, 7), torch.sub(x, 2)


def sums_of_products(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    """Products of integers, added and summed."""
    both_products = torch.add(torch.matmul(x, y), torch.matmul(x, z))
    return (torch.sum(torch.mul(both_products, 2), 1),)


def adam_step(p: torch.Tensor, g: torch.Tensor) -> Any:
    """An update by a quotient, as Dynamo writes `addcdiv` with a number."""
    m = torch.mul(g, 0.1)
    v = torch.mul(torch.mul(g, g), 0.001)
    return torch.add(p, torch.mul(torch.div(m, torch.add(torch.sqrt(v), 1e-8)), -0.01)), v


def rows_added(x: torch.Tensor, y: torch.Tensor) -> Any:
    """Rows that are read and written by one index."""
    at = torch.sub(x, 1)
    return torch.index_put(y, (at,), torch.mul(torch.index_select(y, 0, at), 2.0)), torch.sum(y)


def distributed(c: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
    """A product of sums of small integers, which overflow."""
    return torch.mul(c, torch.add(x, y)), torch.add(torch.mul(c, x), torch.mul(c, y))


def power_and_cosine(x: torch.Tensor) -> Any:
    """A power of bytes, which overflow."""
    return (torch.add(torch.cos(torch.pow(torch.add(x, 2), 5)), 1.5),)


def columns_added(x: torch.Tensor) -> Any:
    """One column changed by another."""
    column = torch.abs(torch.select(torch.sin(x), 1, 2))
    return torch.select_scatter(x, torch.add(column, 1.0), 1, 0), torch.mul(x, 2.0)


def pooled(x: torch.Tensor) -> Any:
    """Pooling undone."""
    found, at = torch.nn.functional.max_pool2d(torch.relu(x), 2, return_indices=True)
    return torch.nn.functional.max_unpool2d(torch.mul(found, 0.5), at, 2), torch.mean(x)


def product_and_more(x: torch.Tensor, w: torch.Tensor) -> Any:
    """A product that is right where it is the only result."""
    product = torch.matmul(x, w)
    return product, torch.add(product, 1.0), torch.tan(x)


def angle(x: torch.Tensor) -> Any:
    """The arc tangent of a reciprocal, summed."""
    return (torch.sum(torch.mul(torch.atan(torch.reciprocal(torch.relu(x))), 2.0)),)


def one_hot_weights(x: torch.Tensor, at: torch.Tensor) -> Any:
    """A scatter into a tensor of one number."""
    selected = torch.scatter(torch.full((4, 6), 0.5), 1, at, 2.0)
    return torch.add(torch.mul(selected, x), 1), torch.sum(x)


def one_hot_inputs() -> list[Any]:
    """Inputs of `one_hot_weights`."""
    torch.manual_seed(6)
    return [torch.randn(4, 6), torch.randint(0, 6, (4, 1))]


REPORTS = [
    Case(
        name="pytorch#197893: a pass takes an operation that changes nothing for its input",
        function=scaled_logits,
        inputs=floats((4, 5), (5, 5)),
        first=Fault(where=with_number(torch.div, lambda n: n == 1), part=("joint_graph_passes", "remove_no_ops")),
        second=Fault(where=both(without(torch.tanh, torch.div), one_result), part=FUSE),
    ),
    Case(
        name="pytorch#183901: the lowering of mul computes in 32 bits",
        function=positions,
        inputs=ints((9,)),
        first=Fault(where=with_number(torch.mul, lambda n: n > 1000), part=("lowerings", "aten.mul.Tensor")),
        second=Fault(where=with_number(torch.mul, lambda n: n <= 3), part=FUSE),
    ),
    Case(
        name="pytorch#190764: products of integers, added and summed",
        function=sums_of_products,
        inputs=ints((2, 2), (2, 2), (2, 2), dtype=torch.int32),
        first=Fault(where=has(torch.matmul, torch.add), part=("lowerings", "aten.mm.default")),
        second=Fault(where=fewer_inputs(3), part=FUSE),
    ),
    Case(
        name="pytorch#185382: addcdiv with a number of the call",
        function=adam_step,
        inputs=floats((5,), (5,)),
        first=Fault(where=has(torch.div, torch.mul), part=("decomposition", "aten.addcdiv.default")),
        second=Fault(where=without(torch.mul, torch.div), part=FOLD),
    ),
    Case(
        name="pytorch#138908: rows that are read and written by one index",
        function=rows_added,
        inputs=lambda: [torch.tensor([1, 3]), torch.randn(4, 3)],
        first=Fault(where=has(torch.index_put), part=("lowerings", "aten.index_put.default")),
        second=Fault(where=without(torch.index_select, torch.index_put), part=None),
    ),
    Case(
        name="pytorch#109105: sums of small integers in another width",
        function=distributed,
        inputs=ints((3, 3), (3, 3), (3, 3), dtype=torch.int8),
        first=Fault(
            where=both(has(torch.mul, torch.add), input_is(lambda v: v.dtype == torch.int8)), part=("lowerings", "aten.add.Tensor")
        ),
        second=Fault(where=fewer_inputs(2), part=FUSE),
    ),
    Case(
        name="pytorch#98149: a power of bytes before a cosine",
        function=power_and_cosine,
        inputs=ints((4,), dtype=torch.uint8, high=5),
        first=Fault(
            where=both(has(torch.pow, torch.cos), with_number(torch.pow, lambda n: n > 2)), part=("decomposition", "aten.pow.Tensor_Scalar")
        ),
        second=Fault(where=with_number(torch.pow, lambda n: n <= 2), part=("joint_graph_passes", "pointless_power")),
    ),
    Case(
        name="pytorch#136662: one column changed by another",
        function=columns_added,
        inputs=floats((3, 4)),
        first=Fault(where=has(torch.select_scatter, torch.abs), part=("post_grad_passes", "reinplace_inplaceable_ops")),
        second=Fault(where=without(torch.sin, torch.select_scatter), part=FOLD),
    ),
    Case(
        name="pytorch#144836: the decomposition of max_unpool2d",
        function=pooled,
        inputs=floats((1, 2, 4, 4)),
        first=Fault(where=named("max_unpool2d"), part=("decomposition", "aten.max_unpool2d.default")),
        second=Fault(where=lambda gm, values: named("max_unpool2d")(gm, values) and torch.relu not in operators(gm), part=None),
    ),
    Case(
        name="pytorch#115261: a product that is wrong beside further results",
        function=product_and_more,
        inputs=floats((4, 4), (4, 4)),
        first=Fault(where=lambda gm, v: torch.matmul in operators(gm) and not one_result(gm, v), part=None),
        second=Fault(where=one_result, part=FUSE),
    ),
    Case(
        name="pytorch#150114: the arc tangent of large numbers",
        function=angle,
        inputs=floats((4, 4)),
        first=Fault(where=has(torch.atan), part=("lowerings", "aten.atan.default")),
        second=Fault(where=both(has(torch.atan), input_is(lambda value: value.numel() == 1)), part=FUSE),
    ),
    Case(
        name="pytorch#164427: a scatter into a constant",
        function=one_hot_weights,
        inputs=one_hot_inputs,
        first=Fault(where=has(torch.scatter), part=("post_grad_passes", "scatter_upon_const_tensor")),
        second=Fault(where=without(torch.mul, torch.scatter), part=FOLD),
    ),
]


# -- running them


def fork_here(work: Callable[..., None], *, timeout_s: float) -> ChildReport:
    """What a child would report, done in this process."""
    messages: list[dict[str, Any]] = []
    work(messages.append)
    return ChildReport(messages=tuple(messages), exit_status=0, signal=None, timed_out=False, output="", wall_s=0.0, cpu_s=0.0)


@contextlib.contextmanager
def everything_here() -> Iterator[None]:
    """Reduction, bisection and conclusion without children; the reproducer is not written."""
    nothing = Written(path=None, proof=Proof(runs=3, reproduced=3))
    with (
        in_this_process(),
        mock.patch.object(guilty_part, "observe_isolated", observe_here),
        mock.patch.object(guilty_part, "run_forked", fork_here),
        mock.patch.object(finishing, "write_reproducer", lambda *args, **kwargs: nothing),
    ):
        yield


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """As if nothing were known of causes."""
    with (
        mock.patch.object(finishing, "_disagreement", lambda *args: None),
        mock.patch.object(reduction, "passes_for", lambda failure: ALL_PASSES),
    ):
        yield


def run_case(case: Case) -> dict[str, Any]:
    """Reduce, name the guilty part, and ask for the truth."""
    setting = Setting(backend=planted(case.first, case.second), check="forward")
    options = ReductionOptions(timeout_s=60.0, kind="wrong_result")
    began = time.monotonic()
    captured = candidate_of(torch.fx.symbolic_trace(case.function), case.inputs())
    with everything_here(), tempfile.TemporaryDirectory() as folder:
        found = reduce_graph(captured, setting, options)
        last = conclude(found, Path(folder), options, ConcludeOptions(level="dynamo"))
        return {
            "case": case.name,
            "slip": slipped(case, captured, last),
            "named": last.guilty.guilt.part.what if last.guilty.guilt is not None and last.guilty.guilt.part is not None else None,
            "nodes": [captured.nodes, last.reduction.best.nodes],
            "queries": sum(last.reduction.queries.values()),
            "taken_back": last.reduction.best.key != found.best.key,
            "wall_s": round(time.monotonic() - began, 1),
        }


def slipped(case: Case, captured: Candidate, last: Conclusion) -> str | None:
    """Why the result is not fault A; None when it is."""
    alone = Setting(backend=planted(case.first, None), check="forward")
    if observe_here(last.reduction.best, alone, timeout_s=60.0).failure is None:
        return "fault A alone does not show itself in the result"
    part = last.guilty.guilt.part if last.guilty.guilt is not None else None
    own = Suspected(candidate=captured, setting=last.reduction.setting, timeout_s=60.0)
    if part is not None:
        claimed = [answer.change for answer in guilty_part.answers_of(last.guilty) if answer.claimed and answer.change.subsystem]
        return None if all(guilty_part.state_under(change, own) == "gone" for change in claimed) else f"{part.what} does not hold"
    if case.first.part is not None and guilty_part.state_under(Change(subsystem=case.first.part[0]), own) == "gone":
        return "the part that makes the captured graph wrong is not named"
    return None


def main() -> int:
    """Run the cases; the exit status is 1 when one slipped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run only cases whose name holds this text")
    parser.add_argument("--unchecked", action="store_true", help="do not ask the captured graph: how many slips that prevents")
    parser.add_argument("--json")
    options = parser.parse_args()
    with unchecked() if options.unchecked else contextlib.nullcontext():
        rows = run_cases([case for case in (*SLIPS, *REPORTS) if options.only in case.name], run_case, options.json)
    slips = count_slips(rows)
    print(f"{slips} slips in {len(rows)} cases; something was taken back in {sum(row['taken_back'] for row in rows)}")
    return 1 if slips else 0


if __name__ == "__main__":
    sys.exit(main())
