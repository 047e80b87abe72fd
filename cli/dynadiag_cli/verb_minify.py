"""`dynadiag minify`: run a failing script, take the failing graph out of it, and end with the smallest reproducer."""

from __future__ import annotations

import enum
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dynadiag_cli.command_line import MODE
from dynadiag_cli.progress import PRINT_S, SearchLine, StatusLine
from dynadiag_cli.script_reduction import (
    IN_A_SCRIPT,
    check_script,
    goes_on,
    is_script_job,
    print_path,
    reduce,
    reduce_instead,
    say,
    say_interrupted,
    say_note,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dynadiag.record import Target
    from dynadiag.reduce.sources.failing_script import Suspect

EXAMPLES = """Examples:

  dynadiag minify train.py --lr 3e-4

  dynadiag minify --kind wrong_result dynadiag-runs/latest#g3
"""


class Kind(enum.StrEnum):
    """Which failure to look for."""

    compile_error = "compile_error"
    runtime_error = "runtime_error"
    crash = "crash"
    hang = "hang"
    oom = "oom"
    wrong_result = "wrong_result"
    wrong_gradient = "wrong_gradient"
    wrong_mutation = "wrong_mutation"
    nan = "nan"
    graph_break = "graph_break"
    recompile = "recompile"
    fallback = "fallback"
    cudagraph_skip = "cudagraph_skip"


class Capture(enum.StrEnum):
    """When graphs are captured."""

    failing = "failing"
    always = "always"


class Level(enum.StrEnum):
    """Which graph to end with."""

    auto = "auto"
    dynamo = "dynamo"
    aot = "aot"


def minify(
    ctx: typer.Context,
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET [ARGS]...",
            help="A failing script and its arguments; `-m MODULE [ARGS]`; a repro.py of torch; RUN or RUN#g3: recorded graphs.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where to write [default: dynadiag-runs/NNNN-<script>].")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace DIR if it was made by dynadiag.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was captured and judged in --out DIR.")] = False,
    kind: Annotated[Kind | None, typer.Option("--kind", help="The failure to look for; oom, wrong_... and nan look at each graph.")] = None,
    match: Annotated[str | None, typer.Option("--match", metavar="REGEX", help="Only a failure whose text matches.")] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="NAME", help="For RUN#ID: the backend to compile with [default: the recorded one].")
    ] = None,
    as_script: Annotated[
        bool,
        typer.Option("--as-script", help="Run a repro.py of torch as the script that it is, instead of reading it."),
    ] = False,
    memory_limit_mib: Annotated[
        int | None,
        typer.Option("--memory-limit", metavar="MIB", min=1, help="For oom: what one run of the graph may take besides torch itself."),
    ] = None,
    ablation: Annotated[
        bool | None,
        typer.Option(
            "--ablation/--no-ablation",
            help="Run the result with each layer of the compiler, for the table in report.md [default: those that the answer needs].",
        ),
    ] = None,
    level: Annotated[
        Level, typer.Option("--level", help="The graph to end with: Dynamo's, AOTAutograd's (aot), or the simpler of both that is proven.")
    ] = Level.auto,
    capture: Annotated[
        Capture,
        typer.Option("--capture", help="failing: a second run captures what failed; always: one run writes each graph at each call."),
    ] = Capture.failing,
    bisect: Annotated[
        bool, typer.Option("--bisect/--no-bisect", help="Look for the guilty pass of the compiler and for an option that helps.")
    ] = True,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, max=64, help="Candidates judged in parallel [default: half the cores, at most 4]."),
    ] = None,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", metavar="S", min=1, help="Seconds for the script and for its graph; then it hangs."),
    ] = 300.0,
) -> None:
    """Find the failing compile or call of a script and reduce its graph to the smallest reproducer.

    The script runs twice: once to find what fails, once to capture that graph with its real inputs (`--capture always` does both in one
    run). The result is `repro_min.py`, one file that needs torch alone, proven in fresh processes; `minify.json` says the rest. Exit
    status: 0 reduced and proven, 1 nothing failed or not proven, 2 usage, 130 interrupted: the best so far is written.
    """
    from dynadiag.record import Target
    from dynadiag.record.guardian import guarded
    from dynadiag.record.target import check_script as check_python
    from dynadiag.reduce.session import SessionOptions
    from dynadiag.torch_compat.versions import require

    require("minify")
    _check_kind(kind, memory_limit_mib)
    _check_match(match)
    source = None if as_script else _source(target)
    program = Target("module" if ctx.meta.get(MODE) == "module" else "script", tuple(target))
    failure = kind.value if kind else None
    if failure in IN_A_SCRIPT:
        check_script(program, failure, recorded=source is not None)
    elif source is None and program.kind == "script":
        check_python(Path(target[0]), sys.executable)  # before a folder is made for it
    guarded()
    resume = resume and _can_resume(out)
    directory = _directory(target[0], out, force, resume)
    options = SessionOptions(
        timeout_s=timeout_s,
        kind=failure,
        match=match,
        resume=resume,
        ablation=ablation,
        level=level.value,
        bisect=bisect,
        jobs=jobs,
        memory_limit_mib=memory_limit_mib,
    )
    if source is not None or failure in IN_A_SCRIPT:
        _check_capture(capture)
    sys.exit(_minify(program, directory, options, source, backend, always=capture is Capture.always))


def _check_kind(kind: Kind | None, memory_limit_mib: int | None) -> None:
    """Refuse in one line what cannot be reduced."""
    from dynadiag.errors import UsageError

    if memory_limit_mib is not None and kind is not Kind.oom:
        raise UsageError("--memory-limit belongs to --kind oom")
    if memory_limit_mib is not None and not sys.platform.startswith("linux"):
        raise UsageError("--memory-limit needs Linux")


def _check_match(match: str | None) -> None:
    from dynadiag.errors import UsageError

    try:
        re.compile(match or "")
    except re.error as error:
        raise UsageError(f"--match {match!r} is no regular expression: {error}") from error


def _check_capture(capture: Capture) -> None:
    from dynadiag.errors import UsageError

    if capture is Capture.always:
        raise UsageError("--capture always is for a script whose graph is captured: nothing is captured here")


def _source(target: list[str]) -> tuple[Path, str | None] | None:
    """A recording (or a script made by torch) and the id of the graph in it, None for all; None for a script that is to be run."""
    from dynadiag.errors import UsageError
    from dynadiag.reduce.sources.torch_repro import is_torch_repro
    from dynadiag.trace.sources import recording_at
    from dynadiag_cli.targets import is_recording

    if not target[0]:
        raise UsageError("TARGET is empty: give a script, -m MODULE, or a recording")
    path, mark, name = target[0].rpartition("#")
    found: tuple[Path, str | None] | None = None
    if not Path(target[0]).exists():
        found = (Path(path), name) if mark else None
    elif is_torch_repro(Path(target[0])):
        return Path(target[0]), None  # its "run" or "minify" argument says what torch's own tool would do
    elif is_recording(Path(target[0])):
        found = Path(target[0]), None
    if found is not None and len(target) > 1:
        raise UsageError(f"{target[0]} takes no arguments, but got: {' '.join(target[1:])}")
    if found is not None and found[0].exists() and not (found[0].is_file() or found[0].is_dir()):
        raise UsageError(f"{found[0]} is neither a file nor a folder: give a recording")  # before a folder is made for it
    return (recording_at(found[0]), found[1]) if found is not None else None


def _minify(
    program: Target, directory: Path, options: Any, source: tuple[Path, str | None] | None, backend: str | None, *, always: bool
) -> int:
    say(f"writing to {directory}")
    if options.kind in IN_A_SCRIPT or (options.resume and is_script_job(directory)):
        return reduce(program, directory, options, why=IN_A_SCRIPT.get(options.kind, "the captured graph alone did not show it"))
    if options.resume:
        from dynadiag.reduce.sources.resuming import captures_to_resume

        return _reduced(captures_to_resume(directory, Path(program.argv[0])), None, directory, options)
    if source is not None:
        captures, options = _captured(source, directory, options, backend)
        return _reduced(captures, None, directory, options)
    return _of_script(program, directory, options, always=always)


def _of_script(program: Target, directory: Path, options: Any, *, always: bool = False) -> int:
    """Down the ladder: the graph that fails, the calls of it, the script."""
    from dynadiag.errors import DynadiagError, NothingFoundError
    from dynadiag.reduce.core.failure import SILENT
    from dynadiag.reduce.sources.failing_script import CaptureOptions, find_and_capture

    suspect: Suspect | None = None
    captures: list[Path] = []
    line = StatusLine(PRINT_S)

    def say_run(text: str) -> None:
        say(text)
        if not sys.stderr.isatty():
            line.draw(text.partition(":")[0])

    how = CaptureOptions(timeout_s=options.timeout_s, every=options.kind in SILENT, always=always, say=say_run)
    try:
        with line.ticking():
            suspect, captures = find_and_capture(program, directory, how)
        if suspect is not None and suspect.phase != "script":
            where = "after a compiled call, perhaps in its backward" if suspect.phase == "after" else f"in phase {suspect.phase}"
            say(f"graph {suspect.graph} fails {where}: {' '.join(suspect.title.split())[:200]}")
        return _reduced(captures, suspect, directory, options)
    except KeyboardInterrupt:
        raise DynadiagError("interrupted before a failing graph was captured: there is nothing to write", exit_code=130) from None
    except DynadiagError as error:
        if not goes_on(error, program, options):
            raise
        if suspect is None and options.kind in SILENT and error.slug == "passes-alone":
            # Wrong numbers show in a script only by an assertion of its own, and this one ended well.
            raise NothingFoundError(f"nothing failed: the script ended well, and {error.message}", exit_code=1) from error
        return reduce_instead(program, directory, options, error, suspect.said if suspect is not None else None)


def _reduced(captures: list[Path], suspect: Suspect | None, directory: Path, options: Any) -> int:
    from dynadiag.reduce.session import reduce_captured

    line = StatusLine(PRINT_S)
    search = SearchLine(line, "nodes")

    def show(message: Mapping[str, Any]) -> None:
        say_note(message, line)
        search.show(message)

    line.draw("starting the reducer")
    try:
        with line.ticking():
            result = reduce_captured(captures, suspect, directory, options, show)
    finally:
        line.wipe()
    return _report(result, directory)


def _captured(source: tuple[Path, str | None], directory: Path, options: Any, backend: str | None) -> tuple[list[Path], Any]:
    """Capture folders from a recording or a script made by torch, and the options that follow from it. Nothing of it is run."""
    from dataclasses import replace

    from dynadiag.reduce.sources.recording import capture_all_recorded, capture_recorded
    from dynadiag.reduce.sources.torch_repro import capture_script, is_torch_repro, not_saved

    path, graph = source
    if graph is not None or not is_torch_repro(path):
        captures = (
            capture_all_recorded(path, directory, backend=backend)
            if graph is None
            else [capture_recorded(path, graph, directory, backend=backend)]
        )
        _say_left_out(captures)
        return captures, options
    repro, captures = capture_script(path, directory, backend=backend)
    _say_left_out(captures)
    say(f"{path} was made by torch (after {repro.after}): its graph and inputs are read, nothing of it is run")
    missing = not_saved(repro, path.absolute().parent)
    if missing:
        say(f"{missing} of {len(repro.storages)} tensors were not saved beside it: their values are made up")
    wanted = options.kind or ("wrong_result" if repro.accuracy else None)
    return captures, replace(options, kind=wanted)


def _say_left_out(captures: list[Path]) -> None:
    """One line about options that whoever wrote the recording or the repro may not set here."""
    import json

    from dynadiag.torch_compat.recorded_options import left_out

    lost = [name for folder in captures for name in json.loads((folder / "setting.json").read_text("utf-8")).get("configs_lost", ())]
    if lost:
        say(left_out(lost))


def _can_resume(out: Path | None) -> bool:
    """Whether there is something to go on with; a folder of ours that was left before anything was captured is begun anew, which is said.

    Raises UsageError without a folder, UnreadableInputError for one that is not ours.
    """
    from dynadiag.errors import UnreadableInputError, UsageError
    from dynadiag.record.directory import clear, is_ours, is_run_directory

    if out is None:
        raise UsageError("--resume needs --out DIR, the directory of the earlier run")
    if not is_run_directory(out):
        raise UnreadableInputError(f"{out} holds no reduction to resume")
    if not is_ours(out):
        # It holds compiled code and sources that going on would run.
        raise UnreadableInputError(
            f"{out} was not made here by you, or was moved: going on would run what it holds; start without --resume"
        )
    if (out / "job.json").exists():
        return True
    say(f"the earlier run in {out} ended before a failing graph was captured: starting anew")
    clear(out)
    return False


def _directory(script: str, out: Path | None, force: bool, resume: bool) -> Path:
    from dynadiag.record import directory as run_directory

    if resume and out is not None:
        run_directory.write_marker(out, {"dynadiag": _version(), "command": None})
        return out.resolve()
    made = run_directory.chosen_directory(out, force=force) if out is not None else run_directory.new_directory(Path.cwd(), script)
    run_directory.write_marker(made, {"dynadiag": _version(), "command": None})
    return made.resolve()


def _version() -> str:
    import dynadiag

    return dynadiag.__version__


_MUCH_BYTES = 100 << 20


def _say_what_stays(directory: Path) -> None:
    """One line where the captured inputs are large: they stay for `--resume`."""
    for folder in ("first-run", "capture"):
        size = sum(path.stat().st_size for path in (directory / folder).rglob("*") if path.is_file() and not path.is_symlink())
        if size > _MUCH_BYTES:
            say(f"{directory / folder} keeps {size / 2**30:.1f} GiB: the captured inputs, for --resume; delete it when you are done")


def _report(result: Mapping[str, Any], directory: Path) -> int:
    """Say what was found; the exit status."""
    if not result["complete"]:
        return say_interrupted(result, directory, "nodes")
    before, after, proven = result["size_before"]["nodes"], result["size_after"]["nodes"], result["proven"]
    queries = sum(result["queries"].values())
    if result.get("variables"):
        say(f"it needs variables of your environment, which the file sets: {', '.join(result['variables'])}")
    say(f"{result['kind']}: {before} nodes reduced to {after} in {queries} queries; guilty layer: {result['guilty']['layer']}")
    say(f"level: {result['level']} ({result['level_why']})")
    for found in ("pass", "config"):
        if result["guilty"][found] is not None:
            say(f"tested: {result['guilty'][found + '_why']}")
    _say_what_stays(directory)
    if result["flaky"]:
        say(f"flaky: the failure came in {result['flaky']['failed']} of {result['flaky']['of']} runs")
    if result["other_failures"]:
        say(f"{len(result['other_failures'])} other failures were met on the way; see minify.json")
    if result["reproducer"] is None:
        say(f"there is no reproducer: {result['why_not']}")
        return 1
    print_path(directory / result["reproducer"])
    if proven["reproduced"] < proven["runs"]:
        say(f"not proven: it failed in the same way in {proven['reproduced']} of {proven['runs']} fresh processes")
        return 1
    say(f"proven: it failed in the same way in {proven['reproduced']} of {proven['runs']} fresh processes, each in an empty directory")
    if result["almost"]:
        say(f"{result['almost']} does not fail: {result['almost_differs']}")
    return 0
