"""How much of a recording is kept. What lies beyond is counted, and the report says so: a log is hostile input.

A log of 1 GB stays below them; a job of 4,096 ranks has room for 24 frames, 12 graph breaks and 6 recompiles a rank
(docs/logs.md names the limits).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dynadiag.model.location import Location

MOST_BYTES = 150 << 20
MOST_PROCESSES = 10_000
# By kind: how many are kept, and about how many bytes one takes, from here to the finished report.
_KINDS: dict[str, tuple[int, int]] = {
    "processes": (MOST_PROCESSES, 6000),
    "frames": (100_000, 1500),
    "call stacks": (100_000, 0),  # their lines are counted where they are kept (`RunBuilder.share`)
    "graphs": (200_000, 700),
    "graph break events": (50_000, 700),
    "recompiles": (25_000, 1200),
    "dynamic symbols": (200_000, 450),
    "traced tensors": (200_000, 300),
    "described tensors": (400_000, 250),
    "mutation records": (100_000, 500),
    "problems": (20_000, 800),
    "cache look-ups": (200_000, 400),
    "compile phases": (300_000, 350),
    "timed phases": (100_000, 250),
    "texts of output code": (50_000, 400),
    "guard trees": (100_000, 400),
    "facts of shapes": (20_000, 600),
    "calls looked at": (20_000, 400),
    "timed parts of guards": (200_000, 150),
    "profiled regions": (20_000, 400),
    "processes with profiled calls": (64, 400),
    "torch.compile calls": (20_000, 800),
    "unguarded state": (10_000, 2000),
    "compared calls": (100_000, 1000),
    "differences of compared calls": (30_000, 2500),
    "warnings of 2022": (10_000, 500),
    "strings": (1_000_000, 200),
    "settings": (100_000, 200),
}


class LeftOutError(Exception):
    """A record belongs to a frame or process that is only counted."""


class Room:
    """What was kept of each kind and what was only counted (`left`)."""

    def __init__(self) -> None:
        self.kept: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.used = 0

    def take(self, what: str, size: int = 0) -> bool:
        """Whether one more of this kind, with `size` bytes of text of its own, is kept; if not, it is counted."""
        most, weight = _KINDS[what]
        if self.kept[what] >= most or self.used > MOST_BYTES:
            self.left[what] += 1
            return False
        self.kept[what] += 1
        self.used += weight + size
        return True

    def fits(self, text: str, least: int) -> str:
        """A text as long as there is room, else its first `least` characters."""
        if self.used > MOST_BYTES:
            return text[:least]
        self.used += len(text)
        return text

    def notes(self) -> Iterator[str]:
        """One sentence a kind of which not all was kept."""
        for what, number in self.left.items():
            kept = self.kept[what]
            yield f"{kept:,} of {kept + number:,} {what} are shown; the others are only counted (docs/logs.md names the limits)"


def size_of(value: object) -> int:
    """About how many bytes a text, a tuple or a small dataclass of such holds."""
    if value is None:
        return 50
    if isinstance(value, str):
        return len(value) + 50
    if isinstance(value, Location):  # most of all
        return 250 + len(value.file) + len(value.function or "") + len(value.code or "")
    size = 50
    for item in value if isinstance(value, tuple) else [getattr(value, field) for field in getattr(type(value), "__slots__", ())]:
        size += len(item) + 50 if type(item) is str else size_of(item)
    return size
