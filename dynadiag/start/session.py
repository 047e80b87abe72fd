"""Starting a program several times on one cache folder, each start recorded, with another hash seed as each process has one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dynadiag.record import RecordOptions

_SEED = "PYTHONHASHSEED"
_CACHE, _TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
FIRST, SECOND = "first", "second"


@dataclass(frozen=True)
class Session:
    """How the program is started: `run` records one start by its name and options and gives its folder."""

    options: RecordOptions
    cache: Path
    run: Callable[[str, RecordOptions], Path]

    def starts(self, count: int) -> list[Path]:
        """So many starts one after the other; the last two are compared."""
        names = [FIRST, *(f"start-{number}" for number in range(2, count)), SECOND]
        return [self.start(name, seed=number) for number, name in enumerate(names, 1)]

    def start(self, name: str, *, seed: int) -> Path:
        """One start. Where the user has not fixed the hash seed, it has one of its own, which can be given to another start again."""
        return self.run(name, replace(self.options, environment=self._environment(seed)))

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
