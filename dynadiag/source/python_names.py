"""What Python's own functions do with a number, a size or a tensor, by name: the one table beside that of torch's names.

The marks: `casts` (makes a number or a truth of a tensor, which reads its value), `needs` (needs the value of a size or a number: each is
then compiled on its own), `symbol` (a symbol stays one), `unknown` (needs a size that a graph does not know), `lists` (the same, and it
runs nothing else), `both` (takes numbers and tensors alike), `computes` (does nothing but compute, also in an operator of the program's),
`apart` (what it makes of a tensor is none).
"""

from __future__ import annotations

import ast

from dynadiag.source.line import dotted
from dynadiag.source.torch_names import FACTORIES, TAKES_SIZES, is_torch_function, torch_function

_TABLE = """
abs         symbol both computes
all         unknown
any         unknown
bool        casts symbol unknown lists computes apart
dict        lists apart
divmod      needs
enumerate   needs unknown lists both computes
float       casts symbol unknown computes apart
format      needs
hash        needs
int         casts symbol unknown computes apart
iter        needs
len         symbol unknown lists computes apart
list        needs unknown lists both apart
map         needs unknown
math.ceil   symbol
math.floor  symbol
math.sqrt   symbol
max         symbol unknown lists computes
min         symbol unknown lists computes
next        needs
print       needs unknown
range       needs unknown lists computes
repr        needs
reversed    both computes
round       needs
set         unknown
sorted      unknown
str         needs unknown apart
sum         symbol unknown both
tuple       symbol unknown lists both apart
zip         needs unknown lists both computes
"""
_ROWS = {name: frozenset(marks) for name, *marks in map(str.split, _TABLE.strip().splitlines())}


def _marked(mark: str) -> frozenset[str]:
    return frozenset(name for name, marks in _ROWS.items() if mark in marks)


CASTS = _marked("casts")
"""What reads the value of a tensor as a number or a truth."""
NEEDS_VALUE = _marked("needs")
"""What needs the value of a size or a number, so that each is compiled on its own (torch 2.11 and 2.15)."""
KEEPS_SYMBOL = _marked("symbol")
"""What makes a symbol of a symbol."""
NEEDS_SIZE = _marked("unknown")
"""What needs a size that depends on values: lists, loops and numbers of unknown length end the program or break again."""
LISTS = _marked("lists")
"""The same, where it runs no code besides."""
TAKES_BOTH = _marked("both")
"""What takes a number or a tensor alike."""
COMPUTES = _marked("computes")
"""What does nothing but compute."""
GIVES_NO_TENSOR = _marked("apart")
"""What gives no tensor of a tensor."""


# Which calls compute on tensors as on numbers, and which change an object.

_MAKES = FACTORIES | {"tensor", "as_tensor"}
_TAKES_OUT = frozenset(("next", "pop", "popleft", "popitem", "send", "read", "readline"))
_COLLECTS = frozenset(("append", "add", "insert", "extend", "update", "setdefault", "put", "push", "appendleft", "remove", "discard"))


def _wants_number(call: ast.Call) -> bool:
    return (dotted(call.func) or "").rpartition(".")[2] in TAKES_SIZES | {"int", "float", "range"}


def takes_tensors(call: ast.Call, argument: ast.AST | None = None) -> bool:
    """Whether the call computes on tensors as on numbers: torch's functions but for the factories, methods that collect nothing.

    `argument` is the one in question: sizes and distances (`torch.roll(x, k)`, `x.view(n, -1)`) are read as numbers, what is rolled is not.
    """
    name = dotted(call.func) or ""
    if _wants_number(call) and not (is_torch_function(name) and call.args and argument is call.args[0]):
        return False
    if is_torch_function(name):
        return torch_function(name) not in _MAKES
    if isinstance(call.func, ast.Attribute):
        return (
            call.func.attr not in _COLLECTS
            and not isinstance(call.func.value, ast.Constant)
            and name.partition(".")[0] not in ("math", "numpy")
        )
    return name in TAKES_BOTH


def changes_something(call: ast.Call) -> bool:
    """Whether an argument of the call takes something out of an object, puts something in or gives a name a value."""
    inside = [node for argument in (*call.args, *(word.value for word in call.keywords)) for node in ast.walk(argument)]
    called = {(dotted(child.func) or "").rpartition(".")[2] for child in inside if isinstance(child, ast.Call)}
    return not called.isdisjoint(_TAKES_OUT | _COLLECTS) or any(isinstance(descendant, ast.NamedExpr) for descendant in inside)
