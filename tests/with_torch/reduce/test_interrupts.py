"""Ctrl-C while a result is proven: what was written last stays, nothing further is done, one line says so."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from dynadiag.reduce.minification import Minified
from dynadiag_cli.minify_output import report

pytestmark = pytest.mark.oldest
pytest.importorskip("torch")
from dynadiag.reduce import worker_process as worker  # noqa: E402


@pytest.fixture
def interrupts(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    yield worker.Interrupts()
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_what_was_kept_last_stays(interrupts, tmp_path, capfd):
    (tmp_path / "repro_min.py").write_text("first")

    def work(keep):
        (tmp_path / "repro_min.py").write_text("proven once")
        (tmp_path / "minify.json").write_text("{}")
        keep()
        (tmp_path / "repro_min.py").write_text("lowered, not proven")
        os.kill(os.getpid(), signal.SIGINT)
        (tmp_path / "minify.json").write_text("never")

    interrupts.until_interrupted(tmp_path, work)
    assert (tmp_path / "repro_min.py").read_text() == "proven once" and (tmp_path / "minify.json").read_text() == "{}"
    assert '"done": true' in capfd.readouterr().out


def test_a_worker_whose_starter_was_killed_while_it_began_does_nothing(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({"parent": os.getppid(), "out": str(tmp_path), "resume": False}))
    child = os.fork()
    if child == 0:
        worker.serve(str(tmp_path / "job.json"), lambda *_: (tmp_path / "worked").touch())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1 and not (tmp_path / "worked").exists()


def test_after_an_interrupted_search_nothing_more_is_done(interrupts, tmp_path, capfd):
    os.kill(os.getpid(), signal.SIGINT)
    interrupts.until_interrupted(tmp_path, lambda keep: pytest.fail("it was not to be done"))
    assert interrupts.asked and '"done": true' in capfd.readouterr().out


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_comes_again(interrupts, tmp_path, capfd):
    class Dropping:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            sum(range(1000))

    def work(keep):
        Dropping()
        time.sleep(60)
        pytest.fail("it was not ended")

    interrupts.until_interrupted(tmp_path, work)
    assert '"done": true' in capfd.readouterr().out


def test_work_that_ends_says_itself_what_came_of_it(interrupts, tmp_path, capfd):
    interrupts.until_interrupted(tmp_path, lambda keep: None)
    assert capfd.readouterr().out == ""
    os.kill(os.getpid(), signal.SIGINT)
    assert interrupts.asked


@pytest.mark.parametrize("unit", ["nodes", "statements"])
@pytest.mark.parametrize(("runs", "said"), [(0, "not proven yet"), (1, "it failed in the same way in 1 of 1 fresh processes")])
def test_an_interrupt_is_one_line_and_130(unit, runs, said, tmp_path, capsys):
    sizes = {"size_before": {unit: 24}, "size_after": {unit: 3}}
    result = {"complete": False, "kind": "crash", "proven": {"runs": runs, "reproduced": runs}, "reproducer": "repro_min.py", **sizes}
    done = Minified(result=result, directory=tmp_path, unit=unit)
    report(done)
    assert done.exit_code == 130
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'repro_min.py'}\n"
    what = f"crash, 24 {unit} reduced to 3, {said}"
    assert err == f"dynadiag: interrupted: the best result so far was written ({what}); continue with --resume --out {tmp_path}\n"
