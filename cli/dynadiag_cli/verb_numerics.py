"""`dynadiag numerics`: where compiled values leave eager's, whether that is rounding, and which option ends it."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynadiag.errors import NothingFoundError, UsageError
from dynadiag.trace.sources import is_recording
from dynadiag_cli.command_line import program_of
from dynadiag_cli.options import LONGEST_S, AsFormat, Force, InColor, Open, Out, Output, Quiet

if TYPE_CHECKING:
    from dynadiag.numerics.result import NumericsResult

EXAMPLES = """Examples:

  dynadiag numerics train.py --lr 3e-4

  dynadiag numerics --graph 2 train.py
"""
_HASHED_CALLS = 20


def numerics(
    ctx: typer.Context,
    target: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT [ARGS]... | RUN RUN", help="The script and its arguments; or two runs with hashes (--hashes)."),
    ],
    out: Out = None,
    force: Force = False,
    graph: Annotated[int | None, typer.Option("--graph", metavar="N", min=0, help="Compare only graph N, counted from 0.")] = None,
    graphs: Annotated[int, typer.Option("--graphs", metavar="N", min=1, max=10_000, help="Compare the first N graphs.")] = 20,
    calls: Annotated[
        int,
        typer.Option(
            "--calls", metavar="N", min=1, max=1000, help="Compare the first N calls of each graph, and examine the first that differs."
        ),
    ] = 1,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            metavar="N",
            min=1,
            max=100_000,
            help="Compare the losses of N steps first, in several runs, and then only the graph that makes them leave eager's.",
        ),
    ] = None,
    hashes: Annotated[
        bool, typer.Option("--hashes", help="Only run the script and hash what its graphs get and give, for `numerics RUN RUN`.")
    ] = False,
    twice: Annotated[bool, typer.Option("--twice", help="Do so twice, and name the first graph that differs between both runs.")] = False,
    minify: Annotated[
        bool, typer.Option("--minify", help="Reduce the first graph with wrong results to the smallest one that shows the fault.")
    ] = False,
    load: Annotated[
        Path | None,
        typer.Option("--load", metavar="FILE", help="Run this Python file before comparing, to register custom operators or lowerings."),
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", metavar="S", min=1, max=LONGEST_S, help="Time limit for the script, and for each graph, in seconds."),
    ] = 300.0,
    output_format: AsFormat = "text",
    output: Output = None,
    quiet: Quiet = False,
    color: InColor = "auto",
    open_report: Open = False,
) -> None:
    """Say at which operator compiled values first differ from eager's, whether that is rounding or a fault, and which option ends it.

    The script runs once. Then the first call of each compiled graph, or the first of --calls that differs, is repeated: uncompiled, in
    float64, and compiled so that inner values are stored; each operator is compared on its own inputs. Exit status: 0 equal, or explained
    by rounding; 1 a fault, or the script failed; 2 usage; 3 no torch; 5 nothing was compiled or comparable.
    """
    import dynadiag
    from dynadiag.numerics.session import NumericsOptions, compare_losses, compare_script
    from dynadiag.numerics.showing import document_of
    from dynadiag.numerics.two_runs import has_hashes, record_hashes
    from dynadiag.record.directory import chosen_directory, new_directory, write_marker
    from dynadiag.record.guardian import guarded
    from dynadiag.torch_compat.versions import require
    from dynadiag_cli import showing
    from dynadiag_cli.progress import progress

    guarded()
    require("numerics")
    showing.check_output(output)

    def keep(result: NumericsResult) -> None:
        showing.keep_result(directory, "numerics", result, lambda: document_of(result, showing.command_line()))

    def show(result: NumericsResult) -> None:
        json = partial(showing.json_of, result)
        showing.show(document_of(result), output_format, output, json=json, default=sys.stderr, color=color, quiet=quiet)

    if len(target) == 2 and all(has_hashes(Path(name)) for name in target):
        result = _of_two_runs(*map(Path, target))
        show(result)
        raise typer.Exit(result.exit_code)
    if is_recording(Path(target[0])):
        raise UsageError(f"{target[0]} is a recording, which holds no values: dynadiag numerics takes the script")
    program = program_of(ctx, target)
    if load is not None and not load.is_file():
        raise UsageError(f"--load {load}: no such file")
    if hashes or twice:
        if steps is not None or graph is not None or load is not None or minify:
            raise UsageError("--hashes and --twice compare whole runs: of the other options they take --calls")
        calls = calls if calls > 1 else _HASHED_CALLS
    directory = chosen_directory(out, force=force) if out is not None else new_directory(Path.cwd(), target[0])
    write_marker(directory, {"dynadiag": dynadiag.__version__, "command": None})
    if steps is not None and (graph is not None or load is not None):
        raise UsageError("--steps finds the graph itself and runs the script as it is: it takes no --graph and no --load")
    if minify and load is not None:
        raise UsageError("--minify proves the fault in fresh processes, where --load FILE has not been run: use one of the two")
    if hashes or twice:
        folders = [directory / f"run-{number}" for number in (1, 2)] if twice else [directory]
        for folder in folders:
            record_hashes(program, folder, calls, timeout_s, quiet=folder != folders[0])
        if not twice:
            _say(f"the hashes are in {directory}: dynadiag numerics {directory} OTHER_RUN")
            raise typer.Exit(0)
        result = _of_two_runs(*folders)
        keep(result)
        show(result)
        raise typer.Exit(result.exit_code)
    options = NumericsOptions(graph=graph, most=graphs, calls=calls, steps=steps, load=load, timeout_s=timeout_s)
    with progress("comparing graphs") as advance:
        if steps is None:
            result = compare_script(program, directory, options, advance=advance)
        else:
            result = compare_losses(program, directory, options, say=_say, advance=advance)
    if minify:
        from dynadiag.numerics.reproducing import reduce_fault

        with progress("reducing the graph") as advance:
            result = replace(result, reproducer=reduce_fault(result, directory, timeout_s))
    keep(result)
    show(result)
    if open_report:
        showing.open_page(directory, "numerics.html")
    if result.exit_code == 5:
        raise NothingFoundError(f"none of the {len(result.graphs)} graphs could be compared")
    raise typer.Exit(result.exit_code)


def _of_two_runs(old: Path, new: Path) -> NumericsResult:
    from importlib.metadata import version

    from dynadiag.numerics.result import NumericsResult
    from dynadiag.numerics.two_runs import compare_runs

    return NumericsResult(program=f"{old} {new}", torch=version("torch"), graphs=(), two_runs=compare_runs(old, new))


def _say(text: str) -> None:
    print(f"dynadiag: {text}", file=sys.stderr)
