"""What an offline replay found, as plain data and as findings; `parity.json` (docs/parity.schema.json). No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from dynadiag.model import codes
from dynadiag.model.json_keys import Bounds
from dynadiag.model.location import Location
from dynadiag.passes.find_parity_replayed import plain_source

LIMITS = (
    "Replaying graphs does not show guards on Python state, side effects that Dynamo replays, effects across graphs, values of the "
    "user's tensors "
    "(inputs of the recorded sizes are made up). `dynadiag explain --parity` compares the calls that really happen."
)


class LineKeys(TypedDict):
    """A line of the user's."""

    file: str
    line: int
    function: str
    code: str


class TensorKeys(TypedDict):
    """What differs of a tensor."""

    where: Annotated[str, "output, input (after the call), attribute, gradient, or call"]
    name: str
    source: Annotated[str | None, "as Dynamo names it: L['self'].cache"]
    aspect: Annotated[str, "values, shape, stride, dtype, layout, requires_grad, aliasing, missing_gradient or raises"]
    eager: str
    compiled: str
    elements: Annotated[int | None, "null where values were not counted"]
    wrong_elements: int | None


class DifferenceKeys(TensorKeys):
    """One difference between a graph and its compiled form."""

    scenario: Annotated[int, "position in tried"]
    call: int
    layer: str
    position: int
    line: LineKeys | None


class TriedKeys(TypedDict):
    """One way in which a graph was called."""

    kind: str
    calls: list[str]
    pair: list[str]
    shift: Annotated[int, "elements between the starts of overlapping inputs"]
    outcome: Annotated[str, "equal, differs or not_judged"]
    why_not: str | None
    gradients_why_not: str | None
    values_compared: bool


class SkippedKeys(TypedDict):
    """One way in which a graph could not be called."""

    kind: str
    reason: str


class GraphKeys(TypedDict):
    """One recorded graph."""

    graph: str
    status: Annotated[str, "compared or skipped"]
    why_not: str | None
    backend: NotRequired[str | None]
    notes: list[str]
    tried: list[TriedKeys]
    skipped: list[SkippedKeys]
    differences: list[DifferenceKeys]
    same_as: NotRequired[Annotated[str, "the graph that it is equal to"]]
    tests: NotRequired[Annotated[list[dict[str, Any]], "the tests written for it (--emit-test), by scenario"]]


class HappenedFindingKeys(TypedDict):
    """A finding on a call that the program made."""

    code: str
    severity: str
    title: str
    why: str
    where: Annotated[dict[str, Any] | None, Location | None]


class HappenedKeys(TypedDict):
    """What was compared while the program ran (`explain --parity`)."""

    verdict: str
    calls_compared: int
    findings: list[HappenedFindingKeys]
    notes: list[str]


class SummaryKeys(TypedDict):
    """How many graphs were compared, and what was found."""

    graphs: int
    compared: int
    findings: int


class ParityFile(TypedDict):
    """What `dynadiag parity` found."""

    schema_version: Literal[1]
    dynadiag: str
    recording: Annotated[str, "the run directory or log whose graphs were replayed"]
    torch: Annotated[str | None, "the torch that replayed them"]
    recorded_torch: list[str]
    summary: SummaryKeys
    findings: Annotated[list[dict[str, Any]], list[ParityFinding]]
    happened: Annotated[Mapping[str, Any] | None, HappenedKeys | None, "null when nothing was compared while the program ran"]
    graphs: Annotated[list[dict[str, Any]], list[GraphKeys]]
    notes: list[str]
    limits: Annotated[str, "what a replayed graph cannot show"]


@dataclass(frozen=True, kw_only=True)
class ParityFinding:
    """One way in which a recorded graph, compiled, would not do what it does uncompiled.

    `would` says for which calls; `layer` is the first backend that shows it ("the on-disk cache" for a cached graph); `tensor` the
    smallest that differs and `others` how many more do; `also` the other pairs of inputs of which it holds; `test` the file written for it.
    """

    id: Annotated[str, Bounds(pattern="^p[0-9]+$")]
    code: Annotated[str, Bounds(pattern="^DM[0-9]{2}$")]
    title: str
    graph: str
    would: Annotated[str, "for which calls, in words"]
    layer: Annotated[str, "the first back end that shows it, or the on-disk cache"]
    tensor: Annotated[Mapping[str, Any], TensorKeys]
    others: Annotated[int, "how many more tensors differ in that scenario"]
    also: tuple[tuple[str, ...], ...]
    where: Annotated[Mapping[str, Any] | None, LineKeys | None]
    severity: str = "warning"
    level: Annotated[str, "could_happen: found on calls that were not recorded"] = "could_happen"
    test: Annotated[str | None, "the test written for it (--emit-test)"] = None


@dataclass(frozen=True, kw_only=True)
class ParityResult:
    """`graphs` are the entries of the replaying process; `notes` what went wrong around them; `happened` as `happened_in` gives it;
    `broken`: the replaying process did not come to its end.
    """

    recording: str
    torch: str | None
    recorded_torch: tuple[str, ...]
    graphs: tuple[Mapping[str, Any], ...]
    findings: tuple[ParityFinding, ...]
    notes: tuple[str, ...] = field(default=())
    happened: Mapping[str, Any] | None = None
    broken: bool = False

    @property
    def compared(self) -> int:
        """How many graphs were compared in at least one scenario."""
        return sum(graph["status"] == "compared" for graph in self.graphs)

    @property
    def wrong(self) -> bool:
        """Whether anything differs: in a replay, or in a call that really happened."""
        return bool(self.findings or (self.happened is not None and self.happened["findings"]))

    @property
    def calls_compared(self) -> int:
        """How many real calls were compared while the program ran."""
        return int(self.happened["calls_compared"]) if self.happened is not None else 0

    def to_json(self, version: str) -> ParityFile:
        """The content of `parity.json`."""
        return {
            "schema_version": 1,
            "dynadiag": version,
            "recording": self.recording,
            "torch": self.torch,
            "recorded_torch": list(self.recorded_torch),
            "summary": {"graphs": len(self.graphs), "compared": self.compared, "findings": len(self.findings)},
            "findings": [asdict(finding) for finding in self.findings],
            "happened": dict(self.happened) if self.happened is not None else None,
            "graphs": [dict(graph) for graph in self.graphs],
            "notes": list(self.notes),
            "limits": LIMITS,
        }


def findings_of(graphs: Sequence[Mapping[str, Any]]) -> tuple[ParityFinding, ...]:
    """One finding for each code of a graph, in the order as tried."""
    found: list[ParityFinding] = []
    for graph in graphs:
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for entry in graph["differences"]:
            groups.setdefault(_code(graph["tried"][entry["scenario"]]["kind"], entry), []).append(entry)
        for code, entries in groups.items():
            found.append(_finding(f"p{len(found)}", code, graph, entries))
    return tuple(found)


def _code(kind: str, entry: Mapping[str, Any]) -> str:
    if kind == "disk_cache":
        return codes.WRONG_FROM_DISK_CACHE
    if kind == "same_tensor":
        return codes.WRONG_WHEN_SAME_TENSOR
    if kind != "second_call":
        return codes.RAISES_AFTER_OTHER_SHARING if entry["aspect"] == "raises" else codes.WRONG_WHEN_OVERLAPPING
    if entry["where"] == "gradient":
        return codes.REPLAY_GRADIENTS
    return codes.REPLAY_VALUES if entry["aspect"] in ("values", "raises") else codes.REPLAY_METADATA


def _finding(name: str, code: str, graph: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> ParityFinding:
    least = smallest(entries)
    same = [entry for entry in entries if entry["scenario"] == least["scenario"]]
    tried = graph["tried"][least["scenario"]]
    return ParityFinding(
        id=name,
        code=code,
        title=codes.title_of(code),
        graph=graph["graph"],
        would=would_be(tried, least),
        layer=least["layer"],
        tensor={key: least[key] for key in ("where", "name", "source", "aspect", "eager", "compiled", "elements", "wrong_elements")},
        others=len(same) - 1,
        also=_other_pairs(graph, entries, tried),
        where=least["line"],
        test=next((item["test"] for item in graph.get("tests", ()) if item["scenario"] == least["scenario"]), None),
    )


def _other_pairs(graph: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], shown: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    pairs = dict.fromkeys(tuple(map(str, graph["tried"][entry["scenario"]]["pair"])) for entry in entries)
    return tuple(pair for pair in pairs if pair != tuple(shown["pair"]))


def smallest(entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The difference to show: of the smallest tensor whose values differ, else the first."""
    return min(entries, key=lambda entry: (entry["aspect"] != "values", entry["elements"] or 0))


def would_be(tried: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """For which calls it would be wrong, or differ in what is no value, in words."""
    names = [f"`{plain_source(name)}`" for name in tried["pair"]]
    pair = " and ".join(names)
    verb = {"raises": "would raise", "values": "would be wrong"}.get(entry["aspect"], "would differ")
    shared = "were the same memory" if tried["shift"] == 0 else "overlapped in memory"
    if tried["kind"] == "disk_cache" and names:
        return f"{verb} if {pair} {shared}, in a process that loads from disk the graph compiled for a call where they do not"
    words = {
        "second_call": f"{verb} {'on the first call' if entry['call'] == 0 else 'on a second call with different values'}",
        "same_tensor": f"{verb} if {pair} were passed as the same tensor",
        "overlap_later": f"{verb} if {pair} {shared}, on a call after one where they do not",
        "overlap_first": _overlap_first(verb, pair, shared, entry["call"]),
        "apart_later": f"{verb} if {pair} no longer shared memory, after a call where they do",
        "disk_cache": f"{verb} in a process that loads the compiled graph from the on-disk cache",
    }
    return words[tried["kind"]]


def _overlap_first(verb: str, pair: str, shared: str, call: int) -> str:
    if call == 0:
        return f"{verb} if {pair} {shared}, already on the first call"
    return f"{verb} if {pair} did not overlap, on a call after one where they {shared}"
