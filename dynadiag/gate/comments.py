"""`# dynadiag: allow[GB0123] reason` in the user's source: what it lets through, and where."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynadiag.errors import UsageError
from dynadiag.facts.user_frames import is_own_file
from dynadiag.model.run import Run

_MARK = re.compile(r"#\s*dynadiag:\s*allow\b\s*(?:\[(?P<codes>[^\]\n]*)\]\s*(?P<reason>.*))?")
_CODE = re.compile(r"[A-Z]{2}\d{2,4}")
_SIGN = "dynadiag:"
HOW = "write `# dynadiag: allow[GB0123] why it may stay`"


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """One comment: in which line it stands, to which line it belongs, what it allows and why.

    `judged` says that it lies in a function that was compiled in this run, so that one which nothing needed is needless.
    """

    file: str
    line: int
    of_line: int
    codes: tuple[str, ...]
    reason: str
    judged: bool


def allowances(run: Run, present: Mapping[str, str]) -> tuple[Allowance, ...]:
    """The comments in the recorded functions of the user's own files, and in the files themselves where they are as recorded (`present`).

    Raises UsageError for a comment without a reason or without codes.
    """
    found: dict[tuple[str, int], Allowance] = {}
    compiled: dict[str, list[range]] = {}
    for function in run.functions:
        if not is_own_file(function.file, run):
            continue
        compiled.setdefault(function.file, []).append(range(function.line, function.line + function.text.count("\n") + 1))
        if function.file not in present and _SIGN in function.text:
            found |= {
                (function.file, each.line): each for each in _in_text(function.file, function.text, function.line, judged=[range(1 << 31)])
            }
    for file, text in present.items():
        if _SIGN in text:
            found |= {(file, each.line): each for each in _in_text(file, text, 1, judged=compiled.get(file, []))}
    return tuple(found[key] for key in sorted(found))


def _in_text(file: str, text: str, first: int, *, judged: list[range]) -> Iterator[Allowance]:
    """The comments of a text whose first line has this number."""
    rows = text.split("\n")
    for number, comment in _comments(text):
        match = _MARK.match(comment)
        if match is None:
            continue
        line = first + number - 1
        place = f"{file}:{line}"
        codes = tuple(part.strip() for part in (match["codes"] or "").split(",") if part.strip())
        if not codes or not all(map(_CODE.fullmatch, codes)):
            raise UsageError(f"{place}: `allow` names no code of a finding: {HOW}")
        if not any(map(str.isalnum, match["reason"] or "")):
            raise UsageError(f"{place}: `allow[{', '.join(codes)}]` has no reason: {HOW}")
        of_line = first + _belongs_to(rows, number) - 1
        in_compiled = any(line in item for item in judged)
        yield Allowance(file=file, line=line, of_line=of_line, codes=codes, reason=match["reason"].strip(), judged=in_compiled)


def _belongs_to(rows: list[str], number: int) -> int:
    """The comment's own line, or the next one with code where it stands alone."""
    at = number
    while at < len(rows) and rows[at - 1].lstrip()[:1] in ("", "#"):
        at += 1
    return at


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Each comment with its line; where the text is no whole Python, what was read of it before."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError, ValueError):
        return
