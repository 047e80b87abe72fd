"""What was recorded of mutations: AOTAutograd's own metadata, Dynamo's Python side effects, and what the probe found in each graph."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.model.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class AotInput:
    """What AOTAutograd says of one flat input of a graph (`InputAliasInfo`, torch/_functorch/_aot_autograd/schemas.py)."""

    is_leaf: bool = True
    requires_grad: bool = False
    mutates_data: bool = False
    mutates_metadata: bool = False
    replaces_storage: bool = False
    resizes_storage: bool = False
    hidden_from_autograd: bool = False
    under_no_grad: bool = False
    keep_input_mutations: bool = False

    @property
    def is_mutated(self) -> bool:
        """Whether the graph changes this input (`InputAliasInfo.mutation_type`)."""
        return self.mutates_data or self.mutates_metadata or self.resizes_storage

    @property
    def in_graph(self) -> bool:
        """Whether the compiled graph writes the input itself; else the runtime epilogue does (`_check_if_mutation_can_be_in_graph`)."""
        if not self.keep_input_mutations:
            return False
        something = self.mutates_data or self.replaces_storage or self.resizes_storage
        plain = not self.mutates_metadata and not self.requires_grad
        return something and (plain or self.hidden_from_autograd or self.under_no_grad)


@dataclass(frozen=True, slots=True)
class AotOutput:
    """One output of a graph: torch's `OutputType` by name (`non_alias`, `alias_of_input`, `is_input`, ...) and what it aliases."""

    kind: str
    base: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AotMetadata:
    """One `aot_forward_graph_fw_metadata` record. `static` holds the indices of inputs that keep their address, None when not printed."""

    inputs: tuple[AotInput, ...] = ()
    outputs: tuple[AotOutput, ...] = ()
    static: frozenset[int] | None = None
    keeps_mutations: bool | None = None
    intermediate_bases: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffect:
    """One Python object that a compiled frame changes, with the stack of each change, outermost frame first.

    `source` is Dynamo's name of the object; None for an object without one, where `variable` may name the variable of an inner function.
    """

    type: str
    source: str | None
    variable: str | None = None
    stacks: tuple[tuple[Location, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedWrite:
    """One op that wrote an input, as the probe saw it; `kind` is what it changed (data, metadata, storage, requires_grad)."""

    node: str | None
    op: str
    stack: tuple[Location, ...] = ()
    no_grad: bool | None = None
    kind: str | None = None
    through: tuple[str, ...] = ()
    bytes_touched: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedMutation:
    """One input that a graph mutates, as the probe found it; `where` is in_graph, epilogue or rejected."""

    index: int | None
    name: str
    source: str | None
    kinds: tuple[str, ...]
    where: str | None
    no_grad: bool | None = None
    requires_grad: bool | None = None
    static: str | None = None
    bytes_touched: int | None = None
    bytes_written_back: int | None = None
    aliases: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()
    sites: tuple[ProbedWrite, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedGraph:
    """One `dynadiag_probe` record; `mutations` None when the graph could not be probed, `error` why it was not followed to its end.

    `refusal` is what AOTAutograd answered when the probe asked it to take the graph and it did not.
    """

    mutations: tuple[ProbedMutation, ...] | None = None
    error: str | None = None
    refusal: str | None = None
    notes: tuple[str, ...] = ()
