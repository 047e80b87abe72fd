"""Recording the code under a test, and failing with the line, its source and the change to make."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from types import TracebackType
from typing import Any

import pytest

from dynadiag import api
from dynadiag.errors import DynadiagError
from dynadiag.gate.judge import judge
from dynadiag.gate.result import GateOptions, Problem
from dynadiag.model import Report, codes
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.record import inside, observe
from dynadiag.render import wording
from dynadiag.render.sanitise import clean, clean_code
from dynadiag.torch_compat.dynamo.compiled_calls import ensure_compiled, forget_compiled

_PARITY_CALLS = 3


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The arguments of the mark; None is no limit."""

    max_breaks: int | None = None
    max_recompiles: int | None = None
    max_fallbacks: int | None = None
    min_graphs: int | None = 1
    no_mutation_copy: bool = False
    parity: bool = False


def limits_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Limits:
    """The limits that a mark names; a wrong argument fails the test with the names that there are."""
    known = [field_.name for field_ in fields(Limits)]
    wrong = [name for name in kwargs if name not in known]
    if args or wrong:
        named = repr(wrong[0]) if wrong else "a positional argument"
        pytest.fail(f"@pytest.mark.dynadiag does not take {named}; it takes: {', '.join(known)}", pytrace=False)
    return Limits(**kwargs)


class Watch(AbstractContextManager["Watch"]):
    """A recording of what `torch.compile` does until the block ends. Dynamo's caches are emptied first, so that all of it is seen."""

    def __init__(self, *, parity: bool = False) -> None:
        self._parity = parity
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._recording: AbstractContextManager[Any] | None = None
        self._calls_before = 0

    def __enter__(self) -> Watch:
        forget_compiled()
        self._start(_PARITY_CALLS if self._parity else 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def _start(self, parity_calls: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dynadiag-")
        self._recording = observe(self._folder.name, parity_calls=parity_calls)
        self._recording.__enter__()
        self._calls_before = inside.active("").calls.begun or 0

    def _stop(self) -> None:
        if self._recording is not None:
            self._recording.__exit__(None, None, None)
            self._recording = None

    def report(self) -> Report:
        """The diagnosis of what was compiled so far."""
        assert self._folder is not None
        return api.load(self._folder.name)

    def check(self, limits: Limits) -> None:
        """Fail the test for what goes beyond the limits, and for errors: failed compilations and wrong results."""
        report = self.report()
        options = GateOptions(**{name: value for name, value in asdict(limits).items() if name != "parity"}, fail_on="error")
        try:
            result = judge(report, options, known=None, sources={})
        except DynadiagError as error:
            pytest.fail(f"dynadiag: {error.message}", pytrace=False)
        if limits.parity:
            _fail_without_comparison(report)
        if result.failed:
            base = wording.base_folder(report.run)
            told = (_problem(problem, base) for problem in result.failed)
            pytest.fail("\n\n".join(["dynadiag: this test exceeds its limits", *told]), pytrace=False)

    def assert_no_graph_breaks(self) -> None:
        """Fail with every graph break so far; also when nothing was compiled, because then nothing was checked."""
        report = self._compiled_report()
        found = [
            _told(site.gb_id or codes.BREAK_WITHOUT_ID, site.reason, site.own_frame or site.torch_frame, site.advice, report)
            for site in report.graph_breaks
        ]
        _fail_for(found, f"dynadiag: {len(found)} graph break{'s' if len(found) > 1 else ''}")

    def assert_no_recompiles(self, *, after: int = 0) -> None:
        """Fail with every recompile so far that came after so many calls of what is compiled, all compiled functions counted together."""
        report = self._compiled_report()
        calls = {frame.id: frame.call for frame in report.run.frames}
        found = []
        for recompile in report.recompiles:
            call = calls.get(recompile.frame)
            if call is None or call - self._calls_before > after:
                changed = ", ".join(f"`{change.source}` changed from {change.old} to {change.new}" for change in recompile.changed)
                when = "in a call whose number is not known" if call is None else f"in call {call - self._calls_before}"
                found.append(
                    _told("recompile", f"{when}: {changed or '; '.join(recompile.reasons)}", recompile.own_frame, recompile.advice, report)
                )
        _fail_for(
            found,
            f"dynadiag: {len(found)} recompile{'s' if len(found) > 1 else ''}"
            + (f" after {wording.plural(after, 'call')}" if after else ""),
        )

    def assert_compiled(self, *, min_graphs: int = 1) -> None:
        """Fail when there are fewer graphs, or with everything that ran eagerly although it was meant to be compiled."""
        report = self._compiled_report()
        found = [_told(fallback.kind, fallback.reason, fallback.own_frame, fallback.advice, report) for fallback in report.fallbacks]
        if report.summary.graphs < min_graphs:
            found.insert(0, f"  {report.summary.graphs} graphs, at least {min_graphs} required")
        _fail_for(found, "dynadiag: not everything was compiled")

    def assert_same_results(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Make one call of `fn`, compiled, and fail when outputs, inputs or gradients differ from eager; gives what the call gave.

        What was recorded before is kept apart: afterwards the recording of the test begins anew, with empty caches.
        """
        self._stop()
        forget_compiled()
        self._start(_PARITY_CALLS)
        try:
            result = ensure_compiled(fn)(*args, **kwargs)
        finally:
            self._stop()
        report = self.report()
        forget_compiled()
        self._start(_PARITY_CALLS if self._parity else 0)
        _fail_without_comparison(report)
        wrong = [finding for finding in report.findings if finding.severity == "error"]
        _fail_for(
            [_told(item.code, item.title, item.where, item.fix, report) for item in wrong], "dynadiag: compiled results differ from eager"
        )
        return result

    def _compiled_report(self) -> Report:
        report = self.report()
        if not report.run.frames:
            pytest.fail("dynadiag: nothing was compiled so far in this test, so there is nothing to check", pytrace=False)
        return report


def _fail_without_comparison(report: Report) -> None:
    parity = report.parity
    if parity is None or not parity.graphs_compared:
        whys = () if parity is None else parity.not_compared
        why = whys[0].why if whys else "no call of a compiled graph was seen"
        pytest.fail(f"dynadiag: no call was compared with eager: {clean(why)}", pytrace=False)


def _problem(problem: Problem, base: Any) -> str:
    fix = [] if problem.fix is None else [f"    fix: {clean(problem.fix)}"]
    where = None if problem.fingerprint is None else problem.where  # a limit has no line of its own: here it would be pytest's
    return "\n".join([_place(where, base, problem.code, problem.title), *_source(where), *fix])


def _told(code: str, title: str, where: Location | None, advice: Sequence[Advice], report: Report) -> str:
    lines = [_place(where, wording.base_folder(report.run), code, title), *_source(where)]
    for item in advice[:2]:
        lines.append(f"    fix: {clean(item.words)}")
        lines += [
            f"      {mark} {clean_code(row)}" for mark, text in (("-", item.before), ("+", item.after)) for row in (text or "").splitlines()
        ]
    return "\n".join(lines)


def _place(where: Location | None, base: Any, code: str, title: str) -> str:
    place = "" if where is None else f"{clean(wording.place(where, base, function=False))}: "
    return f"  {place}{clean(code)} {clean(title)}"


def _source(where: Location | None) -> list[str]:
    return [f"      {clean_code(where.code)}"] if where is not None and where.code else []


def _fail_for(found: Iterable[str], heading: str) -> None:
    listed = list(found)
    if listed:
        pytest.fail("\n\n".join([heading, *listed]), pytrace=False)
