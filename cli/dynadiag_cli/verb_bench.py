"""`dynadiag bench`: compare ways of compiling one step, results first, then speed."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynadiag.errors import NoViewError, OutputError, UsageError
from dynadiag_cli.options import LONGEST_S, REPORT, AsFormat, Force, InColor, Open, Out, Outputs, Quiet
from dynadiag_cli.progress import StatusLine, on_one_line

if TYPE_CHECKING:
    from dynadiag.bench.outcome import BenchResult
    from dynadiag.bench.round_loop import Progress
    from dynadiag.private_view.view import View

EXAMPLES = """Examples:

  dynadiag bench --arms eager,default train.py -- --batch-size 16

  dynadiag bench --fn mypackage.steps:train_step --check base/bench.json
"""
_REDRAW_S = 0.2


_Target = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="A script that uses torch.compile, or a file with a function marked @dynadiag.benchmark."),
]
_Arguments = Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments for the script, after --.")]
_Function = Annotated[
    str | None,
    typer.Option("--fn", metavar="WHERE:NAME", help="The step to time, instead of FILE: module:callable or file.py:callable."),
]
_Arms = Annotated[
    str,
    typer.Option("--arms", metavar="A,B,...", help="The baseline, then what to compare with it: eager, torch.compile modes, backends."),
]
_Call = Annotated[int, typer.Option("--call", metavar="N", min=1, help="Take over a script at the N-th call of its compiled callable.")]
_Chosen = Annotated[
    str | None, typer.Option("--callable", metavar="NAME", help="Which of the script's compiled callables to time, by name or number.")
]
_Shapes = Annotated[
    int | None,
    typer.Option(
        "--shapes",
        metavar="N",
        min=1,
        help="Watch the script's first N calls, then replay each input shape seen and give a verdict on it.",
    ),
]
_Prices = Annotated[bool, typer.Option("--prices", help="Measure what each graph break costs per call; compiles extra graphs for it.")]
_Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variants", metavar='"NAME: ARGS"...', help="Compare whole steps of a script that is started once with each set of arguments."
    ),
]
_Loop = Annotated[
    int | None,
    typer.Option("--loop", metavar="LINE", min=1, help="With --variants: the line of the loop whose iterations are the steps."),
]
_After = Annotated[
    Path | None,
    typer.Option("--after", metavar="FILE", help="A changed version of the file: compares the same function before and after."),
]
_Revision = Annotated[
    str | None, typer.Option("--git", metavar="REV", help="Compare this git revision (before) with the working tree (after).")
]
_InProcess = Annotated[bool, typer.Option("--in-process", help="Run all arms in one process, for models that fit into memory only once.")]
_Python = Annotated[
    str | None,
    typer.Option("--python", metavar="PATH", help="The Python interpreter for the arms; it must be able to import dynadiag."),
]
_Check = Annotated[
    Path | None, typer.Option("--check", metavar="BENCH.JSON", help="Exit with status 1 if an arm got worse since that run.")
]
_Rounds = Annotated[int, typer.Option("--max-rounds", metavar="N", min=20, max=1_000_000, help="Maximum number of rounds.")]
_Max = Annotated[float, typer.Option("--max-time", metavar="S", min=0.1, max=LONGEST_S, help="Start no new round after S seconds.")]
_Timeout = Annotated[
    float, typer.Option("--timeout", metavar="S", min=1, max=LONGEST_S, help="Seconds to wait for one response of an arm.")
]
_Remeasure = Annotated[bool, typer.Option("--remeasure", help="Measure the device's ceilings again instead of using the stored ones.")]
_AsJson = Annotated[bool, typer.Option("--json", rich_help_panel=REPORT, help="Print bench.json, as --format json does.")]


def bench(
    target: _Target = None,
    arguments: _Arguments = None,
    function: _Function = None,
    arms: _Arms = "eager,default",
    call: _Call = 3,
    chosen: _Chosen = None,
    shapes: _Shapes = None,
    prices: _Prices = False,
    variants: _Variants = None,
    loop: _Loop = None,
    after: _After = None,
    revision: _Revision = None,
    in_process: _InProcess = False,
    python: _Python = None,
    check: _Check = None,
    rounds: _Rounds = 300,
    max_s: _Max = 60.0,
    timeout_s: _Timeout = 900.0,
    remeasure: _Remeasure = False,
    outputs: Outputs = "discard",
    out: Out = None,
    force: Force = False,
    output_format: AsFormat = "text",
    as_json: _AsJson = False,
    quiet: Quiet = False,
    color: InColor = "auto",
    open_report: Open = False,
) -> None:
    """Say whether the compiled step is faster on this machine, and whether its results are still correct.

    Each arm is a process of its own; they take turns in random order, and the baseline runs twice (A/A), so that noise is measured, not
    guessed. No speed counts before the results are checked. The exit status is 1 when an arm is SLOWER, WRONG or VACUOUS.
    """
    from dynadiag.bench import json_result
    from dynadiag.bench.regression import read_base
    from dynadiag.bench.request import Request, before_and_after, planned
    from dynadiag.bench.round_loop import BenchOptions
    from dynadiag.bench.session import bench as run
    from dynadiag.bench.show import document_of
    from dynadiag.bench.verdict import Budget
    from dynadiag.record.guardian import guarded
    from dynadiag.scratch import scratch
    from dynadiag.torch_compat.versions import require, require_in
    from dynadiag_cli.showing import open_page, show

    request = Request(
        file=target,
        arguments=tuple(arguments or ()),
        function=function,
        arms=arms,
        call=call,
        chosen=chosen,
        shapes=shapes,
        variants=tuple(variants or ()),
        loop=loop,
        after=after,
        revision=revision,
        in_process=in_process,
    )
    where, specs = planned(request)
    base = None if check is None else read_base(check)
    guarded()
    if python is not None:
        if shutil.which(python) is None:
            raise UsageError(f"--python: {python} cannot be started: there is no such interpreter")
        require_in(python, "bench", oldest_python=(3, 11))
    else:
        require("bench")
    with scratch("git") as folder, _view(where, outputs) as view, _progress() as progress:
        # First what may be refused: a refusal leaves no directory behind.
        specs = before_and_after(specs, where, request, Path(folder), lambda line: print(f"dynadiag: {line}", file=sys.stderr))
        directory = _directory(where, out, force)
        options = BenchOptions(
            budget=Budget(max_rounds=rounds, max_s=max_s),
            in_process=in_process,
            python=python,
            timeout_s=timeout_s,
            log_folder=directory,
            remeasure=remeasure,
            prices=prices,
            keep=lambda so_far: _keep(so_far, directory),
            view=None if view is None else view.and_passed(directory, Path(folder)),
        )
        result = run(specs, options, progress)
    try:
        _write(result, directory)
        print(f"dynadiag: wrote {directory / 'bench.json'}, bench.svg and report.html", file=sys.stderr)
    finally:
        form = "json" if as_json else output_format
        show(document_of(result), form, json=lambda: json_result.dumps(result), default=sys.stdout, color=color, quiet=quiet)
    if open_report:
        open_page(directory)
    worse = base is not None and not result.interrupted and _regressed(result, base)
    raise typer.Exit(1 if worse else result.exit_status)


@contextmanager
def _view(where: str, outputs: str) -> Iterator[View | None]:
    """What the arms see of the user's files, which are as before when they have ended."""
    from dynadiag.private_view.choosing import private_view, roots_of
    from dynadiag.record.project_root import project_root

    here = Path.cwd()
    file = Path(where if where.endswith(".py") else where.rpartition(":")[0])
    with ExitStack() as stack:
        view = None
        try:
            if outputs == "discard":
                view = stack.enter_context(private_view(roots_of(project_root(file if file.suffix else here / "__main__.py"), here)))
        except NoViewError as error:
            print(f"dynadiag: {error.message}: what the arms write stays", file=sys.stderr)
        yield view


def _directory(where: str, out: Path | None, force: bool) -> Path:
    import dynadiag
    from dynadiag.record.directory import chosen_directory, new_directory, write_marker

    name = (Path(where).stem if where.endswith(".py") else where.rpartition(":")[2]).replace(".", "-")
    try:
        directory = new_directory(Path(), f"bench-{name}") if out is None else chosen_directory(out, force=force)
        write_marker(directory, {"dynadiag": dynadiag.__version__, "command": ["bench", where]})
    except OSError as error:
        raise OutputError(f"{out or 'dynadiag-runs'} cannot be written: {error.strerror}") from None
    return directory


@contextmanager
def _progress() -> Iterator[Progress]:
    """What is going on, with the time left, on stderr: redrawn on a terminal, and one line a phase elsewhere (rounds are left out)."""
    line = StatusLine()

    def show(text: str, left_s: float | None) -> None:
        if not sys.stderr.isatty():
            if left_s is None:
                print(f"dynadiag: {text}", file=sys.stderr)
        elif left_s is None or time.monotonic() - line.drawn_at > _REDRAW_S:
            line.draw(text if left_s is None else f"{text}, at most {left_s:.0f} s left")

    try:
        yield show
    finally:
        line.wipe()


def _keep(so_far: BenchResult, directory: Path) -> None:
    """Write what is finished, as data and picture; the page comes last. A disk that is full now may not be in the end."""
    with suppress(OutputError):
        _write_data(so_far, directory)


def _write(result: BenchResult, directory: Path) -> None:
    from dynadiag.bench.show import document_of
    from dynadiag_cli.showing import command_line, write_page

    _write_data(result, directory)
    write_page(lambda: document_of(result, command_line()), directory)


def _write_data(result: BenchResult, directory: Path) -> None:
    from dynadiag.bench import json_result, picture
    from dynadiag.bench.show import document_of
    from dynadiag.files import write_inside
    from dynadiag.render import document_json
    from dynadiag_cli.showing import command_line

    told = document_json.dumps(document_of(result, command_line()))
    files = {"bench.json": json_result.dumps(result), "bench.svg": picture.draw(result), "form.json": told}
    try:
        for name, text in files.items():
            write_inside(directory, name, text)
    except OSError as error:
        raise OutputError(f"{directory} cannot be written: {error.strerror}") from None


def _regressed(result: BenchResult, base: object) -> bool:
    from dynadiag.bench.regression import find_regressions

    regressions = find_regressions(result, base)  # type: ignore[arg-type]
    for note in regressions.notes:
        print("dynadiag: --check:", on_one_line(note), file=sys.stderr)
    for line in regressions.found:
        print("dynadiag: regression:", on_one_line(line), file=sys.stderr)
    if not regressions.checked:
        # Green would say that nothing got worse.
        raise UsageError("--check: the earlier run has none of these arms, so nothing was checked")
    return bool(regressions.found)
