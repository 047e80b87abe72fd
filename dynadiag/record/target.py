"""What to record and how: checked before anything starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dynadiag.errors import UnreadableInputError, UsageError

if TYPE_CHECKING:
    from dynadiag.private_view.view import View

# Python would read these for ever (Linux, Documentation/admin-guide/devices.txt: zero, full, random, urandom).
_ENDLESS = frozenset(os.makedev(1, minor) for minor in (5, 7, 8, 9))
DEFAULT_LOG_CAP_BYTES = 2 * 1024**3
DEFAULT_PARITY_CAP_BYTES = 4 * 1024**3


@dataclass(frozen=True, slots=True)
class Target:
    """A program: argv[0] is a script's path, a module's name, or the program of a whole command line such as `torchrun`."""

    kind: Literal["script", "module", "command"]
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Where to record (`out`, else a new folder under `dynadiag-runs`), for how long, how much, and with which interpreter.

    With `parity_calls` above 0 that many calls of each compiled graph are compared with eager, if copies of their inputs take at most
    `parity_cap_bytes`. `key_parts`: also record what the keys of AOTAutograd's cache are made of. What the program prints goes into the
    file `output`, where one is given; with `stdout_to_stderr` all of it goes to our stderr, since something else is
    expected on stdout. It gets further variables by `environment`.
    `project` is the root of its project where that is not found around it.
    `announce`: say on stderr where the recording goes. `required`: nothing is run where it cannot be written. With a `view` the user's
    files are afterwards as they were.
    """

    out: Path | None = None
    force: bool = False
    python: str | None = None
    timeout_s: float | None = None
    stop_when_stable_s: float | None = None
    log_cap_bytes: int = DEFAULT_LOG_CAP_BYTES
    cost: bool = False
    parity_calls: int = 0
    parity_cap_bytes: int = DEFAULT_PARITY_CAP_BYTES
    key_parts: bool = False
    output: Path | None = None
    stdout_to_stderr: bool = False
    project: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    announce: bool = False
    required: bool = False
    view: View | None = None


def command_of(target: Target, python: str | None) -> list[str]:
    """The command line that runs the target unchanged. Raises UsageError or UnreadableInputError when it cannot run."""
    if not target.argv:
        raise UsageError("nothing to run: pass a script, -m MODULE, or a command after --")
    if target.kind == "command":
        if shutil.which(target.argv[0]) is None:
            raise UsageError(f"no such program: {target.argv[0]}")
        return list(target.argv)
    interpreter = _interpreter(python)
    if target.kind == "module":
        file_of_module(target.argv[0], interpreter)
        return [interpreter, "-m", *target.argv]
    if target.argv[0] == "-":
        return [interpreter, *target.argv]
    execute = Path(interpreter).with_name("jupyter-execute")
    if target.argv[0].endswith(".ipynb") and Path(target.argv[0]).is_file() and execute.is_file():
        return [interpreter, str(execute), *target.argv]
    check_script(Path(target.argv[0]), interpreter)
    return [interpreter, *(["--"] if target.argv[0].startswith("-") else []), *target.argv]


def _interpreter(python: str | None) -> str:
    if python is None:
        return sys.executable
    found = shutil.which(python)
    if found is None:
        raise UsageError(f"--python: no such interpreter: {python}")
    return found


def check_script(path: Path, interpreter: str) -> None:
    """Raise UnreadableInputError unless `interpreter PATH` finds Python there.

    That is source that compiles, a .pyc file, or an archive or folder with `__main__.py`.
    """
    try:
        if not path.exists():
            raise UnreadableInputError(f"no such script: {path}")
        if path.is_dir():
            _require_main(path, [entry.name for entry in path.iterdir()])
        elif path.suffix == ".ipynb":
            raise UnreadableInputError(
                f"{path} is a notebook: write %load_ext dynadiag in its first cell and %%dynadiag above the cells that compile; `explain` "
                "and `check` run all of one where nbclient is installed beside Python"
            )
        elif (path.is_char_device() and path.stat().st_rdev in _ENDLESS) or path.is_block_device():
            raise UnreadableInputError(f"{path} is not a Python script: it is a device")
        elif path.is_file() and path.suffix not in (".pyc", ".pyo"):
            _check_content(path, interpreter)
    except OSError as error:
        raise UnreadableInputError(f"cannot read {path}: {error.strerror or error}") from error


def _check_content(path: Path, interpreter: str) -> None:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            _require_main(path, archive.namelist())
        return
    reason = _why_not_compilable(path) if interpreter == sys.executable else _why_not_compilable_there(path, interpreter)
    if reason is not None:
        raise UnreadableInputError(f"{path} is not a Python script: {reason}")


def _require_main(path: Path, names: list[str]) -> None:
    if not {"__main__.py", "__main__.pyc"} & set(names):
        raise UnreadableInputError(f"{path} is not a Python script: it contains no __main__.py")


def _why_not_compilable(path: Path) -> str | None:
    """Compile without running; bytes, so that Python's own rules for encodings hold."""
    source = path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return None


_CHECK = (
    "import sys, warnings; warnings.simplefilter('ignore'); compile(open(sys.argv[1], 'rb').read(), sys.argv[1], 'exec', dont_inherit=True)"
)


def _why_not_compilable_there(path: Path, interpreter: str) -> str | None:
    """The same by another interpreter, whose syntax may be newer or older than ours."""
    done = subprocess.run([interpreter, "-I", "-S", "-c", _CHECK, str(path)], capture_output=True, text=True, errors="replace", check=False)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it does not compile"])[-1]


# What `python -m NAME` would run or fail with, without importing anything. A package's own code may change where its modules lie, so only
# what no code has touched yet is refused (`runpy._get_module_details`, 3.9 to 3.14).
_FIND = """
import importlib.machinery, importlib.util, sys
name = sys.argv[1]
first, *rest = name.split(".")
spec = importlib.util.find_spec(first) if first else None
done, untouched = first, True
if spec is None:
    sys.exit("No module named " + repr(first))
for part in rest:
    if not spec.submodule_search_locations:
        sys.exit(untouched and repr(done) + " is not a package: there is no module " + repr(name))
    origin = spec.origin if spec.has_location else None
    untouched = untouched and bool(origin) and origin.endswith(".py") and not open(origin, "rb").read().strip()
    spec = importlib.machinery.PathFinder.find_spec(done + "." + part, spec.submodule_search_locations)
    done += "." + part
    if spec is None:
        sys.exit(untouched and "No module named " + repr(done))
where = spec.submodule_search_locations
if where is not None:
    frozen, spec = getattr(spec.loader, "is_frozen", False), importlib.machinery.PathFinder.find_spec(name + ".__main__", where)
    if spec is None and len(list(where)) and not frozen:
        sys.exit(untouched and repr(name) + " is a package without a __main__.py")
if spec is not None and spec.has_location:
    print(spec.origin)
"""


def file_of_module(name: str, interpreter: str, folder: Path | None = None) -> Path | None:
    """The file that `interpreter -m NAME` runs in a folder (None: that of now); None where that is not known without importing.

    Raises UnreadableInputError when there is no such module; asked there, and nothing of it is imported.
    """
    if "/" in name or (name.endswith(".py") and Path(name).is_file()):
        raise UnreadableInputError(f"-m takes a module's name, not a path: {name}; leave -m out to run a script")
    asked = [interpreter, "-c", _FIND, name]
    shown = name if name.isprintable() else ascii(name)
    try:
        done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False, cwd=folder)
    except (OSError, ValueError) as error:  # the folder is gone, the name has a null byte
        raise UnreadableInputError(f"cannot run -m {shown}: {getattr(error, 'strerror', None) or error}") from None
    if done.returncode == 1 and (said := done.stderr.strip().splitlines()) and "Traceback" not in done.stderr:
        raise UnreadableInputError(f"cannot run -m {shown}: {said[-1]}")
    rows = done.stdout.splitlines()
    return Path(rows[-1]) if done.returncode == 0 and rows else None
