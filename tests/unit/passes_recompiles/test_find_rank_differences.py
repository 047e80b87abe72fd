"""Ranks compared by what happened and where, never by ids; children of ranks are no ranks."""

from pathlib import Path

import pytest

from dynadiag.model.digest import rank_numbers
from dynadiag.model.graph import Graph
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, CompileKey, Frame, GuardSet, Problem, Process, RecompileEvent, Run, RunInfo
from dynadiag.passes.find_rank_differences import find_rank_differences, main_processes, odd_ones

FOREIGN = Path(__file__).parents[4] / "shared" / "traces" / "multi_rank_logs"


def ranks(count, **facts):
    return tuple(Process(index=i, log=f"rank_{i}.log", rank=i, pid=100 + i, **facts) for i in range(count))


class Maker:
    """A run that grows rank by rank."""

    def __init__(self, processes):
        self.processes, self.frames, self.breaks, self.recompiles, self.graphs = processes, [], [], [], []

    def frame(self, process, *, compile=0, outcome="compiled", line=10):
        frame = Frame(
            id=f"f{len(self.frames)}",
            key=CompileKey(process, 0, line, compile),
            attempts=1,
            name="step",
            file="/p/train.py",
            line=line,
            outcome=outcome,
        )
        self.frames.append(frame)
        self.graphs.append(Graph(id=f"g{len(self.graphs)}", frame=frame.id, kind="dynamo", attempt=0, nodes=3, ops={}, text=None))
        return frame.id

    def broke(self, frame, line=14):
        where = Location("/p/train.py", line, "step", "print(x)")
        event = BreakEvent(
            frame=frame,
            attempt=0,
            gb_id="GB0001",
            gb_type="print",
            explanation=None,
            hints=(),
            context=None,
            stack=(where,),
            torch_frame=where,
        )
        self.breaks.append(event)

    def run(self):
        return Run(
            info=RunInfo(cwd="/p"),
            processes=self.processes,
            frames=tuple(self.frames),
            breaks=tuple(self.breaks),
            recompiles=tuple(self.recompiles),
            graphs=tuple(self.graphs),
        )


def test_equal_ranks_have_no_differences():
    made = Maker(ranks(3, finished=True))
    for process in range(3):
        made.broke(made.frame(process))
    found = find_rank_differences(made.run())
    assert (found.ranks, found.findings, found.notes) == ((), (), ())


def test_the_odd_rank_of_three_is_named():
    made = Maker(ranks(3))
    for process in range(3):
        frame = made.frame(process)
        for _ in range(2 if process == 2 else 1):
            made.broke(frame)
    found = find_rank_differences(made.run())
    (difference,) = found.ranks
    assert difference.values == {"rank 0": "1 event", "rank 1": "1 event", "rank 2": "2 events"}
    assert difference.odd_ranks == (2,)
    assert found.findings[0].code == "DX01"
    assert found.findings[0].title == "Ranks have different graph breaks: rank 2 differs from the others"
    assert found.findings[0].evidence == ("d1",)


def test_of_two_ranks_neither_is_the_odd_one():
    made = Maker(ranks(2))
    made.broke(made.frame(0))
    made.frame(1)
    difference = find_rank_differences(made.run()).ranks[0]
    assert difference.values == {"rank 0": "1 event", "rank 1": "0 events"}
    assert difference.odd_ranks == ()


def test_recompiles_and_graphs_are_compared():
    made = Maker(ranks(3))
    for process in range(3):
        made.frame(process)
    again = made.frame(1, compile=1)
    made.recompiles.append(RecompileEvent(frame=again, reasons=("10/0: tensor 'x' size mismatch at index 0. expected 4, actual 8",)))
    found = find_rank_differences(made.run())
    assert {finding.code for finding in found.findings} == {"DX02", "DX03"}
    recompile = next(one for one in found.ranks if one.what.startswith("recompile"))
    assert recompile.what == "recompile of step (train.py:10) because of x.size(0)"
    assert recompile.odd_ranks == (1,)


def test_the_same_recompile_with_other_sizes_is_no_difference():
    made = Maker(ranks(2))
    for process, new in enumerate((8, 16)):
        made.frame(process)
        again = made.frame(process, compile=1)
        made.recompiles.append(
            RecompileEvent(frame=again, reasons=(f"10/0: tensor 'x' size mismatch at index 0. expected 4, actual {new}",))
        )
    assert find_rank_differences(made.run()).ranks == ()


def test_a_killed_rank_is_said_and_explains_smaller_counts():
    processes = tuple(Process(index=i, log=f"{i}.log", rank=i, pid=i + 1, finished=i != 1) for i in range(2))
    made = Maker(processes)
    made.broke(made.frame(0))
    made.frame(1)
    found = find_rank_differences(made.run())
    cut = next(one for one in found.ranks if one.what == "end of the log")
    assert (cut.values, cut.odd_ranks) == ({"rank 0": "complete", "rank 1": "cut short"}, (1,))
    texts = {finding.code: finding.why for finding in found.findings}
    assert "killed, exited with os._exit or is still running" in texts["DX04"]
    assert "The log of rank 1 ends early, which alone can explain smaller counts there." in texts["DX01"]


def test_an_exception_of_another_rank_is_said_as_cause_or_effect():
    processes = tuple(Process(index=i, log=f"{i}.log", rank=i, pid=i + 1, finished=i == 1) for i in range(2))
    where = Location("/p/train.py", 20, "<module>", "raise ValueError")
    problem = Problem(kind="uncaught", process=1, text="ValueError: rank one is ill", stack=(where,))
    found = find_rank_differences(Run(info=RunInfo(cwd="/p", exit_status=1), processes=processes, problems=(problem,)))
    (finding,) = found.findings
    assert "It was killed or exited with os._exit, so what happened there" in finding.why
    assert "Rank 1 ended with an exception at train.py:20 (ValueError: rank one is ill). Which happened first is not known" in finding.why


def test_logs_without_an_end_record_say_nothing_of_the_end():
    made = Maker(ranks(2, finished=False))
    assert find_rank_differences(made.run()).ranks == ()


def test_workers_of_a_rank_are_left_out():
    processes = (
        Process(index=0, log="a", rank=0, pid=10, parent_pid=1),
        Process(index=1, log="b", rank=0, pid=11, parent_pid=10),
        Process(index=2, log="c", rank=1, pid=20, parent_pid=1),
        Process(index=3, log="d", pid=1),
    )
    found, notes = main_processes(Run(info=RunInfo(), processes=processes))
    assert {rank: process.index for rank, process in found.items()} == {0: 0, 1: 2}
    assert notes == ()


def test_a_rank_that_was_started_twice_is_noted():
    processes = (Process(index=0, log="a", rank=0, pid=1), Process(index=1, log="b", rank=0, pid=2))
    _, notes = main_processes(Run(info=RunInfo(), processes=processes))
    assert notes == ("Rank 0 was recorded 2 times (restarted?); the first record is compared with the other ranks.",)


def test_processes_without_ranks_are_not_compared():
    made = Maker((Process(index=0, log="a"), Process(index=1, log="b")))
    made.broke(made.frame(0))
    assert find_rank_differences(made.run()).ranks == ()


def test_versions_and_options_are_compared():
    processes = tuple(
        Process(index=i, log=f"{i}", rank=i, torch="2.15.0" if i else "2.11.0", config={"dynamo": {"verbose": True} if i == 2 else {}})
        for i in range(3)
    )
    found = find_rank_differences(Run(info=RunInfo(), processes=processes))
    assert {one.what: one.odd_ranks for one in found.ranks} == {"torch version": (0,), "options of torch": (2,)}
    assert found.findings[0].code == "DX05"


@pytest.mark.parametrize(
    ("values", "odd"),
    [({0: 1, 1: 1, 2: 3}, (2,)), ({0: 1, 1: 2}, ()), ({0: 1, 1: 1, 2: 2, 3: 2}, ()), ({0: 5, 1: 1, 2: 1, 3: 1}, (0,)), ({0: 1, 1: 1}, ())],
)
def test_the_odd_one_is_outside_a_majority(values, odd):
    assert odd_ones(values) == odd


@pytest.mark.skipif(not FOREIGN.is_dir(), reason="the foreign logs are not here")
def test_foreign_logs_of_four_ranks():
    from dynadiag.trace import load

    found = find_rank_differences(load(FOREIGN))
    recompile = next(one for one in found.ranks if one.what.startswith("recompile"))
    assert recompile.values == {"rank 0": "0 recompiles", "rank 1": "14 recompiles", "rank 2": "0 recompiles", "rank 3": "6 recompiles"}
    assert recompile.odd_ranks == ()


def guarded(process, *codes, count=9, compile=0):
    guards = GuardSet(count=count, by_kind={"EQUALS_MATCH": len(codes)}, values=codes)
    key = CompileKey(process, 0, 0, compile)
    return Frame(id=f"f{process}", key=key, attempts=1, name="step", file="/p/train.py", line=3, outcome="compiled", guards=guards)


def test_a_guard_value_that_differs_on_one_rank_is_found():
    frames = tuple(guarded(rank, f"L['self'].n == {3 if rank == 2 else 4}", "len(L['self'].blocks) == 2") for rank in range(4))
    result = find_rank_differences(Run(info=RunInfo(cwd="/p"), processes=ranks(4), frames=frames))
    (one,) = [row for row in result.ranks if "value of" in row.what]
    assert one.what == "value of `self.n` guarded in step (train.py:3)"
    assert one.values == {"rank 0": "4", "rank 1": "4", "rank 2": "3", "rank 3": "4"} and one.odd_ranks == (2,)
    (finding,) = [finding for finding in result.findings if finding.code == "DX06"]
    assert "rank 2: 3" in finding.why and "rank 2 differs from the others" in finding.title


def test_equal_guard_values_say_nothing_and_own_values_of_each_rank_make_none_odd():
    same = tuple(guarded(rank, "L['self'].n == 4") for rank in range(3))
    assert not find_rank_differences(Run(info=RunInfo(cwd="/p"), processes=ranks(3), frames=same)).ranks
    own = tuple(guarded(rank, f"L['self'].rank == {rank}") for rank in range(4))
    (one,) = find_rank_differences(Run(info=RunInfo(cwd="/p"), processes=ranks(4), frames=own)).ranks
    assert one.odd_ranks == ()


def test_4096_ranks_are_told_in_few_words():
    frames = tuple(guarded(rank, f"L['self'].n == {3 if rank == 1000 else 4}") for rank in range(4096))
    result = find_rank_differences(Run(info=RunInfo(cwd="/p"), processes=ranks(4096), frames=frames))
    (one,) = result.ranks
    assert one.values == {"ranks 0 to 999, 1001 to 4095": "4", "rank 1000": "3"} and one.odd_ranks == (1000,)
    assert len(result.findings[0].why) < 500


def test_ranks_are_numbered_once():
    assert rank_numbers([5, 0, 1, 2, 7, 8]) == "0 to 2, 5, 7, 8"
    assert rank_numbers(range(0, 40, 2)) == "0, 2, 4, 6, 8, 10, 12, 14 and 12 more"
