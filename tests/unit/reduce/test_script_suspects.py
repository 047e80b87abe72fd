"""Where a script failed, from what its processes left behind: exceptions, the state of mapped memory, the exit status."""

from __future__ import annotations

import json
import os
import signal

import pytest

from dynadiag.capture.graph_capture import STATE, CaptureSettings, from_environment
from dynadiag.errors import DynadiagError, NothingFoundError
from dynadiag.record import RecordResult, Target
from dynadiag.reduce.sources import failing_script as script
from dynadiag.reduce.sources.failing_script import CaptureOptions, Suspect, find_and_capture


def left(folder, *, failures=(), state=None):
    folder.mkdir(exist_ok=True)
    if failures:
        lines = [json.dumps({"graph": graph, "phase": phase, "call": 0, "title": title, "text": ""}) for graph, phase, title in failures]
        (folder / "failures-1.jsonl").write_text("\n".join([*lines, '{"cut sh']))
    if state is not None:
        (folder / "state-1").write_bytes(STATE.pack(*state))
    return folder


def ended(status=0, signal=None, timed_out=False):
    return RecordResult(directory=None, exit_status=status, signal=signal, timed_out=timed_out)


@pytest.mark.parametrize(
    ("failures", "state", "result", "expected"),
    [
        ((), (0, 3, 2), ended(), None),
        ((), None, ended(1), None),
        ((), (1, 3, 0), ended(139, "SIGSEGV"), (3, "compile", 0)),
        ((), (2, 3, 5), ended(139, "SIGSEGV"), (3, "call", 5)),
        ((), (2, 3, 5), ended(124, timed_out=True), (3, "call", 5)),
        ((), (1, 3, 0), ended(7), (3, "compile", 0)),
        ((), (0, 3, 5), ended(1), (3, "after", 5)),
        ((), (0, 3, 0), ended(1), None),
        ((), (0, -1, 0), ended(1), None),
        ([(0, "compile", "a"), (4, "call", "b")], (0, 4, 1), ended(1), (4, "call", 0)),
        ([(0, "compile", "a"), (4, "call", "b")], (0, 4, 1), ended(0), (0, "compile", 0)),
    ],
)
def test_the_graph_that_failed(tmp_path, failures, state, result, expected):
    found = script._suspect(left(tmp_path, failures=failures, state=state), result)
    assert (found and (found.graph, found.phase, found.call)) == expected


@pytest.mark.parametrize(("result", "expected"), [(ended(), None), (ended(1), "script"), (ended(124, timed_out=True), "script")])
def test_where_each_graph_is_looked_at_a_failure_outside_of_them_is_the_scripts(runs, tmp_path, result, expected):
    runs.append(((0, 3, 0), result, 3))
    suspect, captured = find_and_capture(None, tmp_path, CaptureOptions(every=True))
    assert (suspect and suspect.phase) == expected and [path.name for path in captured] == ["graph-3"]


def test_damaged_files_are_no_suspects(tmp_path):
    (tmp_path / "state-1").write_bytes(b"xx")
    (tmp_path / "failures-1.jsonl").write_bytes(b'\xff\n[]\n{"graph": "x"}\n')
    assert script._suspect(tmp_path, ended(1)) is None


@pytest.fixture
def runs(monkeypatch):
    """Runs of the script by what they leave behind, one after the other."""
    prepared = []

    def run(target, out, name, settings, options):
        state, result, captured = prepared.pop(0)
        folder = left(out / name, state=state)
        if captured is not None and settings.graph != -1:
            (folder / f"graph-{captured}").mkdir()
            for file in ("inputs.pt", "setting.json"):
                (folder / f"graph-{captured}" / file).touch()
        return folder, result

    monkeypatch.setattr(script, "_run", run)
    return prepared


def test_a_failure_is_captured_in_a_second_run(runs, tmp_path):
    runs += [((2, 3, 5), ended(139, "SIGSEGV"), None), ((2, 3, 5), ended(139, "SIGSEGV"), 3)]
    suspect, captured = find_and_capture(None, tmp_path, CaptureOptions())
    assert suspect == Suspect(graph=3, phase="call", call=5, title="the process was killed by SIGSEGV")
    assert [path.name for path in captured] == ["graph-3"]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (((0, 3, 9), ended(), 3), "the failure did not recur: it occurred in 1 of 2 runs .the process was killed by SIGSEGV."),
        (((1, 2, 0), ended(139, "SIGSEGV"), 2), "did not recur"),
        (((2, 3, 5), ended(139, "SIGSEGV"), None), "could not be captured: the second run behaved differently"),
    ],
)
def test_a_failure_that_does_not_come_back_is_said(runs, tmp_path, second, message):
    runs += [((2, 3, 5), ended(139, "SIGSEGV"), None), second]
    with pytest.raises(NothingFoundError, match=message) as raised:
        find_and_capture(None, tmp_path, CaptureOptions())
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(
    ("state", "result", "message"),
    [
        (None, ended(), "nothing failed: nothing to reduce .no graph was compiled"),
        ((0, 0, 2), ended(), "nothing failed: nothing to reduce .every graph compiled and ran"),
        (None, ended(1), "failed .exit status 1. before any graph was compiled"),
    ],
)
def test_a_script_without_a_failing_graph_is_said(runs, tmp_path, state, result, message):
    runs.append((state, result, None))
    with pytest.raises(NothingFoundError, match=message):
        find_and_capture(None, tmp_path, CaptureOptions())


def test_settings_survive_the_environment():
    wanted = CaptureSettings("/somewhere", graph=4, call=2)
    assert from_environment({"DYNADIAG_CAPTURE": wanted.dumps()}) == wanted
    for text in ("", "x", "[]", '{"folder": 1}'):
        assert from_environment({"DYNADIAG_CAPTURE": text}) is None


@pytest.mark.parametrize(
    ("phase", "hangs", "limits"), [("compile", True, [60.0, 300.0]), ("compile", False, [300.0]), ("call", True, [300.0])]
)
def test_a_compile_that_hangs_is_not_waited_for_twice(monkeypatch, tmp_path, phase, hangs, limits):
    """The run that captures ends some time after the compile has begun again; one that came nowhere by then is run once more in full."""
    state, asked = ({"compile": 1, "call": 2}[phase], 3, 1), []

    def run(target, out, name, settings, options):
        asked.append(options.timeout_s)
        folder = left(out / name, state=state if len(asked) != 2 or not limits[1:] else (0, 3, 0))
        (folder / "graphs-1.jsonl").touch()
        os.utime(folder / "graphs-1.jsonl", (110.0, 110.0))
        if name == "capture":
            (folder / "graph-3").mkdir(exist_ok=True)
            for file in ("inputs.pt", "setting.json"):
                (folder / "graph-3" / file).touch()
        return folder, ended(124, timed_out=True) if hangs else ended(139, "SIGSEGV")

    monkeypatch.setattr(script, "_run", run)
    monkeypatch.setattr(script.time, "time", lambda: 100.0)
    suspect, captured = find_and_capture(None, tmp_path, CaptureOptions(timeout_s=300.0))
    assert (suspect.hangs, [path.name for path in captured]) == (hangs, ["graph-3"])
    assert asked == [300.0, *limits]


@pytest.mark.parametrize("every", [True, False])
def test_a_capture_that_is_told_to_end_goes_no_further(every, monkeypatch, tmp_path):
    done = RecordResult(directory=None, exit_status=143, signal="SIGTERM", timed_out=False, told_to_end=signal.SIGTERM)
    monkeypatch.setattr(script, "record", lambda target, options: done)
    with pytest.raises(DynadiagError) as refused:
        find_and_capture(Target("script", ("train.py",)), tmp_path, CaptureOptions(every=every))
    assert (refused.value.slug, refused.value.exit_code) == ("interrupted", 143)
