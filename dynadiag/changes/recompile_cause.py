"""What an advice on recompiles is chosen by."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.model.location import Location
from dynadiag.source.call_arguments import Argument, argument
from dynadiag.source.function import Function
from dynadiag.source.line import SourceLine, parse_line

CONFIG = "torch._dynamo.config."


@dataclass(frozen=True, slots=True)
class Split:
    """The graph break that gives code versions of its own: where it is and torch's id; `outer` names the function whose graph it ends."""

    outer: str
    place: Location | None
    gb_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """How the program calls compiled code.

    `shown` is the line of the finding, `entered` the user's lines that call the compiled function itself, that of the first call first,
    and empty where that is not certain; `compiled` says that one of these lines is itself compiled. `inputs` are the variables of the
    function that its tensors come from, `parameters` the names that it takes arguments by, in their order without `self`, None where its
    source was not recorded; `passed_before` the names on the lines that called other compiled functions first.
    """

    shown: Location | None = None
    entered: tuple[Location, ...] = ()
    compiled: bool = False
    inputs: frozenset[str] = frozenset()
    parameters: tuple[str, ...] | None = None
    passed_before: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCode:
    """What all causes of recompiles of one code object have in common.

    `library` says that it is no code of the user's, `resumed` that it goes on after a graph break, `split` is the graph break without which
    it would be part of another graph; `varying` are the tensors and dimensions whose sizes were not the same in all calls, empty where what
    the first call was compiled for makes a mark useless; `one_group` says that the tensors of an optimizer all come from its first group,
    `float32` that all tensors of the function are of that type. Of all its `recompiles` those that come whatever size is dynamic from the
    first call on are counted in `stays`.
    """

    process: int
    name: str | None
    calls: Calls
    library: bool = False
    resumed: bool = False
    dynamic_false: bool = False
    split: Split | None = None
    varying: tuple[tuple[str, int], ...] = ()
    one_group: bool | None = False
    float32: bool = False
    recompiles: int = 1
    stays: int = 0

    @property
    def line(self) -> SourceLine:
        """The line of the first call, empty where nothing is certain of it, as of a line that is itself compiled."""
        return parse_line(None if not self.calls.entered or self.calls.compiled or self.resumed else self.calls.entered[0].code)

    def passed(self, source: str, at: Location | None = None) -> Argument | None:
        """What the line that calls the compiled function passes as `source`; None where the line does not tell."""
        line = self.line if at is None else parse_line(at.code)
        return argument(line, source, self.calls.inputs, self.calls.parameters) if line.code else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedGuard:
    """The guard that failed, as torch printed it: the source, the text, torch's hint and the line that asked for it."""

    raw_source: str
    text: str = ""
    hint: str | None = None
    origin: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What an advice is chosen by: the kind of guard, the source with its values, and what else the log says about it.

    `foreign` says that what changed is not the user's either (an attribute, an intermediate value of a library); `parameter` is one of
    torch's parameters with this very size in each call, whose sizes torch keeps static. `dynamic` says whether torch made the source
    symbolic, None where the log has no symbols; `made_constant` that torch made a float that had become symbolic a constant again.
    `beside` are the lines by which a call leaves other objects changed than this source, `set_at` those of the user's that set it where it
    is a state of torch. `function` is the compiled function as it is written, None where it was not recorded or another function than it
    asked; `reader` is the inlined function with the line that asked, None where another recorded function has an attribute of that name
    too.
    """

    code: CompiledCode
    guard: PrintedGuard
    kind: str
    source: str
    values: tuple[str, ...] = ()
    foreign: bool = False
    on_parameter: bool = False
    parameter: str | None = None
    dynamic: bool | None = None
    made_constant: bool = False
    beside: tuple[str, ...] = ()
    set_at: tuple[Location, ...] = ()
    function: Function | None = None
    reader: Function | None = None
