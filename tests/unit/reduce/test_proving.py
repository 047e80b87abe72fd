"""Whether a finished process showed the failure; and whether the directory that it ran in was empty and its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dynadiag.children import template as template_module
from dynadiag.reduce import session
from dynadiag.reduce.core.failure import Failure, shows
from dynadiag.reduce.reproducer import proving
from dynadiag.reduce.reproducer.proving import DROPPED, Proof, prove, run_fresh, run_in_child
from dynadiag.reduce.reproducer.script_outcome import seeded

ASSERT = Failure(kind="runtime_error", phase="call", exceptions=("torch.AcceleratorError",), message="CUDA error: device-side assert")
ERROR = Failure(kind="compile_error", phase="compile", exceptions=("a.Outer", "b.Inner"), message="cannot do N of relu")


@pytest.mark.parametrize(
    ("failure", "status", "output", "answer"),
    [
        (ERROR, 1, "Traceback\nb.Inner: cannot do 17 of relu_3", True),
        (ERROR, 1, "Traceback\nb.Inner: cannot do it", False),
        (ERROR, 1, "Traceback\nOther: cannot do 17 of relu_3", False),
        (ERROR, 0, "b.Inner: cannot do 17 of relu_3", False),
        (ERROR, None, "b.Inner: cannot do 17 of relu_3", False),
        (ERROR, 1, "b.Inner: \x1b[1mcannot do 17 \u202eof relu_3\x1b[0m", True),
        (ERROR, -6, "b.Inner: cannot do 17 of relu_3", False),
        (ASSERT, -6, "torch.AcceleratorError: CUDA error: device-side assert triggered", True),
        (ASSERT, -6, "terminate called", False),
        (ASSERT, -11, "torch.AcceleratorError: CUDA error: device-side assert triggered", False),
        (Failure(kind="crash", phase="call", message="SIGSEGV"), -11, "", True),
        (Failure(kind="crash", phase="call", message="SIGSEGV"), -6, "", False),
        (Failure(kind="crash", phase="call", message="SIGSEGV"), 1, "", False),
        (Failure(kind="crash", phase="call", message="exit 7"), 7, "", True),
        (Failure(kind="hang", phase="compile"), None, "", True),
        (Failure(kind="hang", phase="compile"), 1, "Timeout (0:00:30)!", True),
        (Failure(kind="hang", phase="compile"), 1, "ImportError", False),
        (Failure(kind="wrong_result", phase="call"), 1, "AssertionError: wrong result 0: error 1", True),
        (Failure(kind="wrong_result", phase="call"), 1, "AssertionError: another", False),
        (Failure(kind="wrong_mutation", phase="call"), 1, "AssertionError: wrong result 1: error 1", True),
        (Failure(kind="oom", phase="call"), 1, "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried", True),
        (Failure(kind="oom", phase="call"), 1, "RuntimeError: another", False),
        (Failure(kind="oom", phase="call"), -9, "", False),
    ],
)
def test_only_the_same_end_counts(failure, status, output, answer):
    assert shows(failure, status, output) is answer


def test_each_run_is_fresh_and_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    source = "import os\nprint(sorted(os.listdir()), os.environ.get('PYTHONPATH'))\nopen('left', 'w')\nraise ValueError('bad 7')\n"
    failure = Failure(kind="runtime_error", phase="call", exceptions=("ValueError",), message="bad N")
    proof = prove(source, failure, timeout_s=600)
    assert (proof.runs, proof.reproduced, proof.holds) == (3, 3, True)
    assert "['repro_min.py'] None" in proof.output
    assert not prove("pass", failure, timeout_s=600, runs=1).holds and not Proof(runs=0, reproduced=0).holds


def test_what_is_known_of_the_machine_is_used_again_and_no_graph(tmp_path):
    for name in ("ab/isa.so", "fxgraph/x/graph", "aotautograd/graph"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    look = "import os, pathlib; print(sorted(p.name for p in pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR']).rglob('*')))"
    assert run_fresh(look, timeout_s=600, warm=tmp_path) == (0, "['ab', 'isa.so']\n")
    assert run_fresh(look, timeout_s=600, warm=tmp_path / "gone") == (0, "[]\n")


def test_torchs_own_minifier_does_not_begin_in_a_question(monkeypatch, tmp_path):
    """With it a failure comes wrapped, and of layers that pass another failure is told."""
    for name in DROPPED:
        monkeypatch.setenv(name, "aot")
    assert not set(DROPPED) & set(session.worker_environment(tmp_path))
    assert {"TORCHDYNAMO_REPRO_AFTER", "TORCHDYNAMO_REPRO_LEVEL"} < set(DROPPED)
    look = f"import os; print(sorted(set(os.environ) & set({DROPPED!r})))"
    assert run_fresh(look, timeout_s=600) == (0, "[]\n")


def test_a_run_that_does_not_end_is_ended(monkeypatch, tmp_path):
    class TimeIsOverOnceItIsThere(subprocess.Popen):
        def communicate(self, input=None, timeout=None):
            if timeout is None:
                return super().communicate(input)
            while not (tmp_path / "there").exists() and self.poll() is None:
                time.sleep(0.05)
            return super().communicate(input, timeout=0.05)

    monkeypatch.setattr(proving.subprocess, "Popen", TimeIsOverOnceItIsThere)
    source = f"import time\nprint('here', flush=True)\nopen({str(tmp_path / 'there')!r}, 'w')\ntime.sleep(6000)"
    assert run_fresh(source, timeout_s=600) == (None, "here\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("source", "status"),
    [("import os; assert os.listdir() == ['output', 'program.py']", 0), ("1 / 0", 1), ("import os; os.abort()", -signal.SIGABRT)],
)
def test_a_file_is_run_in_a_child(source, status):
    assert run_in_child(source, timeout_s=600) == status


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_a_question_ends_with_the_process_that_asks():
    """Killed, the reducer leaves no child that runs on until its time is over."""
    text = """import os, time
from dynadiag.children.forked import start_forked
child = start_forked(lambda tell: (tell({"pid": os.getpid()}), time.sleep(6000)), timeout_s=6000)
child.read()
print(child._raw.decode(), flush=True)
time.sleep(6000)
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as asking:
        question = os.pidfd_open(json.loads(asking.stdout.readline())["pid"])
        asking.kill()
    assert select.select([question], [], [])[0] == [question]
    os.close(question)


def test_an_error_before_much_noise_is_still_seen():
    source = "import sys\nprint('b.Inner: cannot do 3 of relu')\nprint('warning\\n' * 100_000)\nsys.exit(1)"
    assert prove(source, ERROR, timeout_s=600, runs=1).holds


def test_later_runs_of_a_script_draw_other_numbers():
    source = '"""Text."""\nimport os\nimport torch._dynamo as d\nprint(1)\n'
    assert seeded(source, 0) == source
    assert seeded(source, 2) == '"""Text."""\nimport os\nimport torch._dynamo as d\n__import__("torch").manual_seed(2)\nprint(1)\n'
    assert seeded("import os\n", 2) == "import os\n"


@pytest.fixture
def forked(monkeypatch):
    """A template of this process; further runs of a proof are forked from it."""
    for name in [name for name in os.environ if name.startswith(proving._READ_ON_IMPORT)]:
        monkeypatch.delenv(name)
    with template_module.template():
        yield template_module.template_now()


def test_further_runs_of_a_proof_are_forked_and_as_fresh_as_the_first(forked, monkeypatch, tmp_path):
    monkeypatch.setenv("MINE", "1")
    told = tmp_path / "told"
    source = (
        "import os, sys, random\n"
        "row = [sorted(os.listdir()), os.getenv('MINE'), sys.argv[0] == __file__, __name__, 'pytest' in sys.modules, random.random()]\n"
        f"open({str(told)!r}, 'a').write(repr(row) + chr(10))\n"
        "open('left', 'w')\nprint('said')\nraise ValueError('bad 7')\n"
    )
    proof = prove(source, Failure(kind="runtime_error", phase="call", exceptions=("ValueError",), message="bad N"), timeout_s=600)
    assert (proof.runs, proof.reproduced) == (3, 3) and "said\n" in proof.output and "ValueError: bad 7" in proof.output
    rows = [eval(line) for line in told.read_text().splitlines()]
    assert [row[-2] for row in rows] == [False, True, True], "the first run is an interpreter of its own"
    assert all(row[0] == ["repro_min.py"] and row[1:4] == [None, rows[0][2], "__main__"] for row in rows), rows
    assert len({row[-1] for row in rows}) == 3


@pytest.mark.parametrize(
    ("source", "ended", "said"),
    [
        ("print(1)", 0, "1\n"),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import atexit; atexit.register(print, 2); exit(3)", 3, "2\n"),
    ],
)
def test_a_forked_run_ends_as_an_interpreter_does(forked, source, ended, said):
    assert run_fresh(source, timeout_s=600, variables={}, template=forked) == (ended, said)


def test_a_forked_run_that_does_not_end_is_killed_and_the_next_one_runs(forked):
    slow = "import time; print('here', flush=True); time.sleep(600)"
    assert run_fresh(slow, timeout_s=1, variables={}, template=forked) == (None, "here\n")
    assert run_fresh("print(1)", timeout_s=600, variables={}, template=forked) == (0, "1\n")


@pytest.mark.parametrize(
    ("kind", "source", "variables"),
    [
        ("crash", "", {}),
        ("compile_error", "os.environ['OMP_NUM_THREADS'] = '1'", {}),
        ("compile_error", "for name in ('DYNAMO',): os.environ[f'TORCH{name}_DISABLE'] = '1'", {}),
        ("compile_error", "device='cuda'", {}),
        ("compile_error", "", {"TORCHDYNAMO_DISABLE": "0"}),
        ("compile_error", "", {"TORCHINDUCTOR_VEC_ISA_OK": "0"}),
    ],
)
def test_where_a_fork_does_not_say_the_same_each_run_is_an_interpreter(forked, monkeypatch, kind, source, variables):
    plain = Failure(kind="compile_error", phase="compile")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    monkeypatch.setenv("PYTHON_VERSION", "3.12.1")
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
    assert proving.template_for("", plain) is forked
    assert proving.template_for("if os.environ.get('A') == '1': fail('OMPHALOS')", plain, {"A": "1"}) is forked
    assert proving.template_for("", plain, {"A": "1", "TORCHDYNAMO_DISABLE": "1"}) is None
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert proving.template_for(source, Failure(kind=kind, phase="compile")) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("module", ["mine", "json"])
def test_a_forked_run_finds_nothing_by_the_users_path(tmp_path, module):
    """Nor is it forked from a process that has imported something by it, which the file could use then."""
    (tmp_path / "mine.py").touch()
    text = f"""import {module}
from dynadiag.children.template import template, template_now
from dynadiag.reduce.reproducer.proving import run_fresh
with template():
    if (forked := template_now()).path is not None:
        for source in ("import mine", "import json"):
            print(run_fresh(source, timeout_s=600, variables={{}}, template=forked)[1].strip())
"""
    path = os.pathsep.join([str(tmp_path), str(Path(proving.__file__).parents[3])])
    said = subprocess.run([sys.executable, "-c", text], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-2:] == ([] if module == "mine" else ["ModuleNotFoundError: No module named 'mine'", ""])
