"""Answers of an interrupted reduction: each used once, in order, on the same machine alone."""

from __future__ import annotations

import json

import pytest

from dynadiag.children.answer_cache import AnswerCache, remembered, remembering, variables
from dynadiag.errors import OutputError, UnreadableInputError, UsageError
from dynadiag.record.directory import write_marker
from dynadiag.reduce.core.failure import Failure, shows
from dynadiag.reduce.reproducer import proving
from dynadiag.reduce.reproducer.proving import proof_by
from dynadiag.reduce.sources.recording import can_resume

HERE = {"torch": "2.15", "CPU": "a"}


@pytest.fixture
def opened(tmp_path):
    def opened(environment=HERE, resume=True):
        return AnswerCache(tmp_path / "known.jsonl", environment=environment, resume=resume)

    return opened


def asking(known, *questions):
    """What is answered, and which were asked."""
    asked: list[str] = []

    def ask(key):
        asked.append(key)
        return {"of": key, "number": len(asked)}

    with remembering(known):
        answers = [remembered(key, lambda key=key: ask(key), keep=lambda answer: answer["of"] != "bad") for key in questions]
    return [answer["number"] for answer in answers], asked


def test_each_answer_is_used_once_and_in_order(opened):
    assert asking(opened(resume=False), "a", "b", "a", "bad") == ([1, 2, 3, 4], ["a", "b", "a", "bad"])
    assert asking(opened(), "b", "a", "a", "a", "bad") == ([2, 1, 3, 1, 2], ["a", "bad"])
    assert asking(opened(), "a", "a", "a", "a") == ([1, 3, 1, 1], ["a"])
    assert asking(opened(resume=False), "a")[1] == ["a"], "a new run knows nothing"


def test_a_line_that_a_kill_cut_short_is_asked_again(opened, tmp_path):
    asking(opened(resume=False), "a", "b")
    path = tmp_path / "known.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert asking(opened(), "a", "b")[1] == ["b"]
    assert asking(opened(), "a", "b")[1] == []
    assert [json.loads(line).get("key") for line in path.read_text().splitlines()] == [None, "a", "b"]


def changed(known):
    known.close()
    return known.changed


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"torch": "2.16", "CPU": "a"}, "torch was 2.15 and is 2.16"),
        ({"torch": "2.15"}, "CPU was a and is not set"),
        ({"torch": "3", "CPU": "b", "x": "1"}, "torch was 2.15 and is 3; CPU was a and is b; 1 more differ"),
    ],
)
def test_on_another_machine_all_is_asked_again_and_it_is_said(opened, now, said):
    asking(opened(resume=False), "a")
    known = opened(now)
    assert known.changed == said and asking(known, "a")[1] == ["a"]
    assert changed(opened(now)) is None


@pytest.mark.parametrize("content", ["", "[]\n", '{"known": 1}\n', '{"known": 7, "environment": {}}\n', "\xff"])
def test_a_damaged_or_missing_file_is_no_memory(opened, tmp_path, content):
    (tmp_path / "known.jsonl").write_text(content, "latin-1")
    assert "does not record its machine" in changed(opened())
    (tmp_path / "known.jsonl").unlink()
    assert "does not record its machine" in changed(opened())


def test_what_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(OutputError, match="cannot write .*: No such file"):
        AnswerCache(tmp_path / "no" / "known.jsonl", environment={}, resume=False)


def test_without_a_memory_each_question_is_asked():
    with remembering(None):
        assert remembered("a", lambda: 5) == 5


def test_variables_of_compilers_are_part_of_the_machine(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    monkeypatch.setenv("SOMETHING", "else")
    assert variables()["TORCHINDUCTOR_MAX_AUTOTUNE"] == "1" and "SOMETHING" not in variables()


def test_runs_of_a_proof_that_showed_the_failure_are_not_made_again(opened, monkeypatch):
    failure = Failure(kind="runtime_error", phase="call", exceptions=("ValueError",), message="bad")
    ends = [(1, "ValueError: bad"), (0, ""), (1, "ValueError: bad")]
    made: list[int] = []

    def run(number):
        made.append(1)
        return ends[len(made) - 1] if len(made) <= len(ends) else (1, "ValueError: bad")

    for head, resume in (("In 20 queries.", False), ("In 3 queries.", True)):
        known = opened(resume=resume)
        monkeypatch.setattr(proving, "_shown", {})  # another process
        with remembering(known):
            proof = proof_by(f'"""{head}"""\nimport torch\n', failure, run, shows, runs=3)
        assert len(made) == 4 and proof.reproduced == 3, "a fourth run, since one of three did not show it"
    known = opened()
    with remembering(known):
        assert proof_by('"""h"""\nimport torch, os\n', failure, run, shows, runs=1).holds and len(made) == 5, "another program"


def test_a_folder_that_was_left_before_anything_was_captured_is_begun_anew(tmp_path, capsys):
    with pytest.raises(UsageError, match="--resume needs --out"):
        can_resume(None, print)
    with pytest.raises(UnreadableInputError, match="contains no reduction to resume"):
        can_resume(tmp_path / "missing", print)
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UnreadableInputError, match="contains no reduction to resume"):
        can_resume(tmp_path, print)
    assert (tmp_path / "mine.txt").exists()
    out = tmp_path / "out"
    (out / "first-run").mkdir(parents=True)
    write_marker(out, {"dynadiag": "0", "command": None})
    assert not can_resume(out, print) and list(out.iterdir()) == []
    assert capsys.readouterr().out == f"the earlier run in {out} ended before a failing graph was captured: starting over\n"
    write_marker(out, {"dynadiag": "0", "command": None})
    (out / "job.json").touch()
    assert can_resume(out, print)


def test_a_reduction_of_a_stranger_is_not_resumed(tmp_path):
    """Its folder holds compiled code (inductor's cache) and sources that going on would run."""
    write_marker(tmp_path, {"dynadiag": "0", "command": None})
    marker = tmp_path / "dynadiag-run.json"
    marker.write_text(marker.read_text().replace('"code": "', '"code": "0'))
    (tmp_path / "job.json").touch()
    with pytest.raises(UnreadableInputError, match="was not created here by you"):
        can_resume(tmp_path, print)
    assert (tmp_path / "job.json").exists()


@pytest.mark.parametrize("name", ["dedicated_log_torch_trace_1_.log", "report.json", "bench.json"])
def test_what_another_command_wrote_is_not_deleted_for_a_reduction_to_resume(tmp_path, name):
    out = tmp_path / "run"
    out.mkdir()
    write_marker(out, {"dynadiag": "0", "command": ["x.py"]})
    (out / "first-run").mkdir()
    (out / name).write_text("precious")
    with pytest.raises(UnreadableInputError, match="another command's files"):
        can_resume(out, print)
    assert (out / name).read_text() == "precious"
