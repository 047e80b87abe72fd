"""What `dynadiag numerics` found, as plain data; `numerics.json` (docs/numerics.schema.json). No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

LIMITS = (
    "The first calls of each graph are compared, in a process of its own. What other graphs and Python code do to the numbers "
    "is not seen, and neither is a change that the script makes to the compiler, unless --load makes it too."
)


class NumericsLineKeys(TypedDict):
    """The innermost line of the program that an operator comes from."""

    file: str
    line: int
    function: str
    code: str


class PlaceKeys(TypedDict):
    """An operator of an ATen graph, before decompositions."""

    node: str
    operator: str
    graph: Annotated[str, "inference, forward or backward"]
    module: Annotated[str | None, "null where the operator is in no module"]
    line: Annotated[NumericsLineKeys | None, "null where the graph does not say where the operator comes from"]


class KernelKeys(TypedDict):
    """The kernel that computes an operator, with its value stored."""

    name: str
    language: Annotated[str, "C++, Triton, or library for a call"]
    text: str


class OperatorKeys(PlaceKeys):
    """Where it begins: the first operator that is off by more than rounding explains, else the first that is not equal to the bit."""

    fault: Annotated[str | None, "what is more than rounding, in words"]
    error: Annotated[float | None, "distance from float64 on the same inputs, over the size of the values; null without float64"]
    rounding: Annotated[float | None, "what eager's rounding explains of it; null without float64"]
    fusion: Annotated[list[str], "the operators of the kernel, where the difference ends when this operator's value is stored"]
    kernel: Annotated[KernelKeys | None, "null where it is not known"]


class RowKeys(PlaceKeys):
    """One operator of the graph."""

    equal: Annotated[bool, "equal to the bit to eager on the inputs that the compiled graph stored"]
    error: float | None
    rounding: float | None
    fault: str | None
    from_eager: Annotated[float | None, "distance of the compiled value from eager's, over its size, errors that came in included"]
    compiled_from_float64: float | None
    eager_from_float64: float | None


class GrowthKeys(PlaceKeys):
    """The operator at which the distance from eager grows most."""

    before: float
    after: float
    cancels: Annotated[bool, "its result is less than a tenth of what it adds up"]


class OutputKeys(TypedDict):
    """A value that is not equal to the bit: an output, a gradient, or an input after the call."""

    name: str
    dtype: str
    elements: int
    largest: Annotated[float | None, "largest difference of finite elements"]
    from_eager: float | None
    compiled_from_float64: float | None
    eager_from_float64: float | None


class LayerKeys(TypedDict):
    """What a layer of the compiler gives."""

    layer: str
    outcome: Annotated[str, "equal, rounding or different"]


class EndedKeys(TypedDict):
    """An option that ends it, run; the cause that this proves."""

    line: str
    cause: str


class EagerKernelKeys(TypedDict):
    """An operator that, computed by eager's kernel, ends it."""

    operator: str
    decomposed: Annotated[bool, "whether Inductor replaces it by other operators"]


class CallKeys(TypedDict):
    """What a call of the graph gives, by the rule of all verbs."""

    call: int
    outcome: Annotated[str, "equal, rounding, different, or random where eager's own results differ between two runs"]


class ComparedKeys(TypedDict):
    """One captured graph."""

    graph: str
    status: Annotated[str, "equal, rounding, fault or skipped"]
    call: NotRequired[Annotated[int, "with --calls the call that everything else is about"]]
    calls: NotRequired[Annotated[list[CallKeys], "with --calls"]]
    why_not: NotRequired[str]
    backend: NotRequired[str]
    nodes: NotRequired[int]
    random: NotRequired[bool]
    other_random_numbers: NotRequired[Annotated[bool, "compared with fallback_random, since the back end draws other numbers"]]
    outputs: NotRequired[list[OutputKeys]]
    outcome: NotRequired[Annotated[str, "of all results by the rule of `parity`: rounding or different"]]
    layers: NotRequired[list[LayerKeys]]
    operator: NotRequired[OperatorKeys | None]
    why_not_located: NotRequired[Annotated[str, "why there is no operator"]]
    growth: NotRequired[GrowthKeys | None]
    operators: NotRequired[list[RowKeys]]
    options_tried: NotRequired[list[str]]
    ended_by: NotRequired[Annotated[list[EndedKeys], "needed together"]]
    eager_kernels: NotRequired[list[EagerKernelKeys]]
    compared_cpu_s: NotRequired[Annotated[float, "CPU seconds of two eager calls, one in float64, and one compilation with its call"]]
    cpu_s: NotRequired[Annotated[float, "CPU seconds of all"]]


CurveOutcome = Literal["equal", "rounding", "random_numbers", "tracing", "graph", "several_graphs"]


class StepKeys(TypedDict):
    """One loss: a call of `backward`."""

    step: Annotated[int, "from 1"]
    eager: float
    compiled: Annotated[float | None, "null where the compiled run ended before"]
    rounding: Annotated[float | None, "how far from eager's it may be by rounding alone; null where that was not run"]
    seeds: Annotated[float | None, "how far another seed of the program leads; null where that was not run"]


class CurveKeys(TypedDict):
    """The losses of the script compiled and in eager."""

    outcome: Annotated[
        str,
        "equal to the bit; rounding: within what eager with other rounding is off; random_numbers: so with eager's random numbers; else it "
        "leaves that, by the compilation of one graph, of several graphs together, or (tracing) with all graphs in eager, too",
    ]
    leaves_at: Annotated[int | None, "the first step outside; null where there is none"]
    graph: Annotated[int | None, "the graph whose compilation alone makes it leave; null where no single one does"]
    others_stay: Annotated[bool | None, "whether it stays inside with all other graphs compiled; null where that was not run"]
    graphs: Annotated[int, "how many graphs were compiled"]
    steps: list[StepKeys]
    runs: Annotated[list[str], "the runs of the script, in order"]


class ReproducerKeys(TypedDict):
    """What `minify` made of the first graph with a fault whose results are wrong."""

    graph: str
    kind: Annotated[str, "wrong_result or wrong_gradient"]
    file: Annotated[str | None, "the reproducer; null where there is none"]
    why_not: NotRequired[Annotated[str, "why there is none"]]
    nodes_before: NotRequired[int]
    nodes_after: NotRequired[int]
    reproduced: NotRequired[Annotated[int, "fresh processes in which it failed in the same way"]]
    runs: NotRequired[int]


class CodeKeys(TypedDict):
    """The code that Inductor generated for the graph, in both runs."""

    equal: bool
    line: Annotated[int | None, "the first line that differs; null where none does"]
    old: Annotated[str | None, "that line in the first run; null where the code ends before"]
    new: Annotated[str | None, "the same in the second run"]


class TwoRunsKeys(TypedDict):
    """Two runs of one program, compared by hashes of what their graphs were given and gave."""

    outcome: Annotated[
        str,
        "equal; graph: it gives other outputs for equal inputs; inputs: what comes before the graph differs; "
        "order: the runs call other graphs",
    ]
    process: Annotated[int | None, "the number of the process, by its id, where several compile; null where one does"]
    graph: Annotated[int | None, "the graph, counted from 0 in its process; null where nothing differs"]
    call: Annotated[int | None, "its call, from 1"]
    function: Annotated[str | None, "the function that Dynamo traced, with its place"]
    what: Annotated[str | None, "what differs first"]
    equal_calls: Annotated[int, "calls before it whose inputs and outputs are equal to the bit"]
    code: Annotated[CodeKeys | None, "null where the runs have no generated code of the graph, or not a graph is the cause"]


class NumericsSummaryKeys(TypedDict):
    """How many graphs there are of each status."""

    graphs: int
    equal: int
    rounding: int
    faults: int
    skipped: int


class NumericsFile(TypedDict):
    """What `dynadiag numerics` found."""

    schema_version: Literal[1]
    dynadiag: str
    program: str
    torch: str | None
    summary: NumericsSummaryKeys
    graphs: Annotated[list[dict[str, Any]], list[ComparedKeys]]
    curve: NotRequired[Annotated[CurveKeys, "with --steps"]]
    two_runs: NotRequired[Annotated[TwoRunsKeys, "of two runs"]]
    reproducer: NotRequired[Annotated[ReproducerKeys, "with --minify, where results are wrong"]]
    notes: list[str]
    limits: Annotated[str, "what is not compared"]


@dataclass(frozen=True, kw_only=True)
class NumericsResult:
    """`graphs` are the entries of the comparing process (`ComparedKeys`); `failed`: the script did. `curve` is that of a whole run."""

    program: str
    torch: str | None
    graphs: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()
    failed: bool = False
    curve: CurveKeys | None = None
    reproducer: ReproducerKeys | None = None
    two_runs: TwoRunsKeys | None = None

    @property
    def leaves(self) -> bool:
        """Whether the losses leave what rounding and random numbers explain."""
        return self.curve is not None and self.curve["outcome"] not in ("equal", "rounding", "random_numbers")

    def with_status(self, status: str) -> list[Mapping[str, Any]]:
        """The graphs with this status."""
        return [graph for graph in self.graphs if graph["status"] == status]

    @property
    def exit_code(self) -> int:
        """0: equal or rounding; 1: a fault, or the script failed; 5: nothing was compared."""
        if self.with_status("fault") or self.failed or self.leaves:
            return 1
        if self.two_runs is not None:
            return 0 if self.two_runs["outcome"] == "equal" else 1
        if self.curve is not None:
            return 0
        return 5 if len(self.with_status("skipped")) == len(self.graphs) else 0

    def to_json(self, version: str) -> NumericsFile:
        """The content of `numerics.json`."""
        counts = {name: len(self.with_status(name)) for name in ("equal", "rounding", "skipped")}
        told: NumericsFile = {
            "schema_version": 1,
            "dynadiag": version,
            "program": self.program,
            "torch": self.torch,
            "summary": {"graphs": len(self.graphs), "faults": len(self.with_status("fault")), **counts},  # type: ignore[typeddict-item]
            "graphs": [dict(graph) for graph in self.graphs],
            "notes": list(self.notes),
            "limits": LIMITS,
        }
        if self.curve is not None:
            told["curve"] = self.curve
        if self.two_runs is not None:
            told["two_runs"] = self.two_runs
        if self.reproducer is not None:
            told["reproducer"] = self.reproducer
        return told
