"""Damaged, cut, mistyped and hostile logs: every good record is used, never a traceback."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynadiag.errors import UnreadableInputError
from dynadiag.trace import graph_details, graph_nodes, load, read_payload, records
from dynadiag.trace.own_records import BY_ARTIFACT as OWN
from dynadiag.trace.torch_records import BY_ARTIFACT, BY_KEY

QUICK = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
KINDS = sorted(set(BY_KEY) | {"artifact"})
NAMES = sorted({**BY_ARTIFACT, **OWN})
KEYS = ["stack", "name", "filename", "hints", "kind", "symbol", "source"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


def use_everything(run):
    """What a report would touch: all of it can be printed as UTF-8, and every payload can be read again or refuses in one line."""
    assert repr(run).encode("utf-8")
    for graph in run.graphs:
        for ref, read in ((graph.text, lambda ref: graph_nodes(read_payload(ref))), (graph.details, graph_details)):
            try:
                if ref is not None:
                    read(ref)
            except UnreadableInputError as error:
                assert "\n" not in error.message


def read_bytes(data, name="dedicated_log_torch_trace_1.log"):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            run = load(path)
        except UnreadableInputError as error:
            assert "\n" not in error.message
            return None
        use_everything(run)
        return run


@st.composite
def damage(draw, data):
    """The log cut, with bytes flipped, pieces repeated, lost or moved."""
    for _ in range(draw(st.integers(1, 4))):
        where = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.integers(1, 400))
        kind = draw(st.sampled_from(["cut", "flip", "repeat", "lose", "insert", "head"]))
        if kind == "cut":
            data = data[:where]
        elif kind == "head":
            data = data[where:]
        elif kind == "flip" and data:
            data = data[:where] + bytes([data[where] ^ (1 << draw(st.integers(0, 7)))]) + data[where + 1 :]
        elif kind == "repeat":
            data = data[:where] + data[where : where + length] * 3 + data[where + length :]
        elif kind == "lose":
            data = data[:where] + data[where + length :]
        else:
            data = data[:where] + draw(st.binary(max_size=40)) + data[where:]
    return data


@pytest.fixture
def rich_log(new_log, break_text, graph_text):
    log = new_log()
    log.artifact("dynadiag_environment", {"pid": 1, "argv": ["x"], "env": {}})
    log.start(0).artifact("dynamo_graph_break_reason", break_text, frame=0).record("dynamo_output_graph", {}, graph_text, frame=0)
    log.artifact("dynadiag_graph", {"graph": 0, "nodes": [], "strings": []}, frame=0)
    log.record("dynamo_cpp_guards_str", {}, "\n+- A\n| +- TENSOR_MATCH: check(L['x'])  # a  # b:1 in f", frame=0).metrics(0)
    log.artifact("recompile_reasons", '[\n"0/0: a",\n"0/1: b"\n]', frame=0, again=1).start(0, 1).metrics(0, 1)
    for kind, at in (("B", 1.0), ("E", 5.0)):
        log.record("chromium_event", {}, event_text("dynamo", kind, at), frame=0)
    return log.data


def event_text(name, kind, at):
    return f'{{\n"name": "{name}",\n"ts": {at},\n"args": {{\n}},\n"ph": "{kind}",\n"cat": "dynamo_timed"\n}}'


def test_an_event_whose_header_is_damaged_is_counted_as_bad(new_log):
    log = new_log().start(0).record("chromium_event", {}, event_text("dynamo", "B", 1.0), frame=0)
    log.record("chromium_event", {}, event_text("dynamo", "E", 5.0), frame=0)
    log.parts[-1] = log.parts[-1].replace(b'"frame_id": 0', b'"frame_id: 0')
    run = read_bytes(log.metrics(0).data)
    assert run.processes[0].skipped == {"header is not JSON": 1}
    assert run.phases == () and len(run.frames) == 1


@QUICK
@given(st.data())
def test_damaged_synthetic_log(rich_log, data):
    read_bytes(data.draw(damage(rich_log)))


@QUICK
@given(st.data())
def test_damaged_real_logs(shared_traces, data):
    files = ["comp_failure.log", "artifacts.log", "export_guard_added.log"]
    read_bytes(data.draw(damage((shared_traces / data.draw(st.sampled_from(files))).read_bytes())))


@QUICK
@given(st.data())
def test_mistyped_records_do_not_harm_good_ones(new_log, data):
    log = new_log().start(0)
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(KINDS))
        value = data.draw(json_values)
        if kind == "artifact" and data.draw(st.booleans()):
            value = {"name": data.draw(st.sampled_from(NAMES)), "encoding": "json"}
        payload = data.draw(st.none() | json_values.map(json.dumps) | st.text(max_size=60))
        header = {kind: value, "frame_id": data.draw(json_values | st.just(0)), "frame_compile_id": data.draw(st.just(7) | json_values),
                  "attempt": data.draw(json_values), "rank": data.draw(json_values)}  # fmt: skip
        line = f"V1121 07:32:10.000000 4242 x.py:1] {json.dumps(header)}"
        log.raw((line + "".join(f"\n\t{part}" for part in (payload or "").split("\n") if payload is not None)).encode("utf-8", "replace"))
    log.metrics(0)
    run = read_bytes(log.data)
    assert any(frame.key.text == "0/0" and frame.name is not None for frame in run.frames)


@QUICK
@given(st.binary(max_size=2000))
def test_binary_junk(data):
    read_bytes(data)


TEXT_LINES = [
    "Graph break in user code at a.py:3",
    "Graph Break Reason: x",
    "  Explanation: e",
    "  Hint: h",
    "User code traceback:",
    '  File "a.py", line 3, in f',
    "    code",
    "Recompiling function f in a.py:3",
    "    triggered by the following guard failure(s):",
    "    - 0/0: a",
    "TRACED GRAPH",
    "TREE_GUARD_MANAGER:",
    "    def forward(self, x):",
    "        return (x,)",
    "torch._dynamo hit config.recompile_limit (8)",
    "   function: 'f' (a.py:3)",
    "WON'T CONVERT f a.py line 3",
    "Traceback (most recent call last):",
    "torch._dynamo.exc.Unsupported: u",
    "from user code:",
    "Graph break: x from user code at",
    "",
    "+- A: b",
    "torchdynamo start compiling f a.py:3",
]
PREFIXES = [
    "",
    "V1121 07:22:11.076000 3362 torch/_dynamo/x.py:1] [0/0] ",
    "[rank1]:V1121 07:22:11.076000 3362 torch/x.py:1] [0/1_2] [__graph_breaks] ",
    "[2023-01-01 10:00:00,000] torch._dynamo.x: [WARNING] ",
    "\x1b[31m",
]


@QUICK
@given(st.lists(st.sampled_from(TEXT_LINES), max_size=25), st.sampled_from(PREFIXES))
def test_text_in_any_order(lines, prefix):
    read_bytes("\n".join(prefix + line for line in lines).encode(), "log.txt")


def test_bad_records_are_counted_by_reason(log, tmp_path):
    head = b"V1121 07:32:10.000000 4242 x.py:1] "
    log.start(0)
    log.raw(head + b'{"dynamo_start": {"stack": [}')
    log.raw(head + b'{"compilation_metrics": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    log.raw(head + b'{"str": ["x", ' + b"9" * 5000 + b"]}")
    log.raw(head + b'{"str": [3, "x"]}')
    log.raw(head + b'{"compilation_metrics": 4, "frame_id": 0, "frame_compile_id": 0}')
    log.raw(head + b'{"artifact": {"name": "dynadiag_registry", "encoding": "json"}}\n\t{"gb_id": ')
    log.raw(head + b'{"describe_tensor": {"id": ')
    log.raw(b"\x00\xff\xfe junk \x1b[31m")
    log.metrics(0, guard_count=float("nan"), graph_node_count=True, fail_reason=["a"])
    run = load(log.write(tmp_path))
    assert run.processes[0].skipped == {
        "header is not JSON": 4,
        "interned string is mistyped": 1,
        "metrics are mistyped": 1,
        "payload is not JSON": 1,
    }
    assert run.frames[0].outcome == "compiled" and run.frames[0].metrics.guard_count is None and run.frames[0].metrics.graph_nodes is None


def test_a_record_that_is_still_being_written_is_not_a_bad_one(log, tmp_path):
    """The program runs on, or was killed while it wrote: whatever part of the last record is there."""
    log.start(0).metrics(0)
    whole = log.data
    log.artifact("dynadiag_registry", {"gb_id": "GB0001", "gb_type": "x", "explanation": "y", "hints": []})
    path = tmp_path / "dedicated_log_torch_trace_x.log"
    for end in range(len(whole) + 1, len(log.data) - 1):
        path.write_bytes(log.data[:end])
        run = load(path)
        assert run.processes[0].skipped == {}
        assert run.frames[0].outcome == "compiled"
        assert len(run.notes) <= 1 and all("is cut off" in note for note in run.notes)
    path.write_bytes(log.data[: len(whole) + 80])
    assert len(load(path).notes) == 1
    path.write_bytes(log.data)
    assert load(path).notes == ()


def test_bad_utf8_and_surrogates_are_replaced(log, tmp_path):
    log.start(0, name="f\ud800\udc00x\udfff").raw(b'V1121 07:32:10.000000 4242 x.py:1] {"str": ["/home/\xff/a.py", 7]}').metrics(0)
    run = load(log.write(tmp_path))
    assert run.frames[0].name == "f\U00010000x\ufffd"


def test_huge_records_are_left_out_and_the_rest_is_read(log, tmp_path, monkeypatch, graph_text):
    monkeypatch.setattr(records, "LARGEST_RECORD_BYTES", 200_000)
    monkeypatch.setattr(records, "BLOCK_BYTES", 10_000)
    huge = graph_text + "        # x\n" * 40_000
    log.start(0).record("dynamo_output_graph", {}, huge, frame=0).metrics(0)
    log.raw(b"V1121 07:32:10.000000 4242 x.py:1] {" + b"x" * 500_000).raw(b"y" * 500_000).start(1, name="g").metrics(1)
    run = load(log.write(tmp_path))
    assert [frame.outcome for frame in run.frames] == ["compiled", "compiled"]
    assert run.processes[0].skipped == {"payload is too long": 1}
    assert run.notes == ("a line of more than 16 MB was left out (2 times)",)


@pytest.mark.parametrize("block", [1, 2, 7, 64, 1000])
def test_block_borders_do_not_matter(rich_log, tmp_path, monkeypatch, block):
    path = tmp_path / "a.log"
    path.write_bytes(rich_log)
    whole = load(path)
    monkeypatch.setattr(records, "BLOCK_BYTES", block)
    assert load(path) == whole


def test_hostile_names_stay_text(log, tmp_path):
    log.start(0, name="../../etc/passwd\x00<script>\x1b[2J").metrics(0)
    log.record("str", ["../../../../x", 0])
    run = load(log.write(tmp_path))
    assert run.frames[0].name == "../../etc/passwd\x00<script>\x1b[2J"
    assert [path.name for path in tmp_path.iterdir()] == ["dedicated_log_torch_trace_x.log"]


def test_graph_nodes_tolerates_any_text(graph_text):
    assert graph_nodes("") == () and graph_nodes("class X:\n    def forward(self") == ()
    damaged = graph_text.replace("relu * 2;", "relu * * 2;")
    assert [node.name for node in graph_nodes(damaged)] == ["l_x_", "s77", "relu", "body", "hop", "getitem", "iadd", "output"]
    deep = "    def forward(self, x):\n        y = " + "(" * 5000 + "\n        z = " + "-" * 90_000 + "x\n        return (x,)\n"
    assert [node.op for node in graph_nodes(deep)][0] == "placeholder"
