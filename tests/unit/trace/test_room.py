"""What lies beyond the room for a log is counted exactly and said; what is kept is as it would be without limits."""

import json

import pytest

from dynadiag.facts import user_frames
from dynadiag.passes import find_mutations
from dynadiag.report import build
from dynadiag.trace import load, room, torch_records
from dynadiag.trace.pasted_text import split_line
from dynadiag.trace.room import Room
from dynadiag.trace.text_log import TextReader
from dynadiag.trace.values import BadRecordError, parse_json, shallow

HEAD = "V0101 10:00:00.000000 {} torch/_dynamo/x.py:1] "
BREAK = 'Graph break in user code at /home/u/train.py:{0}\nGraph Break Reason: r\nUser code traceback:\n  File "/home/u/train.py", line {0}'


def start(frame, pid=7, name="f"):
    return (
        HEAD.format(pid)
        + f'{{"dynamo_start": {{"stack": [{{"line": 3, "name": "{name}"}}]}}, "frame_id": {frame}, "frame_compile_id": 0}}\n'
    )


def artifact(name, frame, payload):
    header = f'{{"artifact": {{"name": "{name}"}}, "frame_id": {frame}, "frame_compile_id": 0}}\n'
    return HEAD.format(7) + header + "\t" + payload.replace("\n", "\n\t") + "\n"


@pytest.fixture
def narrow(monkeypatch):
    def limit(**most):
        for name, number in most.items():
            kind = name.replace("_", " ")
            monkeypatch.setitem(room._KINDS, kind, (number, room._KINDS[kind][1]))

    return limit


def read(tmp_path, text, name="a.log"):
    path = tmp_path / name
    path.write_text(text)
    return build(load(path))


def test_frames_and_their_breaks_beyond_the_room_are_counted(tmp_path, narrow):
    narrow(frames=3)
    text = "".join(start(number) + artifact("dynamo_graph_break_reason", number, BREAK.format(number)) for number in range(10))
    report = read(tmp_path, text)
    assert len(report.run.frames) == 3 and report.summary.frames == 10
    assert report.summary.graph_break_events == 10 and len(report.graph_breaks) == 3
    assert any("3 of 10 frames are shown" in note for note in report.notes)
    assert any("3 of 10 graph break events are shown" in note for note in report.notes)


def test_nothing_is_said_below_the_limits(tmp_path):
    report = read(tmp_path, "".join(start(number) for number in range(10)))
    assert report.run.left_out == {} and not any("only counted" in note for note in report.notes)


def test_processes_beyond_the_room_are_counted_once_each(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "MOST_PROCESSES", 4)
    text = "".join(start(0, pid=pid) for pid in [*range(1, 11), *range(1, 11)])
    report = read(tmp_path, text)
    assert len(report.run.processes) == 4 and report.summary.processes == 10
    assert report.run.left_out["records"] == 12


def test_a_forked_process_knows_the_strings_of_the_first_and_its_own(tmp_path):
    strings = HEAD.format(7) + '{"str": ["/a.py", 1]}\n' + HEAD.format(8) + '{"str": ["/b.py", 2]}\n'
    stack = (
        '{"dynamo_start": {"stack": [{"line": 1, "name": "f", "filename": 1}, {"line": 2, "name": "g", "filename": 2}]}, "frame_id": 0}\n'
    )
    report = read(tmp_path, strings + HEAD.format(8) + stack)
    frame = report.run.frames[0]
    assert (frame.stack[0].file, frame.file) == ("/a.py", "/b.py")


def test_bytes_are_room_too(monkeypatch):
    monkeypatch.setattr(room, "MOST_BYTES", 10_000)
    one = Room()
    assert [one.take("problems", 5000) for _ in range(4)] == [True, True, False, False]
    assert one.left == {"problems": 2} and one.fits("x" * 100, 10) == "x" * 10


def test_breaks_of_a_text_log_beyond_the_room_are_counted(tmp_path, narrow):
    narrow(graph_break_events=2)
    report = read(tmp_path, "".join(BREAK.format(number) + "\n" for number in range(1, 8)))
    assert report.summary.graph_break_events == 7 and len(report.run.breaks) == 2


@pytest.mark.parametrize("between", ["", "\n" * 5000, "a\n" * 5000, "\ta\n" * 3, "\r\n" * 50, "\x1b[31mred\x1b[0m line\n"])
@pytest.mark.parametrize("block", [37, 64, 4096])
def test_lines_between_records_and_messages_change_nothing(tmp_path, monkeypatch, between, block):
    monkeypatch.setattr("dynadiag.trace.records.BLOCK_BYTES", block)
    trace = read(tmp_path, "".join(between + start(number) for number in range(5)) + between)
    assert trace.summary.frames == 5 and sum(process.records for process in trace.run.processes) == 5
    told = read(
        tmp_path, "".join(f"{BREAK.format(number)}\nTraceback (most recent call last):\n{between}" for number in range(1, 6)), "b.log"
    )
    assert told.summary.graph_break_events == 5
    assert [site.torch_frame.line for site in told.graph_breaks] == [1, 2, 3, 4, 5]


def test_old_warnings_are_found_in_the_middle_of_bare_lines(tmp_path):
    warning = "UserWarning: Unable to use AOT Autograd because of presence of mutation"
    report = read(tmp_path, f"a\nb {warning}\nc\n{'d' * 70}\nAOT Autograd is not safe to run\n")
    assert len(report.run.legacy) == 2


def test_json_that_would_become_millions_of_objects_is_not_parsed():
    with pytest.raises(BadRecordError, match="too many values"):
        parse_json("[" + "{}," * 1_100_000 + "{}]", "payload is not JSON")
    deep = 1
    for _ in range(60):
        deep = [deep]
    with pytest.raises(BadRecordError):
        shallow({"a": deep})


@pytest.mark.parametrize(
    "line", ["[" + "1" * 90_000, "V0101 10:00:00 " + "1" * 90_000, "[" + "a.-" * 30_000, "V0101 10:00:00 1 " + ":1" * 40_000]
)
def test_no_line_makes_the_patterns_backtrack(line):
    assert split_line(line)[1]  # quadratic patterns would need minutes here


def test_sites_beyond_those_shown_are_counted_with_their_events(tmp_path, monkeypatch):
    monkeypatch.setattr("dynadiag.passes.break_sites.MOST_SITES", 3)
    lines = (1, 2, 3, 4, 5, 4, 1, 6)
    text = "".join(start(number) + artifact("dynamo_graph_break_reason", number, BREAK.format(line)) for number, line in enumerate(lines))
    report = read(tmp_path, text)
    assert len(report.graph_breaks) == 3 and report.summary.graph_break_sites == 6 and report.summary.graph_break_events == 8
    assert any("3 of 6 graph break sites are shown" in note for note in report.notes)


def test_changes_of_python_objects_beyond_those_shown_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr("dynadiag.passes.find_mutations.MOST_PYTHON", 3)
    effects = "".join(
        f"Mutating object of type list (source name: L['x{k}'])\n  File \"a.py\", line {k}, in f\n    x{k}.append(1)\n" for k in range(1, 9)
    )
    report = read(tmp_path, start(0) + artifact("dynamo_side_effects", 0, effects))
    assert len(report.mutations) == 3 and any("first 3 changes of Python objects" in note for note in report.notes)


def failed(frame, code=None, **more):
    name = f"f{frame if code is None else code}"
    values = {"fail_type": "RuntimeError", "fail_reason": f"no {name}", "co_name": name, "co_filename": "/a.py", **more}
    metrics = json.dumps({"compilation_metrics": values, "frame_id": frame, "frame_compile_id": 0})
    return start(frame, name=name) + HEAD.format(7) + metrics + "\n"


def test_fallbacks_beyond_those_shown_are_counted_by_code_object(tmp_path, monkeypatch):
    monkeypatch.setattr("dynadiag.passes.fallback_entries.MOST_FRAMES", 3)
    codes = (1, 2, 3, 4, 5, 4, 1)
    report = read(tmp_path, "".join(failed(n, code, config_suppress_errors=True, has_guarded_code=False) for n, code in enumerate(codes)))
    assert [(entry.id, entry.events) for entry in report.fallbacks] == [("x1", 2), ("x2", 1), ("x3", 1)]
    assert report.summary.fallbacks == 5
    assert any("3 of 5 fallbacks are shown" in note for note in report.notes)


def test_failed_compilations_beyond_those_shown_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr("dynadiag.passes.failed_compilations.MOST_FAILED", 3)
    report = read(tmp_path, "".join(map(failed, range(5))))
    assert sum(finding.code == "DF10" for finding in report.findings) == 3
    assert any("3 findings of failed compilations are shown; 2 are left out" in note for note in report.notes)


def test_callers_beyond_the_room_are_not_kept(tmp_path, narrow):
    narrow(call_stacks=2)
    callers = json.dumps({"stack": [{"file": "/a.py", "line": 7}]})
    report = read(tmp_path, "".join(start(number) + artifact("dynadiag_entry", number, callers) for number in range(5)))
    assert sum(bool(frame.callers) for frame in report.run.frames) == 2
    assert any("2 of 5 call stacks are shown" in note for note in report.notes)


def test_graphs_are_read_until_enough_writes_are_known(tmp_path, monkeypatch):
    monkeypatch.setattr(find_mutations, "MOST_WRITES", 2)
    graph = (
        "TRACED GRAPH\nclass GraphModule(torch.nn.Module):\n    def forward(self, a{0}):\n        b = a{0}.add_(1)\n        return (b,)\n"
    )
    report = read(tmp_path, "".join(map(graph.format, (1, 1, 1, 2, 3, 4))))
    assert len(report.run.graphs) == 6 and len(report.mutations) == 2
    assert "Mutations: only the first 4 graphs were analysed; there are more." in report.notes


def test_differences_of_compared_calls_beyond_the_room_are_counted(tmp_path, narrow):
    narrow(differences_of_compared_calls=4)
    text = "".join(
        artifact(
            "dynadiag_parity",
            n,
            json.dumps({"graph": 0, "call": n, "verdict": "different", "differences": [{"kind": "value", "where": "output"}] * 3}),
        )
        for n in range(3)
    )
    report = read(tmp_path, text)
    assert [(len(call.differences), call.more_differences) for call in report.run.parity] == [(3, 0), (1, 2), (0, 3)]
    assert any("4 of 9 differences of compared calls are shown" in note for note in report.notes)


def test_what_processes_are_asked_once_is_not_asked_for_each_place(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(user_frames, "_names", user_frames.of_last_run(lambda run: asked.append(run) or ()))
    lines = [f"[rank{n}]: Graph break in user code at /home/u/train.py:{n}\n" for n in range(50)]
    assert len(read(tmp_path, "".join(lines)).graph_breaks) == 50 and len(asked) == 1


def test_differences_of_very_many_ranks_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("dynadiag.passes.find_rank_differences._MOST_VALUES", 100)
    lines = [f"[rank{n}]: Graph break in user code at /home/u/train.py:{n}\n" for n in range(20)]
    report = read(tmp_path, "".join(lines))
    assert len([one for one in report.ranks if one.what.startswith("graph break")]) == 5
    assert "Ranks have different graph breaks: 5 of 20 differences are shown, each for every rank." in report.notes
    assert [one.cost.value for one in report.findings if one.code == "DX01"] == [20.0]


def test_lines_of_one_rank_are_taken_as_a_block_and_short_lines_are_not_looked_at_one_by_one(tmp_path, monkeypatch):
    looked = []
    line = TextReader.line
    monkeypatch.setattr(TextReader, "line", lambda self, raw, offset, length: looked.append(raw) or line(self, raw, offset, length))
    break_text = BREAK.format(7).split("\n")
    text = "1: a\n" * 100 + "".join(f"[rank1]: {one}\n" for one in break_text) + "[rank1]: a\n" * 100 + "2: b\n" * 100
    report = read(tmp_path, text)
    assert looked == [f"[rank1]: {break_text[0]}"]
    assert report.graph_breaks[0].stack[-1].line == 7


def test_a_log_of_nothing_but_short_lines_is_not_read_whole_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("dynadiag.trace.text_log._FEWEST_LINES", 10)
    report = read(tmp_path, "Graph break: x\n" * 1000)
    assert 10 <= len(report.run.breaks) < 400
    assert any("very short, so not all of them were read" in note for note in report.notes)


def test_records_of_left_out_frames_are_counted_unread(tmp_path, narrow, monkeypatch):
    narrow(frames=2)
    parsed = []
    real = torch_records.interned_stack
    monkeypatch.setattr(torch_records, "interned_stack", lambda *args: parsed.append(args) or real(*args))
    head = (
        HEAD.format(7)
        + '{{"dynamo_start": {{"stack": [{{"line": {0}}}]}}, "rank": 0, "frame_id": {0}, "frame_compile_id": 0, "attempt": 0}}\n'
    )
    report = read(tmp_path, "".join(head.format(number) for number in range(10)))
    assert report.summary.frames == 10 and len(parsed) == 3


def test_only_so_many_graphs_are_read_for_mutations(tmp_path, monkeypatch):
    monkeypatch.setattr(find_mutations, "MOST_GRAPHS", 2)
    graph = "TRACED GRAPH\nclass GraphModule(torch.nn.Module):\n    def forward(self, a):\n        return (a,)\n"
    report = read(tmp_path, graph * 5)
    assert len(report.run.graphs) == 5
    assert "Mutations: only the first 2 graphs were analysed; there are more." in report.notes


@pytest.mark.parametrize(
    "line, rank, text",
    [
        ('[rank0]:   File "a.py", line 3', 0, '  File "a.py", line 3'),
        ("[rank0]: Traceback", 0, "Traceback"),
        ("[default3]:    def forward(self):", 3, "    def forward(self):"),
        ("[default3]: text", 3, "text"),
        ("2:     y = x", 2, "    y = x"),
        ("[rank7]:", 7, ""),
    ],
)
def test_indented_lines_of_a_rank_keep_their_indentation(line, rank, text):
    assert (split_line(line)[0].rank, split_line(line)[1]) == (rank, text)
