"""How many versions of a function the conditions on its sizes ask for, whatever is dynamic: `if n % 2:` has one for each side.

The conditions are those that torch recorded for the versions with symbols (`guard_added_fast`, `torch/fx/experimental/symbolic_shapes.py`,
2.11 to 2.15). Their texts come from strangers' logs: they are parsed and computed, never run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dynadiag.errors import NotRebuildableError
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.run import Frame, Run
from dynadiag.passes.recompile_rows import Shapes
from dynadiag.trace.sizes import evaluate

_SYMBOL = re.compile(r"\bs\d+\b")
_SIZE = re.compile(r"(?P<source>.+)\.size\((?P<index>\d{1,3})\)")
_MOST_SYMBOLS = 8


def sides_met(frames: Sequence[Frame], varying: Sequence[tuple[str, int]], shapes: Shapes, run: Run) -> int:
    """How many versions the recorded calls need if all that varies is dynamic from the first call on: 1 without a condition on it.

    Sizes that were the same in the first call are one symbol to torch: a call in which they differ has a version of its own.
    """
    sizes = [
        {pair: shapes[frame.id][pair[0]][pair[1]] for pair in varying if pair[0] in shapes[frame.id]}
        for frame in frames
        if frame.id in shapes
    ]
    first = sizes[0] if sizes else {}
    same = [(entry, other) for number, entry in enumerate(first) for other in list(first)[:number] if first[entry] == first[other]]
    conditions = sorted({condition for frame in frames for condition in _conditions(run).get(frame.id, ())})
    sides = {
        (*(met.get(item) == met.get(other) for item, other in same), *(_holds(text, names, met) for text, names in conditions))
        for met in sizes
    }
    return max(1, len(sides))


_Names = tuple[tuple[str, tuple[str, int]], ...]


@of_last_run
def _conditions(run: Run) -> Mapping[str, set[tuple[str, _Names]]]:
    """By frame the conditions that its version relies on, with what their symbols are; those on anything but sizes are left out."""
    symbols: dict[tuple[str, str], tuple[str, int]] = {}
    for symbol in run.symbols:
        if (size := _SIZE.fullmatch(readable(symbol.source))) is not None:
            symbols[symbol.frame, symbol.symbol] = size["source"], int(size["index"])
    found: dict[str, set[tuple[str, _Names]]] = {}
    for fact in run.shape_facts:
        used = sorted(set(_SYMBOL.findall(fact.text))) if fact.kind == "guard" else []
        if 0 < len(used) <= _MOST_SYMBOLS and all((fact.frame, item) in symbols for item in used):
            found.setdefault(fact.frame, set()).add((fact.text, tuple((element, symbols[fact.frame, element]) for element in used)))
    return found


def _holds(text: str, names: _Names, sizes: Mapping[tuple[str, int], int]) -> bool | None:
    """Whether the condition holds in a call; None where it cannot be computed from the sizes that vary."""
    if not all(size in sizes for _, size in names):
        return None
    try:
        return bool(evaluate(text, {name: sizes[size] for name, size in names}))
    except NotRebuildableError:
        return None
