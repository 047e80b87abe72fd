"""Which of the user's source lines a report is about. What else a recording has of the user's source does not leave the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dynadiag.facts.user_frames import full_place, is_own_file
from dynadiag.model.location import Location
from dynadiag.model.report import Report
from dynadiag.model.run import Run

LEFT_OUT = "# left out: not in a function that a finding is about"
_COMMENT = re.compile(r"(?P<head># File: (?P<file>[^\n]{1,1000}?):(?P<line>\d{1,9}) in [^\n,]{0,400}, code: )(?P<code>[^\n]*)")
_TRACEBACK = re.compile(
    r"(?P<head>^[ \t|+-]*File \"(?P<file>[^\"\n]{1,1000})\", line (?P<line>\d{1,9}), in [^\n]*\n)"
    r"(?P<code>[ \t]+[^\n]*(?:\n[ \t]*[~^][~^ \t]*$)?)",
    re.MULTILINE,
)
_GUARD = re.compile(r"(?P<head># )(?P<code>[^#\n]{1,2000}?)(?P<tail>[ \t]{2,40}# (?P<file>[^\s#][^\n#]{0,400}?):(?P<line>\d{1,9}) in )")
_FILES, _LINES, _CODES = ("file", "filename", "co_filename"), ("line", "lineno"), ("code", "loc", "text")


@dataclass(frozen=True)
class Involved:
    """The lines that are kept, as ranges by file; `left_out` counts the others that were met."""

    run: Run
    spans: dict[str, list[tuple[int, int]]]
    strings: dict[int, str] = field(default_factory=dict)
    left_out: list[int] = field(default_factory=lambda: [0])

    def keeps(self, file: str, line: int) -> bool:
        """Whether this line may be shown: another's, or one of a function that a finding is about."""
        place = full_place(Location(file, line), self.run)
        own = is_own_file(file, self.run) if place is None and "/" not in file else place is not None and is_own_file(place.file, self.run)
        file = place.file if place is not None else file
        kept = not own or any(first <= line <= last for first, last in self.spans.get(file, ()))
        self.left_out[0] += not kept
        return kept

    def text(self, text: str) -> str:
        """A text without the source lines that it must not show: those of graphs, of tracebacks, and of guards."""
        if "# File: " in text:
            text = _COMMENT.sub(self._line, text)
        if 'File "' in text:
            text = _TRACEBACK.sub(self._line, text)
        return _GUARD.sub(self._line, text) if "  # " in text else text

    def _line(self, match: re.Match[str]) -> str:
        if self.keeps(match["file"], int(match["line"])):
            return match[0]
        tail = match.groupdict().get("tail") or ""
        indent = match["code"][: len(match["code"]) - len(match["code"].lstrip())]
        return f"{match['head']}{indent}{LEFT_OUT}{tail}"

    def value(self, value: Any) -> Any:
        """JSON without them: stacks name file and line beside the code."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        shown = {name: self.value(element) for name, element in value.items()}
        file, line = (next((value[name] for name in names if name in value), None) for names in (_FILES, _LINES))
        file = self.strings.get(file) if isinstance(file, int) else file
        if isinstance(file, str) and isinstance(line, int) and not self.keeps(file, line):
            shown |= {name: LEFT_OUT for name in _CODES if isinstance(shown.get(name), str) and shown[name]}
        return shown


def involved(report: Report) -> Involved:
    """The functions with a line that a finding or its evidence names; of what called them, the line with the call."""
    functions: dict[str, list[tuple[int, int]]] = {}
    for function in report.run.functions:
        functions.setdefault(function.file, []).append((function.line, function.line + function.text.rstrip("\n").count("\n")))
    spans: dict[str, list[tuple[int, int]]] = {}
    for place in _places(report):
        if place.line is not None:
            around = [span for span in functions.get(place.file, ()) if span[0] <= place.line <= span[1]]
            spans.setdefault(place.file, []).append(max(around, default=(place.line, place.line)))
    for place in _callers(report):
        if place.line is not None:
            spans.setdefault(place.file, []).append((place.line, place.line))
    return Involved(report.run, {file: sorted(set(found)) for file, found in spans.items()})


def _places(report: Report) -> Iterator[Location]:
    """Every place that the findings rest on."""
    named = {name for finding in report.findings for name in finding.evidence}
    yield from _present(*(finding.where for finding in report.findings))
    for site in report.graph_breaks:
        yield from _present(site.own_frame, site.torch_frame, *site.own_frames)
    yield from _present(*(recompile.own_frame for recompile in report.recompiles), *(fallback.own_frame for fallback in report.fallbacks))
    for mutation in report.mutations:
        if mutation.id in named:
            places = ((site.get("file"), site.get("line")) for site in mutation.sites)
            yield from (Location(file, line) for file, line in places if isinstance(file, str) and isinstance(line, int))
    for frame in report.run.frames:
        if frame.file is not None and (frame.outcome == "failed" or frame.id in named):
            yield Location(frame.file, frame.line)
    yield from _present(*(problem.location for problem in report.run.problems if problem.kind in _ERRORS))


_ERRORS = ("error", "suppressed_error", "backend_error", "backward_error", "uncaught", "recompile_limit")


def _callers(report: Report) -> Iterator[Location]:
    for site in report.graph_breaks:
        yield from site.stack
    for problem in report.run.problems:
        yield from problem.stack if problem.kind in _ERRORS else ()


def _present(*places: Location | None) -> Iterator[Location]:
    return (place for place in places if place is not None)
