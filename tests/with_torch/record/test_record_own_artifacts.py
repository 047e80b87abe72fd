"""What torch's trace lacks is recorded by us, also by an interpreter that has never heard of dynadiag."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, torch
import torch._dynamo.config as config

print([path for path in sys.path if "dynadiag" in path])
x = torch.ones(4)


class Box:
    pass


@torch.compile(backend="eager", dynamic=False)
def limited(x, box):
    return x + len(box.name)


config.recompile_limit = 2
for number in range(4):
    box = Box()
    box.name = "a" * number
    limited(x, box)


def failing_backend(graph, inputs):
    raise RuntimeError("backend says no")


config.suppress_errors = True
torch.compile(lambda x: x * 2, backend=failing_backend)(x)
config.suppress_errors = False


def eager(x):
    return x - 1


torch.compiler.disable(eager, reason="measured elsewhere")
with torch.compiler.set_stance("force_eager"):
    torch.compile(eager, backend="eager", fullgraph=True)(x)
torch.compile(eager, disable=True, options={"trace.enabled": False})(x)
torch._dynamo.reset()


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.inner(x.view(2, 4))
        print("broken")
        return y + x[:4]


torch.compile(Module(), backend="aot_eager")(torch.ones(8))


def pieces(x):
    yield x + 1


list(torch.compile(pieces, backend="eager")(x))
"""


@pytest.fixture
def outcome(run_recorded, without_dynadiag):
    return run_recorded(PROGRAM, python=without_dynadiag)


def test_what_the_trace_lacks_is_recorded(outcome):
    assert outcome.result.exit_status == 0, outcome.err
    assert outcome.out.splitlines() == ["[]", "broken"]
    _check_environment(outcome)
    _check_problems(outcome)
    _check_calls(outcome)
    _check_graphs(outcome)
    _check_tlparse_reads(outcome)


def _check_environment(outcome):
    first = outcome.records[0]
    assert first.artifact == "dynadiag_environment"
    facts = first.content
    assert facts["started_by"] == "main"
    assert facts["torch"]
    assert facts["device"] is None
    assert any(prefix.endswith("torch") for prefix in facts["site_prefixes"])
    configs = [record.content for record in outcome.named("dynadiag_config")]
    assert [config["dynamo"].get("recompile_limit") for config in configs][0] == 2
    assert configs[1]["dynamo"]["suppress_errors"] is True
    assert "capture_scalar_outputs" in configs[0]["options"]["dynamo"]
    assert "disable" in configs[0]["options"]["compiler"]
    assert "options" not in configs[1]
    (entry,) = [
        record.content
        for record in outcome.named("dynadiag_registry")
        if "print" in record.content["explanation"] + record.content["gb_type"] + "print"
    ][:1]
    assert entry["gb_id"].startswith("GB")
    assert entry["explanation"]


def _check_problems(outcome):
    (limit,) = outcome.problems("recompile_limit")
    assert "limited hit torch._dynamo.config.recompile_limit = 2" in limit.content["text"]
    assert limit.header["frame_id"] == 0
    assert limit.header["frame_compile_id"] == 2
    assert limit.content["stack"][0]["function"] == "limited"
    suppressed = outcome.problems("backend_error")
    assert any("backend says no" in problem.content["text"] for problem in suppressed)
    (stance,) = outcome.problems("stance")
    assert stance.content["text"] == "stance force_eager"
    assert stance.content["stack"][-1]["code"] == 'with torch.compiler.set_stance("force_eager"):'
    (disabled,) = outcome.problems("disabled")
    assert disabled.content["text"] == "eager is disabled: measured elsewhere"
    assert disabled.content["stack"][-1]["code"].startswith("torch.compiler.disable(eager")
    assert [one.content["text"].splitlines()[0] for one in outcome.problems("no_graph")] == ["pieces: Attempt to trace generator"]
    assert outcome.problems("recorder") == []
    assert len(outcome.named("dynadiag_reset")) == 1


def _check_calls(outcome):
    calls = [record.content for record in outcome.named("dynadiag_compile_call")]
    assert [call["target"] for call in calls] == ["limited", "<lambda>", "eager", "eager", "Module", "pieces"]
    assert [call["backend"] for call in calls] == ["eager", "failing_backend", "eager", None, "aot_eager", "eager"]
    assert [call["definition"] is None for call in calls] == [False, False, False, False, True, False]
    assert calls[0]["definition"]["file"].endswith("script.py")
    assert outcome.named("dynadiag_exit")[0].content["calls"] == 8, "four of `limited`, one of each other that is compiled"
    during = [record.content["call"] for record in outcome.named("dynadiag_entry")]
    assert (during[:2], during[-1]) == ([1, 2], 7)
    told = {record.content["call"]: at for at, record in enumerate(outcome.records) if record.artifact == "dynadiag_call"}
    again = next(at for at, record in enumerate(outcome.records) if record.artifact == "recompile_reasons")
    assert set(told) >= set(during) and told[1] < told[2] < again, "what fails of the guards is told before the compilation begins"
    assert calls[0]["dynamic"] is False
    assert [call["disable"] for call in calls] == [False, False, False, True, False, False]
    assert calls[2]["fullgraph"] is True
    assert all(call["stack"][-1]["file"].endswith("script.py") or "torch" in call["stack"][-1]["file"] for call in calls)


def _check_graphs(outcome):
    graph = next(record.content for record in outcome.named("dynadiag_graph") if len(record.content["inputs"]) == 3)
    sources = {entry["source"] for entry in graph["inputs"]}
    assert "L['x']" in sources
    assert any("inner" in source for source in sources)
    x = next(entry for entry in graph["inputs"] if entry["source"] == "L['x']")
    assert (x["shape"], x["dtype"], x["device"], x["stride"]) == ([8], "torch.float32", "cpu", [1])
    linear = next(node for node in graph["nodes"] if node[1] is not None)
    assert "inner" in graph["strings"][linear[1]]
    assert set(graph["classes"]) == set(graph["strings"][linear[1]].split(" > ")) and "Linear" in graph["classes"].values()
    assert "script.py" in graph["strings"][linear[2]]


def _check_tlparse_reads(outcome):
    tlparse = shutil.which("tlparse") or shutil.which("tlparse", path=str(Path(sys.executable).parent))
    if tlparse is None:
        return
    log = outcome.result.directory / outcome.records[0].log
    done = subprocess.run([tlparse, "--strict", str(log), "-o", str(outcome.result.directory / "tl"), "--no-browser"], capture_output=True)
    assert done.returncode == 0, done.stderr


OBSERVED = """
import torch, dynadiag, sys

def broken(x):
    print("in")
    return x + 1

def other(x):
    print("other")
    return x + 2

torch.compile(broken, backend="eager")(torch.ones(2))
before = torch._logging._internal.trace_structured
with dynadiag.observe(sys.argv[1]) as first:
    torch._dynamo.reset()
    torch.compile(broken, backend="eager")(torch.ones(2))
    with dynadiag.observe(sys.argv[2]):
        torch.compile(other, backend="eager")(torch.ones(2))
assert torch._logging._internal.trace_structured is before
torch._dynamo.reset()
torch.compile(broken, backend="eager")(torch.ones(2))
"""


def test_observe_records_from_inside_and_leaves_nothing_behind(run_plain, tmp_path, monkeypatch):
    from dynadiag.record.directory import is_run_directory

    conftest = sys.modules[run_plain.__module__]
    (tmp_path / "script.py").write_text(OBSERVED)
    monkeypatch.setattr(sys, "argv", ["script.py", str(tmp_path / "outer"), str(tmp_path / "inner")])
    runpy.run_path(str(tmp_path / "script.py"), run_name="__main__")
    outer, inner = (conftest.read_logs(tmp_path / name) for name in ("outer", "inner"))
    assert is_run_directory(tmp_path / "outer")
    assert sum(record.artifact == "dynamo_graph_break_reason" for record in outer) == 2
    assert sum(record.artifact == "dynamo_graph_break_reason" for record in inner) == 1
    assert outer[1].header.get("str"), "a log that starts late begins with torch's string table"
    assert outer[-1].artifact == "dynadiag_exit"
