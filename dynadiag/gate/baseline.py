"""The baseline: the problems of each program that are known and let through, in a file to commit. It is a ratchet: it only gets shorter."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dynadiag.errors import OutputError, UnreadableInputError
from dynadiag.facts.fingerprint import SCHEME
from dynadiag.files import alone_with, read_small, write_file

VERSION = 1
_MOST_BYTES = 16 << 20
_KEY, _SCHEME = "dynadiag_baseline", "fingerprints"
_FINGERPRINT = re.compile(r"[0-9a-f]{5}-[0-9a-f]{8}(?:-[0-9a-f]{6}){3}(?:-\d{1,6})?")
_REMAKE = "fix it, restore it from version control, or delete it and run --update-baseline"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One known problem. Fingerprints are compared; of another scheme of them code and place. The title is for people who read the file."""

    fingerprint: str
    code: str
    file: str = ""
    function: str = ""
    source: str = ""
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class KnownProblems:
    """What is known of one program, the torch with which it was found, and the scheme of its fingerprints (0: of no number)."""

    torch: str = ""
    scheme: int = SCHEME
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """All of a baseline file, by program."""

    programs: Mapping[str, KnownProblems] = field(default_factory=dict)

    def of(self, program: str) -> KnownProblems | None:
        """What is known of a program; None for one that the file does not name."""
        return self.programs.get(program)


def read(path: Path) -> Baseline | None:
    """The baseline in a file; None where there is no file. Raises UnreadableInputError with one line for anything else."""
    try:
        data = read_small(path.resolve(), _MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableInputError(f"the baseline {path} cannot be read: {error.strerror}") from None
    try:
        document = json.loads(data.decode("utf-8")) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError) as error:
        at = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise UnreadableInputError(f"the baseline {path} is not JSON{at}: {_REMAKE}") from None
    if not isinstance(document, dict) or type(document.get(_KEY)) is not int:
        raise UnreadableInputError(f'{path} is not a dynadiag baseline: it has no "{_KEY}"')
    if document[_KEY] != VERSION:
        raise UnreadableInputError(
            f"the baseline {path} has version {document[_KEY]}, this dynadiag reads version {VERSION}: "
            "use the dynadiag that wrote it, or delete it and run --update-baseline"
        )
    programs = document.get("programs")
    if not isinstance(programs, dict):
        raise UnreadableInputError(f'the baseline {path} is damaged: "programs" is not an object; {_REMAKE}')
    return Baseline(programs={name: _known(path, name, value) for name, value in programs.items()})


def _known(path: Path, program: str, value: Any) -> KnownProblems:
    entries = value.get("problems") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not isinstance(value.get("torch", ""), str):
        raise UnreadableInputError(f'the baseline {path} is damaged: {program!r:.80} has no list "problems"; {_REMAKE}')
    scheme = value.get(_SCHEME, 0)
    if type(scheme) is not int:
        raise UnreadableInputError(f'the baseline {path} is damaged: "{_SCHEME}" of {program!r:.80} is not a number; {_REMAKE}')
    found = tuple(_entry(path, program, number, item) for number, item in enumerate(entries, start=1))
    if len({entry.fingerprint for entry in found}) < len(found):
        raise UnreadableInputError(f"the baseline {path} is damaged: {program!r:.80} has a fingerprint twice; {_REMAKE}")
    return KnownProblems(torch=value.get("torch", ""), scheme=scheme, entries=found)


def _entry(path: Path, program: str, number: int, value: Any) -> Entry:
    names = Entry.__dataclass_fields__
    texts = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    if not texts or not value.get("code") or not _FINGERPRINT.fullmatch(value.get("fingerprint", "")):
        where = f"problem {number} of {program!r:.80}"
        raise UnreadableInputError(f"the baseline {path} is damaged: {where} is not a valid entry; {_REMAKE}")
    return Entry(**{name: text for name, text in value.items() if name in names})


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """While the block runs, no other `check` updates a baseline in this folder: each would lose what another wrote. Raises OutputError."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone_with(path))
        except OSError as error:
            raise OutputError(f"the baseline {path} cannot be written: {error.strerror or error}") from None
        yield


def write(path: Path, baseline: Baseline) -> None:
    """Write the file whole or not at all, one problem a line, so that versions of it can be merged. Raises OutputError."""
    try:
        write_file(path, _text(baseline))
    except OSError as error:
        raise OutputError(f"the baseline {path} cannot be written: {error.strerror or error}") from None


def _text(baseline: Baseline) -> str:
    programs = [
        f'  {json.dumps(name)}: {{\n   "torch": {json.dumps(known.torch)},\n   "{_SCHEME}": {known.scheme},\n'
        f'   "problems": {_list(known.entries)}\n  }}'
        for name, known in sorted(baseline.programs.items())
    ]
    inside = ",\n".join(programs)
    return f'{{\n "{_KEY}": {VERSION},\n "programs": {{' + (f"\n{inside}\n }}" if inside else "}") + "\n}\n"


def _list(entries: Iterable[Entry]) -> str:
    ordered = sorted(entries, key=lambda entry: (entry.file, entry.function, entry.code, entry.fingerprint))
    lines = ",\n".join(f"    {json.dumps(asdict(item))}" for item in ordered)
    return f"[\n{lines}\n   ]" if lines else "[]"
