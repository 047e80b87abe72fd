"""What `dynadiag minify` prints: lines while it works, and what came of it."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynadiag.facts.wording import plural
from dynadiag.reduce.core.verdict import is_proven
from dynadiag.reduce.reproducer.proving import headline
from dynadiag_cli.progress import PRINT_S, SearchLine, StatusLine, on_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dynadiag.reduce.minification import Minified, Unit

_MUCH_BYTES = 100 << 20


class Terminal:
    """Shows on stderr how far a reduction is (`dynadiag.reduce.minification.Watch`)."""

    def say(self, text: str) -> None:
        """One line."""
        say(text)

    @contextmanager
    def capturing(self) -> Iterator[Callable[[str], None]]:
        """The line of the run that goes on; where nobody sees it change, it is printed again from time to time."""
        line = StatusLine(PRINT_S)

        def begin(text: str) -> None:
            say(text)
            if not sys.stderr.isatty():
                line.draw(text.partition(":")[0])

        with line.ticking():
            yield begin

    @contextmanager
    def searching(self, unit: Unit) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """What is left of how much, and what the worker wants a person to know."""
        line = StatusLine(PRINT_S)
        search = SearchLine(line, unit)

        def show(message: Mapping[str, Any]) -> None:
            if "note" in message:
                line.wipe()
                say(str(message["note"]))
            search.show(message)

        line.draw("starting the reducer" if unit == "nodes" else "starting the script reducer")
        try:
            with line.ticking():
                yield show
        finally:
            line.wipe()


class Quiet:
    """Shows nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    @contextmanager
    def capturing(self) -> Iterator[Callable[[str], None]]:
        """Nothing."""
        yield lambda _: None

    @contextmanager
    def searching(self, unit: Unit) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Nothing."""
        yield lambda _: None


def report(done: Minified) -> None:
    """Say what was found; the path of the reproducer goes to stdout."""
    if not done.result["complete"]:
        _say_interrupted(done.result, done.directory, done.unit)
    elif done.unit == "nodes":
        _report_graph(done.result, done.directory)
    else:
        _report_script(done.result, done.directory)


def _report_graph(result: Mapping[str, Any], directory: Path) -> None:
    before, after = result["size_before"]["nodes"], result["size_after"]["nodes"]
    queries = sum(result["queries"].values())
    if result.get("variables"):
        say(f"it needs environment variables, which the reproducer sets: {', '.join(result['variables'])}")
    say(f"{result['kind']}: {before} nodes reduced to {after} in {queries} queries; guilty layer: {result['guilty']['layer']}")
    say(f"level: {result['level']} ({result['level_why']})")
    for found in ("pass", "config"):
        if result["guilty"][found] is not None:
            say(f"tested: {result['guilty'][found + '_why']}")
    _say_what_stays(directory)
    if result["flaky"]:
        say(f"flaky: the failure occurred in {result['flaky']['failed']} of {result['flaky']['of']} runs")
    if result["other_failures"]:
        say(f"also seen along the way: {plural(len(result['other_failures']), 'other failure')}; see minify.json")
    if result["reproducer"] is None:
        say(f"no reproducer: {result['why_not']}")
        return
    print_path(directory / result["reproducer"])
    _say_proof(result)


def _say_what_stays(directory: Path) -> None:
    """One line where the captured inputs are large: they stay for `--resume`."""
    for folder in ("first-run", "capture"):
        size = sum(path.stat().st_size for path in (directory / folder).rglob("*") if path.is_file() and not path.is_symlink())
        if size > _MUCH_BYTES:
            say(f"{directory / folder} keeps {size / 2**30:.1f} GiB: the captured inputs, for --resume; delete it when you are done")


def _report_script(result: Mapping[str, Any], directory: Path) -> None:
    before, after = result["size_before"]["statements"], result["size_after"]["statements"]
    say(f"{result['kind']}: {_said(result['signature'])}")
    if result.get("variables"):
        say(f"it needs environment variables, which the reproducer sets: {', '.join(result['variables'])}")
    say(f"{before} statements reduced to {after} in {sum(result['queries'].values())} queries")
    for text in result["left_out"]:
        say(f"removed first, because candidates must not affect anything outside their own folder: {text[:200]}")
    for text in result["not_inlined"]:
        say(text[:300])
    if result["flaky"]:
        say(f"flaky: it occurred in {result['flaky']['failed']} of {result['flaky']['of']} runs")
    print_path(directory / result["reproducer"])
    _say_proof(result)


def _say_proof(result: Mapping[str, Any]) -> None:
    say(headline(result["proven"]).text)
    if result["almost"] and is_proven(result["proven"]["reproduced"], result["proven"]["runs"]):
        say(f"{result['almost']} does not fail: {result['almost_differs']}")


def _say_interrupted(result: Mapping[str, Any], directory: Path, unit: str) -> None:
    """One line after Ctrl-C, and the path of what was written."""
    before, after, proven = result["size_before"][unit], result["size_after"][unit], result["proven"]
    runs = "not proven yet"
    if proven["runs"]:
        runs = f"it failed in the same way in {proven['reproduced']} of {proven['runs']} fresh processes"
    what = f"{result['kind']}, {before} {unit} reduced to {after}, {runs}"
    if result["reproducer"] is not None:
        print_path(directory / result["reproducer"])
    written = "the best result so far was written" if result["reproducer"] is not None else f"no reproducer: {result['why_not']}"
    say(f"interrupted: {written} ({what}); continue with --resume --out {directory}")


def _said(signature: Mapping[str, Any]) -> str:
    """The class of the exception, if it is one, and its message."""
    names = [name.rsplit(".", 1)[-1] for name in signature["exceptions"][-1:]]
    return " ".join(": ".join(filter(None, (*names, signature["message"]))).split())[:200]


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
