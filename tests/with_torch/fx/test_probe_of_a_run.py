"""A recorded program's graphs followed by the probe as `dynadiag explain` starts it; and that nothing of the program changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag import trace
from dynadiag.record import probe as starting
from dynadiag.record.probe import probe_run

SCRIPT = """
import torch
@torch.library.custom_op("probed::put", mutates_args=("cache",))
def put(cache: torch.Tensor, value: torch.Tensor) -> None:
    cache[0] = value
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        self.register_buffer("cache", torch.zeros(8, 4))
    def forward(self, x, scratch):
        scratch.data.add_(1)
        put(scratch, x[0])
        self.cache[2:4] = x.detach()
        return self.norm(self.linear(x)).sum()
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.compile(model, backend="aot_eager")(torch.randn(2, 4), torch.zeros(2, 4)).backward()
torch.compile(optimizer.step, backend="aot_eager")()
print("ended")
"""


def explain(folder, *arguments, **environment):
    code = "from dynadiag_cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "explain", "--no-pictures", *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
    )


def test_mutations_of_a_run_agree_with_aotautograd(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = explain(tmp_path, "--out", "run", "train.py", TORCH_TRACE=str(tmp_path / "trace"))
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
    assert len(list((tmp_path / "trace").iterdir())) == 1
    run = trace.load(tmp_path / "run")
    assert len(run.processes) == 1
    found = [(graph, trace.probe_result(graph.probe)) for graph in run.graphs if graph.kind == "dynamo"]
    told = {one.source: one for _, probed in found for one in probed.mutations}
    metadata = [trace.aot_metadata(record.payload) for record in run.mutation_records if record.kind == "aot_metadata"]
    for (graph, probed), aot in zip(found, metadata, strict=True):
        assert {one.index for one in probed.mutations} == {index for index, one in enumerate(aot.inputs) if one.is_mutated}
        assert {one.index for one in probed.mutations if one.where == "in_graph"} == {i for i, one in enumerate(aot.inputs) if one.in_graph}
    scratch, cache = told["L['scratch']"], next(one for source, one in told.items() if "_buffers['cache']" in source)
    assert [(site.op, site.stack[-1].line) for site in scratch.sites] == [("aten.add_.Tensor", 12), ("probed.put.default", 13)]
    assert [(site.stack[-1].line, site.bytes_touched) for site in cache.sites] == [(14, 32)] and cache.static is not None
    assert sum("norm" in str(source) for source in told) == 3
    weights = [one for source, one in told.items() if source.endswith("['params'][0]")]
    assert [(one.no_grad, one.where) for one in weights] == [(True, "in_graph")]
    assert [graph.runnable for graph, _ in found] == [False, True] and "probed::put" in found[0][0].why_not


def test_run_without_graphs_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(starting.subprocess, "Popen", None)
    (tmp_path / "dedicated_log_torch_trace_1.log").write_text('V1121 07:22:11.076000 1 a.py:1] {"artifact": {}}\n')
    assert probe_run(tmp_path) is None


def recorded(folder, executable):
    header = 'V1121 07:22:11.076000 1 a.py:1] {"artifact": {"name": "dynadiag_environment", "encoding": "json"}, "has_payload": "0"}'
    graph = 'V1121 07:22:11.076000 1 a.py:1] {"dynamo_output_graph": {}, "frame_id": 0, "has_payload": "0"}'
    log = folder / "dedicated_log_torch_trace_1.log"
    log.write_text(f'{header}\n\t{{"executable": "{executable}"}}\n{graph}\n\tclass\n')
    return log


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("exit 0", None),
        ("echo 'Traceback'; echo 'Boom: it broke' >&2; exit 1", "not all mutations are probed: the probe ended with 1: Boom: it broke"),
        ("kill -9 $$", "not all mutations are probed: the probe ended with -9: no output"),
        ("exec sleep 6000", "not all mutations are probed: the probe did not finish within 1 s"),
        ("echo 'dynadiag: mutations are not probed: x' >&2; exit 3", "mutations are not probed: x"),
    ],
)
def test_what_goes_wrong_in_the_probe_is_one_line(tmp_path, monkeypatch, body, expected):
    monkeypatch.setattr(starting, "_GRACE_S", 0.0)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    recorded(tmp_path, python)
    assert probe_run(tmp_path, budget_s=1.0 if "sleep" in body else 600.0) == expected


@pytest.mark.parametrize("executable", ["python3", "/nonexistent/python", "\\u0000/x", "/etc/passwd"])
def test_interpreter_that_cannot_be_started_is_said(tmp_path, executable):
    recorded(tmp_path, executable)
    assert "does not record which Python" in probe_run(tmp_path)


def test_interrupt_ends_the_probe_and_keeps_the_report(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 6000\n")
    python.chmod(0o755)
    recorded(tmp_path, python)

    def interrupt(done, total):
        raise KeyboardInterrupt

    assert probe_run(tmp_path, advance=interrupt) == "not all mutations are probed: interrupted"
    assert Path(python).exists()
