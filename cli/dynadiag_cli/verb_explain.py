"""`dynadiag explain`: run a script under the recorder, or read a run or a log, and say what torch.compile did."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dynadiag.errors import UsageError
from dynadiag_cli.command_line import program_of, recording_named
from dynadiag_cli.options import (
    ANALYSIS,
    RECORDING,
    REPORT,
    AsPageFormat,
    Force,
    InColor,
    Open,
    Out,
    Output,
    Python,
    StopWhenStable,
    Timeout,
)

EXAMPLES = """Examples:

  dynadiag explain train.py --lr 3e-4

  dynadiag explain dynadiag-runs/latest --format md
"""


_Target = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET [ARGS]...",
        help="A script with its arguments; `-m MODULE [ARGS]`; `-- torchrun ... train.py`; or a run directory, "
        "a TORCH_TRACE log, a folder of logs, a text log.",
    ),
]
_LogCap = Annotated[
    int, typer.Option("--log-cap", rich_help_panel=RECORDING, metavar="MIB", min=1, help="Size limit for the log of one process.")
]
_Cost = Annotated[
    bool,
    typer.Option("--cost", rich_help_panel=ANALYSIS, help="Also profile warmed-up calls, to give graph breaks a cost in milliseconds."),
]
_Parity = Annotated[
    bool,
    typer.Option(
        "--parity",
        rich_help_panel=ANALYSIS,
        help="Also compare calls of compiled functions, and of their graphs, with eager.",
    ),
]
_ParityCalls = Annotated[
    int,
    typer.Option(
        "--parity-calls", rich_help_panel=ANALYSIS, metavar="N", min=1, help="Compare the first N calls of each graph (with --parity)."
    ),
]
_ParityCap = Annotated[
    int,
    typer.Option(
        "--parity-cap",
        rich_help_panel=ANALYSIS,
        metavar="MIB",
        min=1,
        help="Memory limit for copies of one call's inputs (with --parity).",
    ),
]
_Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=REPORT, help="Print only the verdict, the counts, and how the program ended.")
]
_Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", rich_help_panel=REPORT, help="As --full, with torch's explanations and all stacks.")
]
_Full = Annotated[
    bool,
    typer.Option(
        "--full",
        rich_help_panel=REPORT,
        help="Print each finding's full explanation, and the tables of recompiles, mutations, graphs, ...",
    ),
]
_Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        rich_help_panel=REPORT,
        metavar="N",
        min=0,
        help="Show the N most expensive findings (0: all) [default: 3; 10 with --full].",
    ),
]
_Probe = Annotated[bool, typer.Option("--probe/--no-probe", rich_help_panel=ANALYSIS, help="Analyse afterwards what the graphs mutate.")]
_Pictures = Annotated[
    bool, typer.Option("--pictures/--no-pictures", rich_help_panel=REPORT, help="Draw graphs/*.svg into the run directory.")
]
_Renderer = Annotated[
    str,
    typer.Option(
        "--renderer",
        rich_help_panel=REPORT,
        metavar="NAME",
        help="Layout of pictures: auto, graphviz, dot or columns; text draws none.",
    ),
]
_ShowFree = Annotated[bool, typer.Option("--show-free", rich_help_panel=REPORT, help="Also list each mutation that costs nothing.")]
_MutationsOnly = Annotated[bool, typer.Option("--mutations-only", rich_help_panel=REPORT, help="Print only what concerns mutations.")]
_Trace = Annotated[
    str | None,
    typer.Option(
        "--trace",
        rich_help_panel=REPORT,
        metavar="FILE",
        help="Also write the compile phases to FILE, for Perfetto and chrome://tracing.",
    ),
]


def explain(
    ctx: typer.Context,
    target: _Target,
    out: Out = None,
    force: Force = False,
    python: Python = None,
    timeout_s: Timeout = None,
    stop_when_stable_s: StopWhenStable = None,
    log_cap_mib: _LogCap = 1024,
    cost: _Cost = False,
    parity: _Parity = False,
    parity_calls: _ParityCalls = 3,
    parity_cap_mib: _ParityCap = 4096,
    output_format: AsPageFormat = "text",
    output: Output = None,
    quiet: _Quiet = False,
    verbose: _Verbose = False,
    color: InColor = "auto",
    full: _Full = False,
    limit: _Limit = None,
    probe: _Probe = True,
    pictures: _Pictures = True,
    renderer: _Renderer = "auto",
    show_free: _ShowFree = False,
    mutations_only: _MutationsOnly = False,
    trace: _Trace = None,
    open_report: Open = False,
) -> None:
    """Say where the graph breaks, what recompiles, what ran eager, why, and what to change.

    A script is run unchanged in its own process; its stdout and exit status stay its own, and the report goes to stderr. A run
    directory or a log is only read (torch is not needed), and the report goes to stdout.
    """
    from dynadiag.record import RecordOptions, record
    from dynadiag.render.drawing import checked_renderer
    from dynadiag_cli import showing
    from dynadiag_cli.recording import probed

    show = showing.ShowOptions(
        format=output_format,
        output=output,
        full=full,
        quiet=quiet,
        verbose=verbose,
        color=color,
        limit=limit,
        renderer=checked_renderer(renderer) if pictures else None,
        show_free=show_free,
        mutations_only=mutations_only,
        trace=trace,
    )
    recording = recording_named(ctx, target)
    if recording is not None:
        if parity:
            raise UsageError(f"--parity compares while the script runs: record the script again, or use `dynadiag parity {target[0]}`")
        _, directory = showing.explain_recording(recording, out=out, force=force, options=show, page=open_report)
        status = 0
    else:
        options = RecordOptions(
            out=out,
            force=force,
            python=python,
            timeout_s=timeout_s,
            stop_when_stable_s=stop_when_stable_s,
            log_cap_bytes=log_cap_mib << 20,
            cost=cost,
            parity_calls=parity_calls if parity else 0,
            parity_cap_bytes=parity_cap_mib << 20,
            announce=not quiet and output_format == "text",
        )
        result = record(program_of(ctx, target), options)
        if probe and result.directory is not None:
            probed(result.directory)
        status, directory = showing.explain_run(result, options=show), result.directory
    if open_report and directory is not None:
        showing.open_page(directory)
    sys.exit(status)
