"""What hostile logs cost grows with their length only: no pass goes through a list of the run once for each finding or frame."""

from __future__ import annotations

import cProfile
import functools
import gzip
import io
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.hostile_logs import ATTACKS, artifact, problem, start
from dynadiag import report, trace
from dynadiag.model.report import Report
from dynadiag.model.run import CompileKey, Run
from dynadiag.passes.recompile_causes import _writing
from dynadiag.passes.transitions import _in_order
from dynadiag.render import json_report, markdown
from dynadiag.render.html import report_page
from dynadiag.render.terminal import print_report, print_summary
from dynadiag.trace import payloads
from dynadiag.trace.pasted_text import split_line, strip_prefixes

_SMALL, _LARGE = 1, 4
_LINES = (
    "",
    "    a = b + c",
    "class G(torch.nn.Module):",
    "torch.foo: [INFO] x",
    "V0101 10:00:00.000000 77 torch/_dynamo/x.py:1] [0/0] [__graph_code] y",
    "[2024-01-01 10:00:00,000] [0/0] torch._dynamo.x.__graph_code: [DEBUG] z",
    "WARNING:torch._dynamo:w",
    "2024-01-01 10:00:00 [INFO] torch.x: v",
)


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
    _render(found)
    assert not any("internal error" in note for note in found.notes), found.notes
    assert {finding.code[:2] for finding in found.findings} >= {"DF", "DM", "DC", "DR", "GB"}
    return counts


def _render(found: Report) -> None:
    """All that a person is shown of a report."""
    print_report(found, Console(file=io.StringIO(), width=100))
    print_summary(found, Console(file=io.StringIO(), width=100))
    markdown.render(found)
    report_page.render(found)


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


@pytest.mark.parametrize(
    "attack",
    [
        "mixed",
        "recompiles",
        "recompile_sources",
        "break_sites",
        "side_effects_frames",
        "errors",
        "text_breaks_ids",
        "text_recompiles_functions",
    ],
)
def test_no_function_is_called_more_often_than_the_log_is_longer(tmp_path: Path, attack: str) -> None:
    small, large = (_calls(tmp_path / f"{blocks}.log", attack, blocks) for blocks in (_SMALL, _LARGE))
    more = {
        name: (small[name], count) for name, count in large.items() if count > (small[name] + 20) * _LARGE * 2
    }  # twice: caches overflow
    assert not more, f"(calls, calls for a log {_LARGE} times as long): {more}"


def test_many_values_of_one_guard_are_told_apart_without_comparing_each_with_all() -> None:
    compared = 0

    class Value(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == str(other)

    assert len(_in_order({(0, number): Value(number) for number in range(1000)}, set())) == 1000
    assert compared < 10_000
    assert _in_order({(0, 1): "3", (0, 2): "4", (0, 3): "3", (0, 4): "3"}, {(0, 3), (0, 4)}) == ("3", "4", "3")


def test_the_functions_that_change_objects_are_found_without_looking_at_all_frames_for_each(tmp_path: Path) -> None:
    hashed = 0

    class Id(str):
        __eq__ = str.__eq__

        def __hash__(self) -> int:
            nonlocal hashed
            hashed += 1
            return str.__hash__(self)

    log = tmp_path / "changes.log"
    log.write_bytes(b"".join(islice(ATTACKS["side_effects_frames"](), 3)))
    run = trace.load(log)
    assert len(run.frames) == len(run.mutation_records) == 128
    _writing(replace(run, frames=tuple(replace(frame, id=Id(frame.id)) for frame in run.frames)))
    assert hashed < 10 * 128


def _calls(log: Path, attack: str, blocks: int) -> Counter[str]:
    """How often each function of ours is called, and each generator resumed, to make a report of a log."""
    log.write_bytes(b"".join(islice(ATTACKS[attack](), blocks + 1)))
    # What an earlier test left in a cache is not called again for the small log, and for the large one it is.
    for module in [module for name, module in sys.modules.items() if name.startswith("dynadiag")]:
        for holder in [module, *(one for one in vars(module).values() if isinstance(one, type))]:
            for cached in vars(holder).values():
                if isinstance(cached, functools._lru_cache_wrapper) and cached.__module__.startswith("dynadiag"):
                    cached.cache_clear()
    before = sys.getprofile()
    sys.setprofile(None)
    profile = cProfile.Profile(builtins=False)
    try:
        profile.runcall(_whole_report, log)
    finally:
        sys.setprofile(before)
    counts: Counter[str] = Counter()
    for one in profile.getstats():
        if isinstance(code := one.code, CodeType) and "/dynadiag/" in code.co_filename:
            counts[f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"] += one.callcount
    return counts


def _whole_report(log: Path) -> None:
    found = report.build(trace.load(log))
    json_report.dumps(found)
    _render(found)


def test_the_rows_of_one_code_object_are_not_compared_with_all_its_compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[int] = Counter()
    text = CompileKey.text

    def counted(key: CompileKey) -> str:
        asked[0] += 1
        return text.fget(key)  # type: ignore[attr-defined]

    monkeypatch.setattr(CompileKey, "text", property(counted))
    often = []
    for blocks in (_SMALL, _LARGE):
        log = tmp_path / f"{blocks}.log"
        log.write_bytes(b"".join(islice(ATTACKS["recompile_sources"](), blocks + 1)))
        asked.clear()
        found = report.build(trace.load(log))
        assert len(found.recompiles) == blocks * 64
        often.append(asked[0])
    assert often[1] < often[0] * _LARGE * 1.5


def test_of_a_recompile_the_newest_failed_guards_are_shown_and_the_others_told(tmp_path: Path) -> None:
    reasons = [f"0/{n}: L['x'] == {n}  # train.py:4 in f" for n in range(1000, 0, -1)]
    log = tmp_path / "many.log"
    log.write_bytes(start(0) + artifact("recompile_reasons", reasons, 0, 1001) + start(0, 1001))
    run = trace.load(log)
    assert len(run.recompiles[0].reasons) == 300
    assert run.recompiles[0].reasons[0] == reasons[0]
    assert "of recompiles with more than 300 failed guards the first 300 are shown" in run.notes


def test_the_exceptions_that_ended_a_process_are_counted_beyond_the_first_twenty(tmp_path: Path) -> None:
    log = tmp_path / "ended.log"
    log.write_bytes(start(0) + b"".join(problem("uncaught", f"RuntimeError: {n}", 0, n) for n in range(50)))
    run = trace.load(log)
    assert len(run.problems) == 20
    assert any(note.startswith("20 of 50 problems are shown") for note in run.notes)


def test_payloads_of_a_packed_log_are_unpacked_once(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.log", tmp_path / "a.log.gz"
    plain.write_bytes(b"".join(islice(ATTACKS["graphs"](), 2)))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    before = payloads._unpacked.cache_info().misses
    runs = [trace.load(log) for log in (plain, packed)]
    texts = [[trace.read_payload(graph.text) for graph in run.graphs if graph.text is not None] for run in runs]
    assert texts[0] == texts[1]
    assert len(texts[1]) >= 64
    assert payloads._unpacked.cache_info().misses == before + 1


@given(st.lists(st.sampled_from([*_LINES, *(f"[rank1]: {line}" for line in _LINES), " 3: a", "\x1b[31mx", "   [x-1]: b"])))
def test_a_text_without_prefixes_stays_as_it_is(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert strip_prefixes(text) == "\n".join(split_line(line)[1] for line in lines)
