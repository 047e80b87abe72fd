"""What runs of a proof write is gone afterwards: a program that keeps its best, resumes and appends finds all as it left it."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3

import pytest
import torch

from dynadiag.errors import NoViewError, UsageError
from dynadiag.fix.inside.running import RunJob
from dynadiag.fix.proof import Prover
from dynadiag.fix.runs import Runner, RunServer
from dynadiag.private_view.choosing import private_view, roots_of
from dynadiag.private_view.consent import Apart

SCRIPT = """
import os, socket, sqlite3, sys, torch
here = os.path.dirname(os.path.abspath(__file__))
best, state = os.path.join(here, "best.pt"), os.path.join(here, "state.pt")
model = torch.nn.Linear(3, 1)
with torch.no_grad():
    model.weight.fill_(0.5); model.bias.zero_()
start = 0
if os.path.exists(state):
    saved = torch.load(state)
    model.load_state_dict(saved["model"]); start = saved["step"]
opt = torch.optim.SGD(model.parameters(), lr=0.05)
step = torch.compile(lambda x: model(x).pow(2).mean(), backend="eager")
for n in range(start, start + 3):
    opt.zero_grad()
    loss = step(torch.full((4, 3), 2.0))
    loss.backward()
    opt.step()
    print("loss %.4f" % loss.item())
    torch.save({"model": model.state_dict(), "step": n + 1}, state + ".part")
    os.replace(state + ".part", state)
if not os.path.exists(best) or loss.item() < torch.load(best)["loss"]:
    torch.save({"loss": loss.item()}, best)
open("results.csv", "a").write("%d,%.4f\\n" % (n, loss.item()))
database = sqlite3.connect("runs.db")
database.execute("create table if not exists runs(loss)")
database.execute("insert into runs values (?)", (loss.item(),))
database.commit()
if len(sys.argv) > 1:
    socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
"""
FILES = ("best.pt", "results.csv", "runs.db", "state.pt")


def facts(folder):
    return {one.name: (one.stat().st_mtime_ns, one.stat().st_mode, one.read_bytes()) for one in folder.iterdir() if one.is_file()}


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    """A process of its own, as the verb's is one: torch's autograd refuses a fork of a process that has run a backward before."""
    made = RunServer(tmp_path_factory.mktemp("worker"), training=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def program(worker, tmp_path_factory):
    """A folder in which the program ran once, in a child of the worker."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(SCRIPT)
    runs = tmp_path_factory.mktemp("first")
    job = RunJob(script=str(folder / "train.py"), arguments=[], folder=str(folder), output=str(runs))
    told = worker.ask({"do": "run", "job": job.to_json(), "timeout_s": 60})
    assert told.get("exit_status") == 0, f"{told}\n{(runs / 'stderr').read_text()}"
    assert {*FILES} < {one.name for one in folder.iterdir()}
    return folder


def runner_for(worker, program, tmp_path, view, *arguments):
    job = RunJob(script=str(program / "train.py"), arguments=list(arguments), folder=str(program), output=str(tmp_path))
    return Runner(tmp_path, job, worker.ask, timeout_s=60, apart=Apart(view=view.and_passed(tmp_path)))


@pytest.mark.parametrize("kind", ["overlay", "undo"])
def test_runs_on_other_data_leave_no_trace(worker, program, tmp_path, kind):
    before = facts(program)
    try:
        with private_view(roots_of(program, program), kind=kind) as view:
            prover = Prover(runner=runner_for(worker, program, tmp_path, view), originals={}, backend="eager")
            prover.refer([])
            assert facts(program) == before
    except NoViewError as error:
        pytest.skip(error.message)
    assert prover.plain.stdout == prover.again.stdout != ""
    assert len(prover.varied) == 2 and all(one.stdout != prover.plain.stdout for one in prover.varied.values())
    assert facts(program) == before
    with contextlib.closing(sqlite3.connect(program / "runs.db")) as database:  # open, it would be a program that writes to it
        assert database.execute("select count(*) from runs").fetchall() == [(1,)]
    assert torch.load(program / "state.pt")["step"] == 3


def test_a_script_that_connects_is_not_run_on_other_data_unasked(worker, program, tmp_path):
    try:
        with private_view(roots_of(program, program)) as view, socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
            runner = runner_for(worker, program, tmp_path, view, port)
            with pytest.raises(UsageError, match=f"connects to 127.0.0.1:{port}.*--yes"):
                Prover(runner=runner, originals={}, backend="eager").refer([])
            assert runner.runs == 0
    except NoViewError as error:
        pytest.skip(error.message)


def test_a_child_that_takes_too_long_leaves_no_trace(worker, program, tmp_path):
    (program / "hang.py").write_text("import time\nopen('best.pt', 'w').write('lost')\nopen('new.txt', 'w').write('1')\ntime.sleep(600)\n")
    before = facts(program)
    for kind in ("overlay", "undo"):
        folder = tmp_path / kind
        folder.mkdir()
        job = RunJob(script=str(program / "hang.py"), arguments=[], folder=str(program), output=str(folder))
        try:
            with private_view(roots_of(program, program), kind=kind) as view:
                message = {"do": "run", "job": job.to_json(), "timeout_s": 2, "view": view.and_passed(folder).dumps()}
                assert "did not end" in worker.ask(message)["why"]
                assert facts(program) == before
        except NoViewError:
            continue
    os.unlink(program / "hang.py")
