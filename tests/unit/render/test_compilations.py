"""The page's sections on single compilations say what the records say, and no more."""

from dataclasses import replace

import pytest

from dynadiag.model.compiled import CacheEvent
from dynadiag.model.location import Location
from dynadiag.model.run import Symbol
from dynadiag.render.html import compilations
from tests.unit.render.page_samples import rich_report
from tests.unit.render.test_timeline import cells


@pytest.fixture
def report(tmp_path):
    return rich_report(tmp_path)


def with_run(report, **changes):
    return replace(report, run=replace(report.run, **changes))


def test_compilations_stand_below_their_stacks(report):
    shared, torch = Location("/home/me/proj/train.py", 90, "main", "step()"), Location("/opt/env/site-packages/torch/nn/module.py", 3, "f")
    frames = [replace(frame, callers=(shared, torch, Location("/home/me/proj/a.py", at % 2))) for at, frame in enumerate(report.run.frames)]
    html = compilations.stacks(with_run(report, frames=tuple(frames)))["html"]
    assert html.count("train.py:90 in main") == 1 and "torch/nn" not in html
    assert html.index("a.py:0") < html.index('href="#f2"') < html.index("a.py:1") < html.index('href="#f1"')


def test_a_deep_or_wide_trie_is_bounded(report, monkeypatch):
    deep = tuple(Location(f"/home/me/{at}.py", at) for at in range(190))
    frames = [replace(report.run.frames[0], id=f"f{at}", callers=deep[: at + 1]) for at in range(190)]
    assert "Deeper calls are in report.json" in compilations.stacks(with_run(report, frames=tuple(frames)))["html"]
    monkeypatch.setattr(compilations, "NODES_AT_MOST", 20)
    assert compilations.stacks(with_run(report, frames=tuple(frames)))["left"].startswith("180 more compilations")


def test_a_symbol_says_where_it_became_a_constant(report):
    symbols = (
        Symbol(frame="f3", symbol="s77", source="L['x'].size()[0]", value="12", range="[2, int_oo]", specialized=True),
        Symbol(frame="f0", symbol="s1", source="L['y'].size()[1]", value=None, specialized=True),
        Symbol(frame="f0", symbol="s2", source="L['n']", value="3"),
    )
    symbols_of, conditions = compilations.shapes(with_run(report, symbols=symbols))
    last = [(row[1], row[2], row[5]) for row in cells(symbols_of)]
    assert last == [
        ("s77", "x.size(0)", "12 at train.py:12 in forward: if x.shape[0] == 12: (range_refined_to_singleton)"),
        ("s1", "y.size(1)", "it did; the log does not say where"),
        ("s2", "n", ""),
        ("u0", "depends on data", "made: no line recorded"),
    ]
    assert cells(conditions) == [["f3 forward [3/0]", "s77 <= 4096", "no line of the program"]]


def test_caches_and_metrics(report):
    found = compilations.caches(
        with_run(report, caches=(*report.run.caches, CacheEvent(frame="f0", cache="fx_graph", result="bypass", why="why")))
    )
    assert [row[1:] for row in cells(found)] == [
        ["fx graph", "miss", "1", ""],
        ["fx graph", "hit", "1", ""],
        ["fx graph", "bypass", "1", "why"],
    ]
    table = compilations.metrics(report)
    assert [column["heading"] for column in table["columns"]] == ["compilation", "in all", "Dynamo", "guards (torch's count)"]
    assert cells(table)[0] == ["f0 train_step [0/0]", "1.25 s", "0.50 s", "12"]


def test_a_run_without_these_records_has_none_of_it(samples):
    report = samples.empty_report()
    assert [compilations.stacks(report), compilations.shapes(report), compilations.caches(report), compilations.metrics(report)] == [
        None,
        [],
        None,
        None,
    ]
