"""`dynadiag check`: the gate for CI: fails when a program breaks its graph, recompiles or runs eagerly more than it may."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynadiag.errors import OutputError, UnreadableInputError, UsageError
from dynadiag.trace.sources import is_recording, recording_at
from dynadiag_cli.command_line import MODE
from dynadiag_cli.options import REPORT, Force, Out, Output, Python, StopWhenStable, Timeout

if TYPE_CHECKING:
    from dynadiag.gate.formats import Shown
    from dynadiag.gate.options import GateOptions
    from dynadiag.gate.result import GateResult
    from dynadiag.model import Report

EXAMPLES = """Examples:

  dynadiag check --max-breaks 0 --max-recompiles 2 train.py --lr 3e-4

  dynadiag check --update-baseline dynadiag-runs/latest
"""
LIMITS = "Limits"


class Format(enum.StrEnum):
    """What the outcome is printed as."""

    concise = "concise"
    json = "json"
    jsonl = "jsonl"
    junit = "junit"
    github = "github"
    sarif = "sarif"
    md = "md"


class FailOn(enum.StrEnum):
    """The lowest severity that fails."""

    error = "error"
    warning = "warning"


def check(
    ctx: typer.Context,
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET [ARGS]...",
            help="A script with its arguments; `-m MODULE [ARGS]`; `-- torchrun ... train.py`; or a run directory or a log.",
        ),
    ],
    max_breaks: Annotated[
        int | None, typer.Option("--max-breaks", rich_help_panel=LIMITS, metavar="N", min=0, help="Allow N graph break sites.")
    ] = None,
    max_recompiles: Annotated[
        int | None, typer.Option("--max-recompiles", rich_help_panel=LIMITS, metavar="N", min=0, help="Allow N recompiles.")
    ] = None,
    max_fallbacks: Annotated[
        int | None, typer.Option("--max-fallbacks", rich_help_panel=LIMITS, metavar="N", min=0, help="Allow N fallbacks to eager.")
    ] = None,
    no_mutation_copy: Annotated[
        bool | None,
        typer.Option("--no-mutation-copy/--mutation-copy", rich_help_panel=LIMITS, help="Fail when a mutated input is copied back."),
    ] = None,
    min_graphs: Annotated[
        int | None, typer.Option("--min-graphs", rich_help_panel=LIMITS, metavar="N", min=0, help="Require at least N graphs.")
    ] = None,
    min_compiled: Annotated[
        float | None,
        typer.Option(
            "--min-compiled",
            rich_help_panel=LIMITS,
            metavar="SHARE",
            min=0,
            max=1,
            help="Require this share of a call's operators to run in graphs.",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            "--fail-on", rich_help_panel=LIMITS, help="Fail on findings of at least this severity that no limit covers. [default: warning]"
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", rich_help_panel=LIMITS, metavar="FILE", help="Accept the problems that FILE lists."),
    ] = None,
    update_baseline: Annotated[
        bool,
        typer.Option(
            "--update-baseline",
            rich_help_panel=LIMITS,
            help="Remove from the baseline what no longer occurs, or add a new program to it [default FILE: dynadiag-baseline.json].",
        ),
    ] = False,
    out: Out = None,
    force: Force = False,
    python: Python = None,
    timeout_s: Timeout = None,
    stop_when_stable_s: StopWhenStable = None,
    output_format: Annotated[Format, typer.Option("--format", "-f", rich_help_panel=REPORT, help="Output format.")] = Format.concise,
    output: Output = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=REPORT, help="Print no summary on stderr.")] = False,
) -> None:
    """Fail when a program breaks its graph, recompiles or runs eagerly more than it may.

    A script is recorded first, as `explain` does. Every error and warning fails, unless a limit covers findings of its kind, a comment
    `# dynadiag: allow[GB0123] reason` allows it, or the baseline lists it. Limits and the baseline can also be set in pyproject.toml,
    under [tool.dynadiag.check]. Exit status: 0 passed, 1 failed, 2 usage or an unusable recording, 5 nothing was compiled.
    """
    from dynadiag.gate.options import BASELINE, configured

    mode = ctx.meta.get(MODE, "path")
    recorded = mode == "path" and is_recording(Path(target[0]))
    if recorded and len(target) > 1:
        raise UsageError(f"{target[0]} is a run or a log and takes no arguments, but got: {' '.join(target[1:])}")
    start = Path(target[0]).parent if mode == "path" and not recorded else Path()
    options = configured(start.resolve()).changed(
        max_breaks=max_breaks,
        max_recompiles=max_recompiles,
        max_fallbacks=max_fallbacks,
        no_mutation_copy=no_mutation_copy,
        min_graphs=min_graphs,
        min_compiled=min_compiled,
        fail_on=None if fail_on is None else fail_on.value,
        baseline=baseline,
    )
    if update_baseline and options.baseline is None:
        options = options.changed(baseline=Path(BASELINE))
    _check_files(options, output, update=update_baseline)
    directory = recording_at(Path(target[0])) if recorded else _recorded(mode, target, out, force, python, timeout_s, stop_when_stable_s)
    report, result = _judged(directory, options, update=update_baseline, write=not recorded)
    _print(_shown(report, result, directory), output_format, output, default_is_stderr=not recorded)
    if not quiet:
        _say(_shown(report, result, directory))
    raise typer.Exit(result.exit_status)


def _check_files(options: GateOptions, output: str | None, *, update: bool) -> None:
    """Refuse what cannot be read or written before minutes are spent on the script."""
    from dynadiag.gate import baseline
    from dynadiag_cli import showing

    showing.check_output(output)
    if options.baseline is not None and baseline.read(options.baseline) is None:
        if not update:
            raise UsageError(f"there is no baseline {options.baseline}: --update-baseline makes it")
        if not options.baseline.parent.is_dir():
            raise OutputError(f"the baseline {options.baseline} cannot be written: there is no folder {options.baseline.parent}")


def _recorded(
    mode: str, target: list[str], out: Path | None, force: bool, python: str | None, timeout_s: float | None, stable_s: float | None
) -> Path:
    """The run directory of the program, run to its end."""
    from dynadiag import record
    from dynadiag_cli.recording import recorded

    kinds = {"module": "module", "command": "command"}
    program = record.Target(kind=kinds.get(mode, "script"), argv=tuple(target))  # type: ignore[arg-type]
    options = record.RecordOptions(out=out, force=force, python=python, timeout_s=timeout_s, stop_when_stable_s=stable_s)
    done = recorded(program, options, otherwise="nothing was checked")
    assert done.directory is not None
    return done.directory


def _judged(directory: Path, options: GateOptions, *, update: bool, write: bool) -> tuple[Report, GateResult]:
    """The outcome; the baseline is written before anything is printed."""
    from dynadiag.gate import baseline
    from dynadiag.gate.judge import entries_for, judge, program_of
    from dynadiag.record.directory import MARKER, is_run_directory
    from dynadiag_cli import showing

    if (directory / MARKER).is_file() and not is_run_directory(directory):
        raise UnreadableInputError(f"{directory / MARKER} is damaged, so nothing was checked: record the program again")
    report = showing.read_report(directory)
    if write:
        showing.write_reports(report, directory)
    stored = None if options.baseline is None else baseline.read(options.baseline)
    program = program_of(report)
    known = None if stored is None else stored.of(program)
    sources = _sources(report, directory)
    result = judge(report, options, known=known, sources=sources)
    if not update or options.baseline is None:
        return report, result
    entries = baseline.Known(torch=result.torch or "", entries=entries_for(report, result, known))
    programs = {} if stored is None else stored.programs
    baseline.write(options.baseline, baseline.Baseline(programs={**programs, program: entries}))
    return report, judge(report, options, known=entries, sources=sources)


def _sources(report: Report, directory: Path) -> dict[str, str]:
    """The user's own files that are as they were recorded; of a run that this user did not record here none is opened."""
    from dynadiag.facts.user_frames import is_own_file
    from dynadiag.files import read_small
    from dynadiag_cli import showing

    named = {one.where.file for one in report.findings if one.where is not None} | {one.file for one in report.run.functions}
    wanted = sorted(file for file in named - set(report.changed_sources) if Path(file).is_absolute() and is_own_file(file, report.run))
    if not wanted or not showing.recorded_here(directory):
        return {}
    found: dict[str, str] = {}
    for file in wanted[:_MOST_FILES]:
        try:
            text = read_small(Path(file), _LONGEST_FILE + 1)
        except (OSError, ValueError):
            continue
        if len(text) <= _LONGEST_FILE:
            found[file] = text.decode("utf-8", "replace").replace("\r\n", "\n")
    return found


_MOST_FILES, _LONGEST_FILE = 200, 4 << 20


def _shown(report: Report, result: GateResult, directory: Path) -> Shown:
    from dynadiag.gate.formats import Shown, roots_of

    return Shown(result=result, roots=roots_of(report.run.info.cwd), target=str(directory))


def _print(shown: Shown, output_format: Format, output: str | None, *, default_is_stderr: bool) -> None:
    from dynadiag.gate import formats
    from dynadiag.gate.junit import junit
    from dynadiag.gate.sarif import sarif
    from dynadiag_cli import showing

    written = {
        Format.concise: formats.concise,
        Format.json: formats.as_json,
        Format.jsonl: formats.as_json_lines,
        Format.junit: junit,
        Format.github: formats.github,
        Format.sarif: sarif,
        Format.md: formats.markdown,
    }[output_format](shown)
    showing.emit(written, output, sys.stderr if default_is_stderr else sys.stdout)


def _say(shown: Shown) -> None:
    from dynadiag.gate.formats import summary
    from dynadiag.render.sanitise import clean

    for note in shown.result.notes:
        print(f"dynadiag: {clean(note, limit=600)}", file=sys.stderr)
    print(f"dynadiag: {summary(shown)}", file=sys.stderr)
