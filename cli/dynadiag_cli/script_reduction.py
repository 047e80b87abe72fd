"""`dynadiag minify` where a whole script is reduced: which kinds ask for it, what is refused, and what is said in the end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynadiag_cli.progress import PRINT_S, SearchLine, StatusLine, on_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dynadiag.errors import DynadiagError
    from dynadiag.record import Target

IN_A_SCRIPT = {
    "graph_break": "a graph break lies between graphs",
    "recompile": "a recompile needs two calls",
    "fallback": "what runs eager is in no graph",
    "cudagraph_skip": "what CUDA graphs refuse is decided over a whole call",
}


def check_script(program: Target, kind: str, *, recorded: bool) -> None:
    """Raise in one line when there is no script to reduce: a module, a recording, a missing file, something that is no Python."""
    from dynadiag.errors import UsageError
    from dynadiag.record.target import check_script as check_python

    if recorded or program.kind != "script":
        what = "a recording" if recorded else "-m MODULE"
        raise UsageError(f"--kind {kind} needs a script, not {what}: {IN_A_SCRIPT[kind]}, so the script itself is reduced")
    path = Path(program.argv[0])
    check_python(path, sys.executable)
    if path.is_dir() or path.suffix in (".pyc", ".pyo", ".pyz"):
        raise UsageError(f"--kind {kind} needs a script in one text file: {path} is none")


_GOES_ON = ("passes-alone", "not-rebuilt", "no-graph-failed", "not-captured")


def goes_on(error: DynadiagError, program: Target, options: Any) -> bool:
    """Whether the script itself is worth a try where its graph alone does not show the failure, or cannot be taken out of it."""
    path = Path(program.argv[0])
    is_text = program.kind == "script" and path.is_file() and path.suffix not in (".pyc", ".pyo", ".pyz")
    return error.slug in _GOES_ON and is_text and not options.resume


def reduce_instead(program: Target, directory: Path, options: Any, error: DynadiagError, said: tuple[str, str] | None) -> int:
    """Go on with the script after its graph; the exit status. Wrong numbers show in a script only by an assertion of its own."""
    from dataclasses import replace

    from dynadiag.errors import DynadiagError, NothingFoundError
    from dynadiag.reduce.core.failure import SILENT

    say(f"{error.message}; going on with the script")
    if options.kind not in SILENT:
        return reduce(program, directory, options, why=error.message, said=said)
    try:
        return reduce(program, directory, replace(options, kind=None), why=error.message)
    except DynadiagError as raised:
        only = f"a script shows {options.kind} only by an assertion of its own that fails when it is compiled"
        raise NothingFoundError(f"{raised.message} ({only})", exit_code=raised.exit_code) from raised


def is_script_job(directory: Path) -> bool:
    """Whether the earlier run in this directory reduced a script."""
    try:
        return "script" in json.loads((directory / "job.json").read_text("utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def reduce(program: Target, directory: Path, options: Any, *, why: str, said: tuple[str, str] | None = None) -> int:
    """Reduce the script and say what came of it; the exit status. `said` is what the exception said that is meant."""
    from dynadiag.reduce.session import reduce_script

    line = StatusLine(PRINT_S)
    search = SearchLine(line, "statements")

    def show(message: Mapping[str, Any]) -> None:
        say_note(message, line)
        search.show(message)

    line.draw("starting the reducer of scripts")
    try:
        with line.ticking():
            result = reduce_script(Path(program.argv[0]), program.argv[1:], directory, options, show, why=why, said=said)
    finally:
        line.wipe()
    return _report(result, directory)


def _report(result: Mapping[str, Any], directory: Path) -> int:
    if not result["complete"]:
        return say_interrupted(result, directory, "statements")
    before, after, proven = result["size_before"]["statements"], result["size_after"]["statements"], result["proven"]
    say(f"{result['kind']}: {_said(result['signature'])}")
    if result.get("variables"):
        say(f"it needs variables of your environment, which the file sets: {', '.join(result['variables'])}")
    say(f"{before} statements reduced to {after} in {sum(result['queries'].values())} queries")
    for text in result["left_out"]:
        say(f"left out first, since candidates may not touch what is not their own: {text[:200]}")
    for text in result["not_inlined"]:
        say(text[:300])
    if result["flaky"]:
        say(f"flaky: it came in {result['flaky']['failed']} of {result['flaky']['of']} runs")
    print_path(directory / result["reproducer"])
    where = f"in {proven['reproduced']} of {proven['runs']} fresh processes"
    if proven["reproduced"] < proven["runs"]:
        say(f"not proven: it showed the same {where}")
        return 1
    say(f"proven: it showed the same {where}, each in an empty directory")
    if result["almost"]:
        say(f"{result['almost']} does not show it: {result['almost_differs']}")
    return 0


def say_interrupted(result: Mapping[str, Any], directory: Path, unit: str) -> int:
    """One line after Ctrl-C, and the path of what was written; the exit status."""
    before, after, proven = result["size_before"][unit], result["size_after"][unit], result["proven"]
    runs = "not proven yet"
    if proven["runs"]:
        runs = f"it failed in the same way in {proven['reproduced']} of {proven['runs']} fresh processes"
    what = f"{result['kind']}, {before} {unit} reduced to {after}, {runs}"
    if result["reproducer"] is not None:
        print_path(directory / result["reproducer"])
    written = "the best so far is written" if result["reproducer"] is not None else f"there is no reproducer: {result['why_not']}"
    say(f"interrupted: {written} ({what}); --resume with --out {directory} goes on")
    return 130


def _said(signature: Mapping[str, Any]) -> str:
    """The class of the exception, if it is one, and its message."""
    names = [name.rsplit(".", 1)[-1] for name in signature["exceptions"][-1:]]
    return " ".join(": ".join(filter(None, (*names, signature["message"]))).split())[:200]


def say_note(message: Mapping[str, Any], line: StatusLine) -> None:
    """What the worker wants a person to know."""
    if "note" in message:
        line.wipe()
        say(str(message["note"]))


def say(text: str) -> None:
    """One line on stderr."""
    print("dynadiag:", on_one_line(text), file=sys.stderr, flush=True)


def print_path(path: Path) -> None:
    """One line on stdout; a name that is no UTF-8 as the bytes that it is."""
    try:
        print(path)
    except UnicodeEncodeError:
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(path) + b"\n")
