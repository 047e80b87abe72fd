"""`.ci/setup.sh`, which stands behind `make demo` and `make test`: what it asks for, which Python it takes, when it does nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("bash", "cat", "sed", "dirname", "mktemp", "rm", "ln", "mkdir", "env")

# Stands in for uv: says what it was asked, and makes an environment whose Python is the one it was given.
UV = """#!/bin/sh
echo "$@" >> "$UV_LOG"
[ "$1" = venv ] && mkdir -p "$5/bin" && ln -sf "$4" "$5/bin/python"
exit 0
"""

pytestmark = pytest.mark.skipif(
    not Path(sysconfig.get_path("include"), "Python.h").is_file(), reason="this Python has no headers, so the set-up would refuse it"
)


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path):
    """A checkout of the set-up alone, and a PATH that holds only what a test puts there."""
    shutil.copytree(ROOT / ".ci", tmp_path / "tree/.ci")
    shutil.copytree(ROOT / "requirements", tmp_path / "tree/requirements")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "tree")
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return tmp_path


def complete(machine: Path) -> Path:
    """Puts a compiler, openssl, uv and this Python on the PATH of the machine; gives the Python's path."""
    for name in ("g++", "openssl"):
        program(machine / "bin", name, "#!/bin/sh\nexit 0\n")
    program(machine / "bin", "uv", UV)
    python = machine / "bin/python3.11"
    (machine / "packages").mkdir()
    purelib = f'case "$*" in *purelib*) echo {machine}/packages; exit;; esac'  # the environment that runs this is left alone
    program(machine / "bin", "python3.11", f'#!/bin/sh\n{purelib}\nexec {sys.executable} "$@"\n')
    return python


def set_up(machine: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine / "bin"), "UV_LOG": str(machine / "uv.log"), "HOME": os.environ.get("HOME", "/"), **variables}
    command = [str(machine / "bin/bash"), str(machine / "tree/.ci/setup.sh")]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def asked_of_uv(machine: Path) -> list[str]:
    log = machine / "uv.log"
    return [line for line in log.read_text().splitlines() if line != "--version"] if log.exists() else []


def test_everything_that_is_missing_is_said_in_one_line(machine):
    done = set_up(machine)
    assert done.returncode == 1
    assert done.stderr == (
        "setup: missing: Python 3.11 or newer with venv and headers (none on PATH); "
        "a C++ compiler (g++; CXX names another); the openssl program\n"
    )


def test_a_python_without_headers_is_named_with_what_it_lacks(machine):
    complete(machine)
    program(machine / "bin", "python3.11", "#!/bin/sh\necho Python.h\n")
    done = set_up(machine)
    assert done.returncode == 1
    assert f"({machine}/bin/python3.11 lacks Python.h)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_broken_shim_and_an_old_python_are_passed_over(machine):
    python = complete(machine)
    program(machine / "bin", "python3.13", "#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n")
    program(machine / "bin", "python3.12", "#!/bin/sh\nexit 1\n")
    done = set_up(machine)
    assert done.returncode == 0, done.stderr
    first, sync, ours = asked_of_uv(machine)
    assert first == f"venv --quiet --python {python} .venv"
    assert sync == "pip sync --quiet --python .venv/bin/python requirements/newest.txt"
    assert ours == "pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation -e ."


def test_a_second_run_does_nothing_until_a_pin_changes(machine):
    complete(machine)
    assert set_up(machine).returncode == 0
    before = asked_of_uv(machine)
    assert set_up(machine).returncode == 0
    assert asked_of_uv(machine) == before
    with (machine / "tree/requirements/newest.txt").open("a") as pins:
        pins.write("# changed\n")
    assert set_up(machine).returncode == 0
    assert [line.split()[:2] for line in asked_of_uv(machine)[len(before) :]] == [["pip", "sync"], ["pip", "install"]]


def test_a_short_process_of_the_tests_ends_with_its_own_output_handlers_and_status(machine):
    complete(machine)
    assert set_up(machine).returncode == 0
    assert "DYNADIAG_TESTS_SHORT_PROCESSES" in (machine / "packages/dynadiag_tests.pth").read_text()
    text = "import dynadiag_tests, atexit, gc; atexit.register(print, 'handled', gc.get_freeze_count()); print('said', end=' '); 1 / 0"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=machine / "packages")
    assert (done.returncode, done.stdout) == (1, "said handled 0\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_another_compiler_may_be_named(machine):
    complete(machine)
    (machine / "bin/g++").rename(machine / "bin/clang++")
    assert "a C++ compiler (g++; CXX names another)" in set_up(machine).stderr
    assert set_up(machine, CXX="clang++").returncode == 0


def older(machine: Path, *versions: str) -> subprocess.CompletedProcess[str]:
    """`.ci/older.sh` on a machine whose pyenv, in a folder of its own, has these Pythons."""
    complete(machine)
    for tool in ("cmp", "cp"):
        (machine / "bin" / tool).symlink_to(shutil.which(tool))
    (machine / "bin/python3.11").unlink()
    program(machine / "bin", "pyenv", f'#!/bin/sh\n[ "$1" = root ] && echo {machine}/pyenv\n')
    for version in versions:
        (machine / f"pyenv/versions/{version}/bin").mkdir(parents=True)
        program(machine / f"pyenv/versions/{version}/bin", "python", "#!/bin/sh\nexit 0\n")
    program(machine / "bin", "uv", UV.replace('mkdir -p "$5/bin" && ln -sf "$4" "$5/bin/python"', 'mkdir -p "$5/bin"'))
    environment = {"PATH": str(machine / "bin"), "UV_LOG": str(machine / "uv.log"), "HOME": str(machine)}
    command = [str(machine / "bin/bash"), str(machine / "tree/.ci/older.sh")]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_older_torch_gets_the_oldest_python_that_pyenv_has_wherever_that_is(machine):
    result = older(machine, "3.10.13", "3.12.1")
    assert result.stdout.split(":")[0].endswith(".venv-torch-2.6/bin/python"), result.stderr
    made = [line for line in (machine / "uv.log").read_text().splitlines() if line.startswith("venv")]
    assert len(made) == 2
    assert all(f"{machine}/pyenv/versions/3.10.13/bin/python" in line for line in made)


def test_older_torch_without_a_python_for_it_fails_and_says_which(machine):
    result = older(machine, "3.8.18")
    assert (result.returncode, result.stdout) == (1, "")
    assert "none of Python 3.9 3.10 3.11 3.12 is installed" in result.stderr
    assert not (machine / "uv.log").exists() or "venv" not in (machine / "uv.log").read_text()
