"""A recompile that the stance `fail_on_recompile` refused is a finding, and says what had run already."""

import pytest

from dynadiag.model.location import Location
from dynadiag.model.run import Problem, Run, RunInfo
from dynadiag.passes.find_refused_recompiles import find_refused_recompiles

SCRIPT = "/home/me/train.py"
CALL = Location(SCRIPT, 15, "<module>", "step(x)")
ENTRY = Location("/env/site-packages/torch/_dynamo/eval_frame.py", 1265, "compile_wrapper", "result = fn(*args, **kwargs)")
SAID = """Detected recompile when torch.compile stance is 'fail_on_recompile'. filename: '{file}', function name: 'step', line number: 8
    triggered by the following guard failure(s):
    - 1/0: G['s'].k == 1                                # return y * s.k  # train.py:9 in step
    - User stack trace:
    -   File "/home/me/train.py", line 9, in step"""


def refused(*inside, function="step", line=6, times=1):
    problem = Problem(
        kind="recompile_refused",
        process=0,
        text=SAID,
        stack=(CALL, ENTRY, *inside, Location(SCRIPT, line, function, 'print("side effect")')),
    )
    return find_refused_recompiles(Run(info=RunInfo(), problems=(problem,) * times)).findings


def test_in_the_middle_of_a_call_it_says_what_had_run():
    at = Location(SCRIPT, 8, "step", 'print("side effect")')
    (finding,) = refused(at, function="torch_dynamo_resume_in_step_at_8", line=8)
    assert (finding.code, finding.severity, finding.where.line) == ("DR13", "error", 8)
    assert finding.title.endswith("was refused after part of the call had run")
    assert "`s.k` was 1" in finding.why and 'had run up to `print("side effect")` (train.py:8)' in finding.why
    assert [one.slug for one in finding.fix] == ["refused-before-anything-ran", "warm-up-before-stance"]


@pytest.mark.parametrize("times", [1, 3])
def test_at_its_beginning_nothing_had_run(times):
    (finding,) = refused(times=times)
    assert (finding.severity, finding.where.line, finding.title) == ("warning", 15, "A recompile of `step` was refused")
    assert finding.cost.value == times and "had run up to" not in finding.why
    assert [one.slug for one in finding.fix] == ["warm-up-before-stance"]
