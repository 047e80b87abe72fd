"""What an advice on recompiles is chosen by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.advice.source import parse_line
from dynadiag.advice.written_call import argument
from dynadiag.model.report import Advice
from dynadiag.model.run import Location

CONFIG = "torch._dynamo.config."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What an advice is chosen by: the kind of guard, the source with its values, and what else the log says about it.

    `call` is the line of the finding, `entered` the user's line that calls the compiled function itself, None where that is not certain;
    `inputs` are the variables of the function that its tensors come from; `resumed` says that the code goes on after a graph break,
    `library` that it is no code of the user's; `written` that compiled code was recorded to change the object itself.
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
    written: bool = False

    def as_written(self, source: str) -> str | None:
        """`source`, a name inside the compiled function, as the line that calls it writes it; None where the line does not tell.

        Nothing is known of a line that is itself compiled, nor of one where another call than that of the compiled function may be meant.
        """
        code = None if self.entered is None or self.called_in_compiled_code or self.resumed else self.entered.code
        return None if code is None else argument(parse_line(code), source, self.inputs)


def none(cause: Cause) -> Iterable[Advice]:
    """No advice: nothing was tried for this cause."""
    return ()
