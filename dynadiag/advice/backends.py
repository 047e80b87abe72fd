"""Advice for graphs that the back end refused (`GB0219`): the break is not in the user's code."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.advice.situation import Rule, Situation, say
from dynadiag.model.report import Advice

_EASIER = {"inductor": "aot_eager", "aot_eager": "eager"}


def back_end(situation: Situation) -> Iterator[Advice]:
    """The back end raised on the graph that ends here, and torch ran that graph eager."""
    named = re.search(r"^Backend: (.+)$", situation.context, re.MULTILINE) or re.search(
        r"[Bb]ack ?end compiler `(.+?)` failed", situation.explanation
    )
    raised = re.search(r"^Exception: ?(.+)$", situation.context, re.MULTILINE)
    name = named[1].strip() if named else ""
    whose = f"the back end `{name}`" if name else "the back end"
    said = f" with: {raised[1].strip()[:200]}" if raised else ""
    yield from say(
        "backend-refused",
        f"No line of yours breaks the graph: {whose} gave up on the graph that ends here{said}. That graph then runs eager; "
        "cure that error, or use another back end",
    )
    if name in _EASIER:
        text = f'Compile with `backend="{_EASIER[name]}"` to see whose error it is: if this graph compiles there, it is that of `{name}`'
        yield from say("backend-compare", text)


BACKENDS: dict[str, tuple[Rule, ...]] = {"GB0219": (back_end,)}
