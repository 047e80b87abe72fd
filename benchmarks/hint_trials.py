"""Tries the switches that torch's own hints name, on programs of the corpus in which such a break occurs.

    python benchmarks/hint_trials.py > trials.json && mv trials.json dynadiag/rules/hint_trials.json

Each program of `tests/corpus/fix` runs in eager, compiled, and compiled with each switch that the messages of its breaks name; what the
entries of the atlas of libraries say of their programs is added. Reports say of a hint what came of it. Outside CI: ten minutes of CPU
time.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).with_name("atlas")))
from run_programs import in_child, listen, warm_up

from dynadiag.rules.libraries.entries import all_libraries

_PROGRAM = """import contextlib, io
held = io.StringIO()
with contextlib.redirect_stdout(held):
    exec({text!r}, {{"__name__": "__main__"}})
result = held.getvalue()
"""
"""A program whose result is what it prints."""
_CORPUS = Path(__file__).parents[1] / "tests/corpus/fix"


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    listen()
    torch.set_num_threads(1)
    warm_up()
    found: dict[str, Counter[str]] = {}
    for option, outcome in (*_of_corpus(), *_of_atlas()):
        found.setdefault(option, Counter())[outcome] += 1
    table = {option: {"programs": counts.total(), **dict(sorted(counts.items()))} for option, counts in sorted(found.items())}
    print(json.dumps({"torch": torch.__version__.partition("+")[0], "options": table}, indent=1))


def _of_corpus() -> Iterator[tuple[str, str]]:
    for path in sorted(_CORPUS.rglob("*.py")):
        os.chdir(path.parent)
        text = _PROGRAM.format(text=path.read_text())
        outcomes = in_child([(text, path.stem, True), (text, path.stem, False)])
        if len(outcomes) == 2 and outcomes[0]["error"] is None and outcomes[1]["error"] is None:
            yield from ((hint["option"], _judged(outcomes[0], outcomes[1], hint, path.stem)) for hint in outcomes[1]["hints"])


def _judged(eager: dict[str, Any], before: dict[str, Any], hint: dict[str, Any], name: str) -> str:
    if hint["error"] is not None:
        outcome = "raised"
    elif hint["result"] != eager["result"]:
        outcome = "differs" if before["result"] == eager["result"] else "not_comparable"
    else:
        outcome = "fewer_breaks" if hint["breaks"] < before["breaks"] else "nothing"
    print(f"{name}: {hint['option']}: {outcome} {hint['error'] or ''}", file=sys.stderr)
    return outcome


def _of_atlas() -> Iterator[tuple[str, str]]:
    for library in all_libraries():
        for entry in library.entries:
            for check in entry.checked:
                for hint in check.hints if entry.shows == "break" else ():
                    fewer = "fewer_breaks" if hint.counts.breaks < check.before.breaks else "nothing"
                    yield hint.option, "raised" if hint.counts.error else "differs" if hint.differs else fewer


if __name__ == "__main__":
    main()
