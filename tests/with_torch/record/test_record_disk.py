"""A log that cannot be written or grows too large costs one warning and nothing else."""

import pytest

from dynadiag.render.completeness import completeness
from dynadiag.report import build
from dynadiag.trace import load

pytestmark = pytest.mark.any_torch
PROGRAM = """
import resource, sys, torch
if len(sys.argv) > 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))

def broken(x, n):
    print("in", n)
    return x + n

for n in range(3):
    torch.compile(broken, backend="eager")(torch.ones(2), n)
sys.exit(3)
"""


def test_a_full_disk_gives_one_warning_and_a_cap_another(run_recorded, tmp_path):
    full = run_recorded(PROGRAM, "20000")
    assert full.result.exit_status == 3
    assert full.out == "in 0\nin 1\nin 2\n"
    assert full.err.count("dynadiag:") == 1
    assert "recording stopped, the script continues" in full.err
    assert completeness(load(full.result.directory))[0] is False
    assert completeness(load(full.result.directory))[1].startswith("recording stopped in process ")
    assert completeness(load(full.result.directory))[1].endswith("File too large")
    capped = run_recorded(PROGRAM, out=tmp_path / "capped", log_cap_bytes=30_000)
    assert capped.result.exit_status == 3
    assert capped.err.count("dynadiag:") == 1
    (problem,) = capped.problems("log_limit")
    assert "30000 bytes" in problem.content["text"]
    assert capped.named("dynadiag_exit"), "the end of the process is told beyond the cap"


def test_too_few_calls_for_a_run_time_leave_the_recording_complete(run_recorded):
    short = run_recorded(PROGRAM.replace("range(3)", "range(4)"), cost=True)
    (problem,) = short.problems("no_cost")
    assert problem.content["text"].startswith("--cost: no run time: needs 23 steady calls, saw ")
    run = load(short.result.directory)
    assert completeness(run) == (True, None)
    assert problem.content["text"] in build(run).notes
