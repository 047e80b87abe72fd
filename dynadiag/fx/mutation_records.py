"""What the mutation probe finds in one graph, as plain data. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

WriteKind = Literal["data", "metadata", "storage", "requires_grad"]
Where = Literal["in_graph", "epilogue", "rejected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSite:
    """One op that wrote an input: the node of the graph, the operator that was dispatched, and the stack of user code, outermost first.

    `kind` is what it changed; `metadata` says the same of sizes and strides alone. `through` names the calls of sub graphs (cond,
    checkpoint) that the op is inside of. `bytes_touched` is None when not known.
    """

    node: str | None
    op: str
    argument: str
    stack: tuple[tuple[str, int, str, str], ...]
    no_grad: bool
    kind: WriteKind
    metadata: bool
    through: tuple[str, ...] = ()
    bytes_touched: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMutation:
    """One input that the graph mutates; `index` counts as AOTAutograd does: attributes of the graph first, then its placeholders.

    `where` says who writes the result back, for a back end that keeps input mutations (inductor, aot_eager): "in_graph", the "epilogue"
    that AOTAutograd runs after the compiled call, or "rejected" when AOTAutograd can do neither. `bytes_touched` is what the writing ops
    reach at most. `aliases` are inputs on the same storage, `overlaps` those of them whose bytes overlap.
    """

    index: int
    name: str
    source: str | None
    kinds: tuple[WriteKind, ...]
    where: Where
    no_grad: bool
    requires_grad: bool | None
    static: str | None
    bytes_touched: int | None
    bytes_written_back: int | None
    aliases: tuple[str, ...]
    overlaps: tuple[str, ...]
    sites: tuple[WriteSite, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """AOTAutograd's own words on why it does not take the graph; `basis`: "observed" in the run, or "asked" by the probe afterwards."""

    text: str
    basis: Literal["observed", "asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The mutations of one graph. `error` says why the graph could not be followed to its end: then more may be mutated than listed."""

    mutations: tuple[InputMutation, ...] = ()
    error: str | None = None
    notes: tuple[str, ...] = ()

    def as_record(self) -> Mapping[str, Any]:
        """The result as JSON-able data, as a `dynadiag_probe` record holds it."""
        return asdict(self)
