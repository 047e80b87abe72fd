"""The page about a real sweep, from its rows."""

from __future__ import annotations

from benchmarks.sweep_table import ARMS, page, without_machine
from tests.unit.sweep.sweep_builders import finding, row_of

COMMON = {"suite": "timm", "library": "1.0.31", "python": "3.11.7", "started_at": "2026-11-24T19:00:00+00:00", "cpu_s": 12.0}


def rows():
    breaking = finding(title="a | b", file="/x/.venv/lib/python3.11/site-packages/timm/layers/drop.py")
    for number, arm in enumerate(ARMS):
        given = {**COMMON, "arm": arm, "torch": arm.split()[1], "host": "somewhere"}
        yield row_of(f"a{number}", subject="timm:a", graphs=2 - number, break_sites=1 - number, recompiles=0,
                     findings=() if number else (breaking,), **given)  # fmt: skip
        yield row_of(f"b{number}", subject="timm:b", status="skipped", reason="no /home/me/b.py", **given)
    yield row_of("c", subject="timm:c", arm=ARMS[0], torch="2.11", graphs=1, break_sites=0, recompiles=0, **COMMON)


def test_the_page_says_what_changed_and_counts_only_models_of_both_arms():
    said = page([without_machine(row) for row in rows()])
    assert said.startswith("# A sweep of 2 models by two versions of torch")
    assert "| timm | 2.11 | 2 | 1 | 1 | 0 | 1 | 1 | 0 | 12 |" in said
    assert "| timm | 2.15 | 2 | 1 | 1 | 0 | 0 | 0 | 0 | 12 |" in said
    assert "1 of 2 models unchanged" in said
    assert "| timm a | better | GB0059 | a \\| b | - |" in said
    assert "| timm a | 1 / 0 (2) | 0 / 0 (1) |" in said
    assert "- timm b: no b.py" in said


def test_rows_lose_the_machine():
    first = without_machine(next(rows()))
    assert (first.host, first.findings[0].file) == (None, "timm/layers/drop.py")
