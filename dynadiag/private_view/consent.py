"""Runs that leave no file behind, and what they reach that cannot be kept apart: it takes the user's consent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dynadiag.errors import UsageError
from dynadiag.private_view.view import View, touched

_MOST_NAMED: Final = 8
_GIB: Final = 1 << 30
_ALL: Final = "--outputs all"


@dataclass(kw_only=True)
class _Known:
    """What the user has agreed to."""

    agreed: bool


@dataclass(frozen=True, kw_only=True)
class Apart:
    """A view for the runs of one program. `ask` puts a question to a person (None: there is nobody); with `agreed` it is not put."""

    view: View
    ask: Callable[[str], bool] | None = None
    agreed: bool = False
    _known: _Known = field(default_factory=lambda: _Known(agreed=False))

    def and_passed(self, *folders: Path) -> Apart:
        """The same, with more folders that are written for real."""
        return replace(self, view=self.view.and_passed(*folders))

    def agree(self) -> None:
        """After a run: go on where it reached only what can be kept apart, or the user agrees.

        Raises UsageError where he does not, and where what a file was could not be kept.
        """
        found = touched(self.view)
        if (why := not_written(self.view)) is not None:
            raise UsageError(why)
        reached = [*found.get("network", []), *found.get("service", [])]
        if not reached or self.agreed or self._known.agreed:
            return
        named = ", ".join(reached[:_MOST_NAMED]) + (f" and {len(reached) - _MOST_NAMED} more" if len(reached) > _MOST_NAMED else "")
        what = f"the script connects to {named}: each run does, also on changed data, and what it sends there cannot be taken back"
        if self.ask is None:
            raise UsageError(f"{what}; --yes goes on")
        if not self.ask(what):
            raise UsageError("nothing was tried")
        self._known.agreed = True

    @property
    def dropped(self) -> list[str]:
        """The files that runs wrote, and that are gone or as before."""
        return touched(self.view).get("dropped", [])


def not_written(view: View) -> str | None:
    """What the runs were not let write, since what was there could not be kept, and what to do; None where there is nothing."""
    found = touched(view)
    if "no room" in found:
        limit = f"{view.limit_bytes / _GIB:.1f} GiB in {Path(view.undo).parent}"
        return f"{found['no room'][0]} was to be written, and there is no room for a copy of it ({limit}): set TMPDIR"
    if "open elsewhere" in found:
        return f"{found['open elsewhere'][0]} was to be written: that program writes to it too, which would be lost; end it first"
    if "not kept" in found:
        return f"{found['not kept'][0]} was to be written, and no copy of it can be kept: {_ALL} lets the script write it for real"
    return None
