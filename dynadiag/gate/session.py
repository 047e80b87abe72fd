"""All that `dynadiag check` decides: which files may be read, the outcome for a report, and what the baseline is to hold from now on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dynadiag.errors import OutputError, UsageError
from dynadiag.facts.fingerprint import SCHEME
from dynadiag.facts.program_end import failure_of
from dynadiag.facts.user_frames import is_own_file
from dynadiag.files import is_read_only, read_small
from dynadiag.gate import baseline
from dynadiag.gate.judge import earlier_program_of, entries_for, judge, program_of
from dynadiag.gate.result import BASELINE, GateOptions, GateResult
from dynadiag.model.report import Report
from dynadiag.runs import recorded_here

_MOST_FILES, _LONGEST_FILE = 200, 4 << 20


def with_usable_baseline(options: GateOptions, *, update: bool) -> GateOptions:
    """The options, with a baseline to update if one is wanted. Refuses what cannot be read or written before minutes are spent on a script.

    Raises UsageError, UnreadableInputError, OutputError.
    """
    if options.baseline is None and update:
        options = replace(options, baseline=Path(BASELINE))
    if options.baseline is not None and baseline.read(options.baseline) is None:
        if not update:
            raise UsageError(f"there is no baseline {options.baseline}: create it with --update-baseline")
        if not options.baseline.parent.is_dir():
            raise OutputError(f"the baseline {options.baseline} cannot be written: there is no folder {options.baseline.parent}")
    if update and options.baseline is not None and is_read_only(options.baseline):
        raise OutputError(f"the baseline {options.baseline} cannot be written: it is read-only")
    return options


def checked(report: Report, directory: Path, options: GateOptions, *, update: bool = False) -> GateResult:
    """The outcome for the report on a run or a log; `update` writes the baseline and judges by the new one. Raises what `judge` raises."""
    sources = _sources(report, directory)
    if not update or options.baseline is None:
        stored = None if options.baseline is None else baseline.read(options.baseline)
        return judge(report, options, known=None if stored is None else _known(stored, report)[1], sources=sources)
    with baseline.alone(options.baseline):
        return _updated(report, options, options.baseline, sources)


def _updated(report: Report, options: GateOptions, path: Path, sources: Mapping[str, str]) -> GateResult:
    """The outcome by the baseline in a file once it is brought up to date; other programs in it stay as they are."""
    stored = baseline.read(path)
    name, known = (None, None) if stored is None else _known(stored, report)
    result = judge(report, options, known=known, sources=sources)
    info = report.run.info
    if known is not None and (info.timed_out or (info.exit_status not in (None, 0) and not info.stopped_stable)):
        note = "the program did not run to its end, so the baseline stays as it is: what is missing in it may just not have been reached"
        return replace(result, notes=(*result.notes, note))
    if known is None and failure_of(info) is not None:
        note = "the program failed, so it is not added to the baseline: what it would have shown later would be new for ever"
        return replace(result, notes=(*result.notes, note))
    entries = baseline.KnownProblems(torch=result.torch or "", entries=entries_for(report, result, known))
    others = {} if stored is None else {text: what for text, what in stored.programs.items() if text != name}
    baseline.write(path, baseline.Baseline(programs={**others, program_of(report): entries}))
    return judge(report, options, known=entries, sources=sources)


def _known(stored: baseline.Baseline, report: Report) -> tuple[str | None, baseline.KnownProblems | None]:
    """What a baseline knows of the program, and by which name."""
    name, earlier = program_of(report), earlier_program_of(report)
    known, before = stored.of(name), stored.of(earlier)
    if known is None and before is not None and before.scheme < SCHEME:
        return earlier, before
    return name, known


def _sources(report: Report, directory: Path) -> dict[str, str]:
    """The user's own files that are as they were recorded; of a run that this user did not record here none is opened."""
    named = {finding.where.file for finding in report.findings if finding.where is not None} | {
        function.file for function in report.run.functions
    }
    wanted = sorted(file for file in named - set(report.changed_sources) if Path(file).is_absolute() and is_own_file(file, report.run))
    if not wanted or not directory.is_dir() or not recorded_here(directory):
        return {}
    found: dict[str, str] = {}
    for file in wanted[:_MOST_FILES]:
        try:
            text = read_small(Path(file), _LONGEST_FILE + 1)
        except (OSError, ValueError):
            continue
        if len(text) <= _LONGEST_FILE:
            found[file] = text.decode("utf-8", "replace").replace("\r\n", "\n")
    return found
