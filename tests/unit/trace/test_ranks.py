"""Ranks compared by digests: groups, first differences and what else is odd; the same for any number of workers and order of files."""

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag import report, trace
from dynadiag.model.digest import Digest, DigestedProcess, DigestEvent, rank_numbers
from dynadiag.render import json_report
from dynadiag.render.ladder_builder import ladder
from dynadiag.render.verdict import raised
from dynadiag.trace import rank_logs
from dynadiag.trace.digest import digests_of
from dynadiag.trace.rank_groups import compared
from tests.unit.trace.conftest import BREAK, LogBuilder

GUARDS = "\nTREE_GUARD_MANAGER:\n" + "\n".join(
    (
        "+- RootGuardManager",
        "| +- TYPE_MATCH: ___check_type_id(L['self'], 140661009802112), type=<class 'Net'>  # f(x)  # train.py:3 in f",
        "| +- TENSOR_MATCH: check_tensor(L['x'], Tensor, torch.float32, device=0, size=[8, 64], stride=[64, 1])  # f(x)",
        "| +- EQUALS_MATCH: L['rank'] == 0  # if rank == 0  # train.py:4 in f",
        "| +- EQUALS_MATCH: L['layers'] == 4  # for _ in range(layers)",
    )
)
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8, 16][16, 1]cuda:0"):
        # File: /home/me/train.py:4 in f, code: y = x.relu()
        relu: "f32[8, 16][16, 1]cuda:0" = L_x_.relu();  L_x_ = None
        a: "f32[8, 16]" = torch.ops._c10d_functional.all_reduce.default(relu, 'sum', '0')
        w: "f32[8, 16]" = torch.ops._c10d_functional.wait_tensor.default(a)
        b: "f32[64, 16]" = torch.ops._c10d_functional.all_gather_into_tensor.default(w, 8, '0')
        return (b,)
"""


def rank_log(rank, *, guards=GUARDS, graph=GRAPH, text=BREAK, pid=None):
    log = LogBuilder(pid or 1000 + rank).intern("/home/me/train.py")
    guards = guards.replace("L['rank'] == 0", f"L['rank'] == {rank}").replace("device=0", f"device={rank}").replace("14066", f"1{rank:04d}")
    log.start(0).artifact("dynadiag_entry", {"stack": [], "call": 41}, frame=0)
    log.artifact("dynamo_graph_break_reason", text, frame=0)
    log.record("dynamo_output_graph", {}, graph.replace("cuda:0", f"cuda:{rank}"), frame=0)
    log.record("dynamo_cpp_guards_str", {}, guards, frame=0)
    return log.metrics(0)


def write(folder, ranks, **changed):
    for rank in ranks:
        one = changed.get(f"r{rank}", {})
        rank_log(rank, **one).write(folder, f"dedicated_log_torch_trace_rank_{rank}_x.log")


def comparison(folder, **options):
    return trace.load(folder, **options).ranks


def test_ranks_that_differ_by_their_own_number_and_device_are_alike(tmp_path):
    write(tmp_path, range(5))
    found = comparison(tmp_path)
    assert [group.ranks for group in found.groups] == [(0, 1, 2, 3, 4)]
    assert found.own_values == ("L['rank']",) and [one.kind for one in found.troubles] == ["own_value"]


def test_each_rank_that_differs_is_named_with_its_first_difference(tmp_path):
    changed = {
        "r3": {"guards": GUARDS.replace("size=[8, 64]", "size=[7, 64]")},
        "r5": {"text": BREAK.replace("train.py:5", "train.py:6")},
        "r7": {"graph": GRAPH.replace("relu()", "relu6()")},
        "r9": {"guards": GUARDS.replace("== 4", "== 6")},
    }
    write(tmp_path, [rank for rank in range(20) if rank != 11], **changed)
    cut = tmp_path / "dedicated_log_torch_trace_rank_13_x.log"
    cut.write_bytes(cut.read_bytes()[:-300])
    read = trace.load(tmp_path)
    by_ranks = {group.ranks: group.first for group in read.ranks.groups}
    assert {ranks: first.kind for ranks, first in by_ranks.items() if first} == {
        (3,): "guards",
        (5,): "break",
        (7,): "graph",
        (9,): "guards",
        (13,): "end",
    }
    assert "size=[7, 64]" in by_ranks[3,].here and "size=[8, 64]" in by_ranks[3,].there
    assert "relu6()" in by_ranks[7,].here and by_ranks[7,].call == 41
    assert "L['layers'] == 6" in by_ranks[9,].here and "rank" not in by_ranks[9,].here
    assert {(one.kind, one.ranks) for one in read.ranks.troubles} == {("missing", (11,)), ("cut", (13,)), ("own_value", ())}
    assert read.ranks.read == 6 and [process.rank for process in read.processes if process.alike is None] == [0, 3, 5, 7, 9, 13]
    assert {process.rank for process in read.processes} == set(range(20)) - {11}
    built = report.build(read)
    assert {"DX07", "DX09"} <= {one.code for one in built.findings}
    assert any("6 of 19 ranks are read in full" in note for note in built.notes)
    assert "ranks 3, 5, 7, 9, 13 differ from the largest group of equal ranks (14)" in built.notes
    guarded = next(one for one in built.ranks if "layers" in one.what)
    assert guarded.odd_ranks == (9,) and len(guarded.values) == 18
    own = next(one for one in built.ranks if one.what.startswith("value of `rank`"))
    assert own.values == {f"rank {rank}": str(rank) for rank in (0, 3, 5, 7, 9, 13)}
    assert json.loads("".join(json_report.chunks(built)))["rank_groups"]["groups"][0]["ranks"][:3] == [0, 1, 2]


REASON = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 7"


def with_source(text, *, rank=0, line=3, file="/home/me/train.py", **changed):
    log = LogBuilder(1000 + rank).intern("/home/me/train.py")
    log.artifact("dynadiag_function", {"file": file, "line": line, "name": "Net.scaled", "text": text})
    log.start(0).artifact("dynamo_graph_break_reason", BREAK, frame=0)
    log.record("dynamo_output_graph", {}, changed.get("graph", GRAPH), frame=0)
    return log.metrics(0)


OURS = "def scaled(self, x):\n    x = self.norm(x)\n    return x * 2\n"


def write_checkouts(folder, *rows):
    for rank, row in enumerate(rows):
        with_source(rank=rank, **row).write(folder, f"dedicated_log_torch_trace_rank_{rank}_x.log")
    return report.build(trace.load(folder))


def test_a_rank_with_another_checkout_is_found_and_leads_the_report(tmp_path):
    """One node with a stale checkout compiled the same graph: nothing told of it."""
    stale = OURS.replace("x * 2", "x * 3")
    found = write_checkouts(tmp_path, {"text": OURS}, {"text": OURS}, {"text": stale, "file": "/mnt/old/me/train.py"}, {"text": OURS})
    source, *others = found.findings
    assert [source.code, *(one.code for one in others)] == ["DX10", "GB0059"]  # nothing but its source tells it apart
    assert source.title == "A rank ran other source: rank 2"
    assert source.why == (
        "Rank 2 ran other source: `return x * 3` in Net.scaled (train.py:5), "
        "where the others have `return x * 2` in Net.scaled (train.py:5)."
    )
    assert (source.where.file, source.where.line) == ("/mnt/old/me/train.py", 5)


def test_what_follows_from_other_source_is_told_behind_it(tmp_path):
    other = {"text": OURS.replace("x * 2", "x.relu()"), "graph": GRAPH.replace("L_x_.relu()", "L_x_.tanh()")}
    found = write_checkouts(tmp_path, {"text": OURS}, {"text": OURS}, other)
    assert [one.code for one in found.findings[:2]] == ["DX10", "DX07"]
    assert "L_x_.tanh()" in found.findings[1].why or "tanh" in found.findings[1].why


def test_a_function_that_a_file_defines_twice_is_the_same_on_ranks_that_have_both(tmp_path):
    for rank, graph in enumerate((GRAPH, GRAPH, GRAPH.replace("relu()", "tanh()"))):
        log = LogBuilder(1000 + rank).intern("/home/me/train.py")
        for line in (3, 9):
            log.artifact("dynadiag_function", {"file": "/home/me/train.py", "line": line, "name": "scaled", "text": OURS})
        log.start(0).record("dynamo_output_graph", {}, graph, frame=0)
        log.metrics(0).write(tmp_path, f"dedicated_log_torch_trace_rank_{rank}_x.log")
    codes = [one.code for one in report.build(trace.load(tmp_path)).findings]
    assert "DX07" in codes and "DX10" not in codes


def test_a_function_at_another_line_or_with_lines_more_is_other_source(tmp_path):
    found = write_checkouts(tmp_path, {"text": OURS}, {"text": OURS}, {"text": OURS, "line": 9}, {"text": OURS + "    # more\n"})
    assert found.findings[0].code == "DX10"
    assert "Rank 2 ran other source: `def scaled(self, x):` in Net.scaled (train.py:9)" in found.findings[0].why
    assert "where the others have `def scaled(self, x):` in Net.scaled (train.py:3)" in found.findings[0].why
    assert "Rank 3 ran other source: `# more` in Net.scaled (train.py:6)" in found.findings[0].why


def test_functions_that_only_some_ranks_met_are_no_other_source(tmp_path):
    rank_log(0).write(tmp_path, "dedicated_log_torch_trace_rank_0_x.log")
    with_source(OURS, rank=1).write(tmp_path, "dedicated_log_torch_trace_rank_1_x.log")
    extra = tmp_path / "extra"
    extra.mkdir()
    with_source(OURS).write(extra, "dedicated_log_torch_trace_rank_0_x.log")
    log = LogBuilder(1001).intern("/home/me/train.py").start(0).artifact("dynamo_graph_break_reason", BREAK, frame=0)
    log.record("dynamo_output_graph", {}, GRAPH, frame=0).metrics(0).write(extra, "dedicated_log_torch_trace_rank_1_x.log")
    for folder, codes in ((tmp_path, {"DX10"}), (extra, {"DX07", "DX10"})):
        assert not codes & {one.code for one in report.build(trace.load(folder)).findings}
    alike = tmp_path / "alike"
    alike.mkdir()
    found = write_checkouts(alike, {"text": OURS}, {"text": OURS, "file": "/mnt/other/me/train.py"})
    assert not [one.code for one in found.findings if one.code.startswith("DX")]


@pytest.mark.parametrize("damaged", [{"file": 3}, {"text": None}, {"line": -1}, {"name": ["x"]}])
def test_a_damaged_source_tells_nobody_apart(tmp_path, damaged):
    for rank, content in enumerate(({"file": "/home/me/train.py", "line": 3, "name": "f", "text": OURS}, damaged)):
        log = LogBuilder(1000 + rank).intern("/home/me/train.py").artifact("dynadiag_function", content)
        log.start(0).metrics(0).write(tmp_path, f"dedicated_log_torch_trace_rank_{rank}_x.log")
    assert "DX10" not in [one.code for one in report.build(trace.load(tmp_path)).findings]


def test_a_recompile_is_told_with_the_call_that_it_happened_in(tmp_path):
    for rank in range(3):
        log = rank_log(rank)
        if rank == 2:
            log.artifact("dynadiag_call", {"call": 52}).artifact("recompile_reasons", REASON, frame=0)
        log.write(tmp_path, f"dedicated_log_torch_trace_rank_{rank}_x.log")
    read = trace.load(tmp_path)
    assert [(one.first.kind, one.first.call) for one in read.ranks.groups[1:]] == [("recompile", 52)]
    why = next(one.why for one in report.build(read).findings if one.code == "DX07")
    assert why.startswith(
        "Rank 2: f: recompiled: tensor 'x' size mismatch at index 0: expected 8, actual 7 in call 52, where the others have"
    )
    assert why.endswith(". Ranks 0, 1 are alike.")


def test_ranks_that_were_not_read_have_the_bars_of_those_that_were(tmp_path):
    write(tmp_path, range(20), r5={"text": BREAK.replace("train.py:5", "train.py:6").replace("line 5", "line 6")})
    bars = ladder(report.build(trace.load(tmp_path))).bars
    assert bars == ("ranks 0 to 4, 6 to 19", "rank 5")


def test_the_bar_of_a_rank_does_not_depend_on_its_number(tmp_path):
    write(tmp_path, range(270), r265={"text": BREAK.replace("train.py:5", "train.py:6").replace("line 5", "line 6")})
    found = ladder(report.build(trace.load(tmp_path)))
    assert found.bars == ("ranks 0 to 264, 266 to 269", "rank 265") and not any("bars compare" in note for note in found.notes)


def test_collectives_in_another_order_or_shape_are_told(tmp_path):
    first, second = (line for line in GRAPH.splitlines() if "all_" in line)
    swapped = GRAPH.replace(first, "#").replace(second, f"{second}\n{first}")
    write(tmp_path, range(4), r1={"graph": swapped}, r2={"graph": GRAPH.replace("f32[64, 16]", "f32[32, 16]")})
    found = {group.ranks: group.collectives for group in comparison(tmp_path).groups}
    assert found[0, 3] is None
    assert "all_gather" in found[1,].here and "all_reduce" in found[1,].there and found[1,].before == 0
    assert "[32, 16]" in found[2,].here and "[64, 16]" in found[2,].there and found[2,].before == 1
    (finding,) = [one for one in report.build(trace.load(tmp_path)).findings if one.code == "DX08"]
    assert "collective 1 is" in finding.why and finding.cost.value == 2


REDUCE = next(line for line in GRAPH.splitlines() if "all_reduce" in line)


def test_a_break_between_collectives_leaves_them_in_order(tmp_path):
    """As recorded on four ranks of gloo: rank 1 has its second collective in the graph of another frame."""
    one = f"class G:\n{REDUCE}\n"
    for rank in range(3):
        log = LogBuilder(1000 + rank).intern("/home/me/train.py").start(0)
        for kind in ("dynamo_output_graph", "aot_inference_graph"):
            log.record(kind, {}, one if rank == 1 else f"{one}{REDUCE}\n", frame=0)
        if rank == 1:
            log.start(1, name="torch_dynamo_resume_in_f_at_5", line=5)
            log.record("dynamo_output_graph", {}, one, frame=1).record("aot_inference_graph", {}, one, frame=1)
        log.write(tmp_path, f"x_rank_{rank}_x.log")
    (odd,) = comparison(tmp_path).groups[1:]
    assert odd.ranks == (1,) and odd.first.kind == "graph" and odd.collectives is None


def test_collectives_are_compared_layer_by_layer(tmp_path):
    """A graph with one more collective is told as that, and not as a collective of Dynamo's graph against one of AOTAutograd's."""
    for rank in range(3):
        graph = GRAPH if rank != 1 else GRAPH.replace(REDUCE, f"{REDUCE}\n{REDUCE}")
        rank_log(rank, graph=graph).record("aot_inference_graph", {}, graph, frame=0).write(tmp_path, f"x_rank_{rank}_x.log")
    (odd,) = comparison(tmp_path).groups[1:]
    assert odd.ranks == (1,) and odd.collectives.kind == "collective" and odd.collectives.before == 1
    assert "all_reduce" in odd.collectives.here and "all_gather" in odd.collectives.there
    assert all("Dynamo's graph" in text for text in (odd.collectives.here, odd.collectives.there))


def grouped(*names):
    reduce = "torch.ops._c10d_functional.all_reduce.default"
    return "\n".join(("class G:", *(f"    a{at}: \"f32[8]\" = {reduce}(x, 'sum', '{name}')" for at, name in enumerate(names))))


def test_process_groups_used_in_another_order_are_told_and_groups_of_other_names_are_not(tmp_path):
    names = {0: ("1", "2"), 1: ("2", "1"), 2: ("1", "2"), 3: ("3", "4"), 4: ("3", "4")}
    write(tmp_path, names, **{f"r{rank}": {"graph": grouped(*used)} for rank, used in names.items()})
    equal, odd = comparison(tmp_path).groups
    assert equal.ranks == (0, 2, 3, 4) and odd.ranks == (1,)
    assert "process group 2" in odd.collectives.here and "process group 1" in odd.collectives.there
    assert odd.first.kind == "collective" and odd.first.here == odd.collectives.here


def test_guards_of_dtensors_do_not_tell_ranks_apart(tmp_path):
    """Torch 2.11 puts the address of the spec behind an underscore."""
    guard = "\n| +- LAMBDA_GUARD: __dtensor_spec_%d"
    write(tmp_path, range(3), **{f"r{rank}": {"guards": GUARDS + guard % (140040036409856 + rank * 640)} for rank in range(3)})
    assert len(comparison(tmp_path).groups) == 1


def test_the_counter_in_the_name_of_generated_code_does_not_tell_ranks_apart(tmp_path):
    for rank in range(3):
        log = LogBuilder(1000 + rank).intern(f"<eval_with_key>.{5 + rank}")
        log.start(0).write(tmp_path, f"x_rank_{rank}_x.log")
    assert len(comparison(tmp_path).groups) == 1


def test_ranks_that_compiled_nothing_are_not_what_others_are_compared_with(tmp_path):
    write(tmp_path, range(2), r1={"graph": GRAPH.replace("relu()", "relu6()")})
    for rank in range(2, 5):
        LogBuilder(1000 + rank).intern("a").write(tmp_path, f"dedicated_log_torch_trace_rank_{rank}_x.log")
    found = comparison(tmp_path)
    assert [group.ranks for group in found.groups] == [(0,), (1,), (2, 3, 4)]
    assert found.groups[1].first.kind == "graph" and found.groups[2].collectives is None


def test_a_rank_that_ended_early_is_not_told_as_one_with_other_collectives(tmp_path):
    whole = rank_log(1)
    whole.parts = whole.parts[:-3]  # killed while it compiled: no graph any more
    write(tmp_path, (0, 2, 3))
    whole.write(tmp_path, "dedicated_log_torch_trace_rank_1_x.log")
    (odd,) = comparison(tmp_path).groups[1:]
    assert odd.ranks == (1,) and odd.first.kind == "end" and odd.collectives is None


def test_the_result_does_not_depend_on_workers_or_the_order_of_files(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_logs, "_LEAST_BYTES", 0)
    write(tmp_path, range(18), r4={"text": BREAK.replace("train.py:5", "train.py:8")})
    (tmp_path / "dedicated_log_torch_trace_rank_30_x.log").write_bytes(b"\x1f\x8bdamaged")
    (tmp_path / "dedicated_log_torch_trace_rank_31_x.log").write_bytes(b"")
    alone, several = (trace.load(tmp_path, workers=number) for number in (1, 2))
    assert alone == several
    assert [one.ranks for one in alone.ranks.troubles if one.kind == "unread"] == [(30,), (31,)]
    logs = list(tmp_path.iterdir())
    random.Random(3).shuffle(logs)
    assert rank_logs.compare_ranks(logs).comparison.groups == alone.ranks.groups


def test_a_log_that_is_gone_is_told_and_the_others_are_compared(tmp_path):
    write(tmp_path, range(3))
    gone = tmp_path / "dedicated_log_torch_trace_rank_3_x.log"
    found = rank_logs.compare_ranks([*tmp_path.iterdir(), gone])
    assert found.comparison.ranks == 3 and "rank_3" in found.notes[0]
    assert [one.ranks for one in found.comparison.troubles if one.kind == "unread"] == [(3,)]


def killed_on_rank_2(log, room_bytes):
    """Instead of `rank_logs._digest`, in the worker: what the system does to a process that takes too much memory."""
    if "rank_2_" in log:
        os.kill(os.getpid(), signal.SIGKILL)
    return DIGEST(log, room_bytes)


DIGEST = rank_logs._digest


def test_a_reader_that_is_killed_costs_its_log_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_logs, "_LEAST_BYTES", 0)
    monkeypatch.setattr(rank_logs, "_digest", killed_on_rank_2)
    write(tmp_path, range(5), r4={"text": BREAK.replace("train.py:5", "train.py:8")})
    found = trace.load(tmp_path, workers=2)
    assert [group.ranks for group in found.ranks.groups] == [(0, 1, 3), (4,)]
    (told,) = [one for one in found.ranks.troubles if one.kind == "unread"]
    assert told.ranks == (2,) and "the process that read it died (out of memory?)" in told.text
    assert len([note for note in found.notes if "rank_2_" in note]) == 1


def test_digests_are_the_same_in_every_python_process(tmp_path):
    path = rank_log(2).write(tmp_path, "dedicated_log_torch_trace_rank_2_x.log")
    code = "import sys; from dynadiag.trace.digest import digests_of; print([e.mark for e in digests_of(sys.argv[1])[0][0].events])"
    seen = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "7"}
    )
    assert seen.stdout.strip() == str([event.mark for event in digests_of(str(path))[0][0].events])


@given(st.permutations(GUARDS.splitlines()[3:]))
def test_the_order_of_guards_has_no_meaning(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("guards")
    text = "\n".join((*GUARDS.splitlines()[:3], *lines))
    marks = [digests_of(str(rank_log(0, guards=one).write(folder)))[0][0].events[-1].mark for one in (GUARDS, text)]
    assert marks[0] == marks[1]


EVENTS = tuple(DigestEvent("frame", f"m{number}", f"f{number}", "a.py", number) for number in range(6))


def digest(rank, *, pid=None, shift=0.0, events=EVENTS, **facts):
    number = len(events)
    times = tuple(100.0 + shift + at for at in range(number))
    made = Digest(
        log=f"/x/{rank}-{pid}.log",
        process=DigestedProcess(pid=pid or rank + 50, rank=rank, **facts),
        events=events,
        times=times,
        places=((0, 0),) * number,
        calls=(0,) * number,
    )
    return replace(made, began=100.0 + shift, ended=105.0 + shift)


@pytest.mark.parametrize(
    ("odd", "kind", "words"),
    [
        ([digest(3, shift=3600.0)], "clock", "3,600.0 s later"),
        ([digest(3, shift=-3600.0)], "clock", "3,600.0 s earlier"),
        ([replace(digest(3), times=(160.0, 161.0, 162.0, 163.0, 104.0, 105.0))], "late", "60.0 s after"),
        ([digest(3), digest(3, pid=99, shift=30.0)], "restarted", "follow each other"),
        ([digest(3), digest(3, pid=99, shift=2.0)], "doubled", "overlap in time"),
        ([replace(digest(3, events=EVENTS[:2]), ended=99.0)], "ended_early", "after 2 of 6 events"),
        ([digest(3, error="RuntimeError: NCCL")], "died", "RuntimeError: NCCL"),
        ([digest(3, events=())], "empty", "compiled nothing"),
        ([digest(5)], "missing", "No log of ranks 3, 4: 4 ranks have one"),
        ([digest(3, torch="2.9.0")], "versions", "2.9.0: rank 3"),
        ([digest(3, events=(DigestEvent("frame", "z", "other"),))], "unrelated", "logs of different programs"),
    ],
)
def test_what_is_odd_about_a_rank_is_told_with_its_evidence(odd, kind, words):
    facts = {"torch": "2.11.0"} if kind == "versions" else {}
    found = compared([*(digest(rank, **facts) for rank in range(3)), *odd])
    (trouble,) = [one for one in found.troubles if one.kind == kind]
    assert words in trouble.text


def test_a_late_rank_is_held_against_all_that_began_as_it_did():
    """Of four ranks two end in another way, so the largest group is the late rank and one more (torchrun, four ranks on an H200)."""
    late = replace(digest(1), times=(113.0, 114.0, 115.0, 103.0, 104.0, 105.0))
    others = [digest(rank, events=(*EVENTS[:4], DigestEvent("frame", f"of {rank}", "f"))) for rank in (2, 3)]
    found = compared([digest(0), late, *others])
    assert found.groups[0].ranks == (0, 1)
    (trouble,) = [trouble for trouble in found.troubles if trouble.kind == "late"]
    assert trouble.ranks == (1,) and "began compiling 13.0 s after the others" in trouble.text


def test_of_ranks_that_all_died_the_first_is_named():
    ours = {"started_at": "2026-11-24T18:00:00Z"}
    made = [replace(digest(rank, **ours), ended=105.0 if rank == 2 else 109.0 + rank / 10) for rank in range(4)]
    (trouble,) = [one for one in compared(made).troubles if one.kind == "died"]
    assert trouble.text.startswith("The logs of ranks 0 to 3 have no normal end:")
    assert trouble.ranks == (0, 1, 2, 3) and "Rank 2 was the first to end, 4.0 s before the next" in trouble.text
    errors = ["RuntimeError: no more data" if rank == 2 else "RuntimeError: Connection closed" for rank in range(4)]
    raised = [replace(one, process=replace(one.process, error=error)) for one, error in zip(made, errors, strict=True)]
    told = [one.text for one in compared(raised).troubles if one.kind == "died"]
    assert told[0] == "Rank 2 ended with an exception: RuntimeError: no more data; the last record of another rank is 4.3 s later."


def test_ranks_that_a_launcher_restarted_together_are_told_in_one_sentence():
    made = [digest(rank, pid=number, shift=30.0 * number) for rank in (1, 0, 2) for number in (1, 2, 3)]
    (trouble,) = [one for one in compared(made).troubles if one.kind == "restarted"]
    assert trouble.ranks == (0, 1, 2)
    assert trouble.text == (
        "Ranks 0 to 2 were restarted: logs follow each other (of rank 0 0-1.log and 0-2.log). The first one of each is compared."
    )


TORCHRUN = """ChildFailedError: ===========
train.py FAILED
-----------
Failures:
[1]:
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 18003)  (SIGTERM)
-----------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-26_14:12:02
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : %s
  error_file: <N/A>
==========="""


@pytest.mark.parametrize(("code", "how"), [("-9 (pid: 18004)  (SIGKILL)", "by SIGKILL"), ("3 (pid: 18004) ", "with exit status 3")])
def test_the_rank_that_torchrun_saw_fail_first_is_named(tmp_path, code, how):
    write(tmp_path, range(3))
    launcher = LogBuilder(77).artifact("dynadiag_problem", {"kind": "uncaught", "text": TORCHRUN % code, "stack": []})
    launcher.write(tmp_path, "dedicated_log_torch_trace_77_x.log")
    built = report.build(trace.load(tmp_path))
    (found,) = [one for one in built.findings if one.code == "DX09"]
    assert found.why == f"torchrun saw rank 1 fail first, {how}." and found.title.endswith(": rank 1")
    ended = replace(built, run=replace(built.run, info=replace(built.run.info, exit_status=1)))
    assert raised(ended) == "ChildFailedError"


def test_logs_of_torch_trace_have_no_normal_end_and_nobody_is_called_dead():
    assert compared(digest(rank) for rank in range(4)).troubles == ()


def test_nothing_is_odd_about_equal_ranks():
    found = compared(digest(rank, shift=rank / 100) for rank in range(4))
    assert [group.ranks for group in found.groups] == [(0, 1, 2, 3)] and found.troubles == ()


@given(st.lists(st.sampled_from([EVENTS, EVENTS[:3], EVENTS[::-1]]), min_size=2, max_size=30), st.randoms())
def test_every_rank_is_in_one_group_of_its_equals_in_any_order(kinds, shuffler):
    made = [digest(rank, events=events) for rank, events in enumerate(kinds)]
    shuffled = made[:]
    shuffler.shuffle(shuffled)
    found = compared(made)
    assert found == compared(shuffled)
    assert sorted(rank for group in found.groups for rank in group.ranks) == list(range(len(kinds)))
    assert all(len({kinds[rank] for rank in group.ranks}) == 1 for group in found.groups)
    assert len(found.groups) == len(set(kinds))


def test_ranks_in_few_words():
    assert rank_numbers((*range(512), *range(513, 1024))) == "0 to 511, 513 to 1023"
