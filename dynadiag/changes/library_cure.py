"""The cure that the atlas of libraries has for a function of this version: an argument of a call, or statements of the script.

One change for all libraries: which call, which argument and which statements are data (`rules/libraries`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dynadiag.changes.kinds import Kind
from dynadiag.changes.library_guards import library_function_at
from dynadiag.facts.statements import parsed_module
from dynadiag.facts.user_frames import normal_path, source_function
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import Process, Run
from dynadiag.rules.libraries.entries import Edit, Entry, read_library
from dynadiag.source.imports import recorded_names
from dynadiag.source.line import dotted
from dynadiag.source.tree import calls_in

SLUG: Final = "library-cure"
SETTING: Final = "library-setting"
"""The slug where the atlas says that the cure changes something else as well."""


def library_cures(
    stack: Sequence[Location], run: Run, process: Process | None, *, guard: str | None = None, line: Location | None = None
) -> Iterator[Advice]:
    """What the atlas has for the functions of libraries on a stack, in the versions that were recorded.

    `guard` is the source of the guard that failed, for a recompile. `line` is the user's line.
    """
    if process is None or not process.libraries or process.torch is None:
        return
    for package, version in process.libraries.items():
        inside = [
            place for place in stack if f"/{package}/" in normal_path(place.file) or normal_path(place.file).endswith(f"/{package}.py")
        ]
        library = read_library(package) if inside else None
        for entry in () if library is None else library.entries:
            if _asks(entry, guard) and entry.covers(version, process.torch) and _goes_through(inside, entry, run):
                yield _advice(entry, f"{package}/{entry.name}", library.library if library is not None else package, line, run)


def slug_of(entry: Entry) -> str:
    """What advice of an entry is called: by whether its cure changes something else as well."""
    return SLUG if entry.changes is None else SETTING


def _asks(entry: Entry, guard: str | None) -> bool:
    return (entry.guard is not None and guard.endswith(entry.guard)) if guard is not None else entry.guard is None


def _goes_through(stack: Sequence[Location], entry: Entry, run: Run) -> bool:
    """Whether all functions that the entry names are on the stack, in this order."""
    left = iter(stack)
    return all(any(_is_function(place, name, run) for place in left) for name in entry.through)


def _is_function(place: Location, name: str, run: Run) -> bool:
    """Whether a place is in a function, by its file and name; the class is compared where the function's source was recorded."""
    module, _, wanted = name.partition(":")
    path = normal_path(place.file).removesuffix(".py").removesuffix("/__init__")
    if not path.endswith(f"/{module.replace('.', '/')}"):
        return False
    recorded = library_function_at(place, run)
    if recorded is not None:
        return recorded.name == wanted
    return (source_function(place.function) or "").rpartition(".")[2] == wanted.rpartition(".")[2]


def _advice(entry: Entry, key: str, library: str, line: Location | None, run: Run) -> Advice:
    versions = sorted({check.library for check in entry.checked})
    changes = "" if entry.changes is None else f". {_sentence(entry.changes)}"
    text = f"{_sentence(entry.cure)} ({library}: checked on {' and '.join(versions)}){changes}{_against_hints(entry)}"
    before, after = _shown(entry, line, run)
    return Advice(slug=slug_of(entry), text=text, before=before, after=after, entry=key)


def _against_hints(entry: Entry) -> str:
    """What is to be said of the options that torch's own hints name, where they were seen to do harm."""
    harm = {hint.option: hint for check in entry.checked for hint in check.hints if hint.differs}
    told = (
        f". Not torch's hint `torch._dynamo.config.{name} = True`: with it the program "
        + (f"raises {hint.counts.error}" if hint.counts.error else "has another result than in eager")
        for name, hint in harm.items()
    )
    return "".join(told)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shown(entry: Entry, line: Location | None, run: Run) -> tuple[str | None, str | None]:
    """The user's line before and after, where the call stands on it; the statements to add otherwise."""
    if entry.edit is None:
        return None, None
    if line is not None and line.code and (new := with_argument(entry.edit, line.code, recorded_names(line.file, run))) is not None:
        return line.code, new
    return None, entry.edit.code.strip() if entry.edit.code is not None else None


def with_argument(edit: Edit, code: str, names: Mapping[str, str]) -> str | None:
    """A statement with the argument in each call that the edit names; None where there is no such call without it.

    `names` are what the imports of the file bind.
    """
    tree = parsed_module(code)
    found = [call for call in calls_in(tree) if is_call_of(call, edit, names) and not _has(call, edit)]
    raw = code.encode()
    for call in sorted(found, key=lambda call: (call.end_lineno, call.end_col_offset), reverse=True):
        raw = _inserted(raw, call, f"{edit.argument}={edit.value}")
    changed = parsed_module(raw.decode())
    there = [call for call in calls_in(changed) if is_call_of(call, edit, names)]
    return raw.decode() if found and changed is not None and all(_has(call, edit) for call in there) else None


def is_call_of(call: ast.Call, edit: Edit, names: Mapping[str, str]) -> bool:
    """Whether the edit names the call: of the same package, and called the same there, since packages re-export what they have."""
    first, _, rest = (dotted(call.func) or "").partition(".")
    full = ".".join(filter(None, (names.get(first), rest)))
    wanted = edit.call or ""
    return first in names and full.partition(".")[0] == wanted.partition(".")[0] and full.rpartition(".")[2] == wanted.rpartition(".")[2]


def _has(call: ast.Call, edit: Edit) -> bool:
    return any(keyword.arg in (None, edit.argument) for keyword in call.keywords)


def _inserted(raw: bytes, call: ast.Call, argument: str) -> bytes:
    """The argument as the last one of a call, before its bracket and the spaces there."""
    rows = raw.split(b"\n")
    end = sum(len(row) + 1 for row in rows[: (call.end_lineno or 1) - 1]) + (call.end_col_offset or 0) - 1
    before = raw[:end].rstrip()
    comma = b"" if before.endswith(b"(") else b" " if before.endswith(b",") else b", "
    return before + comma + argument.encode() + raw[len(before) :]


KINDS = (
    Kind(
        slugs=(SLUG,),
        applied="rewrite",
        does="the cure that the atlas of libraries has for this version: an argument of the calls that make the library's object, or "
        "statements of the script",
        asks="the atlas has the cure as an edit, and the call stands in the script or in the file of the line",
    ),
    Kind(
        slugs=(SETTING,),
        applied="rewrite",
        does="a cure of the atlas of libraries that changes something else as well",
        asks="as for `library-cure`",
        gives_up="what the atlas says that the cure changes",
    ),
)
