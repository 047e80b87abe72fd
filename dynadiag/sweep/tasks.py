"""The tasks of a matrix: one program, one arm, one verb, with a key that says whether it was done before."""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import dynadiag
from dynadiag.errors import UsageError
from dynadiag.json_lines import parsed
from dynadiag.sweep.inside import subject as inside
from dynadiag.sweep.matrix import Arm, Matrix, SuiteChoice

SUBJECT = Path(inside.__file__).resolve()
_ASK_S = 300.0
_PLACEHOLDERS = ("backend", "mode", "dynamic", "precision", "train", "device")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One program to run in one way. `words` are the script and its arguments, `options` those of the verb; `cwd` is where it runs.
    `versions` by package.

    `key` is a digest of subject, arm, verb and versions: a row with it makes the task done.
    """

    key: str
    subject: str
    suite: str
    arm: Arm
    verb: str
    words: tuple[str, ...]
    cwd: str
    versions: tuple[tuple[str, str | None], ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """A script with its arguments (`line`), or a model or function that `inside/subject.py` builds. `content` is a digest of the file.

    `arms` are the names of those in whose interpreter there is such a model; None for all.
    """

    name: str
    suite: str = ""
    model: str = ""
    line: tuple[str, ...] = ()
    content: str = ""
    arms: frozenset[str] | None = None

    def words(self, arm: Arm, folder: Path | None = None) -> tuple[str, ...]:
        """The script and its arguments for one arm. A function is found from `folder`, wherever it runs: `minify` runs it elsewhere."""
        if self.line:
            return (self.line[0], *(_filled(word, arm) for word in self.line[1:]))
        settings = {"suite": self.suite, "name": self.model, "arm": arm.settings}
        if self.suite == "function" and folder is not None:
            settings["folder"] = str(folder)
        return (str(SUBJECT), "run", json.dumps(settings, sort_keys=True))


def tasks_of(matrix: Matrix) -> list[Task]:
    """Every task once, in the order of subjects, arms and verbs. Raises UsageError for an interpreter or a suite that cannot be used."""
    made: dict[str, Task] = {}
    taken: dict[tuple[str, str, str], str] = {}
    for subject in _subjects(matrix):
        for arm in matrix.arms:
            if subject.arms is not None and arm.name not in subject.arms:
                continue
            words = subject.words(arm)
            for verb in matrix.verbs:
                task = _task(matrix, subject, arm, verb, words)
                before = taken.setdefault((subject.name, verb, json.dumps([words, task.versions, arm.python, arm.gpus])), arm.name)
                if before != arm.name:
                    raise UsageError(
                        f"the arms {before} and {arm.name} are the same for {subject.name}: a script decides itself how it compiles; "
                        f"write what differs into its arguments, such as `{subject.name} --mode {{mode}}`"
                    )
                made[task.key] = task
    return list(made.values())


def _task(matrix: Matrix, subject: _Subject, arm: Arm, verb: str, words: tuple[str, ...]) -> Task:
    suite = subject.suite
    versions = (("dynadiag", dynadiag.__version__), *_versions(arm.python))
    if suite in inside.SUITES:
        versions = (*versions, (suite, _listed(arm.python, suite)[1]))
    options = matrix.explain_options if verb == "explain" else ()
    said = json.dumps([subject.name, arm.name, arm.settings, arm.gpus, verb, *options, words[1:], subject.content, versions])
    return Task(
        key=hashlib.sha256(said.encode()).hexdigest()[:20],
        subject=subject.name,
        suite=suite,
        arm=arm,
        verb=verb,
        words=subject.words(arm, matrix.folder),
        cwd=str(matrix.folder),
        versions=versions,
        options=options,
    )


def to_minify(task: Task) -> Task:
    """The task that reduces what failed in this one."""
    key = hashlib.sha256(f"{task.key} minify".encode()).hexdigest()[:20]
    return replace(task, key=key, verb="minify")


def _subjects(matrix: Matrix) -> Iterator[_Subject]:
    """Scripts, functions, then the suites; a suite may have other models in the interpreter of another arm."""
    for line in matrix.scripts:
        content = hashlib.sha256((matrix.folder / line[0]).read_bytes()).hexdigest()
        yield _Subject(name=" ".join(line), line=line, content=content)
    for name in matrix.functions:
        where = matrix.folder / name.rpartition(":")[0]
        content = hashlib.sha256(where.read_bytes()).hexdigest() if where.suffix == ".py" and where.is_file() else ""
        yield _Subject(name=name, suite="function", model=name, content=content)
    for choice in matrix.suites:
        _refuse_unknown_models(choice, {name for arm in matrix.arms for name in _listed(arm.python, choice.name)[0]})
        names = {arm.name: _chosen(choice, _listed(arm.python, choice.name)[0]) for arm in matrix.arms}
        for name in dict.fromkeys(text for listed in names.values() for text in listed):
            arms = frozenset(arm for arm, listed in names.items() if name in listed)
            yield _Subject(name=f"{choice.name}:{name}", suite=choice.name, model=name, arms=arms)


def _filled(word: str, arm: Arm) -> str:
    """`{mode}` and similar names replaced by what the arm says, nothing where it says nothing."""
    for name in _PLACEHOLDERS:
        value = getattr(arm, name)
        word = word.replace(f"{{{name}}}", "" if value is None else str(value))
    return word


def _refuse_unknown_models(choice: SuiteChoice, names: set[str]) -> None:
    for pattern in choice.models:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, sorted(names), 1)
            raise UsageError(f"{choice.name} has no model that fits {pattern!r:.80}" + (f"; did you mean {near[0]!r}?" if near else ""))


def _chosen(choice: SuiteChoice, names: tuple[str, ...]) -> tuple[str, ...]:
    fitting = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in choice.models)]
    return tuple(fitting[: choice.limit])


@cache
def _versions(python: str) -> tuple[tuple[str, str | None], ...]:
    said = _asked(python, "versions", "-")
    return tuple((name, said.get(name)) for name in ("python", "torch"))


@cache
def _listed(python: str, suite: str) -> tuple[tuple[str, ...], str]:
    said = _asked(python, "list", suite)
    return tuple(map(str, said["names"])), str(said["version"])


def _asked(python: str, what: str, word: str) -> dict[str, Any]:
    """What the interpreter says on one line. Raises UsageError where it says nothing."""
    try:
        done = subprocess.run(
            [python, str(SUBJECT), what, word],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{python} cannot be asked for its {what}: {error}") from None
    said = parsed(done.stdout.splitlines()[-1]) if done.stdout.strip() else None
    if said is None:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        refused = f"cannot list the models of {word}" if what == "list" else "does not tell its versions"
        raise UsageError(f"{python} {refused}: {last:.300}")
    return said
