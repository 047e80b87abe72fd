"""The verdicts of the four verbs on planted triples are those that were recorded.

`python -m tests.with_torch.compare.test_golden_verdicts` records them anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.with_torch.compare.four_verbs import verdicts
from tests.with_torch.compare.triples import all_triples

pytestmark = [pytest.mark.any_torch, pytest.mark.slow]
HERE = Path(__file__).parent
GOLDEN = HERE / "golden_verdicts.json"
VERBS = ("explain --parity", "parity", "minify", "bench")


def said():
    return {triple.name: verdicts(triple) for triple in all_triples()}


def golden():
    """By name of a triple the four verdicts; each text is stored once."""
    stored = json.loads(GOLDEN.read_text())
    return {name: [stored["texts"][number] for number in numbers] for name, numbers in stored["verdicts"].items()}


def record():
    found = said()
    texts = sorted({text for row in found.values() for text in row})
    rows = ",\n".join(f"  {json.dumps(name)}: {[texts.index(text) for text in row]}" for name, row in found.items())
    GOLDEN.write_text(f'{{"texts": {json.dumps(texts, indent=1)},\n "verdicts": {{\n{rows}\n }}}}\n')


def test_each_verb_says_what_was_recorded():
    now, before = said(), golden()
    assert now.keys() == before.keys()
    assert len(now) >= 500
    other = {
        f"{name} / {rule}": f"{was!r} became {is_now!r}"
        for name, row in before.items()
        for rule, was, is_now in zip(VERBS, row, now[name], strict=True)
        if was != is_now
    }
    assert other == {}


def test_all_verbs_say_the_same_of_values():
    """They may differ in facts of a tensor: Inductor gives other strides and shares other memory in right programs."""
    told = {name: row for name, row in golden().items() if not name.startswith(("facts", "alias"))}
    assert [name for name, row in told.items() if len({verdict == "right" for verdict in row}) > 1] == []
    assert sum(row[0] != "right" for row in told.values()) >= 300


if __name__ == "__main__":
    record()
