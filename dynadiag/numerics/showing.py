"""A `NumericsResult` as the document that terminal, Markdown and page show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dynadiag.numerics.loss_band import WIDTHS
from dynadiag.numerics.result import LIMITS, CurveKeys, NumericsResult, ReproducerKeys, StepKeys, TwoRunsKeys
from dynadiag.render.document import Block, Cell, Column, Document, Headline, Part, Section, Tone, cells

_WIDTH = 400
_MOST_NAMED = 3
_WORDS: Mapping[str, tuple[str, Tone]] = {
    "fault": ("Fault", "bad"),
    "rounding": ("Within rounding", "good"),
    "equal": ("Equal to the bit", "good"),
    "skipped": ("Not compared", "unclear"),
}
_BEGINS = (
    Column("graph"),
    Column("where it begins"),
    Column("line", label="--> "),
    Column("module", label="module "),
    Column("kernel", label="kernel "),
    Column("how far", label="how far "),
    Column("result", label="result "),
    Column("growth", label="grows "),
    Column("cause", label="cause "),
    Column("ends it", label="ends it "),
)
_OPERATORS = tuple(
    Column(name, numeric=numeric)
    for name, numeric in (
        ("graph", False),
        ("operator", False),
        ("line", False),
        ("on its own inputs", False),
        ("error", True),
        ("rounding", True),
        ("from eager", True),
        ("compiled from float64", True),
        ("eager from float64", True),
    )
)


def document_of(result: NumericsResult, command: str = "") -> Document:
    """The verdict in a line for each status; for each graph that differs where it begins, how far it is and what ends it."""
    counts = [(status, result.with_status(status)) for status in _WORDS]
    return Document(
        title=f"dynadiag numerics {result.program}",
        facts=(f"{'' if not result.graphs else f'{_calls(result)} of each graph, '}with torch {result.torch or 'of an unknown version'}",),
        command=command,
        headlines=(
            *(() if result.curve is None else (_curve_headline(result.curve),)),
            *(() if result.two_runs is None else (_two_runs_headline(result.two_runs),)),
            *(Headline(word=_WORDS[status][0], what=_graphs(graphs), tone=_WORDS[status][1]) for status, graphs in counts if graphs),
        ),
        figures=tuple((_WORDS[status][0].lower(), str(len(graphs))) for status, graphs in counts),
        sections=tuple(_sections(result)),
        name="numerics.json",
    )


def _calls(result: NumericsResult) -> str:
    most = max((len(graph.get("calls", ())) for graph in result.graphs), default=0)
    return f"the first {most} calls" if most > 1 else "the first call"


def _graphs(graphs: Sequence[Mapping[str, Any]]) -> str:
    names = [str(graph["graph"]) for graph in graphs]
    return names[0] if len(names) == 1 else f"{len(names)} graphs"


def _sections(result: NumericsResult) -> Iterator[Section]:
    if result.curve is not None:
        yield _losses(result.curve)
    if result.two_runs is not None:
        yield Section(title="Notes", points=(*_code_points(result.two_runs), *result.notes, _HASH_LIMITS))
        return
    differing = [*result.with_status("fault"), *result.with_status("rounding")]
    if differing:
        yield Section(title="Where it begins", columns=_BEGINS, items=differing, row=_begins, as_entries=True)
    rows = [(graph, row) for graph in differing for row in graph["operators"]]
    if rows:
        yield Section(title="Operators", columns=_OPERATORS, items=rows, row=lambda pair: _operator(*pair), brief=False)
    for graph in differing:
        kernel = (graph["operator"] or {}).get("kernel")
        if kernel is not None and kernel["text"]:
            title = f"Kernel {kernel['name']} ({graph['graph']})"
            yield Section(title=title, block=Block(text=kernel["text"], language="text"), brief=False)
    if result.reproducer is not None:
        yield Section(title="Smallest graph with the fault", said=_reproducer(result.reproducer))
    if left := result.with_status("skipped"):
        rows_left = [cells(graph["graph"], Part(graph["why_not"], _WIDTH)) for graph in left]
        yield Section(title="Not compared", columns=(Column("graph"), Column("reason")), items=rows_left)
    yield Section(title="Notes", points=(*result.notes, LIMITS) if result.graphs else (*result.notes, _CURVE_LIMITS))


def _reproducer(made: ReproducerKeys) -> str:
    if made["file"] is None:
        return f"{made['graph']}: there is no reproducer: {made.get('why_not', 'the failure was not proven')}"
    sizes = f"{made['nodes_before']} -> {made['nodes_after']} nodes"
    return f"{made['graph']}, {sizes}: {made['file']} failed in {made['reproduced']} of {made['runs']} fresh processes"


def _two_runs_headline(runs: TwoRunsKeys) -> Headline:
    before = f"{runs['equal_calls']} calls of graphs before it are equal to the bit"
    if runs["outcome"] == "equal":
        return Headline(word="Equal to the bit", what=f"{runs['equal_calls']} calls of graphs in both runs", tone="good")
    where = f"graph-{runs['graph']}, call {runs['call']}" + (f" of {runs['function']}" if runs["function"] else "")
    where += "" if runs["process"] is None else f", process {runs['process']}"
    word, tone = _RUNS[runs["outcome"]]
    return Headline(word=word, what=f"{where}: {runs['what']}", said=before, tone=tone)


_RUNS: Mapping[str, tuple[str, Tone]] = {
    "graph": ("A graph gives other values for equal inputs", "bad"),
    "inputs": ("A graph is given other values", "bad"),
    "order": ("The runs differ", "bad"),
}
_HASH_LIMITS = (
    "Compared are hashes of the inputs and outputs of graphs. Gradients, eager code between graphs and calls behind those that were hashed "
    "are not seen; neither is a configuration that a Triton kernel chooses when it is first called."
)


def _code_points(runs: TwoRunsKeys) -> Iterator[str]:
    if runs["outcome"] == "inputs":
        yield "What computes that input differs: data, random numbers, or eager code before the graph."
    code = runs["code"]
    if code is not None and code["equal"]:
        yield "The code that Inductor generated for it is the same in both runs: how it runs differs, such as the order of additions."
    elif code is not None:
        rows = f"{code['old'] or 'none'} -> {code['new'] or 'none'}"
        yield f"The code that Inductor generated for it differs from line {code['line']}: {rows}"


def _curve_headline(curve: CurveKeys) -> Headline:
    word, what, tone = _CURVES[curve["outcome"]]
    others = "; with all other graphs compiled it stays inside" if curve["others_stay"] else ""
    said = "" if curve["leaves_at"] is None else f"from step {curve['leaves_at']} it is farther from eager's than eager with other rounding"
    return Headline(word=word, what=what.format(graph=curve["graph"], steps=len(curve["steps"])), said=said + others, tone=tone)


_CURVES: Mapping[str, tuple[str, str, Tone]] = {
    "equal": ("Losses equal to the bit", "{steps} steps", "good"),
    "rounding": ("Losses within rounding", "{steps} steps", "good"),
    "random_numbers": (
        "Losses differ by random numbers",
        "with eager's (torch._inductor.config.fallback_random) they are within rounding",
        "good",
    ),
    "graph": ("Losses leave eager's", "by the compilation of graph-{graph} alone", "bad"),
    "several_graphs": ("Losses leave eager's", "no graph alone makes them leave", "bad"),
    "tracing": ("Losses leave eager's", "also where all graphs run in eager: what Dynamo makes of the program differs", "bad"),
}
_STEPS = tuple(Column(name, numeric=True) for name in ("step", "eager", "compiled", "difference", "rounding explains", "another seed"))
_MOST_STEPS = 12
_CURVE_LIMITS = (
    f"Rounding explains {WIDTHS:g} times what two runs of eager were off whose operations were off by up to half a rounding each. Weights, "
    "gradients and other outputs are not compared."
)


def _losses(curve: CurveKeys) -> Section:
    """The steps: all of few, else the first, those around the one at which it leaves, and the last."""
    steps = curve["steps"]
    shown = steps
    if len(steps) > _MOST_STEPS:
        middle = (curve["leaves_at"] or len(steps)) - 1
        wanted = {0, len(steps) - 1, *range(max(0, middle - 4), min(len(steps), middle + 5))}
        shown = [step for at, step in enumerate(steps) if at in wanted]
    return Section(
        title="Losses",
        said=f"{len(steps)} steps, {len(curve['runs'])} runs",
        columns=_STEPS,
        items=shown,
        row=_step,
        closing="" if len(shown) == len(steps) else f"{len(steps) - len(shown)} more: --format json",
    )


def _step(step: StepKeys) -> tuple[Cell, ...]:
    loss = step["compiled"]
    off = None if loss is None else abs(loss - step["eager"])
    outside = off is None or not off <= (step["rounding"] or 0.0)
    return cells(
        str(step["step"]),
        f"{step['eager']:.7g}",
        "ended" if loss is None else f"{loss:.7g}",
        Part("" if off is None else f"{off:.1e}", tone="bad" if outside else "good"),
        _figure(step["rounding"]),
        _figure(step["seeds"]),
    )


def _begins(graph: Mapping[str, Any]) -> tuple[Cell, ...]:
    operator = graph["operator"]
    growth = graph["growth"]
    return cells(
        graph["graph"],
        Part(_heading(graph), _WIDTH, tone=_WORDS[graph["status"]][1]),
        Part(_line(operator), _WIDTH),
        Part((operator or {}).get("module") or "", code=True),
        _kernel(operator),
        Part(_how_far(operator), _WIDTH),
        Part(_result(graph), _WIDTH),
        "" if growth is None else _growth(growth),
        Part(_cause(graph), _WIDTH),
        Part(_ends(graph), _WIDTH),
    )


def _heading(graph: Mapping[str, Any]) -> str:
    word, operator = _WORDS[graph["status"]][0], graph["operator"]
    if operator is None:
        return f"{word}: the operator was not found: {graph['why_not_located']}"
    if operator["fusion"]:
        return f"{word}: in the fused kernel of {', '.join(operator['fusion'][:6])}"
    backward = " of the backward" if operator["graph"] == "backward" else ""
    return f"{word}: first at {operator['operator']}{backward}{_at_call(graph)}"


def _at_call(graph: Mapping[str, Any]) -> str:
    """Which call it is, and how many there are that give the same outcome."""
    calls = graph.get("calls", ())
    if not calls:
        return ""
    alike = sum(item["outcome"] == graph["outcome"] for item in calls)
    return f", in call {graph['call']} ({alike} of {len(calls)} calls are {_OUTCOMES[graph['outcome']]})"


_OUTCOMES = {"rounding": "within rounding", "different": "different"}


def _line(place: Mapping[str, Any] | None) -> str:
    line = place["line"] if place is not None else None
    return "" if line is None else f"{line['file']}:{line['line']} in {line['function']}: {line['code']}"


def _kernel(operator: Mapping[str, Any] | None) -> str:
    kernel = operator["kernel"] if operator is not None else None
    return "" if kernel is None else f"{kernel['name']} ({kernel['language']})"


def _how_far(operator: Mapping[str, Any] | None) -> str:
    if operator is None:
        return ""
    if operator["fusion"]:
        return f"the difference ends when the value of {operator['operator']} is stored"
    if operator["error"] is None:
        return operator["fault"] or ""
    text = f"{operator['error']:.1e} of its size from float64, where rounding explains {operator['rounding']:.1e}"
    return f"{text} ({operator['fault']})" if operator["fault"] and "rounding explains" not in operator["fault"] else text


def _result(graph: Mapping[str, Any]) -> str:
    known = [output for output in graph["outputs"] if output["from_eager"] is not None]
    if not known:
        return ", ".join(output["name"] for output in graph["outputs"][:6])
    worst = max(known, key=lambda output: output["from_eager"])
    text = f"{worst['name']} ({worst['dtype']}) differs by at most {worst['largest']:.3g}"
    if worst["compiled_from_float64"] is None or worst["eager_from_float64"] is None:
        return text
    eager, compiled = worst["eager_from_float64"], worst["compiled_from_float64"]
    return f"{text}; from float64 eager is off by {eager:.1e} of its size, compiled by {compiled:.1e}"


def _growth(growth: Mapping[str, Any]) -> str:
    how = f"from {growth['before']:.1e} to {growth['after']:.1e} at {growth['operator']}"
    return f"{how}, whose result is small against what it adds up" if growth["cancels"] else how


def _cause(graph: Mapping[str, Any]) -> str:
    causes = [item["cause"] for item in graph["ended_by"]]
    if kernels := graph["eager_kernels"]:
        decomposed = sum(item["decomposed"] for item in kernels)
        how = f" ({decomposed} of {len(kernels)} decomposed into other operators)" if decomposed else ""
        causes.append(f"Inductor's own code for {_listed(kernels)}{how}, which is not eager's")
    if graph.get("other_random_numbers"):
        causes.append("other random numbers (compared with fallback_random)")
    return "; ".join(dict.fromkeys(causes))


def _ends(graph: Mapping[str, Any]) -> str:
    found = [item["line"] for item in graph["ended_by"]]
    if found:
        return " and ".join(found)
    none = f"no option: none of {len(graph['options_tried'])} that were tried does" if graph["options_tried"] else ""
    if not graph["eager_kernels"]:
        return none
    line = (graph["operator"] or {}).get("line")
    where = f" on {line['function']}" if line is not None else ""
    kernels = f"eager's kernel{'s' if len(graph['eager_kernels']) > 1 else ''} for {_listed(graph['eager_kernels'])}"
    advice = f"to keep eager's numbers leave the code in eager: torch.compiler.disable{where}"
    return f"{none}; {kernels} would; {advice}" if none else f"{kernels}; {advice}"


def _listed(kernels: Sequence[Mapping[str, Any]]) -> str:
    """The first operators, each with its overload, and how many more there are."""
    names = [item["operator"] for item in kernels]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _operator(graph: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[Cell, ...]:
    line = row["line"]
    outcome = "equal" if row["equal"] else "fault" if row["fault"] else "rounding"
    tone: Tone = "bad" if row["fault"] else "good"
    return cells(
        f"{graph['graph']} {row['graph']}",
        Part(row["operator"], code=True),
        "" if line is None else f"{line['file'].rpartition('/')[2]}:{line['line']}",
        Part(outcome, tone=tone),
        *(_figure(row[name]) for name in ("error", "rounding", "from_eager", "compiled_from_float64", "eager_from_float64")),
    )


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"
