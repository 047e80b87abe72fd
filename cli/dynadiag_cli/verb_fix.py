"""`dynadiag fix`: try what the advice says, keep what is proven, and write it as a patch."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dynadiag.errors import NothingFoundError, NoViewError, UsageError
from dynadiag_cli.command_line import MODE, recording_named
from dynadiag_cli.options import LONGEST_S, AsFormat, Color, Format, InColor, Out, Quiet

if TYPE_CHECKING:
    from dynadiag.fix.baseline import Baseline
    from dynadiag.fix.result import FixResult
    from dynadiag.private_view.consent import Apart

Outputs = Literal["discard", "first", "all"]
_MOST_NAMED = 3
EXAMPLES = """Examples:

  dynadiag fix train.py --lr 3e-4

  dynadiag fix --diff dynadiag-runs/latest
"""


def fix(
    ctx: typer.Context,
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET [ARGS]...", help="A script or -m MODULE with arguments; or a run directory, whose script is still there."
        ),
    ],
    out: Out = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Replace DIR if dynadiag created it; with --write, also write files that are read-only or that git calls modified.",
        ),
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print only the patch, to stdout; what the script prints goes to stderr.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Change the script's own files.")] = False,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Also try changes with a trade-off; each says what it gives up.")] = False,
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="NAME", help="Apply only fixes for this code, finding or kind of change; repeatable."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="NAME", help="Apply no fixes for this code, finding or kind of change; repeatable."),
    ] = None,
    time_limit_s: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="S", min=1, max=LONGEST_S, help="Try nothing new after S seconds; what is proven is kept."),
    ] = None,
    bench: Annotated[
        bool | None,
        typer.Option("--bench/--no-bench", help="Time the script without and with the patch; by default where it used a GPU."),
    ] = None,
    outputs: Annotated[
        Outputs,
        typer.Option(
            "--outputs",
            help="Files that the runs write: discard them, keep those of the recorded run (first), or keep all.",
        ),
    ] = "discard",
    yes: Annotated[bool, typer.Option("--yes", help="Also fix a script that connects to a network: every run connects.")] = False,
    output_format: AsFormat = "text",
    quiet: Quiet = False,
    color: InColor = "auto",
) -> None:
    """Apply the advice to a copy of the script, keep what is proven to cure its finding and change nothing else, and write a patch.

    The script is run many times, on its own data and on other data; what its compiled callables return, write and draw at random is
    compared with the original in eager. What runs write into files is gone afterwards (--outputs). The run directory gets `fixes.patch`,
    `fixed/`, `fix.json` and `fix.md`; the script's files change only with --write. Exit status: 0 every warning is cured and proven, 1
    something is left or the script failed, 2 usage, 3 no torch, 5 nothing was compiled.
    """
    from dynadiag.fix.session import FixOptions
    from dynadiag.fix.session import fix as proven
    from dynadiag.fix.show import document_of
    from dynadiag.fix.writing import write_sources
    from dynadiag.record.guardian import guarded
    from dynadiag.torch_compat.versions import require
    from dynadiag_cli.progress import PRINT_S, StatusLine, on_one_line
    from dynadiag_cli.showing import json_of, write_result

    guarded()
    require("fix")
    if diff and output_format != "text":
        raise UsageError("--diff prints the patch: leave --format out")
    how = _Recording(out=out, force=force, write=write, stdout_is_ours=diff or output_format != "text")
    program = _program(ctx, target, how)
    options = FixOptions(
        unsafe=unsafe,
        select=tuple(select or ()),
        ignore=tuple(ignore or ()),
        time_limit_s=time_limit_s,
        bench=bench,
        write=write,
        force=force,
    )
    line = StatusLine(PRINT_S)
    with _apart(program, outputs, yes=yes) as apart:
        baseline = _recorded(program, how, None if outputs == "first" else apart) if isinstance(program, _Program) else program
        try:
            with line.ticking():
                result = proven(baseline, options, line.draw, lambda text: print(f"dynadiag: {text}", file=sys.stderr), apart)
        finally:
            line.wipe()
        dropped = () if apart is None else apart.dropped
    write_result(Path(result.directory), "fix", json_of(result), document_of(result))
    _print(result, output_format, diff=diff, write=write, quiet=quiet, color=color)
    if dropped and not quiet and isinstance(program, _Program) and outputs == "discard":
        names = ", ".join(on_one_line(os.path.relpath(name)) for name in dropped[:_MOST_NAMED]) + (
            ", ..." if len(dropped) > _MOST_NAMED else ""
        )
        print(f"dynadiag: not kept: what the runs wrote ({names}); --outputs first keeps it for the recorded run", file=sys.stderr)
    if write and result.patch:
        for file in write_sources(result, force=force):
            print(f"dynadiag: changed {file}", file=sys.stderr)
    if result.failed is not None:
        print(f"dynadiag: the script itself {result.failed}", file=sys.stderr)
    raise typer.Exit(1 if result.left or result.failed is not None else 0)


@dataclass(frozen=True, kw_only=True)
class _Recording:
    """How a script is recorded. `write`: its files are to be written in the end; `stdout_is_ours`: what it prints goes to stderr."""

    out: Path | None
    force: bool
    write: bool
    stdout_is_ours: bool


@dataclass(frozen=True)
class _Program:
    """What is to be recorded: started by `launch` (nothing: Python itself); `module` is the file of a module, None for a script."""

    launch: tuple[str, ...]
    words: tuple[str, ...]
    module: Path | None = None

    @property
    def script(self) -> Path:
        """The file that runs."""
        return Path(self.words[0]) if self.module is None else self.module


def _program(ctx: typer.Context, target: list[str], how: _Recording) -> _Program | Baseline:
    """What to record, or the run directory that was named. What may be refused comes before anything runs."""
    from dynadiag.fix.baseline import baseline_of, check_script, script_of_module
    from dynadiag.fix.launch import split

    launch: tuple[str, ...] = ()
    if (mode := ctx.meta.get(MODE, "path")) == "command":
        launch, words = split(target, Path.cwd())
        if not launch:
            raise UsageError("a command behind -- is a launcher with its script: pass a script that Python runs itself, or -m MODULE")
        mode, target = ("module", list(words[1:])) if words[0] == "-m" else ("path", list(words))
    if mode == "module":
        if not target:
            raise UsageError("-m names no module")
        return _Program(launch, tuple(target), script_of_module(target[0], Path.cwd()))
    recording = None if launch else recording_named(ctx, target)
    if recording is None:
        check_script(Path(target[0]))
        return _Program(launch, tuple(target))
    if how.out is not None:
        raise UsageError("--out is for a script: a run directory gets its files itself")
    return baseline_of(recording)


@contextmanager
def _apart(program: _Program | Baseline, outputs: Outputs, *, yes: bool) -> Iterator[Apart | None]:
    """How runs are kept apart from the user's files; None where they are to write for real."""
    if outputs == "first" and not isinstance(program, _Program):
        raise UsageError("--outputs first is for a script: a run directory is not recorded again")
    folder = Path.cwd() if isinstance(program, _Program) else program.folder
    with apart_from(program.script, folder, discard=outputs != "all", yes=yes) as apart:
        yield apart


@contextmanager
def apart_from(script: Path, folder: Path, *, discard: bool, yes: bool) -> Iterator[Apart | None]:
    """How runs of a script from a folder are kept apart from the user's files; None unless they `discard` what they write."""
    from dynadiag.private_view.choosing import private_view, roots_of
    from dynadiag.private_view.consent import Apart
    from dynadiag.record.project_root import project_root

    if not discard:
        yield None
        return
    try:
        with private_view(roots_of(project_root(script), folder)) as view:
            yield Apart(view=view, ask=_asked if sys.stdin.isatty() and sys.stderr.isatty() else None, agreed=yes)
    except NoViewError as error:
        raise UsageError(f"{error.message}; --outputs all runs the script all the same, and what its runs write stays") from None


def _asked(question: str) -> bool:
    sys.stderr.write("\r\x1b[K")
    return typer.confirm(f"dynadiag: {question}. Go on?", err=True)


def _recorded(program: _Program, how: _Recording, apart: Apart | None) -> Baseline:
    """The recorded script."""
    from dynadiag import record
    from dynadiag.fix.baseline import CHANGES, Baseline
    from dynadiag.fix.writing import refuse_to_write

    launch, words, module = program.launch, program.words, program.module
    script = program.script
    if how.write:
        refuse_to_write([script.resolve()], force=how.force)
    text = script.read_bytes()
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    recorded = record.Target("script" if module is None else "module", words)
    if launch:
        recorded = record.Target("command", (*launch, *(() if module is None else ("-m",)), *words))
    options = record.RecordOptions(
        out=how.out,
        force=how.force,
        announce=True,
        required=True,
        stdout_to_stderr=how.stdout_is_ours,
        view=None if apart is None else apart.view,
    )
    done = record.record(recorded, options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.directory is None:
        raise NothingFoundError("nothing was recorded", exit_code=2)
    if done.told_to_end is not None or done.interrupted:
        raise typer.Exit(130 if done.told_to_end is None else 128 + done.told_to_end)
    if script.read_bytes() != text:
        raise UsageError(CHANGES.format(file=script))
    if apart is not None:
        apart.agree()
    return Baseline(
        directory=done.directory,
        launch=launch,
        script=script,
        module=None if module is None else words[0],
        arguments=words[1:],
        folder=Path.cwd(),
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        wall_s=time.monotonic() - begun,
    )


def _print(result: FixResult, output_format: Format, *, diff: bool, write: bool, quiet: bool, color: Color) -> None:
    from dynadiag.fix.show import document_of
    from dynadiag.fix.writing import apply_command
    from dynadiag.record.environment import working_directory
    from dynadiag.record.supervisor import from_here
    from dynadiag_cli.showing import json_of, show

    if diff:
        sys.stdout.write(result.patch)
        return

    show(document_of(result), output_format, json=lambda: json_of(result), default=sys.stdout, color=color, quiet=quiet)
    if output_format == "text" and result.patch and not quiet:
        folder, here = from_here(Path(result.directory)), working_directory()
        command = apply_command(result, None if here is None else Path(here))
        following = "" if write else f"next  {command}\n"
        sys.stdout.write(f"\nFiles in {folder}/: fixes.patch, fixed/, fix.json, fix.md\n{following}")
