"""The names of nodes in the arguments of a printed graph."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynadiag.trace.values import NAME

# A text (whose words are no names) or else a name that is no keyword argument (`type='cuda'`) and no call (`device(...)`).
_TEXT_OR_NAME = re.compile(rf"""[bBrRuU]{{0,2}}(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")|({NAME})(?![\w(]|=(?!=))""", re.DOTALL)


def argument_names(arguments: Iterable[str]) -> tuple[str, ...]:
    """The names in these arguments (`Node.args`) in order, each once: those of nodes, and `None`, `torch` and the like."""
    return tuple(dict.fromkeys(name for argument in arguments for name in _TEXT_OR_NAME.findall(argument) if name))
