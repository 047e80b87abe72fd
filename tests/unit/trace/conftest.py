"""Builds small logs in torch's trace format, record by record."""

import hashlib
import json
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"


class LogBuilder:
    def __init__(self, pid=4242):
        self.parts = []
        self.pid = pid
        self.millis = 0

    def record(self, kind, value, payload=None, *, frame=None, again=0, attempt=0, **extra):
        header = {kind: value}
        header.update(extra)
        if frame is not None:
            header.update(frame_id=frame, frame_compile_id=again, attempt=attempt)
        if payload is not None:
            if not isinstance(payload, str):
                payload = json.dumps(payload, indent=0)
            header["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
        self.millis += 1
        line = f"V1121 07:32:10.{self.millis % 1000:03d}000 {self.pid} torch/_dynamo/x.py:12] {json.dumps(header)}"
        if payload is not None:
            line += "".join(f"\n\t{part}" for part in payload.split("\n"))
        self.parts.append(line.encode())
        return self

    def artifact(self, name, payload, **where):
        return self.record("artifact", {"name": name, "encoding": "json"}, payload, **where)

    def intern(self, *names):
        for number, name in enumerate(names):
            self.record("str", [name, number])
        return self

    def start(self, frame, again=0, name="f", line=3, caller_line=9):
        stack = [
            {"line": caller_line, "name": "<module>", "filename": 0, "loc": "f(x)"},
            {"line": line, "name": name, "filename": 0},
        ]
        return self.record("dynamo_start", {"stack": stack}, frame=frame, again=again)

    def metrics(self, frame, again=0, attempt=0, kind="compilation_metrics", **values):
        full = {
            "co_name": "f",
            "co_filename": "/home/me/train.py",
            "co_firstlineno": 3,
            "has_guarded_code": True,
            "fail_type": None,
            **values,
        }
        return self.record(kind, full, frame=frame, again=again, attempt=attempt)

    def raw(self, data):
        self.parts.append(data)
        return self

    @property
    def data(self):
        return b"\n".join(self.parts) + b"\n"

    def write(self, folder, name="dedicated_log_torch_trace_x.log"):
        path = Path(folder) / name
        path.write_bytes(self.data)
        return path


@pytest.fixture
def log():
    return LogBuilder().intern("/home/me/train.py")


@pytest.fixture
def new_log():
    return lambda pid=4242: LogBuilder(pid).intern("/home/me/train.py")


@pytest.fixture
def shared_traces():
    if not SHARED.is_dir():
        pytest.skip("no ../shared/traces here")
    return SHARED


BREAK = """Graph break in user code at /home/me/train.py:5
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
  Hint: Avoid calling builtin `print`.
  Hint: Add it to
    `torch._dynamo.config.reorderable_logging_functions`.

  Developer debug context: builtin print [<class 'X'>] False

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html

User code traceback:
  File "/home/me/train.py", line 9, in <module>
    f(x)
    ~^^^
  File "/home/me/train.py", line 5, in f
    print("x")
    ~~~~~^^^^^

Traceback (most recent call last):
  File "/site/torch/_dynamo/symbolic_convert.py", line 1, in wrapper
    return inner_fn(self, inst)
torch._dynamo.exc.Unsupported: Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`
"""

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 16][16, 1]cpu", s77: "Sym(s77)"):
        l_x_ = L_x_

        # File: /home/me/train.py:4 in f, code: y = x.relu() * 2
        relu: "f32[4, 16][16, 1]cpu" = l_x_.relu();  l_x_ = None
        mul: "f32[4, 16][16, 1]cpu" = relu * 2;  relu = None
        body = self.body_0
        hop = torch.ops.higher_order.wrap(body, mul);  body = mul = None
        getitem: "f32[4, 16]" = hop[0];  hop = None
        getitem += 1;  iadd: "f32[4, 16]" = getitem;  getitem = None
        return (iadd,)

    class body_0(torch.nn.Module):
        def forward(self, a: "f32[4]"):
            sin: "f32[4]" = a.sin()
            return (sin,)
"""


@pytest.fixture
def break_text():
    return BREAK


@pytest.fixture
def graph_text():
    return GRAPH
