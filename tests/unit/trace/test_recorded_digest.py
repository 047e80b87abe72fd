"""The digest that a recorder writes: the same as the one that is made of its log, and used only where the two agree."""

import errno
import os
import re
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag import trace
from dynadiag.digests import texts
from dynadiag.digests.lines import DigestLines, digest_name
from dynadiag.record import writer
from dynadiag.record.writer import TraceWriter
from dynadiag.trace import rank_logs
from dynadiag.trace.digest import DistrustError, digests_of, recorded_digest
from dynadiag.trace.records import scan
from tests.unit.trace.conftest import BREAK
from tests.unit.trace.test_ranks import GRAPH, GUARDS

STACK = [{"line": 9, "name": "<module>", "filename": 0}, {"line": 3, "name": "f", "filename": 0}]
ROOM = 64 << 20


def record_rank(folder, rank, *, text=BREAK, guards=GUARDS, graph=GRAPH, finished=True, extra=()):
    """A log as the recorder writes it for a rank; returns its path."""
    log = TraceWriter(str(folder), 1 << 30, lambda: rank, lambda _: None)
    ids = {"rank": rank, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    environment = {"ppid": 1, "rank": rank, "torch": "2.11.0", "env": {"WORLD_SIZE": "4"}}
    log.artifact("dynadiag_environment", environment, {"rank": rank})
    log.record({"str": ["/home/me/train.py", 0]}, None, "t.py", 1)
    log.record({"dynamo_start": {"stack": STACK}, **ids}, None, "t.py", 1)
    log.artifact("dynadiag_entry", {"stack": [], "call": 41}, ids)
    for name, payload in extra:
        log.record({name: {}, **ids}, payload, "t.py", 1)
    log.record({"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **ids}, text, "t.py", 1)
    log.record({"dynamo_output_graph": {}, **ids}, graph.replace("cuda:0", f"cuda:{rank}"), "t.py", 1)
    log.record({"dynamo_cpp_guards_str": {}, **ids}, guards, "t.py", 1)
    log.record({"compilation_metrics": {"fail_type": None}, **ids}, None, "t.py", 1)
    if finished:
        log.artifact("dynadiag_exit", {"counters": {}}, {"rank": rank}, beyond_cap=True)
    log.close()
    return next(folder.glob(f"*rank_{rank}_{os.getpid()}*.log"))


def made_of(log):
    """The digest file that the records of a log give."""
    lines, offset, found = DigestLines(log.name), 0, b""
    with log.open("rb") as stream:
        for piece in scan(stream, lambda _: None):
            data = piece.line + b"\n" + (piece.payload() + b"\n" if piece.end > piece.match.end() else b"")
            more = lines.take(data, offset)
            offset += len(data)
            if more is None:
                break
            found += more
    return found


def beside(log):
    return log.with_name(digest_name(log.name))


def read(log):
    return recorded_digest(log, ROOM, {})


CONTENT = st.one_of(st.text(max_size=200), st.sampled_from((BREAK, GUARDS, GRAPH, "[]", "[\"0/0: L['x'] \\ud800\"]", "{", "x" * 70_000)))
KINDS = (
    ("dynamo_output_graph", False),
    ("dynamo_cpp_guards_str", False),
    ("aot_forward_graph", False),
    ("dynamo_graph_break_reason", True),
    ("recompile_reasons", True),
    ("inductor_collective_schedule", True),
    ("dynadiag_config", True),
    ("dynadiag_problem", True),
    ("dynadiag_exit", True),
    ("something_else", True),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.none() | CONTENT, st.integers(0, 3), st.text(max_size=20)), max_size=20))
def test_the_recorded_digest_is_the_one_made_of_the_log(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("log")
    log = TraceWriter(str(folder), 1 << 30, lambda: 3, lambda _: None)
    log.record({"str": ["/home/me/train.py", 0]}, None, "t.py", 1)
    for (kind, artifact), payload, frame, name in rows:
        ids = {"rank": 3, "frame_id": frame, "frame_compile_id": 0}
        log.record({"dynamo_start": {"stack": [{"name": name, "line": frame, "filename": 0}]}, **ids}, None, "t.py", 1)
        log.record({"artifact": {"name": kind}, **ids} if artifact else {kind: name, **ids}, payload, name, 1)
    path = next(folder.glob("*.log"))
    assert beside(path).read_bytes() == made_of(path)
    assert (read(path),) == digests_of(str(path))[0]


@pytest.mark.parametrize("finished", [True, False])
def test_a_log_that_goes_on_behind_its_digest_is_read_from_there(tmp_path, finished):
    log = record_rank(tmp_path, 1, finished=finished)
    whole = beside(log).read_bytes()
    assert whole == made_of(log)
    told = read(log)
    assert (told,) == digests_of(str(log))[0] and told.process.finished is finished
    lines = whole.split(b"\n")
    beside(log).write_bytes(b"\n".join(lines[:-2]) + b"\n[123.5,9")  # killed while it wrote a line
    again = read(log)
    assert again is None or again == told  # None: what the digest lacks is an event


def test_all_events_of_a_record_are_told_or_none(tmp_path):
    """A graph with its collectives: half of a line is none, and then the log is read."""
    log = record_rank(tmp_path, 1, finished=False)
    data = beside(log).read_bytes()
    (line,) = [one for one in data.split(b"\n") if b'["graph"' in one]
    assert line.count(b'["collective"') == 2
    for length in range(data.index(line) + 1, data.index(line) + len(line), 7):
        beside(log).write_bytes(data[:length])
        assert read(log) is None


def test_a_log_without_its_last_records_or_cut_in_one_is_told_as_such(tmp_path):
    log = record_rank(tmp_path, 1)
    data = log.read_bytes()
    log.write_bytes(data[:-40])
    with pytest.raises(DistrustError, match=r"tells of [\d,]+ bytes, the log has [\d,]+"):
        read(log)
    beside(log).write_bytes(b"".join(line + b"\n" for line in beside(log).read_bytes().split(b"\n")[:-3]))
    assert read(log) is None or (read(log),) == digests_of(str(log))[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.replace(b'"dynadiag_digest":2', b'"dynadiag_digest":1'), "another version"),
        (lambda data: data.replace(b"rank_1_", b"rank_2_"), "another log"),
        (lambda data: data.replace(b'"rank":1', b'"rank":2'), "another rank"),
        (lambda data: b"", "damaged"),
        (lambda data: data.replace(b'"guards"', b'["x"]'), "damaged"),
        (lambda data: data.replace(b'"guards"', b'"exec"'), "damaged"),
        (lambda data: data + b'{"at":[5,1,2.0]}\n', "damaged"),
        (lambda data: data + b'{"at":[99999999,99,2.0]}\n', "the log has"),
        (lambda data: data + b"[[[[[[\n", "damaged"),
    ],
)
def test_a_digest_that_cannot_be_that_of_the_log_is_not_used(tmp_path, change, words):
    log = record_rank(tmp_path, 1)
    beside(log).write_bytes(change(beside(log).read_bytes()))
    with pytest.raises(DistrustError, match=words):
        read(log)
    for rank in (0, 2):
        record_rank(tmp_path, rank)
    (trouble,) = [one for one in trace.load(tmp_path).ranks.troubles if one.kind == "digest"]
    assert trouble.ranks == (1,) and words in trouble.text


def test_an_edited_log_is_noticed_where_it_is_looked_at(tmp_path):
    log = record_rank(tmp_path, 1)
    log.write_bytes(log.read_bytes().replace(b"Graph break in user", b"GRAPH break in user"))
    with pytest.raises(DistrustError, match="tells of another record"):
        read(log)


@given(st.floats(0, 0.999), st.binary(max_size=8))
@settings(max_examples=80, deadline=None)
def test_any_damage_is_noticed_or_harmless(tmp_path_factory, part, noise):
    folder = tmp_path_factory.mktemp("log")
    log = record_rank(folder, 1)
    data = bytearray(beside(log).read_bytes())
    at = int(part * len(data))
    data[at : at + len(noise)] = noise
    beside(log).write_bytes(bytes(data))
    try:
        found = read(log)
    except DistrustError:
        return
    assert found is None or found.process.rank == 1


def ranks(folder, number, **odd):
    return [record_rank(folder, rank, **odd.get(f"r{rank}", {})) for rank in range(number)]


def test_equal_ranks_with_digests_are_compared_without_reading_their_logs(tmp_path, monkeypatch):
    logs = ranks(tmp_path, 20, r5={"guards": GUARDS.replace("size=[8, 64]", "size=[7, 64]")})
    opened = []
    monkeypatch.setattr(rank_logs, "digests_of", lambda log, room: opened.append(log) or digests_of(log, room))
    found = trace.load(tmp_path).ranks
    assert [group.ranks for group in found.groups] == [(*range(5), *range(6, 20)), (5,)]
    assert "size=[7, 64]" in found.groups[1].first.here
    assert sorted(opened) == sorted([str(logs[0]), str(logs[5])])  # those that are read in full are checked
    for log in logs:
        beside(log).unlink()
    assert trace.load(tmp_path).ranks == found


def test_after_one_digest_that_lies_none_is_used(tmp_path, monkeypatch):
    logs = ranks(tmp_path, 20, r5={"graph": GRAPH.replace("relu()", "relu6()")})
    beside(logs[5]).write_bytes(beside(logs[4]).read_bytes().replace(logs[4].name.encode(), logs[5].name.encode()))
    lines = beside(logs[0]).read_bytes().split(b"\n")
    lying = [line.replace(b"operations", b"operationz") for line in lines]
    beside(logs[0]).write_bytes(b"\n".join(lying))
    found = trace.load(tmp_path).ranks
    assert [group.ranks for group in found.groups] == [(*range(5), *range(6, 20)), (5,)]
    kinds = {one.kind: one for one in found.troubles}
    assert "digest" in kinds and any("no digest is used" in one.text for one in found.troubles)


def test_a_digest_without_room_is_cut_like_the_one_made_of_the_log(tmp_path):
    log = record_rank(tmp_path, 1)
    found = recorded_digest(log, 700, {})
    assert found.left_out and (found,) == digests_of(str(log), 700)[0]


def full_disk(path):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_digest_ends_with_a_write_that_failed_and_stays_true(tmp_path, monkeypatch):
    log = TraceWriter(str(tmp_path), 1 << 20, lambda: 1, lambda _: None)
    for number in range(3):
        with monkeypatch.context() as patch:
            if number == 1:
                patch.setattr(writer, "extended", full_disk)
            log.record({"dynamo_start": {"stack": []}, "rank": 1, "frame_id": number}, None, "t.py", 1)
    path = next(tmp_path.glob("*.log"))
    assert beside(path).read_bytes().count(b'"frame"') == 1
    assert read(path) is None and len(digests_of(str(path))[0][0].events) == 3


def test_an_error_of_ours_in_the_digest_is_told_in_the_log_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(DigestLines, "take", lambda *_: 1 / 0)
    log = record_rank(tmp_path, 1)
    assert b"ZeroDivisionError" in log.read_bytes() and not beside(log).exists()
    assert len(digests_of(str(log))[0][0].events) == 6


def test_a_forked_process_has_a_digest_of_its_own(tmp_path):
    log = TraceWriter(str(tmp_path), 1 << 20, lambda: 1, lambda _: None)
    log.record({"dynamo_start": {"stack": []}, "rank": 1}, None, "t.py", 1)
    if (pid := os.fork()) == 0:
        log.record({"dynamo_start": {"stack": []}, "rank": 1}, None, "t.py", 1)
        log.record({"dynamo_start": {"stack": []}, "rank": 1}, None, "t.py", 1)
        os._exit(0)
    os.waitpid(pid, 0)
    log.record({"dynamo_start": {"stack": []}, "rank": 1}, None, "t.py", 1)
    assert sorted(len(read(path).events) for path in tmp_path.glob("*.log")) == [2, 2]


def test_a_copy_elsewhere_is_read_the_same(tmp_path):
    log = record_rank(tmp_path, 1)
    there = tmp_path / "copied"
    there.mkdir()
    for path in (log, beside(log)):
        shutil.copy(path, there)
    assert read(there / log.name).events == read(log).events


def test_what_the_probe_adds_after_the_end_of_a_process_is_not_its_end(tmp_path):
    log = record_rank(tmp_path, 3)
    ended = read(log).ended
    added = 'probe_main.py:1] {"artifact": {"name": "dynadiag_probe", "encoding": "json"}}'
    log.write_bytes(log.read_bytes() + f"V1231 23:59:59.000000 {os.getpid()} {added}\n".encode())
    assert read(log).ended == digests_of(str(log))[0][0].ended == ended


IDS = re.compile(rb"(?:\b|(?<=_))(?:0x[0-9a-f]{6,}|\d{9,})\b")
DEVICES = re.compile(rb"\b(device=|(?:cuda|xpu|hpu|npu):|index=)\d{1,4}\b")
PIECES = (
    "0x",
    "0x7f00aa",
    "1234567890",
    "12345678",
    "device=",
    "cuda:",
    "npu:",
    "index=",
    "3",
    "12345",
    "_",
    "a",
    "x",
    " ",
    ":",
    "é",
    "\n",
    "0",
)


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_addresses_and_devices_are_found_as_by_the_plain_patterns(pieces):
    text = "".join(pieces).encode()
    assert texts.without_ids(text) == IDS.sub(b"*", DEVICES.sub(rb"\1*", text))
