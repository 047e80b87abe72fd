"""The few words that every sentence needs: places, counts and lists that stay short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dynadiag.model.location import Location

_OF_PACKAGES = frozenset({"__init__.py", "__main__.py"})
"""Files that every package has, so that their name alone says nothing."""


def plural(count: int, singular: str, many: str | None = None) -> str:
    """The count with its noun: "1 event", "3 events"."""
    return f"{count} {singular if count == 1 else many or singular + 's'}"


def base_name(path: str) -> str:
    """The last part of a path of any system: logs come from foreign machines."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def short_place(location: Location | None) -> str:
    """`train.py:12`, or `train.py` without a line, or "an unknown place"; of a package's own file also the package: `app/__init__.py:3`."""
    if location is None:
        return "an unknown place"
    name = base_name(location.file)
    if name in _OF_PACKAGES and (package := base_name(location.file.replace("\\", "/").rstrip("/")[: -len(name) - 1])):
        name = f"{package}/{name}"
    return name if location.line is None else f"{name}:{location.line}"


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values once each, in their first order."""
    return tuple(dict.fromkeys(values))


def listed(values: Sequence[str], *, limit: int = 3, between: str = ", ") -> str:
    """A list that stays short: "a, b, c and 4 more"."""
    shown = between.join(values[:limit])
    return shown if len(values) <= limit else f"{shown} and {len(values) - limit} more"
