"""The reduction of a script that is killed or interrupted: the journal keeps every verdict, Ctrl-C writes the best so far."""

from __future__ import annotations

import json
import signal

import pytest

from dynadiag.errors import OutputError, UnreadableInputError
from dynadiag.reduce.core.reduction import Options
from dynadiag.reduce.core.verdict import CONFIRMATIONS
from dynadiag.reduce.scripts.oracle import ScriptRun
from dynadiag.reduce.scripts.program import parsed
from dynadiag.reduce.scripts.recorded_failures import Failure
from dynadiag.reduce.scripts.reduction import reduce_script_program

SCRIPT = """
import torch

def helper(x):
    y = x + 1
    z = y * 2
    return z

@torch.compile(backend="eager")
def step(x):
    y = helper(x)
    print("a break")
    return helper(y)

first = torch.ones(3)
second = torch.ones(3)
step(first)
step(second)
"""
WANTED = Failure(kind="graph_break", phase="trace", message="GB0059 of a print")


@pytest.fixture
def asked(monkeypatch):
    """The texts of all runs, of which one shows the break when it still prints: no child, so that many points can be tried."""
    texts: list[str] = []

    def see(program, conditions, *, eager=False, look=False):
        texts.append(program.text)
        shown = "print(" in program.text and "step(" in program.text and "torch.compile" in program.text
        return ScriptRun(failures=(WANTED,) if shown and not eager else ())

    for module in ("reduction", "oracle"):
        monkeypatch.setattr(f"dynadiag.reduce.scripts.{module}.see", see)
    return texts


def reduce_graph(journal, **more):
    return reduce_script_program(parsed(SCRIPT, "s"), Options(kind="graph_break", journal=journal, **more))


def test_resumed_after_a_kill_at_any_point_it_ends_the_same_and_asks_no_question_twice(asked, tmp_path):
    whole = reduce_graph(tmp_path / "whole.jsonl")
    lines = (tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) > 12 and sum(whole.queries.values()) == len(asked) - 1, "one look at what runs is no question"
    for kept in (1, 2, 7, len(lines) - 2, len(lines)):
        for torn in (b"", b'{"key": "cut sho'):
            journal = tmp_path / "killed.jsonl"
            journal.write_bytes(b"".join(lines[:kept]) + torn)
            again = reduce_graph(journal, resume=True)
            assert again.best.text == whole.best.text and again.complete
            keys = [json.loads(line)["key"] for line in journal.read_bytes().splitlines()[1:]]
            assert len(keys) == len(set(keys)) and journal.read_bytes().splitlines(keepends=True)[:kept] == lines[:kept]
            assert sum(again.queries.values()) == CONFIRMATIONS + len(lines) - max(kept, 2)


def test_a_journal_of_another_script_or_a_folder_that_cannot_be_written_is_said_in_one_line(asked, tmp_path):
    reduce_graph(tmp_path / "j.jsonl")
    with pytest.raises(UnreadableInputError, match="is not the journal of this reduction"):
        reduce_script_program(
            parsed("step = torch.compile\nprint(1)\nstep()", "s"),
            Options(kind="graph_break", journal=tmp_path / "j.jsonl", resume=True),
        )
    with pytest.raises(OutputError, match="cannot write the journal"):
        reduce_graph(tmp_path / "missing" / "j.jsonl")


@pytest.mark.slow
def test_killed_then_resumed_then_interrupted_it_writes_the_best_so_far(signalled, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    worker, out = "script_worker", tmp_path / "out"
    status, _ = signalled(worker, job_of(tmp_path, out, resume=False), out, "SIGKILL", after=4)
    assert status == -signal.SIGKILL
    answered = len((out / "journal.jsonl").read_text().splitlines()) - 1
    assert answered >= 4
    status, messages = signalled(worker, job_of(tmp_path, out, resume=True), out, "SIGINT", after=1)
    assert status == 0 and messages[-1]["done"], messages
    result = json.loads((out / "minify.json").read_text())
    assert not result["complete"] and result["proven"] == {"runs": 0, "reproduced": 0} and (out / "repro_min.py").exists()
    keys = [json.loads(line)["key"] for line in (out / "journal.jsonl").read_text().splitlines()[1:]]
    assert len(keys) == len(set(keys)) and len(keys) > answered


def job_of(folder, out, *, resume):
    job = {"script": str(folder / "script.py"), "arguments": [], "out": str(out), "timeout_s": 600.0, "kind": "graph_break", "match": None}
    return job | {"resume": resume, "level_why": ""}
