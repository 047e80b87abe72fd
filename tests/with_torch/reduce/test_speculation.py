"""Questions judged ahead: what is asked, adopted and written down is the same at every width."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest
import torch

from dynadiag.children.forked import start_forked
from dynadiag.errors import DynadiagError, OutputError
from dynadiag.reduce.core import search
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.core.journal import Journal
from dynadiag.reduce.core.speculation import Pool, PoolOptions
from dynadiag.reduce.core.verdict import Verdict
from dynadiag.reduce.graphs.candidate import Candidate, candidate_of
from dynadiag.reduce.graphs.judge import IsolatedOracle
from dynadiag.reduce.graphs.reduction import GraphReducer, ReductionOptions, reduce_fully, reduce_graph
from dynadiag.reduce.graphs.running import eager_values, impossible
from dynadiag.reduce.graphs.setting import Setting

WIDTHS = (1, 2, 8)


def chain(x, w):
    for _ in range(6):
        x = torch.tanh(x @ w)
    y = torch.sinh(x)
    for _ in range(6):
        y = torch.sigmoid(y @ w + 2)
    return torch.cosh(y).sum(), x


def subject():
    torch.manual_seed(0)
    return candidate_of(torch.fx.symbolic_trace(chain), [torch.randn(6, 8), torch.randn(8, 8)])


class InVirtualTime:
    """An oracle whose answers take a time of their own, on a clock that only it moves: what was begun earlier is there earlier."""

    def __init__(self, width, needed):
        self.ahead, self.needed, self.clock = width - 1, needed, 0
        self.ends, self.begun = {}, 0

    def costs_a_child(self, candidate):
        return candidate.accelerated

    def begin(self, candidate):
        if candidate.key not in self.ends:
            self.begun += 1
            self.ends[candidate.key] = self.clock + 1 + int(hashlib.sha256(candidate.key.encode()).hexdigest(), 16) % 50

    def prepare(self, candidates):
        assert len(candidates) <= self.ahead + 1
        for one in candidates:
            self.begin(one)

    def judge(self, candidate):
        self.begin(candidate)
        self.clock = max(self.clock, self.ends[candidate.key])
        present = {node.target for node in candidate.module.graph.nodes}
        if self.needed <= present:
            return Verdict.INTERESTING, ""
        return (Verdict.BORING, "") if torch.sinh in present else (Verdict.DIFFERENT, f"other with {len(present) > 4}")

    def values(self, candidate):
        return eager_values(candidate)

    def impossible(self, candidate):
        return impossible(candidate)


class Remembering(GraphReducer):
    """Keeps what was adopted, in order."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.adopted_keys = []

    def offer(self, candidate, *args, **more):
        taken = super().offer(candidate, *args, **more)
        if taken:
            self.adopted_keys.append(candidate.key)
        return taken


def test_values_that_a_graph_draws_are_the_same_in_every_process():
    drawn = []
    for state in (1, 2):
        torch.manual_seed(state)
        drawn.append(eager_values(candidate_of(torch.fx.symbolic_trace(lambda x: torch.rand_like(x)), [torch.ones(2)]))["rand_like"])
        assert torch.initial_seed() == state
    assert torch.equal(*drawn)


@pytest.mark.parametrize("needed", [{torch.sinh}, {torch.sinh, torch.cosh}, {torch.sinh, torch.sigmoid, torch.tanh}])
def test_the_width_changes_nothing_but_the_time(needed, tmp_path):
    found = {}
    for width in WIDTHS:
        oracle = InVirtualTime(width, needed)
        journal = Journal(tmp_path / str(width), subject="test")
        reducer = Remembering(subject(), oracle, journal=journal, ahead=oracle)
        reducer.confirm()
        assert reduce_fully(reducer)
        journal.close()
        almost = None if reducer.almost is None else reducer.almost.key
        counts = dict(reducer.progress.queries), dict(reducer.other_failures)
        found[width] = (reducer.adopted_keys, reducer.best.text, almost, counts, (tmp_path / str(width)).read_bytes()), oracle
    assert found[1][0] == found[2][0] == found[8][0]
    clocks = [found[width][1].clock for width in WIDTHS]
    assert clocks[0] > clocks[1] > clocks[2]
    assert found[1][1].begun == sum(found[1][0][3][0].values())


def test_a_pass_that_breaks_is_noted_at_its_turn_at_every_width():
    def broken(candidate):
        yield Candidate(candidate.module, candidate.inputs[:1])
        raise KeyError("a bug in a pass")

    def never(candidate):
        return iter(())

    for passes, noted in (((never,), False), ((broken,), True)):
        oracle = InVirtualTime(8, {torch.sinh})
        reducer = GraphReducer(subject(), oracle, ahead=oracle)
        reduce_fully(reducer, passes=passes)
        assert ("broken" in reducer.broken_passes) is noted


def test_foreseen_questions_are_those_that_follow():
    """Whatever the answers are, the question after next is among the two that are foreseen first."""
    items = tuple(range(20))
    for needed in ({3}, {3, 17}, {1, 9, 18}):
        asked, answers, hits = [], [], []

        def fails(kept, needed=needed, asked=asked, answers=answers, hits=hits):
            hits.append(kept in asked[-1] if asked else True)
            foreseen = search.foresee(lambda f: search.cut(items, f), answers, chance=0.5)
            asked.append([next(foreseen, None), next(foreseen, None)])
            answers.append(needed <= kept)
            return answers[-1]

        assert set(search.cut(items, fails)) == needed and all(hits)
    assert list(search.foresee(lambda f: f(frozenset({1})), [], chance=0.5)) == []


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
FAULT = Failure(kind="compile_error", phase="compile")


def refuses_sinh(gm, inputs):
    """Small graphs take longest: so many turns of a loop, no sleep."""
    sum(range(1_000_000 // len(gm.graph.nodes)))
    if any(node.target is torch.sinh for node in gm.graph.nodes):
        raise ValueError("sinh cannot be lowered")
    return gm.forward


@needs_fork
def test_children_beside_each_other_end_at_the_same_graph(tmp_path):
    gm = torch.fx.symbolic_trace(lambda x: torch.cos(torch.cos(torch.sinh(torch.sin(torch.sin(x))))))
    found, before = {}, children_of_this_process()
    for width in (1, 8):
        options = ReductionOptions(timeout_s=600.0, journal=tmp_path / str(width), width=width, simplify=False)
        result = reduce_graph(candidate_of(gm, [torch.ones(3)]), Setting(backend=refuses_sinh, grad=False), options)
        assert result.complete and result.cpu_s > 0 and result.best.nodes == 3
        found[width] = result.best.text, (tmp_path / str(width)).read_bytes()
    assert found[1] == found[8] and len(found[1][1].splitlines()) > 4
    assert children_of_this_process() <= before


def children_of_this_process():
    """Numbers of its processes: earlier tests may have left some that belong to torch (workers that compile)."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


@needs_fork
def test_a_slot_is_given_to_what_comes_next_and_nothing_stays_behind():
    one, two, three = (candidate_of(torch.fx.symbolic_trace(lambda x, n=n: x + n), [torch.ones(1)]) for n in range(3))
    before = children_of_this_process()

    def work(candidate):
        def run(tell):
            if candidate is two:
                signal.pause()
            tell({"who": [one, two, three].index(candidate)})

        return run

    pool = Pool(work, PoolOptions(width=2, timeout_s=600.0))
    pool.prepare([one, two, three])
    assert pool.report(one).messages == ({"who": 0},)
    pool.prepare([three])
    assert pool.report(three).messages == ({"who": 2},) and pool.wasted == 1
    pool.prepare([one, three])
    pool.begin(two)
    pool.begin(one)
    pool.close()
    assert pool.wasted >= 2 and children_of_this_process() <= before


@needs_fork
def test_a_child_that_tells_much_holds_nobody_up():
    """More than a pipe holds: it is read while we wait for the other."""
    much = start_forked(lambda tell: [tell({"text": "x" * 100_000}) for _ in range(10)] and None, timeout_s=600.0)
    other = start_forked(lambda tell: tell({"done": True}), timeout_s=600.0, environment={"DYNADIAG_TEST": "1"})
    assert other.wait([much]).messages == ({"done": True},)
    report = much.wait()
    assert len(report.messages) == 10 and report.exit_status == 0 and not report.timed_out


@needs_fork
def test_a_flaky_failure_is_judged_one_at_a_time():
    oracle = IsolatedOracle(Setting(), FAULT, timeout_s=600.0, repeats=5, pool=PoolOptions(width=8))
    assert oracle.ahead == 0


@needs_fork
def test_a_disk_without_room_is_one_line(monkeypatch, tmp_path):
    import resource

    def small(candidate):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        return {"x": torch.ones(1000)}

    oracle = IsolatedOracle(Setting(), FAULT, timeout_s=600.0)
    monkeypatch.setattr("dynadiag.reduce.graphs.judge.eager_values", lambda candidate, grad: small(candidate))
    with pytest.raises(DynadiagError, match="the graph's values could not be stored: "):
        oracle.values(subject())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(OutputError, match="cannot create a folder for a child process: No such file"):
        start_forked(lambda tell: None, timeout_s=600.0)
