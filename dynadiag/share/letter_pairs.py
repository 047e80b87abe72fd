"""How unlike program text a word is, by its pairs of letters: a random key costs twice the bits that a name or a path of its length costs.

The entropy of a word of 20 letters says nothing: a path has as many different letters as a key. The pairs were counted in the words of
installed Python packages (`python -m dynadiag.share.letter_pairs FOLDER...` prints the table; never redirect it into the file itself).
"""

from __future__ import annotations

import json
import math
import re
import string
import sys
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

LETTERS = string.ascii_letters + "0+/_=.-"
_WORD = re.compile(r"[A-Za-z0-9+/_=.-]{8,}")
_DIGITS = str.maketrans("123456789", "0" * 9)
_STEPS = 8
_TABLE = Path(__file__).with_suffix(".json")


@lru_cache(maxsize=1)
def _costs() -> dict[str, dict[str, int]]:
    """What each letter costs behind each other, in eighths of a bit."""
    rows = json.loads(_TABLE.read_text("ascii"))
    return {before: dict(zip(LETTERS, row, strict=True)) for before, row in zip(LETTERS, rows, strict=True)}


def pair_bits(word: str) -> list[float]:
    """The bits of each pair of letters of a word, which has no letters but these and digits."""
    costs = _costs()
    plain = word.translate(_DIGITS)
    return [costs[before][letter] / _STEPS for before, letter in pairwise(plain)]


def counted(folders: list[Path]) -> list[list[int]]:
    """The table for the words in the Python files of some folders, each word once a file."""
    pairs: Counter[tuple[str, str]] = Counter()
    for file in sorted(file for folder in folders for file in folder.rglob("*.py")):
        for word in {str(file), *_WORD.findall(file.read_text("utf-8", "replace"))}:
            plain = word.translate(_DIGITS)
            pairs.update(pairwise(plain))
    table = []
    for before in LETTERS:
        total = sum(pairs[before, letter] for letter in LETTERS)
        shares = [(pairs[before, letter] + 0.5) / (total + 0.5 * len(LETTERS)) / (10 if letter == "0" else 1) for letter in LETTERS]
        table.append([round(-_STEPS * math.log2(share)) for share in shares])
    return table


if __name__ == "__main__":
    print("[" + ",\n".join(json.dumps(row) for row in counted([Path(folder) for folder in sys.argv[1:]])) + "]")
