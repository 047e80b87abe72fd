"""What an advice on recompiles is chosen by."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.advice.source import parse_line
from dynadiag.model.report import Advice
from dynadiag.model.run import Location

CONFIG = "torch._dynamo.config."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What an advice is chosen by: the kind of guard, the source with its values, and what else the log says about it."""

    kind: str
    source: str
    process: int
    raw_source: str = ""
    values: tuple[str, ...] = ()
    hint: str | None = None
    text: str = ""
    call: Location | None = None
    dynamic_false: bool = False
    compiled_again: bool = False
    on_parameter: bool = False
    called_in_compiled_code: bool = False

    def as_written(self, source: str) -> str | None:
        """`source`, a name inside the compiled function, as the line of the call writes it; None where the line does not tell.

        `f(x)` shows that `x` is `x`, `f(ids=tokens)` that `ids` is `tokens`; nothing is known of a line that is itself compiled.
        """
        code = None if self.call is None or self.called_in_compiled_code else self.call.code
        base = re.match(r"[A-Za-z_]\w*", source)
        if code is None or base is None:
            return None
        for call in (node for node in parse_line(code).nodes if isinstance(node, ast.Call)):
            if any(isinstance(argument, ast.Name) and argument.id == base[0] for argument in call.args):
                return source
            value = next((keyword.value for keyword in call.keywords if keyword.arg == base[0]), None)
            if isinstance(value, ast.Name):
                return value.id + source[base.end() :]
        return None


def none(cause: Cause) -> Iterable[Advice]:
    """No advice: nothing was tried for this cause."""
    return ()
