"""All of `dynadiag minify` but its printing: what is reduced, in which order it is tried, and what came of it. Imports no torch."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import dynadiag
from dynadiag.errors import DynadiagError, NothingFoundError, NoViewError, OutputError, UsageError
from dynadiag.json_lines import value_of
from dynadiag.private_view.choosing import private_view, roots_of
from dynadiag.private_view.view import View
from dynadiag.record import Target
from dynadiag.record import directory as run_directory
from dynadiag.record.project_root import project_root
from dynadiag.record.target import check_script
from dynadiag.reduce.core.failure import SILENT, Said
from dynadiag.reduce.core.verdict import is_proven
from dynadiag.reduce.session import Message, SessionOptions, reduce_captured, reduce_script
from dynadiag.reduce.sources.failing_script import NO_GRAPH_FAILED, NOT_CAPTURED, CaptureOptions, Suspect, find_and_capture
from dynadiag.reduce.sources.recording import can_resume, capture_all_recorded, capture_recorded, captures_to_resume, is_script_job
from dynadiag.reduce.sources.torch_repro import capture_script, is_torch_repro, not_saved
from dynadiag.scratch import scratch
from dynadiag.torch_compat.dynamo.recorded_options import left_out
from dynadiag.torch_compat.versions import require
from dynadiag.trace.sources import is_recording, recording_at

IN_A_SCRIPT = {
    "graph_break": "a graph break is between graphs",
    "recompile": "a recompile needs two calls",
    "fallback": "code that runs eagerly is in no graph",
    "wrong_call": "a whole call is compared with eager, with what is around its graphs",
    "cudagraph_skip": "whether CUDA graphs are skipped is decided for a whole call",
}
"""Kinds for which the script itself is reduced, and why."""
Unit = Literal["nodes", "statements"]
_SCRIPT_INSTEAD = ("passes-alone", "not-rebuilt", NO_GRAPH_FAILED, NOT_CAPTURED)
_FAILS = {
    "compile": "graph {} fails while it is compiled",
    "call": "graph {} fails when it is called",
    "after": "the script fails after a call of graph {}, perhaps in its backward",
}
_NO_TEXT = (".pyc", ".pyo", ".pyz")


class Listener(Protocol):
    """Is told what goes on, for a display."""

    def say(self, text: str) -> None:
        """One sentence that a person wants to keep."""
        ...

    def capturing(self) -> AbstractContextManager[Callable[[str], None]]:
        """Around the runs of the script; gives who is told which run begins."""
        ...

    def searching(self, unit: Unit) -> AbstractContextManager[Callable[[Message], None]]:
        """Around a reduction; gives who is told each message of the worker."""
        ...


class Silent:
    """A `Listener` that shows nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    @contextlib.contextmanager
    def capturing(self) -> Iterator[Callable[[str], None]]:
        """Nothing."""
        yield self.say

    @contextlib.contextmanager
    def searching(self, unit: Unit) -> Iterator[Callable[[Message], None]]:
        """Nothing."""
        yield lambda message: None


@dataclass(frozen=True, kw_only=True)
class Minified:
    """`result` is the content of `minify.json` (docs/minify.schema.json) in `directory`; `unit` is what was reduced."""

    result: Message
    directory: Path
    unit: Unit

    @property
    def exit_code(self) -> int:
        """0: reduced and proven; 1: not proven; 130: interrupted, the best so far is written."""
        if not self.result["complete"]:
            return 130
        proven = self.result["proven"]
        return int(self.result["reproducer"] is None or not is_proven(proven["reproduced"], proven["runs"]))


def minify_target(
    target: Target,
    *,
    out: Path | None = None,
    force: bool = False,
    options: SessionOptions = SessionOptions(),  # noqa: B008 - frozen
    watch: Listener | None = None,
) -> Minified:
    """Reduce what `dynadiag minify TARGET` names: a script that fails, `RUN` or `RUN#g3`, or a `repro.py` written by torch.

    Writes to `out` (None: a new folder in `dynadiag-runs`; `force` replaces one that dynadiag created). A script is run in separate
    processes; then the graph that fails is reduced, else the calls of it, else the script. Raises UsageError and UnreadableInputError
    before anything is written, NothingFoundError (exit status 1) if nothing fails, DynadiagError with exit status 130 after Ctrl-C if
    nothing was found yet.
    """
    require("minify")
    watch = watch or Silent()
    _check(options)
    source = None if options.as_script else _recorded(target.argv)
    if options.kind in IN_A_SCRIPT:
        _check_text(target, options.kind, recorded=source is not None)
    elif source is None and target.kind == "script":
        check_script(Path(target.argv[0]), sys.executable)  # before a folder is made for it
    if options.backend is not None and source is None:
        raise UsageError("--backend only works with a recorded graph (RUN or RUN#ID): a script names its own back end")
    if options.capture_always and (source is not None or options.kind in IN_A_SCRIPT):
        raise UsageError("--capture always only applies to scripts whose graph is captured: nothing is captured here")
    options = replace(options, resume=options.resume and can_resume(out, watch.say))

    def begin(options: SessionOptions) -> _Minification:
        directory = _directory(target, out, force=force, resume=options.resume)
        watch.say(f"writing to {directory}")
        return _Minification(target, directory, options, watch)

    if source is None or options.resume:
        return begin(options).minify_target()
    # What is taken out of it comes first: a graph that it does not have leaves no folder behind, and replaces none.
    try:
        with scratch("recorded") as folder:
            taken, options = _taken(*source, Path(folder), options, watch)
            minification = begin(options)
            shutil.move(Path(folder) / "capture", minification.directory / "capture")
    except OSError as error:
        raise OutputError(f"cannot write the captured graph: {error.strerror or error}") from error
    return minification.of_graphs([minification.directory / "capture" / path.name for path in taken])


def _check(options: SessionOptions) -> None:
    """Refuse in one line what cannot be reduced."""
    if options.memory_limit_mib is not None and options.kind != "oom":
        raise UsageError("--memory-limit only works with --kind oom")
    if options.memory_limit_mib is not None and not sys.platform.startswith("linux"):
        raise UsageError("--memory-limit needs Linux")
    options.check_match()


def _recorded(words: tuple[str, ...]) -> tuple[Path, str | None] | None:
    """A recording (or a script made by torch) and the id of the graph in it, None for all; None for a script that is to be run."""
    name = words[0]
    if not name:
        raise UsageError("TARGET is empty: pass a script, -m MODULE, or a recording")
    path, mark, graph = name.rpartition("#")
    found: tuple[Path, str | None] | None = None
    if not Path(name).exists():
        found = (Path(path), graph) if mark else None
    elif is_torch_repro(Path(name)):
        return Path(name), None  # its "run" or "minify" argument says what torch's own tool would do
    elif is_recording(Path(name)):
        found = Path(name), None
    if found is not None and len(words) > 1:
        raise UsageError(f"{name} takes no arguments, but got: {' '.join(words[1:])}")
    if found is not None and found[0].exists() and not (found[0].is_file() or found[0].is_dir()):
        raise UsageError(f"{found[0]} is neither a file nor a folder: pass a recording")  # before a folder is made for it
    return (recording_at(found[0]), found[1]) if found is not None else None


def _check_text(target: Target, kind: str, *, recorded: bool) -> None:
    """Raise in one line when there is no script to reduce: a module, a recording, a missing file, something that is no Python."""
    if recorded or target.kind != "script":
        what = "a recording" if recorded else "-m MODULE"
        raise UsageError(f"--kind {kind} needs a script, not {what}: {IN_A_SCRIPT[kind]}, so the script itself is reduced")
    path = Path(target.argv[0])
    check_script(path, sys.executable)
    if path.is_dir() or path.suffix in _NO_TEXT:
        raise UsageError(f"--kind {kind} needs a script in a single text file, which {path} is not")


def _directory(target: Target, out: Path | None, *, force: bool, resume: bool) -> Path:
    if out is None:
        made = run_directory.new_directory(Path.cwd(), target.argv[0])
    else:
        made = out if resume else run_directory.chosen_directory(out, force=force)
    run_directory.write_marker(made, {"dynadiag": dynadiag.__version__, "command": None})
    return made.resolve()


@dataclass(frozen=True)
class _Minification:
    """One target, one folder."""

    target: Target
    directory: Path
    options: SessionOptions
    watch: Listener

    def minify_target(self) -> Minified:
        """A script, or what an earlier run captured."""
        options = self.options
        if options.kind in IN_A_SCRIPT or (options.resume and is_script_job(self.directory)):
            return self._script(options, why=IN_A_SCRIPT.get(options.kind or "", "the captured graph did not show it on its own"))
        if options.resume:
            return self._graphs(captures_to_resume(self.directory), None, options)
        return self._ladder()

    def of_graphs(self, captures: list[Path]) -> Minified:
        """The first of these that fails."""
        return self._graphs(captures, None, self.options)

    def _ladder(self) -> Minified:
        """The graph that fails, the calls of it, the script."""
        suspect: Suspect | None = None
        options = self.options
        try:
            with self._view() as view, self.watch.capturing() as say:
                every = options.kind in SILENT
                how = CaptureOptions(timeout_s=options.timeout_s, every=every, always=options.capture_always, say=say, view=view)
                suspect, captures = find_and_capture(self.target, self.directory, how)
            if suspect is not None and suspect.phase != "script":
                self.watch.say(f"{_FAILS[suspect.phase].format(suspect.graph)}: {' '.join(suspect.title.split())[:200]}")
            return self._graphs(captures, suspect, options)
        except KeyboardInterrupt:
            raise DynadiagError("interrupted before a failing graph was captured: there is nothing to write", exit_code=130) from None
        except DynadiagError as error:
            if not self._script_is_worth_a_try(error):
                raise
            if suspect is None and options.kind in SILENT and error.slug == "passes-alone":
                # Wrong numbers show in a script only by an assertion of its own, and this one ended well.
                raise NothingFoundError(f"nothing failed: the script succeeded, and {error.message}", exit_code=1) from error
            return self._script_instead(error, suspect.said if suspect is not None else None)

    @contextlib.contextmanager
    def _view(self) -> Iterator[View | None]:
        """What the runs of the script see of the user's files, which are as before when they are over."""
        here = Path.cwd()
        script = Path(self.target.argv[0]) if self.target.kind == "script" else here / "__main__.py"
        with contextlib.ExitStack() as stack:
            view = None
            try:
                if not self.options.keep_outputs:
                    view = stack.enter_context(private_view(roots_of(project_root(script), here)))
            except NoViewError as error:
                self.watch.say(f"{error.message}: what the script writes stays")
            yield view

    def _script_is_worth_a_try(self, error: DynadiagError) -> bool:
        """Where its graph alone does not show the failure, or cannot be taken out of it."""
        path = Path(self.target.argv[0])
        is_text = self.target.kind == "script" and path.is_file() and path.suffix not in _NO_TEXT
        return error.slug in _SCRIPT_INSTEAD and is_text and not self.options.resume

    def _script_instead(self, error: DynadiagError, said: Said | None) -> Minified:
        """Go on with the script. Wrong numbers show in a script only by an assertion of its own."""
        self.watch.say(f"{error.message}; continuing with the script")
        if self.options.kind not in SILENT:
            return self._script(self.options, why=error.message, said=said)
        try:
            return self._script(replace(self.options, kind=None), why=error.message)
        except DynadiagError as raised:
            only = f"a script can show {self.options.kind} only through an assertion of its own that fails when compiled"
            raise NothingFoundError(f"{raised.message} ({only})", exit_code=raised.exit_code) from raised

    def _script(self, options: SessionOptions, *, why: str, said: Said | None = None) -> Minified:
        script, *arguments = self.target.argv
        with self.watch.searching("statements") as on_message:
            result = reduce_script(Path(script), arguments, self.directory, options, on_message, why=why, said=said)
        return Minified(result=result, directory=self.directory, unit="statements")

    def _graphs(self, captures: list[Path], suspect: Suspect | None, options: SessionOptions) -> Minified:
        with self.watch.searching("nodes") as on_message:
            result = reduce_captured(captures, suspect, self.directory, options, on_message)
        return Minified(result=result, directory=self.directory, unit="nodes")


def _taken(path: Path, graph: str | None, into: Path, options: SessionOptions, watch: Listener) -> tuple[list[Path], SessionOptions]:
    """Capture folders from a recording or a script made by torch, and the options that follow from it. Nothing of it is run."""
    if graph is not None or not is_torch_repro(path):
        if graph is None:
            captures = capture_all_recorded(path, into, backend=options.backend)
        else:
            captures = [capture_recorded(path, graph, into, backend=options.backend)]
        _say_left_out(captures, watch)
        return captures, options
    repro, captures = capture_script(path, into, backend=options.backend)
    _say_left_out(captures, watch)
    watch.say(f"{path} was made by torch (after {repro.after}): its graph and inputs are read, none of it is run")
    missing = not_saved(repro, path.absolute().parent)
    if missing:
        watch.say(f"{missing} of {len(repro.storages)} tensors were not saved with it: their values are made up")
    return captures, replace(options, kind=options.kind or ("wrong_result" if repro.accuracy else None))


def _say_left_out(captures: list[Path], watch: Listener) -> None:
    """One line about options that whoever wrote the recording or the repro may not set here."""
    lost = [name for folder in captures for name in value_of((folder / "setting.json").read_text("utf-8")).get("configs_lost", ())]
    if lost:
        watch.say(left_out(lost))
