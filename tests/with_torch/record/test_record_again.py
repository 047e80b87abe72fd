"""Recording twice in one process: each `observe`, `explain` and `assert_no_graph_breaks` has its own full record."""

import json
import sys

PROGRAM = """
import json, logging, pathlib, sys
import dynadiag, torch

def broken(x):
    print("in")
    return x + 1

def whole(x):
    return x * 2

x = torch.ones(2)
compiled = torch.compile(broken, backend="eager")
for name in ("one", "two"):
    torch._dynamo.reset()
    with dynadiag.observe(pathlib.Path(sys.argv[1]) / name):
        torch.compile(broken, backend="eager")(x)
        with torch.compiler.set_stance("force_eager"):
            compiled(x)
with dynadiag.observe(pathlib.Path(sys.argv[1]) / "outer"), dynadiag.observe(pathlib.Path(sys.argv[1]) / "empty"):
    pass

def facts(report):
    return [report.summary.frames, report.summary.graphs, report.summary.graph_break_sites, report.summary.graph_break_events]

seen = [facts(dynadiag.explain(compiled, x)) for _ in range(2)]
fresh = torch.compile(whole, backend="eager")
seen += [facts(dynadiag.assert_no_graph_breaks(fresh, x)) for _ in range(2)]
errors = []
for _ in range(2):
    try:
        dynadiag.assert_no_graph_breaks(compiled, x)
    except AssertionError as error:
        errors.append(str(error))
try:
    with torch.compiler.set_stance("force_eager"):
        dynadiag.assert_no_graph_breaks(fresh, x)
except AssertionError as error:
    errors.append(str(error))
print(json.dumps({"seen": seen, "errors": errors, "left": [type(log).__name__ for log in (torch._logging._internal.trace_log,)]}))
"""


def test_each_recording_in_one_process_is_complete(run_plain, tmp_path):
    read_logs = sys.modules[run_plain.__module__].read_logs
    done = run_plain(PROGRAM, str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    _check_logs({name: read_logs(tmp_path / name) for name in ("one", "two", "outer", "empty")})
    assert found["seen"] == [[2, 1, 1, 1]] * 2 + [[1, 1, 0, 0]] * 2
    assert [text.splitlines()[0] for text in found["errors"]] == ["1 graph break sites:"] * 2 + [
        "nothing was compiled in this call, so graph breaks could not be checked"
    ]
    assert found["left"] == ["Logger"], "the hooks are out again"


def _check_logs(logs):
    one, two = ([_kind(record) for record in logs[name]] for name in ("one", "two"))
    # Whether a call is counted depends on how long an earlier one is known to have taken.
    left_out = {("str", None), ("artifact", "dynadiag_compiled_work")}
    without_strings = [[kind for kind in kinds if kind not in left_out] for kinds in (one, two)]
    assert without_strings[0] == without_strings[1]
    assert one.count(("artifact", "dynamo_graph_break_reason")) == 1
    for name in ("outer", "empty"):
        assert {record.artifact for record in logs[name] if record.artifact} >= {"dynadiag_environment", "dynadiag_exit"}


def _kind(record):
    return next(iter(record.header)), record.artifact
