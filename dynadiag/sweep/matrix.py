"""What a sweep is to run: subjects by arms by verbs, from a TOML file or from the name of a suite."""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dynadiag.errors import UnreadableInputError, UsageError
from dynadiag.files import read_small
from dynadiag.record.project import refuse_unknown
from dynadiag.sweep.inside.subject import SUITES

VERBS = ("run", "explain", "parity", "bench", "fix", "start", "numerics")
"""What can be done with a subject; `run` runs it and looks at how it ended."""
EXPLAIN_OPTIONS = ("--cost", "--no-probe", "--no-pictures")
"""The options of `explain` that a matrix may give to all its tasks."""
_MOST_BYTES = 4 << 20
_PRECISIONS = ("fp32", "bf16", "fp16")
_DEVICES = ("cpu", "cuda")
_TOP = ("verbs", "explain-options", "timeout-s", "memory-gb", "subjects", "arms")
_SUBJECTS = ("scripts", "functions", "suites")
_SUITE = ("name", "limit", "models")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One configuration. `backend`, `mode` and `dynamic` are arguments of torch.compile; None leaves torch's default.

    `python` is the interpreter of its tasks, `gpus` how many GPUs a task gets for itself.
    """

    name: str
    backend: str | None = None
    mode: str | None = None
    dynamic: bool | None = None
    precision: str | None = None
    train: bool = False
    device: str | None = None
    python: str = sys.executable
    gpus: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        """What the arm changes in a program, without what only says where it runs."""
        taken = {field_.name: getattr(self, field_.name) for field_ in fields(self) if field_.name not in ("name", "python", "gpus")}
        return {name: value for name, value in taken.items() if value not in (None, False)} | (
            {"dynamic": self.dynamic} if self.dynamic is not None else {}
        )


@dataclass(frozen=True, kw_only=True)
class SuiteChoice:
    """Models of a suite: all whose name fits one of the patterns, and at most `limit` of them."""

    name: str
    limit: int | None = None
    models: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """What a sweep is to run. `scripts` are command lines of Python files, relative to `folder`; `functions` are `module:function`.

    `memory_bytes` None shares the machine's memory among the tasks that run at the same time.
    """

    folder: Path
    scripts: tuple[tuple[str, ...], ...] = ()
    functions: tuple[str, ...] = ()
    suites: tuple[SuiteChoice, ...] = ()
    arms: tuple[Arm, ...] = (Arm(name="default"),)
    verbs: tuple[str, ...] = ("explain",)
    explain_options: tuple[str, ...] = ()
    timeout_s: float = 600.0
    memory_bytes: int | None = None


@dataclass(frozen=True)
class _Table:
    """A table of the file, with the words for where it stands."""

    values: dict[str, Any]
    where: str
    known: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        refuse_unknown(self.values, self.known, self.where)

    def get(self, key: str, kind: type | tuple[type, ...], words: str, default: Any = None) -> Any:
        value = self.values.get(key, default)
        if value is default:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if type(value) not in kinds:  # True is no number here
            raise UsageError(f"{self.where}: {key} has to be {words}, not {value!r:.60}")
        return value

    def one_of(self, key: str, allowed: Iterable[str]) -> str | None:
        value: str | None = self.get(key, str, "a text")
        if value is not None and value not in allowed:
            raise UsageError(f"{self.where}: {key} has to be one of {', '.join(allowed)}, not {value!r:.60}")
        return value

    def number(self, key: str, *, least: float, kinds: tuple[type, ...] = (int, float)) -> Any:
        value = self.get(key, kinds, "a number" if float in kinds else "a whole number")
        if value is not None and not least <= value < 1e9:
            raise UsageError(f"{self.where}: {key} has to be at least {least:g}, not {value!r:.60}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.get(key, list, "a list of texts", [])
        if not all(isinstance(item, str) and item.strip() and "\0" not in item for item in value):
            raise UsageError(f"{self.where}: {key} has to be a list of texts")
        return tuple(value)


def read_matrix(path: Path) -> Matrix:
    """The matrix of a TOML file. Raises UsageError for what cannot be meant, UnreadableInputError for no file."""
    try:
        found = tomllib.loads(read_small(path, _MOST_BYTES).decode())
    except OSError as error:
        raise UnreadableInputError(
            f"{path}: {error.strerror or error} (a matrix in TOML, or one of {', '.join(SUITES)}, was expected)"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    top = _Table(found, str(path), _TOP)
    subjects = _Table(top.get("subjects", dict, "a table", {}), f"{path}: [subjects]", _SUBJECTS)
    folder = path.resolve().parent
    arms = top.get("arms", list, "tables [[arms]]", [])
    verbs = top.texts("verbs") or ("explain",)
    for verb in verbs:
        if verb not in VERBS:
            raise UsageError(f"{path}: verbs has to be of {', '.join(VERBS)}, not {verb!r:.60}")
    explain_options = top.texts("explain-options")
    for option in explain_options:
        if option not in EXPLAIN_OPTIONS:
            raise UsageError(f"{path}: explain-options has to be of {', '.join(EXPLAIN_OPTIONS)}, not {option!r:.60}")
    memory_gb = top.number("memory-gb", least=0.1)
    matrix = Matrix(
        folder=folder,
        scripts=tuple(command for line in subjects.texts("scripts") for command in _commands(line, folder, subjects.where)),
        functions=tuple(dict.fromkeys(map(_function, subjects.texts("functions")))),
        suites=tuple(_suite(subject, f"{path}: [subjects] suites") for subject in subjects.get("suites", list, "a list", [])),
        arms=tuple(_arm(item, f"{path}: [[arms]] {number}", folder) for number, item in enumerate(arms, 1)) or (Arm(name="default"),),
        verbs=tuple(dict.fromkeys(verbs)),
        explain_options=tuple(sorted(set(explain_options))),
        timeout_s=top.number("timeout-s", least=1) or 600.0,
        memory_bytes=None if memory_gb is None else int(memory_gb * 1e9),
    )
    names = [arm.name for arm in matrix.arms]
    if len(set(names)) < len(names):
        raise UsageError(f"{path}: two arms have the same name: {', '.join(names)[:200]}")
    if not (matrix.scripts or matrix.functions or matrix.suites):
        raise UsageError(f"{path} names no subjects: [subjects] has {', '.join(_SUBJECTS)}")
    if "fix" in matrix.verbs and (matrix.functions or matrix.suites):
        raise UsageError(f"{path}: fix changes scripts of your own: give it a matrix that has only scripts")
    return matrix


def matrix_of_suite(name: str, limit: int | None) -> Matrix:
    """One arm of a whole suite: `aot_eager`, which finds breaks and recompiles without compiling kernels."""
    return Matrix(folder=Path.cwd(), suites=(SuiteChoice(name=name, limit=limit),), arms=(Arm(name="default", backend="aot_eager"),))


def _commands(line: str, folder: Path, where: str) -> list[tuple[str, ...]]:
    """A script with its arguments; a pattern stands for each file that fits, in the order of names."""
    try:
        head, *rest = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{where}: scripts: {line!r:.80}: {error}") from None
    if not any(letter in head for letter in "*?["):
        if not (folder / head).is_file():
            raise UsageError(f"{where}: scripts: there is no file {head} in {folder}")
        return [(head, *rest)]
    try:
        files = sorted(path for path in folder.glob(head) if path.is_file())
    except (ValueError, NotImplementedError) as error:
        raise UsageError(f"{where}: scripts: {head!r:.80}: {error}") from None
    if not files:
        raise UsageError(f"{where}: scripts: no file fits {head} in {folder}")
    return [(str(file.relative_to(folder)), *rest) for file in files]


def _function(name: str) -> str:
    where, _, called = name.rpartition(":")
    if not where or not called.isidentifier():
        raise UsageError(f"functions: {name!r:.80} does not name a function: expected module:function or file.py:function")
    return name


def _suite(given: Any, where: str) -> SuiteChoice:
    values = {"name": given} if isinstance(given, str) else given
    if not isinstance(values, dict):
        raise UsageError(f"{where}: expected the name of a suite, or a table such as {{ name = 'torchvision', limit = 20 }}")
    table = _Table(values, where, _SUITE)
    name = table.one_of("name", SUITES)
    if name is None:
        raise UsageError(f"{where}: name is missing: one of {', '.join(SUITES)}")
    return SuiteChoice(name=name, limit=table.number("limit", least=1, kinds=(int,)), models=table.texts("models") or ("*",))


def _arm(given: Any, where: str, folder: Path) -> Arm:
    if not isinstance(given, dict):
        raise UsageError(f"{where} has to be a table")
    table = _Table(given, where, tuple(field_.name for field_ in fields(Arm)))
    name = table.get("name", str, "a text")
    if not name or not name.isprintable() or len(name) > 80:
        raise UsageError(f"{where}: name is missing, or is no short text")
    python = table.get("python", str, "a path")
    if python is None:
        python = sys.executable
    elif not (folder / python).is_file():
        raise UsageError(f"{where}: python: there is no file {folder / python}")
    else:
        python = str(folder / python)  # not resolved: a virtual environment's interpreter is a link
    return Arm(
        name=name,
        backend=table.get("backend", str, "a text"),
        mode=table.get("mode", str, "a text"),
        dynamic=table.get("dynamic", bool, "true or false"),
        precision=table.one_of("precision", _PRECISIONS),
        train=table.get("train", bool, "true or false", False),
        device=table.one_of("device", _DEVICES),
        python=python,
        gpus=table.number("gpus", least=0, kinds=(int,)) or 0,
    )
