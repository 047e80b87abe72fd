"""What the atlas says of a library: its entries, each with two programs and what torch counted of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dynadiag.rules.libraries.names import FOLDER, package_names

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
Version = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What torch counted of one program: graph breaks, graphs, compilations of one more version of code; the exception that ended it."""

    breaks: int
    graphs: int
    recompiles: int
    error: str | None = None

    def __str__(self) -> str:
        parts = [(self.breaks, "break"), (self.graphs, "graph"), (self.recompiles, "recompile")]
        counted = ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for number, word in parts)
        return counted if self.error is None else f"{self.error} ({counted})"


@dataclass(frozen=True, kw_only=True)
class Hint:
    """The program before the cure with a switch of `torch._dynamo.config` that torch's own hints for its breaks name.

    `differs`: its result is another one than in eager, or there is none.
    """

    option: str
    counts: Counts
    differs: bool = False


@dataclass(frozen=True, kw_only=True)
class Check:
    """One run of both programs of an entry, and of what torch itself advises for the first."""

    library: str
    torch: str
    before: Counts
    after: Counts
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Edit:
    """How a program gets the cure: an argument of each call of something (`call`, by its public name), or statements (`code`).

    Statements stand behind the imports of the script, or `at = "top"` before them. `sets` are attributes of the library's objects that then
    have other values: what shows that the results are the same leaves these out.
    """

    call: str | None = None
    argument: str | None = None
    value: str | None = None
    code: str | None = None
    at: Literal["imports", "top"] = "imports"
    sets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One function of a library under `torch.compile`.

    `through` are functions of the library on the recorded stack (`module:qualified.name`), outermost first, which all have to be there.
    `guard` is how the source of the guard ends that fails, for a recompile. `changes` is what else the cure changes, None where results and
    side effects stay.
    """

    name: str
    function: str
    through: tuple[str, ...]
    shows: Literal["break", "recompile", "error"]
    happens: str
    cause: str
    cure: str
    before: str
    after: str
    checked: tuple[Check, ...] = ()
    guard: str | None = None
    changes: str | None = None
    edit: Edit | None = None
    imports: str | None = None

    def covers(self, library: str, torch: str) -> bool:
        """Whether it was checked on this version of the library and of torch, or on one before and one behind each."""
        return _lies_between(library, [check.library for check in self.checked]) and _lies_between(
            torch, [check.torch for check in self.checked], parts=2
        )


@dataclass(frozen=True, kw_only=True)
class Library:
    """What is known of one package: its name on the package index, what its programs need besides, and its entries."""

    library: str
    package: str
    needs: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()


@functools.cache
def read_library(package: str) -> Library | None:
    """What the atlas has of a package, as it is imported; None for others."""
    if package not in package_names():
        return None
    import msgspec  # 65 ms: only where a frame of the library is involved

    return msgspec.convert({"package": package, **_content(package)}, Library)


def _content(package: str) -> dict[str, object]:
    import tomllib

    return tomllib.loads((FOLDER / f"{package}.toml").read_text("utf-8"))


def all_libraries() -> Iterator[Library]:
    """The whole atlas, by the names on the package index."""
    yield from sorted((found for package in package_names() if (found := read_library(package))), key=lambda item: item.library)


def version_numbers(version: str) -> Version:
    """The numbers that a version begins with: those of `2.15.0+cpu` and `2.15.0` are equal."""
    found = _NUMBERS.match(version)
    return () if found is None else tuple(map(int, found[0].split(".")))


def _lies_between(version: str, checked: list[str], parts: int | None = None) -> bool:
    numbers = sorted(version_numbers(text)[:parts] for text in checked)
    return bool(numbers) and numbers[0] <= version_numbers(version)[:parts] <= numbers[-1]
