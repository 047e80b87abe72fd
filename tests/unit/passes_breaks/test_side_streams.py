"""Work on another CUDA stream in compiled code, by records as torch 2.11 wrote them on an H200."""

import pytest

from dynadiag.passes.find_side_streams import find_side_streams
from tests.unit.mutations.mutation_builders import LogBuilder

STREAM = "torch__dynamo_graph_bytecode_inputs_get_external_object_by_index"
BODY = (
    "# File: /home/me/train.py:10 in fn, code: s.wait_stream(now)",
    f"get_external_object_by_index = {STREAM}(0)",
    "wait_stream = get_external_object_by_index.wait_stream(get_external_object_by_index);  wait_stream = None",
    "# Annotation: {'stream': 0} File: /home/me/train.py:12 in fn, code: a = torch.relu(x @ w)",
    "matmul = L_x_ @ L_x_",
    "a = torch.relu(matmul);  matmul = None",
    "return (a,)",
)
STACK = '  File "/home/me/train.py", line 12, in fn\n    a = torch.relu(x @ w)\n'
CODE = """def call(self, args):
    with torch.cuda._DeviceGuard(0):
        stream0 = get_raw_stream(0)
        kernel.run(buf0, stream=stream0)
"""
ENTERS = CODE.replace("        stream0 =", "        with stream1:\n            pass\n        stream0 =")


def findings(folder, *, streams={"l_x_": 0, "matmul": 0, "a": 0, "record_event": 0}, backend="inductor", code=CODE):  # noqa: B006
    log = LogBuilder().start(name="fn").graph('L_x_: "f32[4]"', *BODY)
    nodes = [["l_x_", None, 0], ["matmul", None, 0], ["a", None, 0]]
    details = {"graph": 0, "inputs": [{"name": "l_x_"}], "nodes": nodes, "strings": [STACK], "backend": {"backend": backend, "options": {}}}
    log.artifact("dynadiag_graph", details | ({"side_streams": streams} if streams else {}))
    if code is not None:
        log._write({"inductor_output_code": {"filename": "/tmp/x.py"}, **log.ids()}, code)
    return find_side_streams(log.metrics().load(folder)).findings


def test_work_on_another_stream_is_told_where_no_code_enters_one(tmp_path):
    (finding,) = findings(tmp_path)
    assert (finding.code, finding.severity, finding.where.line, finding.cost.value) == ("DC08", "warning", 12, 2)
    assert "2 operators on another CUDA stream (train.py:12) run on the stream that is current at the call" in finding.why
    assert [advice.slug for advice in finding.fix] == ["streams-outside"]


@pytest.mark.parametrize(
    "other",
    [{"code": ENTERS}, {"code": None}, {"backend": "aot_eager"}, {"streams": {}}, {"streams": {"l_x_": 0, "record_event": 1}}],
    ids=["enters a stream", "code not recorded", "not inductor", "only the current stream", "no operator"],
)
def test_what_is_not_known_to_run_on_one_stream_is_not_told(tmp_path, other):
    assert findings(tmp_path, **other) == ()
