"""From a run directory or a log to printed output and files; what every verb that ends in a report shares."""

from __future__ import annotations

import gc
import io
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import dynadiag
from dynadiag.errors import DynadiagError, OutputError
from dynadiag.files import is_read_only, write_file, write_inside
from dynadiag.masking import masked_arguments, secret_values
from dynadiag_cli.progress import progress
from dynadiag_cli.streams import drop_stdout

if TYPE_CHECKING:
    from rich.console import Console

    from dynadiag.model import Report, Run
    from dynadiag.record import RecordResult
    from dynadiag.render.document import Document

_FILE_WIDTH = 100
_FROM_ELSEWHERE = (
    "the lines shown are those of the recording; whether the files changed since is not known: the run may come from another machine"
)
_NO_LINKS = (None, "dumb", "linux")  # terminals that do not know OSC 8, or take it for something else


class _Result(Protocol):
    def to_json(self, version: str) -> Mapping[str, object]: ...


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """How to show a report: `format` text, json, md or html; `output` a file, "-" or None; `renderer` None draws nothing.

    `full` prints the tables too, `verbose` torch's explanations as well, `quiet` only the verdict; `color` is auto, always or never;
    `limit` findings (0 all, None as many as usual); `show_free` lists mutations that cost nothing;
    `mutations_only` leaves out the rest of the text; `trace` is a file for the compile phases in Chrome's trace format.
    """

    format: str = "text"
    output: str | None = None
    full: bool = False
    quiet: bool = False
    verbose: bool = False
    color: str = "auto"
    limit: int | None = None
    renderer: str | None = "auto"
    show_free: bool = False
    mutations_only: bool = False
    trace: str | None = None


def explain_recording(path: Path, *, out: Path | None, force: bool, options: ShowOptions, page: bool = False) -> tuple[Report, Path | None]:
    """Read a run directory or a log, print its report (stdout unless told otherwise), and refresh the files of a run of ours.

    Gives the report, and the folder with its files: `out`, the run directory, for another log with `page` a new one in `dynadiag-runs`.
    """
    directory = _report_directory(path, out, force, new=page)
    with without_gc():
        report = _build(_load(path), path)
        if directory is not None:
            report = _write_files(report, directory, options)
        _write_trace(report, options)
        _print(report, options, default=sys.stdout, directory=directory, log=path)
    return report, directory


@contextmanager
def without_gc() -> Iterator[None]:
    """What is read, built and shown is plain data without cycles; looking for some costs 6 % of the time of a long log."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _report_directory(path: Path, out: Path | None, force: bool, *, new: bool) -> Path | None:
    """Where files go: into `--out`, into a run directory of ours, where asked for into a new folder, or nowhere."""
    from dynadiag.record.directory import chosen_directory, is_run_directory, new_directory, write_marker

    if out is None and is_run_directory(path):
        return path
    if out is not None:
        directory = chosen_directory(out, force=force)
    elif new:
        try:
            directory = new_directory(Path.cwd(), path.resolve().name, latest=False).relative_to(Path.cwd())
        except OSError as error:
            raise OutputError(f"cannot make a folder for the page: {error.strerror or error}: use --out DIR") from error
    else:
        return None
    write_marker(directory, {"dynadiag": dynadiag.__version__, "command": None, "read_from": str(path)})
    return directory


def explain_run(result: RecordResult, *, options: ShowOptions) -> int:
    """Report on a script that has just run; gives the script's exit status, whatever happens to our own part."""
    if result.directory is None:  # the supervisor has said why nothing was recorded
        return result.exit_status
    try:
        report = _write_files(_build(_load(result.directory), result.directory), result.directory, options)
        _write_trace(report, options)
        _print(report, options, default=sys.stderr, directory=result.directory)
    except DynadiagError as error:
        print(f"dynadiag: {error.message}", file=sys.stderr)
    except Exception:  # noqa: BLE001  the border between our part and the exit status of the user's script
        print(
            f"dynadiag: building the report failed; please report this (the recording is complete):\n{traceback.format_exc()}",
            file=sys.stderr,
        )
    return result.exit_status


def open_page(directory: Path, name: str = "report.html") -> None:
    """Show a page of a run in the system's browser."""
    page = directory / name
    if page.is_file():
        import webbrowser  # takes subprocess and locale with it

        webbrowser.open(page.resolve().as_uri())
    else:
        print(f"dynadiag: there is no page to open in {directory}", file=sys.stderr)


def read_report(path: Path) -> Report:
    """The report on a run directory or a log; nothing is written."""
    with without_gc():
        return _build(_load(path), path)


def write_reports(report: Report, directory: Path) -> None:
    """Write what `explain` writes into a run directory, the pictures as well."""
    with without_gc():
        _write_files(report, directory, ShowOptions())


def command_line() -> str:
    """What was typed, to be typed again; what looks like a secret is masked."""
    return shlex.join(masked_arguments(["dynadiag", *sys.argv[1:]], secret_values(os.environ)))


def write_page(told: Callable[[], Document | str], directory: Path, name: str = "report.html") -> None:
    """Write the page of a result, given as its document or as HTML. What fails there costs the page alone, and is said."""
    from dynadiag.render.html import result_page

    try:
        made = told()
        write_inside(directory, name, made if isinstance(made, str) else result_page.render(made))
    except OSError as error:
        print(f"dynadiag: {directory / name} could not be written: {error.strerror or error}", file=sys.stderr)
    except Exception:  # noqa: BLE001  the border around one renderer
        print(f"dynadiag: {name} failed; please report this:\n{traceback.format_exc()}", file=sys.stderr)


def json_of(result: _Result) -> str:
    """A result as its JSON file."""
    from dynadiag.render import finite_json

    return finite_json.dumps(result.to_json(dynadiag.__version__), indent=2) + "\n"


def write_result(directory: Path, stem: str, json: str, document: Document, *, make: bool = False) -> None:
    """Write what a verb came to as `STEM.json` and `STEM.md`; `make`: into a folder that may be new. Raises OutputError where it cannot."""
    from dynadiag.render import markdown_text

    try:
        if make:
            directory.mkdir(parents=True, exist_ok=True)
        write_inside(directory, f"{stem}.json", json)
        write_inside(directory, f"{stem}.md", markdown_text.document(document))
    except OSError as error:
        raise OutputError(f"cannot write into {directory}: {error.strerror or error}") from error


def keep_result(directory: Path, stem: str, result: _Result, document: Callable[[], Document]) -> None:
    """Write `STEM.json` and the page `STEM.html` beside a recording; what cannot be written is said, and nothing else fails for it."""
    try:
        write_inside(directory, f"{stem}.json", json_of(result))
    except OSError as error:
        print(f"dynadiag: {directory / stem}.json could not be written: {error.strerror}", file=sys.stderr)
    write_page(document, directory, f"{stem}.html")


def show(
    told: Document,
    form: str,
    output: str | None = None,
    *,
    json: Callable[[], str],
    default: IO[str],
    color: str = "auto",
    quiet: bool = False,
) -> None:
    """Print a result as text, md, html or json: to a file, "-" (stdout), or where it goes by default. `quiet` text is its headlines."""
    from dynadiag.render.html import result_page
    from dynadiag.render.markdown_text import document
    from dynadiag.render.page import Page, text_of

    if form == "text" and output in (None, "-"):
        page = Page(console(sys.stdout if output else default, color))
        (page.headlines if quiet else page.document)(told)
        return
    writers = {"text": lambda: text_of(told, headlines_only=quiet), "md": lambda: document(told), "html": lambda: result_page.render(told)}
    emit((writers | {"json": json})[form](), output, default)


def _load(path: Path) -> Run:
    from dynadiag import trace

    with progress("reading") as advance:
        return trace.load(path, workers=trace.usable_processors(), progress=advance)


def _build(run: Run, path: Path) -> Report:
    """The report, with what is known of its sources since: no file is opened that a run from elsewhere names."""
    from dynadiag import report
    from dynadiag.record.changed_sources import changed_sources
    from dynadiag.runs import recorded_here

    made = report.build_with_replay(run, path)
    if not run.functions:
        return made
    return (
        replace(made, changed_sources=changed_sources(run)) if recorded_here(path) else replace(made, notes=(*made.notes, _FROM_ELSEWHERE))
    )


def _write_files(report: Report, directory: Path, options: ShowOptions) -> Report:
    """Draw and write what belongs into a run directory; what fails leaves a note in the report, and the others go on."""
    from dynadiag.render import json_report, markdown

    steps: dict[str, Callable[[Report], Report]] = {
        "report.md": lambda made: _write(made, directory, "report.md", markdown.render),
        "report.html": lambda made: _write(made, directory, "report.html", partial(_page, directory=directory)),
        "report.json": lambda made: _write(
            replace(made, notes=(*made.notes, *_not_written(failed))), directory, "report.json", json_report.chunks
        ),
    }
    if options.renderer is not None:
        steps = {"pictures": lambda made: _draw(made, directory, options.renderer or "auto"), **steps}
    failed: dict[str, OSError] = {}
    for what, step in steps.items():
        report = _guarded(report, what, step, failed)
    for note in _not_written(failed):
        print(f"dynadiag: {note}", file=sys.stderr)
    return replace(report, notes=(*report.notes, *_not_written(failed)), not_written=tuple(failed))


def _not_written(failed: Mapping[str, OSError]) -> list[str]:
    """What could not be written, each reason once: in a folder that is read-only that is everything."""
    reasons = {what: error.strerror or str(error) for what, error in failed.items()}
    return [
        f"{', '.join(what for what, reason in reasons.items() if reason == why)} could not be written: {why}"
        for why in dict.fromkeys(reasons.values())
    ]


def _write_trace(report: Report, options: ShowOptions) -> None:
    """The compile phases in Chrome's trace format, where they were asked for and recorded."""
    from dynadiag.render import chrome_trace

    if options.trace is None:
        return
    if report.run.spans:
        emit(chrome_trace.dumps(report), options.trace, sys.stdout)
    else:
        print(f"dynadiag: {options.trace} is not written: this log has no timed phases", file=sys.stderr)


def _page(report: Report, directory: Path) -> str:
    from dynadiag.render.html import report_page

    return report_page.render(report, directory)


def _guarded(report: Report, what: str, step: Callable[[Report], Report], failed: dict[str, OSError]) -> Report:
    try:
        return step(report)
    except OSError as error:
        failed[what] = error
        return report
    except Exception:  # noqa: BLE001  the border around one renderer
        note = f"{what} failed; please report this:\n{traceback.format_exc()}"
        print(f"dynadiag: {note}", file=sys.stderr)
        return replace(report, notes=(*report.notes, note))


def _draw(report: Report, directory: Path, renderer: str) -> Report:
    from dynadiag.render import pictures

    with progress("drawing") as advance:
        drawn, notes = pictures.write(report, directory, renderer=renderer, progress=advance)
    return replace(report, pictures=drawn, notes=(*report.notes, *notes))


def _write(report: Report, directory: Path, name: str, render: Callable[[Report], str | Iterable[str]]) -> Report:
    write_inside(directory, name, render(report))
    return report


def _print(report: Report, options: ShowOptions, *, default: IO[str], directory: Path | None, log: Path | None = None) -> None:
    if options.format == "json":
        from dynadiag.render import json_report

        emit(json_report.chunks(report), options.output, default)
        return
    if options.format == "html":
        from dynadiag.render.html import report_page

        emit(report_page.render(report, directory), options.output, default)
        return
    if options.format == "md":
        from dynadiag.render import markdown

        emit(markdown.render(report), options.output, default)
        return
    from dynadiag.render import terminal

    into_file = options.output not in (None, "-")
    text = io.StringIO()
    stream = text if into_file else sys.stdout if options.output == "-" else default
    page = _console(stream, options, into_file)
    limit = options.limit or None
    links = not into_file and options.color != "never" and stream.isatty() and os.environ.get("TERM") not in _NO_LINKS
    if options.quiet:
        terminal.print_verdict(report, page)
    elif options.full or options.verbose or options.show_free or options.mutations_only:
        terminal.print_report(
            report,
            page,
            limit=terminal.DEFAULT_LIMIT if options.limit is None else limit,
            verbose=options.verbose,
            directory=directory,
            show_free=options.show_free,
            mutations_only=options.mutations_only,
            links=links,
        )
    else:
        from dynadiag.render import brief
        from dynadiag.runs import run_before
        from dynadiag.torch_compat.versions import too_old

        asked = options.limit is not None
        terminal.print_summary(
            report,
            page,
            limit=limit if asked else brief.BRIEF_LIMIT,
            lines=None if asked else brief.BRIEF_LINES,
            directory=directory,
            links=links,
            log=log,
            before=None if directory is None else run_before(directory),
            can_bench=all(too_old("bench", process.torch) is None for process in report.run.processes),
        )
    if into_file:
        emit(text.getvalue(), options.output, default)


def console(stream: IO[str], color: str) -> Console:
    """Where text goes; `color` is auto, always or never."""
    from rich.console import Console

    if color == "always":
        return Console(file=stream, highlight=False, force_terminal=True, color_system="standard", no_color=False)
    return Console(file=stream, highlight=False, no_color=True if color == "never" else None)


def _console(stream: IO[str], options: ShowOptions, into_file: bool) -> Console:
    from rich.console import Console

    return Console(file=stream, highlight=False, width=_FILE_WIDTH, no_color=True) if into_file else console(stream, options.color)


def check_output(output: str | None) -> None:
    """Refuse what cannot be written before minutes are spent on what would go there."""
    if output is None or output == "-":
        return
    path = Path(output)
    if path.is_dir() or not path.parent.is_dir():
        raise OutputError(f"cannot write {output}: {'it is a folder' if path.is_dir() else f'there is no folder {path.parent}'}")
    if is_read_only(path):
        raise OutputError(f"cannot write {output}: it is read-only")


def make_folder(folder: Path) -> None:
    """Make a folder for output, and those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be created: {error.strerror}") from None


def flush_stdout() -> None:
    """Write what is still buffered, before a verdict becomes the exit status. Raises OutputError, for instance on a full disk."""
    try:
        sys.stdout.flush()
    except OSError as error:
        drop_stdout()
        raise OutputError(f"cannot write to stdout: {error.strerror or error}") from error


def emit(text: str | Iterable[str], output: str | None, default: IO[str]) -> None:
    """Write a text, ending in a line break, to a file, to stdout ("-") or to where it goes by default.

    A text in pieces is written as they come, and ends in a line break itself.
    """
    if isinstance(text, str):
        text = text if text.endswith("\n") or not text else text + "\n"
    if output is None or output == "-":
        (sys.stdout if output else default).writelines((text,) if isinstance(text, str) else text)
        return
    try:
        write_file(Path(output), text)
    except OSError as error:
        raise OutputError(f"cannot write {output}: {error.strerror or error}") from error
