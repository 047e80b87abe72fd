"""What is said before everything else: that nothing, or next to nothing, was compiled, and with which exception the program ended."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.facts.almost_nothing import almost_nothing, left_in_python
from dynadiag.facts.compiled_work import Work, compiled_work, why_no_work
from dynadiag.facts.lookups import is_from_text, printed_graphs
from dynadiag.facts.user_frames import own_frame
from dynadiag.facts.wording import rank_text, short_place
from dynadiag.model import codes
from dynadiag.model.clauses import EndedProgram
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, Report
from dynadiag.model.run import Problem, Run
from dynadiag.render import mutation_words as words
from dynadiag.render import wording
from dynadiag.render.json_report import NO_COMPILE_TIME, NO_MUTATION_PASS
from dynadiag.render.sanitise import clean

NOT_SHOWN = "not counted in a text"
_NOT_IN_TEXT = "How many graphs were compiled is not read from a text, and what ran eagerly without a message is not in it."
_LONGEST_MESSAGE = 160
_TELLING = 40
_SHORTEST = 8
_MOST_NAMES = 3
_HALF = 0.5
_NEXT_TO_NOTHING = 0.05
_ENOUGH = 10


def verdict(report: Report) -> str | None:
    """The sentence of a run that compiled nothing or next to nothing, None for all others; sanitised."""
    if wording.nothing_compiled(report):
        told = next((finding.title for finding in report.findings if finding.code == codes.NOTHING_COMPILED), "")
        opening = wording.nothing_words(report)
        found = None if told else almost_nothing(report.run)
        return _loud(clean(told)) if told.startswith(opening) else f"{opening.upper()}{f': {_in_python(found.in_python)}' if found else ''}"
    found, work = almost_nothing(report.run), compiled_work(report.run)
    if work is not None and (work.share or 0) >= _HALF:
        return None
    if found is None and (work is None or not _next_to_nothing(work, report)):
        return None
    left = left_in_python(report.run) if found is None else found.in_python
    if found is not None and not found.graphs:
        if is_from_text(report.run):  # shows one frame that was not compiled, and none of the others
            return f"NOT COMPILED: {_in_python(left)}"
        return f"NO GRAPH IS COMPILED: {_in_python(left)}"
    if work is not None and work.operators:
        size = f"{work.compiled:,} of the {wording.plural(work.operators, 'operator')} of a call"
    elif found is not None:
        size = f"{wording.plural(found.operators, 'operator')} in {wording.plural(found.graphs, 'graph')}"
    return f"ALMOST NOTHING IS COMPILED: {size}{f'; {_in_python(left)}' if left else ''}"


def not_in_text(report: Report) -> str | None:
    """What a text does not show of the run; None where that is no text, or where graphs are printed in it."""
    if report.run.graphs or not is_from_text(report.run):
        return None
    printed = printed_graphs(report.run)
    if printed is None:
        return _NOT_IN_TEXT
    return f"torch's counters in the text: {wording.plural(printed, 'graph')} compiled. What ran eagerly without a message is not in it."


def _next_to_nothing(work: Work, report: Report) -> bool:
    """Whether the call that was looked at ran next to nothing compiled, and not because the recompile limit was hit before it."""
    limited = not work.compiled and any(fallback.kind == "recompile_limit" for fallback in report.fallbacks)
    return work.operators >= _ENOUGH and (work.share or 0) < _NEXT_TO_NOTHING and not limited


def counts(report: Report) -> tuple[tuple[str, str], ...]:
    """All counts of a report with their names, also those that are zero; sanitised."""
    summary, work = report.summary, compiled_work(report.run)
    unseen, printed = not_in_text(report) is not None, printed_graphs(report.run)
    not_shown = NOT_SHOWN if printed is None else f"{printed:,} by torch's counters in the text"
    time_why = report.compile_time.why if report.compile_time else None
    return (
        ("compiled", f"not known: {clean(why_no_work(report.run) or '')}" if work is None else wording.compiled_work(work)),
        ("frames", NOT_SHOWN if unseen else wording.frames_count(report)),
        ("graphs", not_shown if unseen else wording.graphs_count(report) + wording.graphs_size(report)),
        ("graph breaks", wording.breaks_count(summary)),
        ("recompiles", wording.recompiles_count(report)),
        ("ran eagerly", wording.plural(summary.fallbacks, "fallback")),
        ("mutations", words.count(report) if summary.mutations is not None else f"not known: {NO_MUTATION_PASS}"),
        (
            "compile time",
            wording.seconds(summary.compile_s) if summary.compile_s is not None else f"not known: {clean(time_why or NO_COMPILE_TIME)}",
        ),
    )


def _in_python(names: Sequence[str]) -> str:
    return f"{_and(names)} run{'s' if len(names) == 1 else ''} in Python"


def _and(names: Sequence[str]) -> str:
    shown = [clean(name, limit=100) for name in names[:_MOST_NAMES]]
    more = len(names) - len(shown)
    *first, last = [*shown, *([f"{more} more"] if more else [])]
    return f"{', '.join(first)} and {last}" if first else last


def _loud(sentence: str) -> str:
    """Its first clause in capitals."""
    first, colon, rest = sentence.partition(": ")
    return f"{first.upper()}{colon}{rest}"


def ending(report: Report) -> str | None:
    """How the program ended and with which exception: `exit 1 (ValueError at train.py:7)`; None for a foreign log."""
    how, error = wording.ending(report), raised(report)
    return f"{how} ({error})" if how and error else how


def raised(report: Report) -> str | None:
    """`ValueError at train.py:7`, the exception that ended the program; with its message where no finding has it."""
    if not report.run.info.exit_status:
        return None
    problem = _raised(report)
    if problem is None:
        return None
    name, colon, message = _named_error(problem.text)
    if problem.raised is not None:
        last, *_, why = _named_error(problem.raised)
        name, message = last, message if name in why else why  # what only wraps its cause says less than the cause
    if not name.isidentifier():
        return None
    where = _failed_at(problem, report)
    place = f" at {short_place(where)}" if where is not None else ""
    on = rank_text(report.run, (problem.process,)) if problem.process in _started(report.run) else ""
    text = f"{name}{place}{f' on {on}' if on else ''}"
    colon = colon if any(map(str.isalnum, message)) else ""  # torchrun's begins with a line of dashes
    return clean(text if not colon or _told(message, where, report.findings) else f"{text}: {message[:_LONGEST_MESSAGE]}")


def _named_error(text: str) -> tuple[str, str, str]:
    """Class, colon and message of the first line."""
    name, colon, message = " ".join(text.strip().split("\n")[0].split()).partition(": ")
    return name.rpartition(".")[2], colon, message


def _failed_at(problem: Problem, report: Report) -> Location | None:
    """The user's line that raised; where that called compiled code, the line that did not compile."""
    where = own_frame(problem.stack, report.run)
    if where is None or where == problem.stack[-1]:
        return where or next(iter(problem.stack[-1:]), None)
    ended = (
        one
        for one in report.findings
        if one.code == codes.COMPILATION_FAILED and any(isinstance(each, EndedProgram) for each in one.clauses)
    )
    return next((item.where for item in ended if item.where is not None), where)


def _raised(report: Report) -> Problem | None:
    """The one of the program itself; of the processes that it started where it has none on a line of the user's (`torchrun`)."""
    run = report.run
    started = _started(run)
    found = [problem for problem in run.problems if problem.kind == "uncaught"]
    return min(found, key=lambda item: (own_frame(item.stack, run) is None, item.process in started), default=None)


def _started(run: Run) -> set[int]:
    """The processes that another recorded one started."""
    pids = {process.pid for process in run.processes if process.pid is not None}
    return {process.index for process in run.processes if process.parent_pid in pids}


def _told(message: str, where: Location | None, findings: tuple[Finding, ...]) -> bool:
    """Whether a finding says it: with its words, or as the error at its line."""
    errors = [finding.where for finding in findings if finding.severity == "error" and finding.where is not None]
    if any(error.is_same_line(where) for error in errors):
        return True
    return len(message) >= _SHORTEST and any(message[:_TELLING] in " ".join(finding.why.split()) for finding in findings)
