"""Starting a program several times on one cache folder, each start recorded, with another hash seed as each process has one.

Also with changes, whose texts the files of the program do not get: `edited` is the target that runs them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dynadiag.record import RecordOptions, Target
from dynadiag.record.target import file_of_module
from dynadiag.start.edited_program import EditedProgram

_SEED = "PYTHONHASHSEED"
_CACHE, _TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
FIRST, SECOND = "first", "second"


@dataclass(frozen=True)
class Session:
    """How the program is started: `run` records one start by its name and options and gives its folder."""

    options: RecordOptions
    cache: Path
    run: Callable[[str, RecordOptions, Target], Path]
    program: Target

    def starts(self, count: int) -> list[Path]:
        """So many starts one after the other; the last two are compared."""
        names = [FIRST, *(f"start-{number}" for number in range(2, count)), SECOND]
        return [self.start(name, seed=number) for number, name in enumerate(names, 1)]

    def start(self, name: str, *, seed: int) -> Path:
        """One start. Where the user has not fixed the hash seed, it has one of its own, which can be given to another start again."""
        return self.run(name, replace(self.options, environment=self._environment(seed)), self.program)

    def changed_starts(self, texts: Mapping[Path, str], variables: Mapping[str, str], folder: Path, name: str = "changed") -> list[Path]:
        """Two starts with new texts of files and with variables; `folder` is for what is to be run."""
        program = edited(self.program, texts, folder) if texts else self.program
        return [
            self.run(f"{name}-{which}", replace(self.options, environment={**self._environment(seed), **variables}), program)
            for seed, which in enumerate((FIRST, SECOND), 1)
        ]

    def _environment(self, seed: int) -> Mapping[str, str]:
        found = {**self.options.environment, _CACHE: str(self.cache)}
        if _TRITON in os.environ:  # else torch puts it into its own cache folder
            found[_TRITON] = str(self.cache / "triton")
        if has_random_hashes():
            found[_SEED] = str(seed)
        return found


def has_random_hashes() -> bool:
    """Whether each process of the user's has another hash seed, as Python does it by default."""
    return os.environ.get(_SEED, "random") == "random"


def can_be_edited(program: Target) -> bool:
    """Whether it can be run with other texts: a launcher starts its program itself, and a notebook is no Python file."""
    return program.kind == "module" or (program.kind == "script" and program.argv[0].endswith(".py"))


def edited(program: Target, texts: Mapping[Path, str], folder: Path) -> Target:
    """The target that runs a script or module with new texts of files. Raises UnreadableInputError for a module that is not found."""
    name, *arguments = program.argv
    is_module = program.kind == "module"
    file = file_of_module(name, sys.executable) if is_module else Path(name)
    job = EditedProgram(
        script=str(file if is_module else name),
        arguments=tuple(arguments),
        texts={str(path): text for path, text in texts.items()},
        module=name if is_module else None,
    )
    return Target(kind="command", argv=job.command(sys.executable, folder))
