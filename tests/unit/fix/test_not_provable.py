"""Why nothing can be proven of a program is told by its cause, not by what came of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dynadiag.fix.proof import NotProvableError, Prover
from dynadiag.fix.runs import Outcome

ENDED = Outcome(ended=True, exit_status=0, values=Path("values"))
FAILED = replace(ENDED, exit_status=1, raised="FileNotFoundError", said="FileNotFoundError: no such file: 'inbox/job.txt'")


class Runs:
    """Every run comes to the same; no call of a compiled callable is seen."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def run_program(self, **_: object) -> Outcome:
        return self._outcome

    def difference(self, *_: object) -> tuple[str | None, dict[str, int]]:
        return None, {}


def why(outcome: Outcome, recorded_status: int | None = 0) -> str:
    with pytest.raises(NotProvableError) as error:
        Prover(runner=Runs(outcome), originals={}, backend="eager", recorded_status=recorded_status).refer([])
    return str(error.value)


def test_a_script_that_consumed_its_input_fails_the_second_time():
    expected = "run once more, in eager, it does not end as it did when it was recorded: FileNotFoundError: no such file: 'inbox/job.txt'"
    assert why(FAILED) == expected
    assert why(replace(FAILED, said=None, raised=None)).endswith("recorded: exit status 1")


def test_a_script_that_reads_stdin_is_told_so():
    assert why(replace(FAILED, read_stdin=True)).startswith("it reads stdin, which is empty in the runs of a proof (run once more")
    assert why(replace(ENDED, read_stdin=True)).startswith("it reads stdin, which is empty in the runs of a proof (no call of a compiled")


def test_a_script_that_failed_before_too_is_no_other():
    assert why(FAILED, recorded_status=1) == why(ENDED) == "no call of a compiled callable was seen in the script's own process"
