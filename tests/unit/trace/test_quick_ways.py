"""The quick ways of the reader give what the slow ones give."""

import json

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.digests.texts import untab
from dynadiag.passes.guard_parts import split
from dynadiag.passes.guard_text import _SHAPES, _whole_number
from dynadiag.trace import load
from dynadiag.trace.builders import RunBuilder
from dynadiag.trace.graph_text import count_graph
from dynadiag.trace.guards import read_guards
from dynadiag.trace.text_log import TextReader

TENSOR = {
    "id": 1, "ndim": 2, "dtype": "torch.float32", "device": "device(type='cuda', index=1)", "size": [2, 3], "dynamo_hint_overrides": {},
    "is_leaf": True, "requires_grad": True, "stride": [3, 1], "storage": 7, "view_func": "<f at 0x1>", "describer_id": 4,
}  # fmt: skip
SOURCE = {"describer_id": 4, "id": 1, "source": "L['x']"}


def described(log, tensor, source, **context):
    log.record("describe_tensor", tensor, **context).record("describe_source", source, **context)


def test_tensors_read_by_pattern_and_as_json_are_the_same(new_log, tmp_path):
    log = new_log().start(0)
    described(log, {**TENSOR, "is_view": True}, SOURCE, frame=0)  # torch puts this key at another place: read as JSON
    described(log, TENSOR, SOURCE, frame=0)  # the first of its compile context goes the long way too
    described(log, {**TENSOR, "grad": 8} | {"view_func": "g"}, SOURCE, frame=0)
    described(log, TENSOR, {**SOURCE, "source": "L['\u00e4']"}, frame=0)
    run = load(log.metrics(0).write(tmp_path))
    assert len(run.traced_inputs) == 4 and len({(one.shape, one.stride, one.storage) for one in run.traced_inputs}) == 1
    first = run.traced_inputs[0]
    assert (first.shape, first.stride, first.dtype, first.device) == ((2, 3), (3, 1), "torch.float32", "device(type='cuda', index=1)")
    assert (first.requires_grad, first.is_leaf, first.is_parameter, first.storage) == (True, True, False, 7)
    assert all(first == one for one in run.traced_inputs[:3]) and run.traced_inputs[3].source == "L['\u00e4']"
    assert run.processes[0].device == "cuda:1"


def test_a_tensor_belongs_to_the_frame_that_began_last(new_log, tmp_path):
    log = new_log().start(0)
    described(log, TENSOR, SOURCE, frame=0)
    log.artifact("dynadiag_reset", {"epoch": 1})
    log.start(0, name="g")
    described(log, TENSOR, SOURCE, frame=0)
    run = load(log.metrics(0).write(tmp_path))
    assert [one.frame for one in run.traced_inputs] == [frame.id for frame in run.frames] == ["f0", "f1"]


def test_a_damaged_description_is_counted(new_log, tmp_path):
    log = new_log().start(0)
    described(log, TENSOR, SOURCE, frame=0)
    described(log, {**TENSOR, "id": 2}, {**SOURCE, "id": 2}, frame=0)
    log.parts[-1] = log.parts[-1].replace(b'"frame_id": 0', b'"frame_id: 0')
    run = load(log.metrics(0).write(tmp_path))
    assert len(run.traced_inputs) == 1 and run.processes[0].skipped == {"header is not JSON": 1}


@given(st.lists(st.text(alphabet="a\t \u00e4", max_size=6), min_size=1, max_size=6))
def test_tabs_in_front_of_lines_are_taken_away_and_others_are_kept(lines):
    text = "\n".join(lines).encode()
    assert untab(b"".join(b"\n\t" + line for line in text.split(b"\n"))[1:]) == text


def test_every_form_of_a_line_is_counted():
    body = [
        "l_x_ = L_x_",
        "# File: a.py:3 in f, code: x['a'] = g(y)",
        'a: "f32[2]cpu" = l_x_ + 1;  l_x_ = None',
        'b: "f32[2]cpu" = a.mul_(2)',
        "c = torch.ops.aten.add.Tensor(b, 1)",
        "d = a ** b",
        "b[0] = d;  e = b",
        "a += 1;  f = a",
        "g = self.weight",
        'h: "f32[]" = d[(0, 1)]',
        "i = d.shape",
        "j = self.layer(d)",
        "k = (1 + d) == c",
        "return (d,)",
    ]
    text = 'class M:\n    def forward(self, L_x_: "f32[2]"):\n' + "".join(f"        {line}\n" for line in body)
    count = count_graph(text.encode())
    assert count is not None and count.nodes == 13
    assert count.ops == {
        "operator.add": 1, "mul_": 1, "torch.ops.aten.add.Tensor": 1, "operator.pow": 1, "operator.setitem": 1, "operator.iadd": 1,
        "operator.getitem": 1, "getattr": 1, "self.layer": 1, "operator.eq": 1,
    }  # fmt: skip


def probed(new_log, tmp_path, change=lambda text: text, *, checked=True):
    graph = "class M:\n    def forward(self, L_x_):\n        return (L_x_,)\n"
    log = new_log().start(0).record("dynamo_output_graph", {}, graph, frame=0)
    offset = load(log.write(tmp_path)).graphs[0].text.offset
    facts = {"format": 1, "graph": "g0", "text_offset": offset, "runnable": False, "mutations": [{"index": 0}], "why_not": 'it "says" so'}
    log.record("artifact", {"name": "dynadiag_probe", "encoding": "json"}, json.dumps(facts))
    header, tab, payload = log.parts[-1].partition(b"\n\t")
    log.parts[-1] = (header if checked else header.replace(b'"has_payload"', b'"was_payload"')) + tab + change(payload)
    return load(log.metrics(0).write(tmp_path))


def test_the_ends_of_a_probe_record_tell_as_much_as_the_whole(new_log, tmp_path):
    for checked in (True, False):
        graph = probed(new_log, tmp_path, checked=checked).graphs[0]
        assert (graph.runnable, graph.why_not) == (False, 'it "says" so') and graph.probe is not None


def test_a_probe_record_with_a_damaged_middle_is_counted(new_log, tmp_path):
    run = probed(new_log, tmp_path, lambda payload: payload.replace(b'{"index"', b'{"index'))
    assert run.processes[0].skipped == {"payload is not JSON": 1} and run.graphs[0].probe is None


SOURCES = st.lists(
    st.sampled_from(["L['x']", "G['f']", "L['self'].w", "L['long_name'].a.b.c", "L['x'][0]", "L['self']._modules['lin']"]), max_size=12
)
NAMED = st.lists(st.sampled_from(["x", "f", "self.w", "L['x']", "L['long_name'].a.b.c", "nothing", "x[0]"]), max_size=4)


@given(SOURCES, NAMED)
def test_guards_on_what_reasons_name_are_watched_and_the_longest_sources_are_shown(sources, named):
    leaves = "".join(f"\n| +- EQUALS_MATCH: {source} == {number}  # line" for number, source in enumerate(sources))
    found, _ = read_guards(f"\tTREE_GUARD_MANAGER:{leaves}", tuple(f"0/0: {name} == 4  # here" for name in named))
    if not sources:
        assert found is None
        return
    names = {name.replace("L['x']", "x").replace("L['long_name']", "long_name") for name in named}
    bare = [source.replace("L['", "", 1).replace("G['", "", 1).replace("']", "", 1) for source in sources]
    wanted = [f"{source} == {number}" for number, source in enumerate(sources) if bare[number] in names]
    assert [guard.code for guard in found.watched] == wanted
    longest = sorted((len(guard.source) for guard in found.examples), reverse=True)
    assert longest[:3] == sorted(map(len, sources), reverse=True)[: len(longest[:3])] and len(longest) >= min(3, len(set(sources)))


class OneByOne(TextReader):
    """Takes each line apart."""

    def _same_prefix(self, block, position, base):
        return position


PREFIXES = st.sampled_from(
    ["V0101 10:00:00 7 torch/a.py:1] [0/0] [__graph_breaks] ", "[rank1]: V0101 10:00:00 7 torch/a.py:1] ", "", "V0101 10:00:00 8 b.py:2] "]
)
TEXTS = st.sampled_from(
    ["Graph break in user code at a.py:3", "Graph Break Reason: x", "  Hint: y", "", "a\r", "[x] z", "TRACED GRAPH", "\u00e4", "\x1b[0mv"]
)


@given(st.lists(st.tuples(PREFIXES, TEXTS), max_size=12), st.integers(0, 20))
def test_lines_with_a_repeated_prefix_make_the_same_messages_as_lines_one_by_one(lines, allowance):
    block = "\n".join(prefix + text for prefix, text in lines).encode()
    found = []
    for reader in (TextReader(RunBuilder(), "a.log"), OneByOne(RunBuilder(), "a.log")):
        taken = []
        reader.events.take = lambda *message, taken=taken: taken.append(message)
        reader.allowance = allowance
        reader.lines(block, 100)
        reader.end()
        found.append((taken, reader.events.run.notes))
    assert found[0] == found[1]


@given(
    st.lists(
        st.sampled_from(["x", "L['n']", ".a", "_dynamo_x", " == ", "3", "-4", "==", "'", "len(", ")", "tensor '", " and ", "#"]), max_size=6
    )
)
def test_guards_on_whole_numbers_are_read_as_all_others(parts):
    cut = split("".join(parts).strip())
    quick = _whole_number(cut)
    assert quick is None or quick == next(found for shape in _SHAPES[1:] if (found := shape(cut)) is not None)
