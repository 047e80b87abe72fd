"""What `explain --parity` recorded: calls of compiled graphs that were repeated in eager and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from dynadiag.model.difference import Difference
from dynadiag.model.location import Location

Verdict = Literal["equal", "different", "not_compared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityWrite:
    """An op that writes an input in eager; `declared` False when the op's schema hides the write."""

    input: str
    declared: bool
    op: str | None = None
    stack: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityCall:
    """One `dynadiag_parity` record: the how-many-th call of a graph, how its inputs shared memory, and what was found.

    `graph` numbers the graphs of the process; `shared` holds (input, input, how). `random_values`: so many outputs and inputs depend on
    random numbers, and their values were not compared. `backward` True: compared were the gradients of the first backward through that
    call; `awaits_backward` True: they were to be, once it came.
    """

    process: int
    frame: str | None
    graph: Annotated[int, "index of the graph in the process"]
    call: Annotated[int, "index of the call of that graph"]
    verdict: Annotated[Verdict, "equal, different, not_compared"]
    why: str | None = None
    shared: Annotated[tuple[tuple[str, str, str], ...], "[input, input, how] for inputs that shared memory"] = ()
    differences: tuple[Difference, ...] = ()
    more_differences: int = 0
    writes: tuple[ParityWrite, ...] = ()
    random_values: int = 0
    backward: Annotated[bool, "the gradients of the first backward through that call were compared"] = False
    awaits_backward: Annotated[bool, "gradients were to be compared once a backward ran"] = False
    whole: Annotated[tuple[int, int] | None, "the whole call that was compared then: number of the callable, number of its call"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """What a call found otherwise than the call that its version was compiled for: `what` is "hooks", "shadowed name", "identity" (of the
    object that `name` means) or "shared memory"; empty texts where there was or is nothing. `where`: the line that changed it, if known.
    """

    what: str
    name: str
    was: str
    now: str
    where: Location | None = None


WholeVerdict = Literal["equal", "rounding", "different", "not_compared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeCall:
    """One `dynadiag_whole_call` record: a call of a compiled callable, compared with the original function in eager.

    `where` is the function; "equal" is to the bit. `right_when` says of a different call whether it is right compiled "anew" without
    caches, or with the back end "eager". `compiled_now`: something was compiled in that call.
    """

    process: int
    callee: Annotated[int, "number of the compiled callable in the process"]
    name: str
    call: Annotated[int, "number of the call of that callable"]
    verdict: Annotated[WholeVerdict, "equal (to the bit), rounding, different, not_compared"]
    where: Location | None = None
    why: str | None = None
    differences: tuple[Difference, ...] = ()
    more_differences: int = 0
    values: Annotated[int, "values that were compared"] = 0
    gradients: Annotated[int, "gradients among them"] = 0
    random_values: Annotated[int, "values that depend on random numbers, which were not compared"] = 0
    unsteady: Annotated[int, "values that eager itself does not give twice"] = 0
    changes: tuple[StateChange, ...] = ()
    full_deques: Annotated[tuple[str, ...], "full deques with a maxlen that the call reaches"] = ()
    compiled_now: bool = False
    right_when: Annotated[Mapping[str, bool | None], "anew, eager: whether the call was right then; null: it could not be made"] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompared:
    """Why calls of some graphs could not be compared, and of which frames the graphs are."""

    why: str
    graphs: int
    frames: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeCalls:
    """How many whole calls were compared, and how that went. `not_compared`: why some were not, with how many callables."""

    equal: Annotated[int, "to the bit"]
    rounding: Annotated[int, "within rounding"]
    different: tuple[WholeCall, ...]
    not_compared: tuple[NotCompared, ...]
    random_values: int = 0
    unsteady: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CouldDiffer:
    """One finding of `parity.json`: how a graph, compiled, `would` go wrong on calls that were not recorded.

    `layer` is the first back end that shows it; the rest says what differs of the smallest tensor (`docs/parity.schema.json`), `others` how
    many more differ, `line` where it is written or made, `test` which test was written for it.
    """

    code: str
    title: str
    graph: str
    would: str
    layer: str
    where: str
    name: str
    source: str | None
    aspect: str
    eager: str
    compiled: str
    elements: int | None
    wrong_elements: int | None
    others: int
    line: Location | None
    test: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What `dynadiag parity` left in the run directory: of so many graphs so many could be `compared`, with which torch, what it found."""

    torch: str | None
    graphs: int
    compared: int
    findings: tuple[CouldDiffer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """What `explain --parity` compared. `graphs_compared` had at least one call compared; `not_shown` says what no graph can show.

    `random_values`: outputs, inputs and gradients whose values depend on random numbers; only sizes, dtypes and memory were compared.
    `gradients_...`: backwards through those calls; `no_backward`: calls that waited for one which never came.
    """

    graphs_compared: int
    calls_equal: int
    calls_different: int
    not_compared: tuple[NotCompared, ...]
    random_values: int
    different: tuple[ParityCall, ...]
    not_shown: str
    gradients_equal: Annotated[int, "backwards through compared calls"] = 0
    gradients_different: Annotated[int, "backwards through compared calls"] = 0
    no_backward: Annotated[int, "calls that waited for a backward that never ran"] = 0
    whole_calls: Annotated[WholeCalls | None, "calls of compiled callables compared with the original function in eager"] = None
