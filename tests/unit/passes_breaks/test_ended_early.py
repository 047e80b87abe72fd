"""A program that failed before anything was compiled is told how it ended, not to wrap its model in torch.compile."""

from dataclasses import replace

import pytest

from dynadiag.model import Run
from dynadiag.model.location import Location
from dynadiag.model.run import CompileCall, Problem, Process, RunInfo
from dynadiag.passes.find_fallbacks import find_fallbacks

PLACE = Location("/home/me/train.py", 12, "main", "raise ValueError('no data')")
RAISED = Problem(kind="uncaught", process=0, text="ValueError: no\n data.", stack=(PLACE,), location=PLACE)
PROCESS = Process(index=0, log="x.log", pid=7, torch="2.15", hooks={"torch.compile": "ok"})
CALL = CompileCall(process=0, location=replace(PLACE, line=3), target="model", backend=None, options={}, disabled=False)


def run_of(**changes):
    return Run(
        **{"info": RunInfo(command=("python", "train.py"), exit_status=1), "processes": (PROCESS,), "problems": (RAISED,), **changes}
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "The program ended (exit status 1, ValueError: no data at train.py:12) before torch.compile was called."),
        ({"compile_calls": (CALL,)}, "before what torch.compile returned (at train.py:3) was called."),
        ({"processes": (replace(PROCESS, torch=None, hooks={}),)}, "at train.py:12) before torch was imported."),
        ({"processes": (), "problems": ()}, "The program ended (exit status 1) before torch was imported."),
        (
            {"problems": (), "info": RunInfo(command=("python", "x"), exit_status=139, signal="SIGSEGV")},
            "The program ended (SIGSEGV) before torch.compile was called.",
        ),
    ],
)
def test_how_it_ended_is_told(changes, said):
    found = find_fallbacks(run_of(**changes))
    (finding,) = found.findings
    assert found.fallbacks == ()  # what was not reached did not run eager
    assert finding.why.endswith(said)
    assert finding.title == "Nothing was compiled: the program ended before anything could be"
    assert "Wrap" not in finding.fix[0].text


def test_a_program_that_ended_well_is_still_told_what_it_did_not_call():
    (finding,) = find_fallbacks(run_of(info=RunInfo(command=("python", "train.py"), exit_status=0), problems=())).findings
    assert finding.why == "torch was imported, but torch.compile was never called."


def test_nothing_recorded_is_not_called_a_program_without_torch():
    info = RunInfo(command=("python", "x"), exit_status=0, stopped=("recording stopped in process 7: File too large",))
    (finding,) = find_fallbacks(run_of(info=info, processes=(), problems=())).findings
    assert finding.why == "Nothing could be recorded: recording stopped in process 7: File too large."


def test_a_recording_that_was_cut_short_does_not_say_that_nothing_was_called():
    """With `ulimit -f` the log ends before the first compilation; the program was told to call what it had called."""
    info = RunInfo(command=("python", "x"), exit_status=0, stopped=("recording stopped in process 7: File too large",))
    found = find_fallbacks(run_of(info=info, compile_calls=(CALL,), problems=()))
    (finding,) = found.findings
    assert found.fallbacks == () and finding.fix == () and finding.title.startswith("No compilation was recorded")
    assert finding.why == "Recording stopped in process 7: File too large; whether anything was compiled afterwards is not known."
