"""What a replayed graph could do wrong, in words: what differs of which tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_LOCAL = re.compile(r"L\[(['\"])([A-Za-z_]\w*)\1\]")


def plain_source(source: str) -> str:
    """How the user writes what Dynamo calls "L['self'].cache"."""
    return _LOCAL.sub(r"\2", source)


def tensor_in_words(tensor: Mapping[str, Any]) -> str:
    """What differs, in words: "output 0: 2 of 4 elements, the first -1.06 in eager and 0.47 compiled"."""
    name = f"`{plain_source(tensor['source'])}`" if tensor["source"] else tensor["name"]
    subject = {"input": f"{name} after the call", "gradient": f"the gradient of {name}"}.get(tensor["where"], name)
    if tensor["aspect"] == "values" and tensor["elements"]:
        some = f"{tensor['wrong_elements']} of {tensor['elements']} elements"
        return f"{subject}: {some}, the first {tensor['eager']} in eager and {tensor['compiled']} compiled"
    what = {"values": "", "raises": ""}.get(tensor["aspect"], f" ({tensor['aspect'].replace('_', ' ')})")
    return f"{subject}{what}: {tensor['eager']} in eager, {tensor['compiled']} compiled"
