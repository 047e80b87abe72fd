"""What Python's own functions do with a number, a size or a tensor, by name: the one table beside that of torch's names.

The marks: `casts` (makes a number or a truth of a tensor, which reads its value), `needs` (needs the value of a size or a number: each is
then compiled on its own), `symbol` (a symbol stays one), `unknown` (needs a size that a graph does not know), `lists` (the same, and it
runs nothing else), `both` (takes numbers and tensors alike), `computes` (does nothing but compute, also in an operator of the program's),
`apart` (what it makes of a tensor is none).
"""

from __future__ import annotations

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
