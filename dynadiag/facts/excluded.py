"""Functions of the user's that `torch.compiler.disable` excludes, which compiled code came to through a library (a hook, a callback)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dynadiag.facts.user_frames import of_last_run, own_frame
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, Run

_IDS = frozenset(("GB0098", "GB0099"))
_REFUSED = re.compile(r"<(?:function|bound method) (?P<name>[\w.<>]+) (?:at 0x|of )")
_NAME = re.compile(r"(?P<name>\S+) is disabled(?:: |\Z)")


def excluded_at(event: BreakEvent, run: Run) -> Location | None:
    """Where the user excludes the function that torch names in this break; None for other breaks and for functions of libraries."""
    if event.gb_id not in _IDS or (named := _REFUSED.search(event.context or "")) is None:
        return None
    frame = run.frame(event.frame)
    return None if frame is None else _excluded(run).get((frame.key.process, named["name"]))


@of_last_run
def _excluded(run: Run) -> Mapping[tuple[int, str], Location | None]:
    """The lines of the user's that exclude functions, by process and name; None for a name with several."""
    found: dict[tuple[int, str], Location | None] = {}
    for problem in run.problems:
        named = _NAME.match(problem.text) if problem.kind == "disabled" else None
        # The call of `disable` itself: below it is only torch's way to it.
        place = own_frame(problem.stack[-1:], run) if named is not None else None
        if named is not None and place is not None:
            key = (problem.process, named["name"])
            found[key] = place if found.get(key, place) == place else None
    return found
