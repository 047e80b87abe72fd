"""No pass goes through a list of the run once for each finding, frame or event: that is quadratic, and a log may be a stranger's."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dynadiag import report, trace
from dynadiag.model.run import Run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from hostile_logs import ATTACKS  # noqa: E402

_SMALL, _LARGE = 1, 4


def test_passes_read_a_run_as_often_whatever_its_length(tmp_path: Path) -> None:
    small, large = (_readings(tmp_path / f"{blocks}.log", blocks) for blocks in (_SMALL, _LARGE))
    more = {name: (count, large[name]) for name, count in small.items() if large[name] > count + 3}
    assert not more, f"read more often in a log {_LARGE} times as long: {more}"


def _readings(log: Path, blocks: int) -> Counter[str]:
    """How often each list of the run is gone through."""
    log.write_bytes(b"".join(islice(ATTACKS["mixed"](), blocks + 1)))
    run = trace.load(log)
    assert len(run.frames) >= blocks * 64 * 5
    counts: Counter[str] = Counter()
    counted = {one.name: _Counted(value, one.name, counts) for one in fields(Run) if type(value := getattr(run, one.name)) is tuple}
    found = report.build(replace(run, **counted))
    assert not any("internal error" in note for note in found.notes), found.notes
    assert {finding.code[:2] for finding in found.findings} >= {"DF", "DM", "DC", "DR", "GB"}
    return counts


class _Counted(tuple[Any, ...]):
    """A tuple that counts how often somebody goes through it."""

    def __new__(cls, values: tuple[Any, ...], name: str, counts: Counter[str]) -> _Counted:
        made = super().__new__(cls, values)
        made.name, made.counts = name, counts
        return made

    name: str
    counts: Counter[str]

    def __iter__(self) -> Iterator[Any]:
        self.counts[self.name] += 1
        return super().__iter__()
