"""`dynadiag doctor` without torch: what it says of stand-in interpreters, of missing tools, and in which form."""

from __future__ import annotations

import json
import os
import py_compile
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag import doctor
from dynadiag.doctor import checkup as checkups
from dynadiag.doctor.probe import MARKER
from dynadiag.errors import UsageError
from dynadiag.torch_compat.versions import OLDEST
from dynadiag_cli import verb_doctor

ROOT = Path(__file__).parents[3]


@pytest.fixture
def interpreter(tmp_path):
    """Writes a program that stands in for the script's interpreter and gives its path."""

    def write(body: str) -> str:
        path = tmp_path / "python-stand-in"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return write


def answer(**facts: object) -> str:
    return "echo 'torch says hello'\ncat <<'JSON'\n" + MARKER + json.dumps(facts) + "\nJSON"


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("2.11.0", True),
        ("2.11.0a0+nv26.2", True),
        ("2.15.0+cu132", True),
        ("3.0", True),
        ("2.6.0+cu124", True),
        ("2.6.0a0+ecf3bae40a.nv25.01", True),
        ("2.5.1", False),
        ("1.13", False),
        ("weird", False),
    ],
)
def test_a_torch_counts_as_supported_from_2_6_on(interpreter, version, supported):
    facts = checkups.inspect_torch(interpreter(answer(python="3.12.1", torch=version)))
    assert facts.torch == version
    assert facts.supported is supported


def test_a_crash_while_importing_torch_is_told_in_one_line(interpreter):
    facts = checkups.inspect_torch(interpreter("echo 'libtorch.so: bad magic' >&2; kill -SEGV $$"))
    assert facts.problem == "the interpreter ended while importing torch (signal 11): libtorch.so: bad magic"


def test_unknown_facts_of_a_newer_probe_are_ignored(interpreter):
    assert checkups.inspect_torch(interpreter(answer(torch="2.15.0", colour="red"))).torch == "2.15.0"


def test_an_interpreter_that_cannot_be_started_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot start the interpreter"):
        checkups.inspect_torch(str(tmp_path / "none"))


def test_missing_tools_are_named_with_what_they_are_needed_for(interpreter, monkeypatch, tmp_path):
    python = interpreter(answer(torch="2.15.0", python_headers=False, executable="/opt/python"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/var/empty")
    monkeypatch.setattr(checkups.subprocess, "run", _with_shell(checkups.subprocess.run))
    seen = doctor.examine(python)
    assert [line.split(" (")[0].split(" for ")[0].split(":")[0] for line in seen.missing] == [
        "no C++ compiler",
        "no Python.h",
        "no openssl program",
    ]


def _with_shell(run):
    """The stand-in is a shell script: give it, and only it, a PATH with `cat` and `echo`."""

    def wrapped(command, **kwargs):
        return run(command, **{**kwargs, "env": {**kwargs.get("env", os.environ), "PATH": "/bin:/usr/bin"}})

    return wrapped


def test_the_text_is_one_fence_that_no_value_can_end(interpreter, monkeypatch):
    monkeypatch.setenv("TORCH_LOGS", "```\n# heading\x1b[31m")
    text = doctor.as_text(doctor.examine(interpreter(answer(torch="2.15.0`"))))
    assert text.startswith("```text\n") and text.endswith("\n```")
    assert text.count("`") == 6 and "\x1b" not in text and "\n#" not in text


@pytest.mark.parametrize(("keeps", "told"), [(False, True), (True, False), (None, False)])
def test_missing_bytecode_is_told_where_it_stays_missing(interpreter, keeps, told):
    text = doctor.as_text(doctor.examine(interpreter(answer(torch="2.15.0", keeps_bytecode=keeps))))
    assert ("each process compiles torch's sources again" in text) is told


STAND_IN = "class version: git_version = cuda = hip = None\nclass cuda: is_available = staticmethod(bool)\n__version__ = '2.15.0'\n"


@pytest.mark.parametrize(("writes", "compiled"), [(True, False), (False, True), (False, False)])
def test_bytecode_is_looked_for_beside_torch(tmp_path, writes, compiled):
    (tmp_path / "torch.py").write_text(STAND_IN)
    if compiled:
        py_compile.compile(str(tmp_path / "torch.py"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), **({} if writes else {"PYTHONDONTWRITEBYTECODE": "1"})}
    done = subprocess.run([sys.executable, checkups.probe.__file__], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.partition(MARKER)[2])["keeps_bytecode"] is (writes or compiled)


def test_only_settings_of_torch_and_the_compiler_are_shown(interpreter, monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("HF_TOKEN", "secret")
    settings = doctor.examine(interpreter(answer(torch="2.15.0"))).settings
    assert settings["TORCHDYNAMO_DISABLE"] == settings["CI"] == "1"
    assert "HF_TOKEN" not in settings


def test_the_tested_versions_are_the_pinned_ones():
    names = ("torch-2.6", "torch-2.9", "oldest", "newest")
    texts = [(ROOT / f"requirements/{name}.txt").read_text() for name in names]
    pinned = [re.search(r"^torch==([\d.]+)", text, re.MULTILINE)[1] for text in texts]
    assert list(checkups.TESTED_TORCH) == pinned


def test_json_and_exit_status_when_torch_is_missing(interpreter):
    command = [sys.executable, "-m", "dynadiag", "doctor", "--json", "--python", interpreter(answer(problem="torch is not installed"))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'cli'}"})
    assert done.returncode == 3, done.stderr
    said = json.loads(done.stdout)
    assert said["schema_version"] == 1 and said["supported"] is False
    assert said["torch"]["problem"] == "torch is not installed"
    assert said["missing"][0].startswith("torch is not installed")


def test_the_help_names_the_oldest_torch():
    assert f"older than {'.'.join(map(str, OLDEST))}," in (verb_doctor.doctor.__doc__ or "")
