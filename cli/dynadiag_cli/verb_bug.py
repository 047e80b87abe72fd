"""`dynadiag bug`: a bug report from a run, or from what `minify` or `bench` found, without secrets and names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynadiag.errors import OutputError, UnreadableInputError
from dynadiag.trace.sources import recording_at

if TYPE_CHECKING:
    from dynadiag.share.bundle import Bundle

EXAMPLES = """Examples:

  dynadiag bug dynadiag-runs/latest

  dynadiag bug --out report minified
"""


def bug(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|MINIFY_DIR|BENCH_DIR", help="A run directory or log, or the --out folder of minify or bench.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write into DIR [default: dynadiag-runs/NNNN-bug-<name>].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace DIR if dynadiag created it.")] = False,
    no_redact: Annotated[
        bool, typer.Option("--no-redact", help="Leave everything in: tokens, names of people and machines, and all recorded source.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the two paths.")] = False,
) -> None:
    """Fill in PyTorch's bug form, and pack its evidence. Nothing is sent.

    issue.md is the text of an issue, short enough for GitHub; bundle.zip has the report, the pictures and the trace. What looks like a
    secret, names of people and machines, and source that no finding is about are removed from both, and a list counts what was removed.
    Read both before you send them. Exit status: 0 written, 2 usage, or not readable.
    """
    from dynadiag.render.sanitise import clean
    from dynadiag.share.bundle import make_bundle
    from dynadiag_cli import showing

    source = recording_at(source)
    if not source.exists():
        raise UnreadableInputError(f"no such file or folder: {source} (a run, a log, or the folder of minify or bench was expected)")
    with showing.without_gc():
        made = make_bundle(source, lambda: _directory(source, out, force), redact=not no_redact)
    for path in (made.form, made.zip):
        print(path)
    if quiet:
        return
    for line in _lines(made):
        print(f"dynadiag: {clean(line, limit=600)}", file=sys.stderr)


def _lines(made: Bundle) -> Iterator[str]:
    """What was made of it, and what is to be known before it is sent."""
    from dynadiag.share.form import times_words

    yield made.repository.said if made.repository.name is None else f"to be filed in {made.repository.said}"
    for kind, where, times in made.removed.rows:
        yield f"removed {kind}, {times_words(times)} in {where}"
    for what, times in (made.removed.left_out or {}).items():
        yield f"left out {what}, {times_words(times)}"
    for name in made.left_out:
        yield f"{name} is not in the bundle: GitHub takes no more than 25 MiB"
    if made.removed.redacted:
        yield (
            "read both files before you send them: a secret that looks like an ordinary word is not recognised, nor is a short password in "
            'a bare tuple (`("anna", "X")`) or in a sentence without a word such as "password"'
        )
    else:
        yield "NOT redacted: secrets, names of people and machines and all recorded source are in both files"


def _directory(source: Path, out: Path | None, force: bool) -> Path:
    """The folder of the two files, marked as ours."""
    import dynadiag
    from dynadiag.record.directory import chosen_directory, new_directory, write_marker

    try:
        directory = (
            chosen_directory(out, force=force)
            if out is not None
            else new_directory(Path.cwd(), f"bug-{source.resolve().stem}", latest=False)
        )
        write_marker(directory, {"dynadiag": dynadiag.__version__, "command": None, "bug": True})
    except OSError as error:
        raise OutputError(f"{out or 'dynadiag-runs'} cannot be written: {error.strerror or error}") from None
    return directory
