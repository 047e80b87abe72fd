"""What an advice on recompiles is chosen by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.advice.function_source import FunctionSource
from dynadiag.advice.source import parse_line
from dynadiag.advice.written_call import argument
from dynadiag.model.report import Advice
from dynadiag.model.run import Location

CONFIG = "torch._dynamo.config."


@dataclass(frozen=True, slots=True)
class Split:
    """The graph break that gives code versions of its own: where it is and torch's id; `outer` is the function whose graph it ends."""

    outer: str
    place: Location | None
    gb_id: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """A Python object that compiled code changes: its type (`list`) and the line of the user's, or the innermost one, that does it."""

    type: str
    line: Location | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What an advice is chosen by: the kind of guard, the source with its values, and what else the log says about it.

    `call` is the line of the finding, `entered` the user's line that calls the compiled function itself, None where that is not certain;
    `inputs` are the variables of the function that its tensors come from; `resumed` says that the code goes on after a graph break,
    `library` that it is no code of the user's, `foreign` that what changed is not the user's either (an attribute, an intermediate value of
    a library); `split` the graph break without which the code would be part of another graph. `written` is what compiled code was recorded
    to change about the object itself. `dynamic` says whether torch made the source symbolic, None where the log has no symbols;
    `made_constant` that torch made a float that had become symbolic a constant again, `conditioned` that the code branches on it,
    `beside_cache` that a key-value cache changed with it,
    `there_at_first` that the first version was compiled for a value of the same kind. `modules` is how many modules of one class
    one line compiled, where several of their attributes differ. `origin` is the line that asked for the guard, `function` the compiled
    function as it is written, None where it was not recorded or another function than it asked.
    """

    kind: str
    source: str
    process: int
    raw_source: str = ""
    values: tuple[str, ...] = ()
    hint: str | None = None
    text: str = ""
    call: Location | None = None
    entered: Location | None = None
    library: bool = False
    inputs: frozenset[str] = frozenset()
    resumed: bool = False
    dynamic_false: bool = False
    compiled_again: bool = False
    on_parameter: bool = False
    called_in_compiled_code: bool = False
    foreign: bool = False
    split: Split | None = None
    written: Written | None = None
    dynamic: bool | None = None
    conditioned: bool = False
    made_constant: bool = False
    beside_cache: bool = False
    there_at_first: bool = True
    modules: int = 0
    frame_name: str | None = None
    origin: Location | None = None
    function: FunctionSource | None = None

    def as_written(self, source: str) -> str | None:
        """`source`, a name inside the compiled function, as the line that calls it writes it; None where the line does not tell.

        Nothing is known of a line that is itself compiled, nor of one where another call than that of the compiled function may be meant.
        """
        code = None if self.entered is None or self.called_in_compiled_code or self.resumed else self.entered.code
        return None if code is None else argument(parse_line(code), source, self.inputs)


def none(cause: Cause) -> Iterable[Advice]:
    """No advice: nothing was tried for this cause."""
    return ()
