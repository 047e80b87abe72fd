"""The command line of bench, arms by name, marks, and the other side of the pipe; nothing here imports torch."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dynadiag.bench import process
from dynadiag.bench.arms import ArmSpec, early_imports, parse_arms, parse_variants
from dynadiag.bench.marks import benchmark, marked_functions
from dynadiag.bench.process import ArmFailedError, ArmProcess
from dynadiag.errors import DynadiagError, TorchUnsupportedError, UnreadableInputError, UsageError
from dynadiag_cli.main import app

MARKED = "import dynadiag\n@dynadiag.benchmark\ndef one():\n    return 1\n"


def test_arms_by_name():
    arms = parse_arms("eager, default,reduce-overhead,aot_eager,default,backend:inductor", "a:b")
    assert [arm.name for arm in arms] == ["eager", "default", "reduce-overhead", "aot_eager", "default#2", "backend:inductor"]
    assert [arm.kind for arm in arms] == ["eager"] + ["compiled"] * 5
    assert [dict(arm.overrides) for arm in arms] == [
        {},
        {},
        {"mode": "reduce-overhead"},
        {"backend": "aot_eager"},
        {},
        {"backend": "inductor"},
    ]


def test_variants_are_arms_with_arguments():
    first, second = parse_variants(["base: --variant base", "b2:--x 'two words'"], "train.py", loop=7)
    assert (first.name, first.kind, first.arguments, first.loop) == ("base", "loop", ("--variant", "base"), 7)
    assert (second.name, second.arguments) == ("b2", ("--x", "two words"))


@pytest.mark.parametrize("texts", [["a: x"], ["a: x", "a: y"], ["a: x", "y"], ["a: x", "b: 'open"], ["a: x", "A/A: y"], ["a: x", "b c: y"]])
def test_variants_that_make_no_comparison_are_refused(texts):
    with pytest.raises(UsageError, match="--variants"):
        parse_variants(texts, "train.py")


@pytest.mark.parametrize("text", ["", "eager", "eager,", "eager,a b", "eager,\x1b[31m", f"eager,{'x' * 99}"])
def test_arms_that_make_no_comparison_are_refused(text):
    with pytest.raises(UsageError, match="--arms"):
        parse_arms(text, "a:b")


@pytest.mark.parametrize("place", ["../../etc/passwd", "a-b", "pkg.", "__import__('os')"])
def test_a_step_in_what_is_no_module_is_refused_before_anything_is_made(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["bench", "--fn", f"{place}:step"]).exception
    assert isinstance(refused, UsageError) and "neither a module's name" in refused.message
    assert list(tmp_path.iterdir()) == []


def test_marks_are_found_without_running_the_file(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        MARKED + "from dynadiag import benchmark\n@benchmark\ndef two(): ...\n@other.benchmark\ndef three(): ...\nraise SystemExit(3)\n"
    )
    assert marked_functions(program) == ("one", "two")
    program.write_bytes(b"\x00\xff(")
    with pytest.raises(UnreadableInputError, match="not a Python program"):
        marked_functions(program)
    assert benchmark(test_arms_by_name) is test_arms_by_name


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "pass either a file"),
        (["missing.py"], "missing.py does not exist"),
        (["cells.ipynb"], "cells.ipynb is a notebook: bench times a script"),
        (["program.py", "--fn", "a:b"], "pass either a file"),
        (["--fn", "nothing"], "expected module:callable"),
        (["plain.py", "--in-process"], "can be taken over only once"),
        (["plain.py", "--variants", "a: 1"], "--variants needs a baseline"),
        (["--variants", "a: 1", "--fn", "x:y"], "--variants compares one script"),
        (["plain.py", "--variants", "a: 1", "b: 2", "--after", "twice.py"], "none of --fn, --after"),
        (["missing.py", "--variants", "a: 1", "b: 2"], "missing.py does not exist"),
        (["program.py", "--loop", "3"], "--loop only works together with --variants"),
        (["program.py", "--callable", "x"], "--callable chooses among a script's compiled callables"),
        (["plain.py", "--arms", "eager,default", "--git", "HEAD"], "--git"),
        (["plain.py", "--after", "broken.py"], "broken.py is not a Python program"),
        (["plain.py", "--after", "."], "--after . is not a file"),
        (["twice.py"], "has 2 marked functions; choose one: --fn twice.py:one"),
        (["program.py", "--arms", "eager"], "--arms needs a baseline"),
        (["program.py", "--check", "missing.json"], "missing.json cannot be read"),
        (["torchrun", "--", "train.py"], "torchrun starts several"),
        (["program.py", "--python", "/nowhere/python"], "/nowhere/python cannot be started"),
    ],
)
def test_bad_usage_is_one_line_and_two(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(MARKED)
    Path("plain.py").write_text("x = 1\n")
    Path("broken.py").write_text("def f(:\n")
    Path("twice.py").write_text(MARKED + MARKED.replace("one", "two"))
    done = CliRunner().invoke(app, ["bench", *arguments])
    assert isinstance(done.exception, DynadiagError), done.output
    assert says in done.exception.message and "\n" not in done.exception.message
    assert done.exception.exit_code == 2
    assert not Path("dynadiag-runs").exists() or "--python" in arguments


def test_a_rank_among_others_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "4")
    Path("program.py").write_text(MARKED)
    done = CliRunner().invoke(app, ["bench", "program.py"])
    assert isinstance(done.exception, UsageError) and "WORLD_SIZE='4'" in done.exception.message and not Path("dynadiag-runs").exists()


def alive(pid):
    """Whether it runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


FAKE = """
import json, os, sys
commands, replies = os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w")
def say(**message):
    replies.write(json.dumps(message) + "\\n"); replies.flush()
for line in commands:
    command = json.loads(line)
    if command["do"] == "quit":
        break
    BODY
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    started = []

    def start(body):
        package = tmp_path / "fake_arm.py"
        package.write_text(FAKE.replace("BODY", textwrap.indent(textwrap.dedent(body), "    ").lstrip()))
        monkeypatch.setattr(process, "_MAIN", "fake_arm")
        made = ArmProcess(python=sys.executable, log=tmp_path / "log", environment={**os.environ, "PYTHONPATH": str(tmp_path)})
        started.append(made)
        return made

    yield start
    for made in started:
        made.close()


def test_a_command_gets_its_answer_and_tells_its_phases(start):
    phases = []
    arm = start("say(phase='compiling')\nsay(result=command['x'] + 1)")
    assert arm.ask({"do": "add", "x": 1}, timeout_s=600, on_phase=phases.append) == 2
    assert arm.ask({"do": "add", "x": 2}, timeout_s=600) == 3
    assert phases == ["compiling"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("os.kill(os.getpid(), 11)", "crashed", "SIGSEGV"),
        ("print('last words', flush=True); os._exit(9)", "crashed", "exited with status 9: last words"),
        ("say(error='out-of-memory', text='CUDA out of memory', exit_code=2)", "oom", "out of memory"),
        ("say(error='user-code', text='ValueError: x', exit_code=2)", "crashed", "ValueError: x"),
    ],
)
def test_an_arm_that_dies_is_told_apart(start, body, status, says):
    with pytest.raises(ArmFailedError, match=says) as caught:
        start(body).ask({"do": "x"}, timeout_s=600)
    assert caught.value.status == status


HOLDER = """
import os, sys
from pathlib import Path
from dynadiag.bench import process
process._MAIN = "busy_arm"
arm = process.ArmProcess(python=sys.executable, log=Path("log"), environment=os.environ)
arm.ask({"do": "x"}, timeout_s=600, on_phase=lambda phase: print(phase, flush=True))
"""
BUSY_ARM = """
import os, sys, time
from dynadiag.bench.inside import main
main.Server._do = lambda server, command: (server._phase(os.getpid()), time.sleep(600))
main.main(int(sys.argv[1]), int(sys.argv[2]))
"""


def test_a_busy_arm_ends_with_the_program_that_holds_it(tmp_path):
    """A program that uses `bench.session` from Python has nobody beside it who ends its arms when it is killed."""
    (tmp_path / "busy_arm.py").write_text(BUSY_ARM)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
    arm = int(holder.stdout.readline())
    holder.kill()
    holder.communicate()
    end = time.monotonic() + 120
    while alive(arm) and time.monotonic() < end:
        time.sleep(0.02)
    ended = not alive(arm)
    if not ended:
        os.kill(arm, signal.SIGKILL)
    assert ended


def test_an_arm_that_hangs_is_ended(start):
    arm = start("import time; time.sleep(6000)")
    with pytest.raises(ArmFailedError, match="did not answer within 0 s") as caught:
        arm.ask({"do": "x"}, timeout_s=0.3)
    assert caught.value.status == "timeout"
    with pytest.raises(ArmFailedError):
        arm.ask({"do": "x"}, timeout_s=1)


@pytest.mark.parametrize(("kind", "error"), [("usage", UsageError), ("torch-unsupported", TorchUnsupportedError)])
def test_what_no_other_arm_would_do_better_ends_the_benchmark(start, kind, error):
    with pytest.raises(error, match="why"):
        start(f"say(error={json.dumps(kind)}, text='why', exit_code=2)").ask({"do": "x"}, timeout_s=600)


@pytest.mark.parametrize(
    ("text", "early"),
    [
        ('"""Words."""\nfrom __future__ import annotations\nimport argparse\nimport torch\nx = 1\n', ["torch", "torch._dynamo"]),
        ("import math\nfrom torch import nn\nimport numpy as np\n", ["torch"]),
        ("import torch\nfrom model import Net\n", ["torch"]),
        ("import numpy as np\nimport torch\n", []),
        ("from .net import Net\nimport torch\n", []),
        ("import sys\nsys.path.insert(0, 'lib')\nimport torch\n", []),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch\n", []),
        ("import torch\nimport os\nos.environ['TORCH_LOGS'] = 'dynamo'\n", []),
        ("def step():\n    import torch\n", []),
        ("import torch\nx = (\n", []),
    ],
)
def test_a_process_imports_torch_before_its_turn_only_where_the_program_cannot_mind(tmp_path, monkeypatch, text, early):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    (tmp_path / "program.py").write_text(text)
    spec = ArmSpec(name="eager", kind="eager", target="program.py:training", folder=str(tmp_path))
    assert list(early_imports(spec)) == early
    assert early_imports(replace(spec, target="missing.py")) == ()
    changed = {os.path.realpath(tmp_path / "program.py"): "import numpy\n"}
    assert early_imports(replace(spec, texts=changed)) == ()
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert early_imports(spec) == ()
