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

        Raises UsageError where he does not, and where there was no room to keep what a file was.
        """
        found = touched(self.view)
        if "no room" in found:
            limit = f"{self.view.limit_bytes / _GIB:.1f} GiB in {Path(self.view.undo).parent}"
            raise UsageError(f"{found['no room'][0]} was to be written, and there is no room for a copy of it ({limit}): set TMPDIR")
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
