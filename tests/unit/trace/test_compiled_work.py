"""How much of a call runs compiled: from the record to the words, and why it is not known where it is not."""

import io
import json

import pytest
from rich.console import Console

from dynadiag import report as reports
from dynadiag import trace
from dynadiag.facts import compiled_work as facts
from dynadiag.render import json_report, wording
from dynadiag.render.terminal import print_summary


def record(**more):
    """Two graphs of 3 and 4 operators, 1 operator beside them; the frame of the first ended at a break."""
    return {"function": "f", "call": 3, "outside": 1, "regions": {"0/0": 1, "1/0": 1}, "graphs": {"0/0": [1, 3], "1/0": [1, 4]}, **more}


@pytest.fixture
def read(new_log, tmp_path):
    """A run of a process with two compiled frames and these records of calls."""

    def run(*works, times=(), why=None, hooks=("compiled_work",), end=True):
        log = new_log(7).artifact("dynadiag_environment", {"pid": 7, "argv": ["train.py"], "torch": "2.15.0"})
        log.artifact("dynadiag_hooks", dict.fromkeys(hooks, "ok")).intern("/home/me/train.py")
        log.start(0).artifact(
            "dynamo_graph_break_reason",
            'Data-dependent branching\nUser code traceback:\n  File "/home/me/train.py", line 4, in f\n',
            frame=0,
        )
        log.metrics(0).start(1, name="torch_dynamo_resume_in_f_at_4", line=4).metrics(1)
        for one in works:
            log.artifact("dynadiag_compiled_work", one)
        for one in times:
            log.artifact("dynadiag_compiled_time", one)
        if end:
            log.artifact("dynadiag_exit", {"counters": {}, "no_compiled_work": why})
        return trace.load(log.write(tmp_path))

    return run


def test_operators_graphs_and_breaks_of_a_call(read):
    run = read(record())
    work = facts.compiled_work(run)
    assert (work.operators, work.compiled, work.graphs, work.breaks, work.functions, work.time) == (8, 7, (2, 2), (1, 1), 1, None)
    assert (
        wording.compiled_work(work)
        == "87 % of the operators of a call of f run compiled (7 of 8), in 2 graphs per call; each call stops once at a graph break"
    )
    entry = json_report.to_dict(reports.build(run))["compiled_work"]
    assert (entry["share"], entry["graphs_per_call"], entry["breaks_per_call"], entry["time_share"]) == (7 / 8, [2, 2], [1, 1], None)
    assert entry["calls"] == [{"process": 0, "function": "f", "call": 3, "operators": 8, "operators_compiled": 7, "graphs": 2, "breaks": 1}]


def test_one_call_each_of_several_functions_with_time(read):
    work = facts.compiled_work(
        read(record(), record(function="g", outside=900, regions={}, graphs={}), times=[{"graph_s": 1, "call_s": 4}])
    )
    assert wording.compiled_work(work) == (
        "less than 1 % of the operators of a call and 25 % of its time run compiled (7 of 908, one call each of 2 compiled functions), "
        "in 0 to 2 graphs per call; each call stops at most once at a graph break"
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"outside": 0, "regions": {}}, "100 % of the operators of a call of f run compiled (7 of 7), in 2 graphs per call"),
        (
            {"graphs": {"0/0": [999, 1]}},
            "99 % of the operators of a call of f run compiled (999 of 1,000), in 999 graphs per call; "
            "each call stops once at a graph break",
        ),
        ({"graphs": {}, "regions": {}}, "0 % of the operators of a call of f run compiled (0 of 1)"),
    ],
)
def test_neither_all_nor_none_is_said_where_it_is_not_so(read, more, words):
    assert wording.compiled_work(facts.compiled_work(read(record(**more)))) == words


def test_the_summary_says_it_once_and_before_the_counts(read):
    stream = io.StringIO()
    print_summary(reports.build(read(record())), Console(file=stream, width=120))
    lines = stream.getvalue().split("\n")
    assert lines[0].startswith("87 % of the operators of a call of f run compiled")
    assert "operators of a call" not in "\n".join(lines[1:])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"why": "a profiler was running"}, "a profiler was running"),
        ({}, facts.NO_CALL),
        ({"end": False}, facts.CUT_SHORT),
        ({"hooks": ()}, facts.NO_CALL),
    ],
)
def test_why_it_is_not_known(read, options, why):
    run = read(**options)
    assert facts.compiled_work(run) is None
    entry = json_report.to_dict(reports.build(run))
    assert (entry["compiled_work"], entry["compiled_work_why"]) == (None, why)


def test_a_foreign_log_does_not_say(log, tmp_path):
    run = trace.load(log.intern("/home/me/train.py").start(0).metrics(0).write(tmp_path))
    assert facts.why_no_work(run) == facts.FOREIGN


@pytest.mark.parametrize(
    "bad",
    [
        {"call": "x"},
        {"outside": -1},
        {"graphs": {"0/0": [1]}},
        {"graphs": {"0/0": [1, "2"]}},
        {"graphs": {"0/0": 5}},
    ],
)
def test_a_mistyped_record_is_counted_and_left_out(read, bad):
    run = read(record(**bad))
    assert run.work == ()
    assert sum(run.processes[0].skipped.values()) == 1


def test_regions_that_no_frame_has_are_left_out(read):
    run = read(record(regions={"0/0": 2, "9/9": 1, "!0/1/0": 1, "1/" + "9" * 5000: 1, "x": 1}))
    assert run.work[0].regions == {"f0": 2}
    assert json.loads(json_report.dumps(reports.build(run)))["compiled_work"]["breaks_per_call"] == [2, 2]
