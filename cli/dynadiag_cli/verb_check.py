"""`dynadiag check`: the gate for CI: fails when a program breaks its graph, recompiles or runs eagerly more than it may."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dynadiag_cli.command_line import MODE, program_of, recording_named
from dynadiag_cli.options import REPORT, Force, Out, Output, Python, StopWhenStable, Timeout

if TYPE_CHECKING:
    from dynadiag.record import Target

EXAMPLES = """Examples:

  dynadiag check --max-breaks 0 --max-recompiles 2 train.py --lr 3e-4

  dynadiag check --update-baseline dynadiag-runs/latest
"""
LIMITS = "Limits"


Format = Literal["concise", "json", "jsonl", "junit", "github", "sarif", "md"]
FailOn = Literal["error", "warning"]


_Target = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET [ARGS]...",
        help="A script with its arguments; `-m MODULE [ARGS]`; `-- torchrun ... train.py`; or a run directory or a log.",
    ),
]
_MaxBreaks = Annotated[
    int | None, typer.Option("--max-breaks", rich_help_panel=LIMITS, metavar="N", min=0, help="Allow N graph break sites.")
]
_MaxRecompiles = Annotated[
    int | None, typer.Option("--max-recompiles", rich_help_panel=LIMITS, metavar="N", min=0, help="Allow N recompiles.")
]
_MaxFallbacks = Annotated[
    int | None, typer.Option("--max-fallbacks", rich_help_panel=LIMITS, metavar="N", min=0, help="Allow N fallbacks to eager.")
]
_MaxCacheMisses = Annotated[
    int | None,
    typer.Option(
        "--max-cache-misses", rich_help_panel=LIMITS, metavar="N", min=0, help="Allow N compilations that did not come from the caches."
    ),
]
_MaxCompilesAfter = Annotated[
    int | None,
    typer.Option(
        "--max-compiles-after",
        rich_help_panel=LIMITS,
        metavar="K",
        min=0,
        help="Fail on what compiles after the first K calls of compiled functions.",
    ),
]
_NoMutationCopy = Annotated[
    bool | None,
    typer.Option("--no-mutation-copy/--mutation-copy", rich_help_panel=LIMITS, help="Fail when a mutated input is copied back."),
]
_MinGraphs = Annotated[
    int | None, typer.Option("--min-graphs", rich_help_panel=LIMITS, metavar="N", min=0, help="Require at least N graphs.")
]
_MinCompiled = Annotated[
    float | None,
    typer.Option(
        "--min-compiled",
        rich_help_panel=LIMITS,
        metavar="SHARE",
        min=0,
        max=1,
        help="Require this share of a call's operators to run in graphs.",
    ),
]
_FailOn = Annotated[
    FailOn | None,
    typer.Option(
        "--fail-on", rich_help_panel=LIMITS, help="Fail on findings of at least this severity that no limit covers. [default: warning]"
    ),
]
_Baseline = Annotated[
    Path | None,
    typer.Option("--baseline", rich_help_panel=LIMITS, metavar="FILE", help="Accept the problems that FILE lists."),
]
_UpdateBaseline = Annotated[
    bool,
    typer.Option(
        "--update-baseline",
        rich_help_panel=LIMITS,
        help="Remove from the baseline what no longer occurs, or add a new program to it [default FILE: dynadiag-baseline.json].",
    ),
]
_OutputFormat = Annotated[Format, typer.Option("--format", "-f", rich_help_panel=REPORT, help="Output format.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=REPORT, help="Print no summary on stderr.")]


def check(
    ctx: typer.Context,
    target: _Target,
    max_breaks: _MaxBreaks = None,
    max_recompiles: _MaxRecompiles = None,
    max_fallbacks: _MaxFallbacks = None,
    max_cache_misses: _MaxCacheMisses = None,
    max_compiles_after: _MaxCompilesAfter = None,
    no_mutation_copy: _NoMutationCopy = None,
    min_graphs: _MinGraphs = None,
    min_compiled: _MinCompiled = None,
    fail_on: _FailOn = None,
    baseline: _Baseline = None,
    update_baseline: _UpdateBaseline = False,
    out: Out = None,
    force: Force = False,
    python: Python = None,
    timeout_s: Timeout = None,
    stop_when_stable_s: StopWhenStable = None,
    output_format: _OutputFormat = "concise",
    output: Output = None,
    quiet: _Quiet = False,
) -> None:
    """Fail when a program breaks its graph, recompiles or runs eagerly more than it may.

    A script is recorded first, as `explain` does. Every error and warning fails, unless a limit covers findings of its kind, a comment
    `# dynadiag: allow[GB0123] reason` allows it, or the baseline lists it. Limits and the baseline can also be set in pyproject.toml,
    under [tool.dynadiag.check]. Exit status: 0 passed, 1 failed, 2 usage or an unusable recording, 3 no torch, 5 nothing was
    compiled.
    """
    from dynadiag.gate import formats
    from dynadiag.gate.formats import junit, sarif
    from dynadiag.gate.result import configured
    from dynadiag.gate.session import checked, with_usable_baseline
    from dynadiag.render.sanitise import clean
    from dynadiag.runs import refuse_damaged
    from dynadiag_cli import showing

    recorded = recording_named(ctx, target)
    start = Path(target[0]).parent if recorded is None and ctx.meta.get(MODE, "path") == "path" else Path()
    limits = configured(start.resolve()).changed(
        max_breaks=max_breaks,
        max_recompiles=max_recompiles,
        max_fallbacks=max_fallbacks,
        max_cache_misses=max_cache_misses,
        max_compiles_after=max_compiles_after,
        no_mutation_copy=no_mutation_copy,
        min_graphs=min_graphs,
        min_compiled=min_compiled,
        fail_on=fail_on,
        baseline=baseline,
    )
    showing.check_output(output)
    limits = with_usable_baseline(limits, update=update_baseline)
    directory = recorded or _recorded(program_of(ctx, target), out, force, python, timeout_s, stop_when_stable_s)
    refuse_damaged(directory, "nothing was checked")
    report = showing.read_report(directory)
    if recorded is None:
        showing.write_reports(report, directory)
    shown = formats.Shown(
        result=checked(report, directory, limits, update=update_baseline),
        roots=formats.roots_of(report.run.info.cwd),
        target=str(directory),
    )
    written = {
        "concise": formats.concise,
        "json": formats.as_json,
        "jsonl": formats.as_json_lines,
        "junit": junit,
        "github": formats.github,
        "sarif": sarif,
        "md": formats.markdown,
    }[output_format](shown)
    showing.emit(written, output, sys.stderr if recorded is None else sys.stdout)
    showing.flush_stdout()
    if not quiet:
        for line in (*(clean(note, limit=600) for note in shown.result.notes), formats.summary(shown)):
            print(f"dynadiag: {line}", file=sys.stderr)
    raise typer.Exit(shown.result.exit_status)


def _recorded(program: Target, out: Path | None, force: bool, python: str | None, timeout_s: float | None, stable_s: float | None) -> Path:
    """The run directory of the program, run to its end."""
    from dynadiag.record import RecordOptions
    from dynadiag_cli.recording import recorded

    options = RecordOptions(out=out, force=force, python=python, timeout_s=timeout_s, stop_when_stable_s=stable_s)
    done = recorded(program, options, otherwise="nothing was checked")
    assert done.directory is not None
    return done.directory
