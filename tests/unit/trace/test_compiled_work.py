"""How much of a call runs compiled: from the record to the words, and why it is not known where it is not."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from dynadiag import report as reports
from dynadiag import trace
from dynadiag.facts import compiled_work as facts
from dynadiag.model.location import Location
from dynadiag.model.run import CompileCall
from dynadiag.render import json_report, wording
from dynadiag.render.terminal import print_summary


def record(**more):
    """Two graphs of 3 and 4 operators, 1 operator beside them; the frame of the first ended at a break."""
    return {"function": "f", "call": 3, "outside": 1, "regions": {"0/0": 1, "1/0": 1}, "graphs": {"0/0": [1, 3], "1/0": [1, 4]}, **more}


@pytest.fixture
def read(new_log, tmp_path):
    """A run of a process with two compiled frames and these records of calls."""

    def run(*works, times=(), parts=(), why=None, hooks=("compiled_work",), end=True):
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
        for one in parts:
            log.artifact("dynadiag_eager_method", one)
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
    assert wording.compiled_work(work) == "f: 1 graph break per call; 7 of 8 operators run compiled, in 2 graphs"
    entry = json_report.to_dict(reports.build(run))["compiled_work"]
    assert (entry["share"], entry["graphs_per_call"], entry["breaks_per_call"], entry["time_share"]) == (7 / 8, [2, 2], [1, 1], None)
    call = {"process": 0, "function": "f", "call": 3, "operators": 8, "operators_compiled": 7, "graphs": 2, "breaks": 1}
    assert entry["calls"] == [{**call, "eager_part": False}]


def test_the_lines_of_the_breaks_are_counted_where_they_are_known(read):
    run = read(record())
    (event,) = run.breaks
    known = replace(run, breaks=(replace(event, torch_frame=Location("/home/me/train.py", 4, "f")),))
    assert wording.compiled_work(facts.compiled_work(known)).startswith("f: 1 graph break per call at 1 line; 7 of 8")
    two = replace(known, breaks=(*known.breaks, replace(event, torch_frame=Location("/home/me/train.py", 5, "f"))))
    assert wording.compiled_work(facts.compiled_work(two)).startswith("f: 1 graph break per call; 7 of 8")


def test_one_call_each_of_several_functions_with_time(read):
    work = facts.compiled_work(
        read(record(), record(function="g", outside=900, regions={}, graphs={}), times=[{"graph_s": 1, "call_s": 4}])
    )
    assert wording.compiled_work(work) == (
        "One call each of 2 compiled functions: at most 1 graph break per call; 7 of 908 operators and 25 % of the time run compiled, in "
        "at most 2 graphs"
    )


def test_a_function_of_which_no_call_was_looked_at_is_counted(read):
    """`values` was compiled anew in each of its calls: what is said of the others is not said of it."""
    run = read(record(function="read"), record(function="grow"))
    frame = run.frames[0]
    given = CompileCall(process=0, location=None, target="f", backend=None, definition=Location(frame.file, frame.line))
    named = wording.compiled_work(facts.compiled_work(replace(run, compile_calls=(given,))))
    assert named.startswith("One call each of 2 of 3 compiled functions: ")
    never = replace(given, definition=Location("/home/me/other.py", 1))
    assert wording.compiled_work(facts.compiled_work(replace(run, compile_calls=(never,)))).startswith("One call each of 2 compiled")
    seen = replace(given, target="train.read")
    assert wording.compiled_work(facts.compiled_work(replace(run, compile_calls=(seen,)))).startswith("One call each of 2 compiled")
    in_place = replace(given, target="read._call_impl")  # `read.compile()` of a module
    assert wording.compiled_work(facts.compiled_work(replace(run, compile_calls=(in_place,)))).startswith("One call each of 2 compiled")
    alone = replace(read(record(function="read")), compile_calls=(given,))
    assert wording.compiled_work(facts.compiled_work(alone)).startswith("read (1 of 2 compiled functions): ")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"outside": 0, "regions": {}}, "f: 7 of 7 operators run compiled, in 2 graphs"),
        (
            {"graphs": {"0/0": [999, 1]}},
            "f: 1 graph break per call; 999 of 1,000 operators run compiled, in 999 graphs",
        ),
        ({"graphs": {}, "regions": {}}, "f: 0 of 1 operator run compiled"),
    ],
)
def test_neither_all_nor_none_is_said_where_it_is_not_so(read, more, words):
    assert wording.compiled_work(facts.compiled_work(read(record(**more)))) == words


def test_the_summary_says_it_once_and_before_the_counts(read):
    stream = io.StringIO()
    print_summary(reports.build(read(record())), Console(file=stream, width=120))
    lines = stream.getvalue().split("\n")
    assert lines[0].startswith("f: 1 graph break per call; 7 of 8 operators run compiled")
    assert "operators run compiled" not in "\n".join(lines[1:])


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


def part(function="Net.loss", **more):
    """One call of a method of a compiled module, of 5 operators."""
    place = {"file": "/home/me/train.py", "line": 9, "function": "<module>", "code": "net.loss(x)"}
    return {"number": 0, "function": function, "kind": "method", "call": 2, "operators": 5, "calls": 2, "stack": [place], **more}


def test_parts_of_a_compiled_module_that_are_called_by_themselves_count_as_eager(read):
    run = read(record(regions={}), parts=[part(), part(calls=30), part("Net.count", number=1, operators=0)])
    work = facts.compiled_work(run)
    assert (work.operators, work.compiled, work.functions, work.graphs, work.eager) == (13, 7, 1, (2, 2), ("Net.loss",))
    assert wording.compiled_work(work) == (
        "One call each of f and of Net.loss, which runs eagerly: 7 of 13 operators run compiled, in 2 graphs"
    )
    (finding,) = (one for one in reports.build(run).findings if one.code == "DF15")
    assert (finding.where.line, finding.severity, finding.cost.value) == (9, "warning", 5)
    assert finding.why.startswith(
        "Called 30 times. One of these calls was counted: it ran 5 operators, none of them compiled; of all 13 operators counted, 7 run "
        "compiled."
    )


def test_a_small_part_is_a_note_and_no_share_is_told_without_a_compiled_call(read):
    (finding,) = (one for one in reports.build(read(record(outside=90), parts=[part()])).findings if one.code == "DF15")
    assert finding.severity == "note"
    run = read(parts=[part(code="x")], why="no second call")
    assert (facts.compiled_work(run), facts.why_no_work(run)) == (None, "no second call")
    assert "of all" not in next(one for one in reports.build(run).findings if one.code == "DF15").why


@pytest.mark.parametrize(
    ("lines", "change"),
    [
        (['net = torch.compile(Net(), backend="aot_eager")'], 'net.loss = torch.compile(net.loss, backend="aot_eager")'),
        (["net.compile(dynamic=True, mode=MODE)"], "net.loss = torch.compile(net.loss, dynamic=True, mode=MODE)"),
        (["net = torch.compile(Net())"], "net.loss = torch.compile(net.loss)"),
        (['net = torch.compile(Net(), backend="eager")', "ema = torch.compile(Net())"], "net.loss = torch.compile(net.loss)"),
        (["net = torch.compile("], "net.loss = torch.compile(net.loss)"),  # the arguments are on other lines
    ],
)
def test_a_method_is_compiled_with_what_its_module_is(read, lines, change):
    places = [Location("/home/me/train.py", number, "<module>", line) for number, line in enumerate(lines, 3)]
    calls = tuple(CompileCall(process=0, location=place, target="Net", backend=None) for place in places)
    run = replace(read(record(), parts=[part()]), compile_calls=calls)
    (advice,) = next(one for one in reports.build(run).findings if one.code == "DF15").fix
    assert advice.after == change
    assert ("with what `torch.compile` is given" in advice.text) == (len(lines) > 1 or lines[0].endswith("("))


@pytest.mark.parametrize("odd", [{"operators": -1}, {"number": None}, {"calls": "many"}, {"call": True}])
def test_a_mistyped_record_of_a_part_is_counted_as_skipped(read, odd):
    run = read(record(), parts=[part(**odd)])
    assert [one.eager for one in run.work] == [None]
    assert run.processes[0].skipped
