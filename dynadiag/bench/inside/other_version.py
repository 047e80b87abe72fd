"""In an arm that runs a revision: its modules come from the copy of that revision, never from the working tree."""

from __future__ import annotations

import sys
from pathlib import Path

import dynadiag
from dynadiag.errors import UsageError


def prefer(top: str, copy: str) -> None:
    """Replace entries of `sys.path` inside the working tree by the same folder of the copy, where that has it."""
    own = Path(dynadiag.__file__).parents[1]
    sys.path[:] = [entry if Path(entry) == own else str(_in_copy(entry, top, copy) or entry) for entry in sys.path]


def refuse_working_tree(top: str, copy: str) -> None:
    """Raise UsageError when a module that the revision has was imported from the working tree: an editable install names that."""
    own = Path(dynadiag.__file__).parent
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or Path(file).is_relative_to(own) or _in_copy(file, top, copy) is None:
            continue
        where = Path(file).relative_to(top)
        raise UsageError(
            f"--git: {name} was imported from the working tree ({where}), not from the revision, so both versions would run the same code; "
            "put its folder on PYTHONPATH or install it without --editable"
        )


def _in_copy(path: str, top: str, copy: str) -> Path | None:
    """Where the copy has a file or folder of the working tree; None where it has none."""
    if not Path(path).is_relative_to(top):
        return None
    found = Path(copy) / Path(path).relative_to(top)
    return found if found.exists() else None
