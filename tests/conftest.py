"""What every test starts from: the same environment on a developer's machine as under CI."""

import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from dynadiag.torch_compat.dynamo.guard_timing import check_guards_untimed

# torch reads CI itself: with it an alias that a custom operator does not declare is an error at run time, without it a warning
# (torch/_functorch/config.py, error_on_custom_op_aliasing, seen on 2.11 and 2.15). Hypothesis reads it too and has taken its profile
# "ci" by the time this runs, so we ask for that profile by name.
os.environ.pop("CI", None)
# Where it is set (many containers) and the environment was installed without bytecode (uv does), each of some hundred processes would
# compile torch's sources anew: 5 to 9 of its 10 to 16 CPU seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Inductor would start a pool of compile workers (8 CPU seconds for one kernel), and with an empty cache try each instruction set of the CPU
# with the C++ compiler (another 8; `torch/_inductor/cpu_vec_isa.py`, 2.11 to 2.15).
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# Threads of OpenMP that wait for work would burn the core of another test: half of the CPU seconds of a training step (GNU libgomp).
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# Their processes hardly look for garbage, and not at their end (`.ci/short_processes.py` says why).
os.environ.setdefault("DYNADIAG_TESTS_SHORT_PROCESSES", "1")
# A shell starts what it runs in the background with Ctrl-C ignored, and every process of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup does the same with a hang-up. The tests stay deaf to it, but the processes that they start are not: a handler ends at exec.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)
settings.load_profile("ci")


# What searches, times, proves and writes asks torch little that recording does not: of these folders the oldest torch runs what is marked.
NEWEST_ONLY = {Path(__file__).parent / "with_torch" / name for name in ("bench", "fix", "reduce", "samples")}


def pytest_addoption(parser):
    parser.addoption("--whole-corpus", action="store_true", help="prove every program of tests/corpus/fix, not one for each cause and edit")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items):
    """Modules with a slow test first, each in one piece: one worker runs it (`--dist loadscope`), which makes its fixtures once."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    for item in items:
        if item.path.parent in NEWEST_ONLY and not item.get_closest_marker("oldest"):
            item.add_marker("any_torch")


def pytest_collection_finish():
    """What there is now stays to the end: no later look for garbage goes through torch and seven thousand tests again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def guards_are_not_timed():
    """No test that compiles in its own process asks how long the guards took."""
    check_guards_untimed()


@pytest.fixture(autouse=True)
def environment_as_before():
    """What a test leaves in the environment is gone after it: an emitted test turned inductor's caches off for all later ones."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)
