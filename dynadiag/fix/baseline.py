"""What `dynadiag fix` starts from: the recorded script or module, which has to be the user's own and as it was recorded. No torch."""

from __future__ import annotations

import ast
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dynadiag.changes.syntax import tree_of
from dynadiag.errors import EditError, NothingFoundError, UnreadableInputError, UsageError
from dynadiag.facts.program_end import refuse_failed_start
from dynadiag.fix.inside.running import RunJob
from dynadiag.fix.launch import split
from dynadiag.fix.runs import report_on
from dynadiag.fix.sources import BOM, Sources, text_of
from dynadiag.model.report import Report
from dynadiag.record.changed_sources import changed_sources
from dynadiag.record.directory import is_ours
from dynadiag.record.target import file_of_module
from dynadiag.trace.sources import find_sources, shown

_LEAST_BYTES, _MOST_BYTES = 256 << 20, 16 << 30


CHANGES: Final = "{file} changes while it runs: fix proves programs that stay as they are"


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The recorded script: where, what it was started with, and from which folder. `cpu_s` and `wall_s` are what it took, where known.

    `launch` is the launcher that started it, with its options. `module` is its name where it was started with `-m`; `home` the file that is
    changed where the script is ours and only calls it.
    """

    directory: Path
    script: Path
    module: str | None = None
    arguments: tuple[str, ...]
    folder: Path
    home: Path | None = None
    launch: tuple[str, ...] = ()
    cpu_s: float | None = None
    wall_s: float = 0.0

    @property
    def command(self) -> tuple[str, ...]:
        """The command line behind Python, or the launcher's whole one."""
        program = (str(self.script),) if self.module is None else ("-m", self.module)
        return (*self.launch, *program, *self.arguments)


def check_script(script: Path) -> None:
    """Raise UnreadableInputError where the script is not the user's to change."""
    if script.suffix not in (".py", ".pyw") or not script.is_file():
        raise UnreadableInputError(f"{shown(script)} is not a Python source file: fix changes only scripts of your own")
    if {"site-packages", "dist-packages"} & set(script.resolve().parts):
        raise UnreadableInputError(f"{shown(script)} is installed (site-packages): fix changes only scripts of your own")
    try:
        text = text_of(str(script.resolve())).removeprefix(BOM)
        ast.parse(text)
        tree_of(text)
    except SyntaxError:
        return  # who runs it says so
    except EditError as error:
        raise UnreadableInputError(f"fix cannot change {shown(script)}: {error.message}") from None


def script_of_module(name: str, folder: Path) -> Path:
    """The file of the user's own that `python -m NAME` runs in a folder. Raises UnreadableInputError where there is none."""
    script = file_of_module(name, sys.executable, folder)
    if script is None:
        raise UnreadableInputError(f"no file is found for -m {shown(Path(name))} from {shown(folder)}: pass the script's path")
    check_script(script)
    return script


def baseline_of(directory: Path) -> Baseline:
    """The script of a run of ours: the command and the folder that its marker names, which nobody else has written.

    Raises UsageError for any other run, UnreadableInputError for a script that is not the user's to change.
    """
    sources = find_sources(directory)
    command, folder = sources.info.command, sources.info.cwd
    if not is_ours(directory, sources.logs) or not command or folder is None:
        raise UsageError(f"{directory} was not recorded here by `dynadiag explain`: run `dynadiag fix` on the script")
    launch, behind = split(command, Path(folder))
    words = list(behind)
    module = words[1] if words[:1] == ["-m"] and len(words) > 1 else None
    if module is not None:
        del words[0]
    if not words or words[0].startswith("-"):
        raise UsageError(f"{directory} is not the run of a script: fix changes and runs a script")
    if any("***" in word for word in words):
        raise UsageError(
            f"{directory} does not hold the script's arguments as they were (a secret is masked): run `dynadiag fix` on the script"
        )
    if module is None:
        script = Path(folder) / words[0]
        check_script(script)
    else:
        script = script_of_module(module, Path(folder))
    arguments = tuple(words[1:])
    return Baseline(directory=directory, script=script, module=module, arguments=arguments, folder=Path(folder), launch=launch)


def read(baseline: Baseline) -> tuple[Report, Sources]:
    """The report on the baseline and the script's sources; raises where that is no program that can be proven."""
    report = report_on(baseline.directory)
    if not report.summary.frames:
        refuse_failed_start(report.run, "there is nothing to fix")
        raise NothingFoundError(f"nothing was compiled when {baseline.script} ran, so there is nothing to fix")
    if changed := changed_sources(report.run):
        raise UsageError(f"{changed[0]} is no longer as it was recorded: run `dynadiag fix` on the script")
    if report.summary.processes > 1 and not baseline.launch:
        raise UsageError(f"{baseline.script} compiles in {report.summary.processes} processes: fix proves programs of one")
    sources = Sources(report, baseline.home or baseline.script)
    sources.text(sources.script)
    return report, sources


def job_of(baseline: Baseline, folder: Path) -> RunJob:
    """What all runs of the script have in common."""
    return RunJob(
        script=str(baseline.script.resolve()),
        module=baseline.module,
        arguments=list(baseline.arguments),
        folder=str(baseline.folder),
        output=str(folder),
        cap_bytes=_room_for_values(folder),
    )


def _room_for_values(folder: Path) -> int:
    """How many bytes of copies one run may keep: they are in memory while it runs, and then in a file, of about twenty that lie there."""
    memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(_LEAST_BYTES, min(_MOST_BYTES, memory // 4, shutil.disk_usage(folder).free // 20))
