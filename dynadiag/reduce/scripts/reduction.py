"""A whole reduction of a script: confirm what it shows, choose the failure that is meant, reduce."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dynadiag.errors import NothingFoundError
from dynadiag.reduce.core import reduction as core
from dynadiag.reduce.core import search
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.core.journal import Journal
from dynadiag.reduce.core.reducer import Phase, Progress, Reducer, Stopped
from dynadiag.reduce.core.verdict import Verdict, needs_run
from dynadiag.reduce.scripts.back_ends import texts_of
from dynadiag.reduce.scripts.oracle import SEEDS, Conditions, ScriptOracle, ScriptRun, draws, see
from dynadiag.reduce.scripts.passes import ALL_PASSES, ScriptPass, passes_before_cutting
from dynadiag.reduce.scripts.passes.definitions import eager_backend
from dynadiag.reduce.scripts.program import Facts, FactsOf, Program
from dynadiag.reduce.scripts.recorded_failures import KINDS, WRONG_CALL
from dynadiag.reduce.scripts.slicing import Slicer, without_line


@dataclass(kw_only=True)
class Rounds:
    """What the search has found. `complete` is False when it was stopped before its end."""

    best: Program
    almost: Program | None = None
    complete: bool = False
    queries: Counter[str] = field(default_factory=Counter)
    other_failures: Counter[str] = field(default_factory=Counter)
    broken_passes: dict[str, str] = field(default_factory=dict)


def reduce_in_rounds(
    program: Program,
    oracle: ScriptOracle,
    journal: Journal,
    first: Sequence[ScriptPass],
    on_query: Callable[[Progress], None] | None = None,
) -> Rounds:
    """Reduce with the oracle that stops compiling once it has seen the failure, then, if need be, with one that does not.

    What comes after the failure runs uncompiled in a cheap question, so a program may have been adopted that fails there when it is
    compiled (an error of the compiler's own): then the last program that passes whole is reduced by whole runs.
    """
    found = Rounds(best=program)
    search = _search(program, oracle, journal, on_query)
    found.complete = search.reduce(first=first)
    _take(found, search)
    thorough = oracle.thorough()
    if thorough is oracle:
        return found
    whole = _last_whole(search.adopted, thorough, _WholeRuns(journal), found)
    if whole is program and len(search.adopted) > 1 and thorough.judge(program)[0] is not Verdict.INTERESTING:
        # The script itself shows it for some random numbers only: so may the result.
        thorough.seeds = ()
        whole = _last_whole(search.adopted, thorough, Journal(), found)
    oracle.add(thorough)
    if whole is not found.best:
        found.best, found.almost = whole, None
        if found.complete:
            again = _search(whole, thorough, _WholeRuns(journal), on_query)
            found.complete = again.reduce(first=())
            _take(found, again)
            oracle.add(thorough)
    return found


def _search(program: Program, oracle: ScriptOracle, journal: Journal, on_query: Callable[[Progress], None] | None) -> ScriptReducer:
    journal.put_original(program.key)
    return ScriptReducer(program, oracle, journal=journal, on_query=on_query)


def _take(found: Rounds, search: ScriptReducer) -> None:
    found.best, found.almost = search.best, search.almost
    found.queries += search.progress.queries
    found.other_failures += search.other_failures
    found.broken_passes |= search.broken_passes


def _last_whole(adopted: Sequence[Program], oracle: ScriptOracle, journal: Journal, found: Rounds) -> Program:
    """The smallest of the adopted programs that shows the failure in a whole run; the first one was confirmed so."""
    for program in reversed(adopted[1:]):
        known = journal.get(program.key)
        if known is None:
            known = oracle.judge(program)
            journal.put(program.key, *known)
            found.queries["minimal"] += 1
        if known[0] is Verdict.INTERESTING:
            return program
    return adopted[0]


class _WholeRuns(Journal):
    """The journal with keys of its own for whole runs."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def get(self, key: str) -> tuple[Verdict, str] | None:
        return self._journal.get(f"{key}-whole")

    def put(self, key: str, verdict: Verdict, remark: str = "") -> None:
        self._journal.put(f"{key}-whole", verdict, remark)


class ScriptReducer(Reducer[Program]):
    """The reducer of scripts, which knows each best program so far."""

    def __init__(self, program: Program, oracle: ScriptOracle, *, journal: Journal, on_query: Callable[[Progress], None] | None) -> None:
        super().__init__(program, oracle, journal=journal, on_query=on_query)
        """Each best program so far, the original first."""

    def reduce(self, passes: Sequence[ScriptPass] = ALL_PASSES, *, first: Sequence[ScriptPass] = ()) -> bool:
        """Make the best program as simple as can be, `first` with passes that make each question cheaper; False when the search was
        stopped before its end.
        """
        try:
            self.confirm()
            for function in first:
                self._run_pass(function, "cut")
            self._delete("cut", search.cut)
            self._delete("minimal", _one_minimal)
            while self._simplified(passes):
                self._delete("minimal", _one_minimal)
        except Stopped:
            return False
        return True

    def _simplified(self, passes: Sequence[ScriptPass]) -> bool:
        """One round of all passes; whether anything was adopted."""
        adopted = [self._run_pass(pass_, "simplify") for pass_ in passes]
        return any(adopted)

    def _delete(self, phase: Phase, method: Callable[..., Any]) -> None:
        slicer = Slicer(self.best, whole_functions=phase == "cut")
        method(slicer.items, lambda kept: self._still_fails(slicer.build(kept), phase), blocks=slicer.block_of)

    def _still_fails(self, program: Program, phase: Phase) -> bool:
        return program.key == self.best.key or self.offer(program, phase)

    def _run_pass(self, reduction: ScriptPass, phase: Phase) -> bool:
        return self.run_pass(reduction, lambda proposal, _: self.offer(proposal, phase), goes_on=True)


def _one_minimal(items: Sequence[int], fails: search.Fails, *, blocks: object) -> tuple[int, ...]:
    return search.one_minimal(items, fails)


SHOWN_BY_A_RUN = ("compile_error", "runtime_error", "crash", "hang")
"""Kinds that need no recording: the script ends in them. The same run without the compiler must end well."""
_NOT_THE_COMPILERS = ("exit", "killed")
LIMITS = core.LeastTimes(least_s=60.0, least_hang_s=30.0)
_MOST_DROPPED = 50
_OF_DYNAMO = ("graph_break", "recompile", "fallback", WRONG_CALL)
_COMPARED_CALLS = 3


@dataclass(frozen=True, kw_only=True)
class ConfirmedScript(core.Confirmed):
    """`program` shows the failure with random numbers from `seed`; `dropped` are lines that were left out because they touch what is not
    the script's own.
    """

    program: Program
    seed: int = 0
    namespace: Mapping[str, object] | None = None
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScriptReduction(core.Found[Program]):
    """The smallest program."""

    confirmed: ConfirmedScript


def reduce_script_program(program: Program, options: core.Options) -> ScriptReduction:
    """Confirm and reduce. Raises NothingFoundError (exit status 1) when the script does not show such a failure, or not on its own."""
    confirmed = confirm(program, options)
    shown_by_recording = confirmed.failure.kind in KINDS
    conditions = Conditions(
        recorded=shown_by_recording,
        parity_calls=_parity_calls(confirmed.failure.kind),
        timeout_s=confirmed.timeout_s,
        until=confirmed.failure if shown_by_recording else None,
        seed=confirmed.seed,
    )
    oracle = ScriptOracle(confirmed.failure, conditions, repeats=confirmed.repeats, back_ends=texts_of(confirmed.program.tree))
    oracle.wait = options.wait
    journal = Journal(options.journal, subject=f"{confirmed.program.key} {confirmed.failure.signature()}", resume=options.resume)
    facts_of = _asked_once(conditions, oracle.spend)
    first = passes_before_cutting(facts_of, confirmed.namespace, one_call=confirmed.failure.kind != "recompile")
    try:
        found = reduce_in_rounds(confirmed.program, oracle, journal, first, options.on_query)
    finally:
        journal.close()
    return ScriptReduction(
        original=program,
        best=found.best,
        almost=found.almost,
        confirmed=confirmed,
        queries=confirmed.queries(found.queries),
        cpu_s=confirmed.cpu_s + oracle.cpu_s,
        search_cpu_s=oracle.cpu_s,
        complete=found.complete,
        other_failures=dict(found.other_failures),
        broken_passes=dict(found.broken_passes),
    )


def confirm(program: Program, options: core.Options) -> ConfirmedScript:
    """The failure that the script shows, three times out of three, or flaky: then how often in ten to forty runs."""
    conditions, (program, first, dropped), in_vain_s = _first_look_that_shows(program, options)
    if first.environment is not None:
        raise core.environment_error(first.environment)
    target = _target(first, options)
    seen = [first]
    control = None if target.kind in KINDS else _control(program, conditions)
    passing_s = 0.0 if control is None else control.wall_s
    took_s = passing_s if target.kind == "hang" else first.wall_s
    limit_s = LIMITS.later(target, took_s=took_s, asked_s=options.timeout_s)
    later = replace(conditions, timeout_s=limit_s, until=target if target.kind in KINDS else None)
    while needs_run([_shows(run, target) for run in seen]):
        options.wait()
        seen.append(see(program, later))
    return ConfirmedScript(
        program=program,
        failure=target,
        failed=sum(_shows(run, target) for run in seen),
        of=len(seen),
        timeout_s=later.timeout_s,
        cpu_s=in_vain_s + sum(item.cpu_s for item in (*seen, *([control] if control is not None else []))),
        seed=conditions.seed,
        namespace=first.namespace,
        dropped=dropped,
    )


def _parity_calls(kind: str | None) -> int:
    return _COMPARED_CALLS if kind == WRONG_CALL else 0


_Look = tuple[Program, ScriptRun, tuple[str, ...]]


def _first_look_that_shows(program: Program, options: core.Options) -> tuple[Conditions, _Look, float]:
    """The first run that shows what is looked for, with random numbers that it needs, else the first of all; and what was spent in vain."""
    looks: list[tuple[Conditions, _Look]] = []
    for seed in (0, *SEEDS[:2]) if draws(program) else (0,):
        conditions = Conditions(
            recorded=options.kind in KINDS, parity_calls=_parity_calls(options.kind), timeout_s=options.timeout_s, seed=seed
        )
        look = _first_look(program, conditions, options)
        looks.append((conditions, look))
        seen = look[1]
        if seen.environment is not None or _shows_what_is_meant(seen, options) or (seen.ended is not None and seen.ended.kind == "hang"):
            break
    else:
        conditions, look = looks[0]
    return conditions, look, sum(other[1].cpu_s for _, other in looks if other is not look)


def _shows_what_is_meant(seen: ScriptRun, options: core.Options) -> bool:
    return not (options.kind in KINDS and seen.ended is not None) and any(_is_meant(failure, options) for failure in seen.failures)


def _first_look(program: Program, conditions: Conditions, options: core.Options) -> _Look:
    """The first run: with Dynamo alone where that shows what is looked for, since a back end costs far more."""
    if options.kind in _OF_DYNAMO:
        with_dynamo = next(eager_backend(program))
        tamed = _tamed(with_dynamo, conditions)
        if _shows_what_is_meant(tamed[1], options):
            return tamed
    return _tamed(program, conditions)


def _tamed(program: Program, conditions: Conditions) -> _Look:
    """The program without the statements that the guard refuses, and what it shows then."""
    dropped: list[str] = []
    while True:
        seen = see(program, conditions)
        if seen.refused is None:
            return program, seen, tuple(dropped)
        fewer = without_line(program, seen.refused_line) if seen.refused_line is not None else None
        if fewer is None or len(dropped) >= _MOST_DROPPED:
            raise NothingFoundError(f"the script would {seen.refused}, which candidates must not do, so it cannot be reduced", exit_code=1)
        dropped.append(program.text.splitlines()[seen.refused_line - 1].strip())  # type: ignore[operator]
        program = fewer


def _target(seen: ScriptRun, options: core.Options) -> Failure:
    meant = [failure for failure in seen.failures if _is_meant(failure, options)]
    if options.kind in KINDS and seen.ended is not None:
        said = seen.ended.title()
        raise NothingFoundError(f"the script itself fails in an empty directory ({said}): reduce that first", exit_code=1)
    if not meant:
        raise NothingFoundError(_why_nothing(seen, options), exit_code=1)
    return meant[0] if options.kind in KINDS else meant[-1]


def _why_nothing(seen: ScriptRun, options: core.Options) -> str:
    same = [failure for failure in seen.failures if failure.kind == options.kind]
    if same:
        said = "; ".join((item.message.splitlines() or [item.title()])[0] for item in same[:5])
        return f"none of the {len(same)} of kind {options.kind} that the script shows matches {options.match!r}: {said}"
    if seen.ended is not None:
        return f"the script fails in an empty directory, but not with the failure requested: {seen.ended.title()}"
    return f"nothing to reduce: the script shows no {options.kind or 'failure'} when run on its own in an empty directory"


def _shows(seen: ScriptRun, target: Failure) -> bool:
    return any(failure.same_as(target) for failure in seen.failures)


def _control(program: Program, conditions: Conditions) -> ScriptRun:
    """The run without the compiler, which must end well."""
    control = see(program, conditions, eager=True)
    if control.ended is not None:
        raise NothingFoundError(f"the script also fails without the compiler ({control.ended.title()}): nothing to reduce", exit_code=1)
    return control


def _is_meant(failure: Failure, options: core.Options) -> bool:
    """Whether this is the failure that is looked for: of `kind` (None: any of SHOWN_BY_A_RUN), with a text that matches, and where the
    exception of an earlier run is known, the same exception (its class and its normalised message).
    """
    wanted = SHOWN_BY_A_RUN if options.kind is None else (options.kind,)
    return failure.kind not in _NOT_THE_COMPILERS and failure.kind in wanted and options.is_asked_for(failure)


def _facts(program: Program, conditions: Conditions) -> Facts:
    """What a run without the compiler tells; nothing is known of one that does not end well."""
    seen = see(program, replace(conditions, until=None, cpu_s=None), eager=True, look=True)
    if seen.ended is not None or seen.refused is not None:
        return Facts(key=program.key, cpu_s=seen.cpu_s)
    return Facts(key=program.key, lines=seen.lines, values=seen.values, cpu_s=seen.cpu_s)


def _asked_once(conditions: Conditions, spend: Callable[[float], None]) -> FactsOf:
    """A function that looks at the first program that it is asked about, and remembers what it saw; `spend` is told the CPU seconds."""
    known: list[Facts] = []

    def facts_of(program: Program) -> Facts:
        if not known:
            known.append(_facts(program, conditions))
            spend(known[0].cpu_s)
        return known[0]

    return facts_of
