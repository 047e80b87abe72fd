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
class Cause:
    """What an advice is chosen by: the kind of guard, the source with its values, and what else the log says about it.

    `call` is the line of the finding, `entered` the user's lines that call the compiled function itself, that of the first call first, and
    empty where that is not certain; `inputs` are the variables of the function that its tensors come from, `parameters` the names that it
    takes arguments by, in their order without `self`, None where its source was not recorded, `varying` the tensors and dimensions whose
    sizes were not the same in all calls, empty where what the first call was compiled for makes a mark useless; `parameter` is one of
    torch's parameters with this very size in each call, whose sizes torch keeps static; `resumed` says that the code goes on after a graph
    break, `library` that it is no code of the user's, `foreign` that what changed is not the user's either (an attribute, an intermediate
    value of a library); `split` the graph break without which the code would be part of another graph.
    `dynamic` says whether torch made the source symbolic, None where the log has no symbols; `made_constant` that torch made a float that
    had become symbolic a constant again; `one_group` that the tensors of an optimizer all come from its first group; `float32` that all
    tensors of the function are of that type. `origin` is the line that asked for the guard, `function` the compiled function as it is
    written, None where it was not recorded or another function than it asked; `reader` is the inlined function with that line, None where
    another recorded function has an attribute of that name too. `passed_before` are the names on the lines that called other compiled
    functions first; `beside` are the lines by which a call leaves other objects changed than this source, `set_at` those of the user's that
    set it where it is a state of torch. Of all its `recompiles` those
    that come whatever size is dynamic from the first call on are counted in `stays`.
    """

    kind: str
    source: str
    process: int
    raw_source: str = ""
    values: tuple[str, ...] = ()
    hint: str | None = None
    text: str = ""
    call: Location | None = None
    entered: tuple[Location, ...] = ()
    library: bool = False
    inputs: frozenset[str] = frozenset()
    parameters: tuple[str, ...] | None = None
    varying: tuple[tuple[str, int], ...] = ()
    resumed: bool = False
    dynamic_false: bool = False
    on_parameter: bool = False
    parameter: str | None = None
    called_in_compiled_code: bool = False
    foreign: bool = False
    split: Split | None = None
    dynamic: bool | None = None
    made_constant: bool = False
    one_group: bool | None = False
    float32: bool = False
    passed_before: frozenset[str] = frozenset()
    beside: tuple[str, ...] = ()
    set_at: tuple[Location, ...] = ()
    stays: int = 0
    recompiles: int = 1
    frame_name: str | None = None
    origin: Location | None = None
    function: Function | None = None
    reader: Function | None = None

    @property
    def line(self) -> SourceLine:
        """The line of the first call, empty where nothing is certain of it, as of a line that is itself compiled."""
        return parse_line(None if not self.entered or self.called_in_compiled_code or self.resumed else self.entered[0].code)

    def passed(self, source: str, at: Location | None = None) -> Argument | None:
        """What the line that calls the compiled function passes as `source`; None where the line does not tell."""
        line = self.line if at is None else parse_line(at.code)
        return argument(line, source, self.inputs, self.parameters) if self.line.code else None
