"""What torch says of each of its ids of graph breaks, kept here so that it can be read without torch.

`python -m dynadiag.rules.torch_breaks REGISTRY.json ... > dynadiag/rules/torch_breaks.json` writes the file from the registries of some
versions of torch, newest first (`torch/_dynamo/graph_break_registry.json`: 421 ids in 2.11, 592 in 2.15).
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("torch_breaks.json")
_COPYRIGHT = "Texts of PyTorch, Copyright (c) the PyTorch contributors, under its BSD-3-Clause licence."
# The registry's maker copies source: some wordings are the name of a variable, or a literal with what is added to it (seen in 2.15).
_NO_WORDS = re.compile(r"\w*_\w*||\w+ \+ .*")
_LITERAL = re.compile(r"""f?"((?:[^"\\]|\\.)*)\"""")


def torch_break(gb_id: str) -> dict[str, Any] | None:
    """The type, the explanation and the hints of an id; None for one that the file does not have."""
    found = _all().get(gb_id)
    return found if isinstance(found, dict) else None


def torch_ids() -> list[str]:
    """All ids, in order."""
    return sorted(name for name in _all() if name.startswith("GB"))


@functools.cache
def _all() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_FILE.read_text("utf-8"))
    return found


def made_from(registries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The file's content: of each id the newest wording that is text."""
    found: dict[str, Any] = {}
    for registry in registries:
        for gb_id, wordings in registry.items():
            found.setdefault(gb_id, _best(wordings))
    return {"": _COPYRIGHT, **dict(sorted(found.items()))}


def _best(wordings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Newest first, those with an explanation and hints before others."""
    readable = [wording for wording in wordings if not _NO_WORDS.fullmatch(str(wording["Gb_type"]))] or list(wordings)
    best = min(readable, key=lambda record: (bool(_NO_WORDS.fullmatch(_text(record["Explanation"]))), _is_source(record["Explanation"])))
    explanation = _text(best["Explanation"])
    hints = [" ".join(str(hint).split()) for hint in best.get("Hints") or ()]
    return {
        "type": _text(best["Gb_type"]),
        "explanation": "" if _NO_WORDS.fullmatch(explanation) else explanation,
        "hints": [hint for hint in hints if hint],
    }


def _is_source(text: object) -> bool:
    return str(text).startswith(('"', 'f"'))


def _text(raw: object) -> str:
    """The words of a wording, where it is source those of its literals."""
    text = str(raw)
    if _is_source(text):
        text = "".join(part.replace('\\"', '"') for part in _LITERAL.findall(text))
    return " ".join(text.split())


if __name__ == "__main__":
    content = made_from([json.loads(Path(name).read_text("utf-8")) for name in sys.argv[1:]])
    sys.stdout.write(json.dumps(content, indent=0, ensure_ascii=False) + "\n")
