"""`dynadiag sweep`: many programs by many configurations, resumed after a kill, queried and compared."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dynadiag.errors import NothingFoundError, OutputError, UsageError
from dynadiag_cli.options import LONGEST_S, REPORT, AsFormat, InColor, Output, Quiet

if TYPE_CHECKING:
    from dynadiag.sweep.matrix import Matrix
    from dynadiag.sweep.session import SweepOptions, SweepState

EXAMPLES = """Examples:

  dynadiag sweep torchvision --limit 50

  dynadiag sweep diff last-night dynadiag-sweep
"""
RUNNING = "How it runs"
Engine = Literal["local", "ray"]
FailOn = Literal["failure", "error", "warning", "never"]


def sweep(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="MATRIX | SUITE | query DIR... [SQL] | diff OLD [NEW]",
            help="A matrix in TOML; a suite (torchvision, transformers, timm); or a query or a comparison of finished sweeps.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The sweep's folder; one that has rows is continued [default: dynadiag-sweep]."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Run at most N models of the suite, spread over its families.")
    ] = None,
    engine: Annotated[Engine, typer.Option("--engine", rich_help_panel=RUNNING, help="Run the tasks here, or on a Ray cluster.")] = "local",
    address: Annotated[
        str | None,
        typer.Option("--address", rich_help_panel=RUNNING, metavar="ADDRESS", help="The Ray cluster [default: one on this machine]."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "-j",
            rich_help_panel=RUNNING,
            metavar="N",
            min=1,
            max=4096,
            help="Tasks at a time [default: one for each two CPUs].",
        ),
    ] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", rich_help_panel=RUNNING, metavar="I/N", help="Run only the I-th of N parts of the tasks.")
    ] = None,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            rich_help_panel=RUNNING,
            metavar="S",
            min=1,
            max=LONGEST_S,
            help="Seconds for one task [default: as the matrix says, else 600].",
        ),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", rich_help_panel=RUNNING, help="Run the tasks again that failed before.")] = False,
    minify: Annotated[
        Literal["failures"] | None,
        typer.Option(
            "--minify", rich_help_panel=RUNNING, metavar="failures", help="At the end, reduce one failure of each kind to a reproducer."
        ),
    ] = None,
    arms: Annotated[
        str | None, typer.Option("--arms", rich_help_panel=REPORT, metavar="OLD,NEW", help="With diff: compare these two arms.")
    ] = None,
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on", rich_help_panel=REPORT, help="What makes the exit status 1: a task that failed, or also findings and bad verdicts."
        ),
    ] = "failure",
    output_format: AsFormat = "text",
    output: Output = None,
    quiet: Quiet = False,
    color: InColor = "auto",
) -> None:
    """Run many programs by many configurations, each in a process of its own with limits, and keep one row for each.

    A crash, a hang or too little memory is a row, and the sweep goes on. Rows are written at once to rows.jsonl; a task that has a row is
    not run again. The folder also gets rows.parquet, a page with the matrix, and a folder for each task. Exit status: 0 all ended well,
    or nothing is worse; 1 something failed, or is worse; 2 usage; 5 nothing to compare; 130 interrupted, and the same command continues
    the sweep.
    """
    from dynadiag.sweep import show
    from dynadiag_cli import showing

    showing.check_output(output)
    if target[0] == "query":
        _query(target[1:], output_format, output, color)
        return
    if target[0] == "diff":
        _diff(target[1:], arms, output_format, output, color, quiet=quiet)
    if len(target) > 1:
        raise UsageError(f"sweep takes one matrix or suite, but got {len(target)} words: {' '.join(target)[:200]}")
    from dataclasses import replace

    from dynadiag.sweep.session import SweepOptions

    part = _shard(shard)
    matrix = _matrix(target[0], limit)
    matrix = matrix if timeout_s is None else replace(matrix, timeout_s=timeout_s)
    options = SweepOptions(
        workers=workers or max(1, (os.cpu_count() or 2) // 2),
        engine=engine,
        address=address,
        shard=part,
        retry=retry,
        minify=minify is not None,
    )
    folder = out or Path("dynadiag-sweep")
    state = _run(matrix, folder, options)
    showing.write_page(lambda: show.page_of(state), folder)
    showing.show(
        show.document_of(state), output_format, output, json=lambda: show.as_json(state), default=sys.stdout, color=color, quiet=quiet
    )
    raise typer.Exit(_exit_status(state, fail_on))


def _matrix(word: str, limit: int | None) -> Matrix:
    from dynadiag.sweep.inside.subject import SUITES
    from dynadiag.sweep.matrix import matrix_of_suite, read_matrix

    if word in SUITES and not Path(word).is_file():
        return matrix_of_suite(word, limit)
    if limit is not None:
        raise UsageError("--limit is for a suite; a matrix has `limit` in its suites")
    return read_matrix(Path(word))


def _run(matrix: Matrix, folder: Path, options: SweepOptions) -> SweepState:
    from dynadiag.facts.wording import plural
    from dynadiag.sweep import query, show
    from dynadiag.sweep.session import sweep as run
    from dynadiag_cli.progress import PRINT_S, StatusLine

    line = StatusLine(PRINT_S)

    def told(state: SweepState, left_s: float | None) -> None:
        line.draw(show.progress_of(state, left_s))

    try:
        with line.ticking():
            state = run(matrix, folder, options, told)
    except KeyboardInterrupt:
        line.wipe()
        print(f"dynadiag: interrupted: the rows so far are in {folder}, and the same command continues the sweep", file=sys.stderr)
        raise
    finally:
        line.wipe()
    if state.unwritten:
        number = plural(len(state.unwritten), "task")
        kept = f"the rows so far are in {folder}, and the same command continues the sweep"
        raise OutputError(f"{number} left no row ({state.unwritten[0]}); {kept}")
    query.write_parquet(state.rows, folder)
    return state


def _exit_status(state: SweepState, fail_on: str) -> int:
    grave = {"error": ("error",), "warning": ("error", "warning")}.get(fail_on, ())
    findings = any(finding.severity in grave for row in state.rows for finding in row.findings)
    findings = findings or (bool(grave) and any(row.exit_status == 1 and row.status == "done" for row in state.rows))
    return int(fail_on != "never" and (bool(state.failed) or findings or bool(state.missing)))


def _query(words: list[str], output_format: str, output: str | None, color: str) -> None:
    from dynadiag.sweep import show
    from dynadiag.sweep.query import VIEWS, query
    from dynadiag.sweep.rows import merged
    from dynadiag_cli import showing

    folders = [Path(word) for word in words if Path(word).is_dir()]
    asked = [word for word in words if not Path(word).is_dir()]
    if not folders or len(asked) > 1:
        raise UsageError(f"sweep query takes the folders of sweeps and one SQL query or view ({', '.join(VIEWS)})")
    sql = asked[0] if asked else "totals"
    found = query(merged(folders), sql)
    if output_format == "text":
        showing.emit(show.text_of(found), output, sys.stdout)
        return
    told = show.document_of_table(found, sql)
    showing.show(told, output_format, output, json=lambda: show.as_json(found), default=sys.stdout, color=color)


def _diff(words: list[str], arms: str | None, output_format: str, output: str | None, color: str, *, quiet: bool) -> None:
    from dynadiag.sweep import rows, show
    from dynadiag.sweep.compare import compare
    from dynadiag_cli import showing

    if len(words) not in (1, 2):
        raise UsageError(f"sweep diff compares two sweeps, or one with what ran in its folder before, but got {len(words)} words")
    pair = tuple(arms.split(",")) if arms is not None else None
    if pair is not None and len(pair) != 2:
        raise UsageError(f"--arms takes two names with a comma between them, not {arms!r:.80}")
    old, new = rows.read(Path(words[0])), rows.read(Path(words[-1]))
    if len(words) == 1 and pair is None:
        old, new = rows.earlier_and_latest(new)
        if not old:
            raise NothingFoundError(f"no task in {words[0]} ran with two versions, so nothing can be compared with what ran before")
    found = compare(old, new, pair)
    told = show.document_of_comparison(found, words[0], words[-1])
    showing.show(told, output_format, output, json=lambda: show.as_json(found), default=sys.stdout, color=color, quiet=quiet)
    raise typer.Exit(int(bool(found.regressions)))


def _shard(text: str | None) -> tuple[int, int]:
    if text is None:
        return 1, 1
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise UsageError(f"--shard takes I/N with I from 1 to N, such as 2/8, not {text!r:.40}")
    return int(number), int(of)
