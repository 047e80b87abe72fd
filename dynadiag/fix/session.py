"""`dynadiag fix` without its printing: the candidates, the search, the last run with the script's own back end. No torch."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import dynadiag
from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import patch, with_first
from dynadiag.children.answer_cache import AnswerCache, remembering, variables
from dynadiag.errors import EditError, UsageError
from dynadiag.facts.program_end import failure_of
from dynadiag.files import write_inside
from dynadiag.fix import libraries, texts
from dynadiag.fix.baseline import CHANGES, Baseline, job_of, read
from dynadiag.fix.candidates import candidates, chosen, uncovered_options
from dynadiag.fix.launch import LaunchedRunner
from dynadiag.fix.layers import candidates_behind
from dynadiag.fix.patch_module import IMPORT, NAME, patch_module
from dynadiag.fix.proof import NotProvableError, Prover, free, settings_of, why_not_warned, why_other_at_last
from dynadiag.fix.result import Changed, FixResult
from dynadiag.fix.runs import TIMES, Outcome, Runner, RunServer, report_on
from dynadiag.fix.search import Say, Search, Tried
from dynadiag.fix.sources import Sources
from dynadiag.fix.speed import Speed, not_slower, timed
from dynadiag.fix.standing import Standing, why_not_better
from dynadiag.fix.writing import refuse_to_write
from dynadiag.model.report import Finding, Report, Summary
from dynadiag.private_view.consent import Apart
from dynadiag.private_view.view import View
from dynadiag.scratch import scratch

LEAST_S = 300.0
_MOST_LAYERS = 4


@dataclass(frozen=True, kw_only=True)
class FixOptions:
    """`unsafe` also tries what gives something up; `select` and `ignore` take codes, ids, fingerprints and kinds of advice.

    `bench` says whether the patch is timed; None: where the script used a GPU. `write`: the files will be written, so that those which may
    not be are refused before the first proof; `force` allows them.
    """

    unsafe: bool = False
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    time_limit_s: float | None = None
    bench: bool | None = None
    write: bool = False
    force: bool = False


@dataclass(kw_only=True)
class _State:
    """What is known so far."""

    runner: Runner | None = None
    search: Search | None = None
    after: Outcome | None = None
    not_proven: str | None = None
    backend: str | None = None
    kept: list[Candidate] = field(default_factory=list)
    speed: Speed | None = None
    no_speed: str | None = None
    bench_cpu_s: float = 0.0


def fix(baseline: Baseline, options: FixOptions, say: Say, note: Say, apart: Apart | None = None) -> FixResult:
    """Prove what advice says of the recorded script, and write `fixes.patch` and `fixed/`.

    `say` is told what goes on, `note` what stays true: whether an earlier search is resumed. Runs write for real without `apart`.

    Raises NothingFoundError where nothing was compiled, UsageError where the program is not one that can be proven.
    """
    begun = cpu_s()
    report = report_on(baseline.directory)
    with remembering(_known(baseline, report, note)), scratch("fix") as folder, ExitStack() as stack:

        def runner() -> Runner:
            worker = RunServer(folder, training=any(graph.kind == "aot_joint" for graph in report.run.graphs))
            stack.callback(worker.close)
            limit_s = max(LEAST_S, TIMES * baseline.wall_s)
            job = job_of(baseline, folder)
            if baseline.launch:
                job = replace(job, cap_bytes=job.cap_bytes // report.summary.processes)
                return LaunchedRunner(folder, job, worker.ask, baseline.launch, timeout_s=limit_s, apart=inside)
            return Runner(folder, job, worker.ask, timeout_s=limit_s, on_device=used_gpu(report), apart=inside)

        inside = None if apart is None else apart.and_passed(folder)
        result = fix_with(baseline, options, say, runner, view=None if inside is None else inside.view)
    # The worker is counted when it has ended.
    return replace(result, cpu_s=cpu_s() - begun - result.bench_cpu_s + (baseline.cpu_s or 0.0))


def _known(baseline: Baseline, report: Report, note: Say) -> AnswerCache:
    """What an earlier search in this run directory found, where it had this Python, torch and machine."""
    path = baseline.directory / "fix-known.jsonl"
    resume = path.exists()
    torch = report.run.torch or ""
    environment = {"dynadiag": dynadiag.__version__, "torch": torch, "Python": sys.version, "machine": platform.platform(), **variables()}
    known = AnswerCache(path, environment=environment, resume=resume)
    if resume:
        note("resuming the earlier search" if known.changed is None else f"the earlier search is not used: {known.changed}")
    return known


def cpu_s() -> float:
    """What this process and its children that have ended took."""
    return sum(os.times()[:4])


def fix_with(baseline: Baseline, options: FixOptions, say: Say, runner: Callable[[], Runner], *, view: View | None = None) -> FixResult:
    """The same with runs by a runner of the caller's, which is made when there is something to try; `view` is for those that are timed."""
    report, sources = read(baseline)
    found, left = candidates(report, sources, unsafe=options.unsafe)
    wanted = chosen(found, report, select=options.select, ignore=options.ignore)
    known = {item.fingerprint: item.why for item in left}
    known |= {cure: "it was not selected" for element in found if element not in wanted for cure in element.cures if cure not in known}
    for candidate in list(wanted):
        try:
            _delivered(baseline, sources, [candidate])
        except EditError as error:
            wanted.remove(candidate)
            known |= {cure: error.message for cure in candidate.cures if cure not in known}
    if options.write:
        edited = {edit.file for entry in wanted for edit in entry.edits}
        refuse_to_write(map(Path, sorted(file if file not in sources.modules else sources.script for file in edited)), force=options.force)
    if not wanted:
        return _result(baseline, report, sources, _State(), known)
    until = float("inf") if options.time_limit_s is None else time.monotonic() + options.time_limit_s
    state = _searched(baseline, report, sources, wanted, runner(), until, say, options)
    if state.kept:
        _time(baseline, report, sources, options, state, until, say, view)
    return _result(baseline, report, sources, state, known)


def _delivered(baseline: Baseline, sources: Sources, kept: Sequence[Candidate], *, observed: bool = False) -> dict[str, str]:
    """The new texts of the user's files; what changes in libraries is in a patch module that the script imports first.

    `observed`: as proofs run them, with what a move leaves plain watched as before.
    Raises EditError where that cannot be made.
    """
    new = texts.changed(sources.texts, kept, observed=observed)
    own = {file: text for file, text in new.items() if file not in sources.modules}
    if len(own) == len(new):
        return own
    if baseline.home is not None:
        raise EditError("the cause is in a library, and one function cannot import a patch module first: use `dynadiag fix SCRIPT`")
    file = (Path(sources.script).parent if baseline.module is None else baseline.folder.resolve()) / f"{NAME}.py"
    if file.exists() or not file.is_relative_to(sources.root):
        raise EditError(
            f"{file} already exists: remove it and its import to have it made again" if file.exists() else f"{file} has no place"
        )
    own[sources.script] = with_first(own.get(sources.script, sources.texts[sources.script]), IMPORT)
    own[str(file)] = patch_module(sources.texts, new, sources.modules, kept)
    return own


def _searched(
    baseline: Baseline,
    report: Report,
    sources: Sources,
    wanted: Sequence[Candidate],
    runner: Runner,
    until: float,
    say: Say,
    options: FixOptions,
) -> _State:
    """What came of all candidates, and of those that were kept once more with the script's own back end."""
    say("running the script in eager, as the reference for all changes")
    prover = Prover(runner=runner, originals=sources.texts, backend="aot_eager", recorded_status=report.run.info.exit_status)
    state = _State(runner=runner)
    try:
        prover.refer(wanted)
    except NotProvableError as error:
        state.not_proven = str(error)
        return state
    finally:
        state.backend = prover.backend or "the script's own"
    if (changed := sources.changed()) is not None:
        raise UsageError(CHANGES.format(file=changed))

    def uncovered(found: Report, known: Collection[str]) -> list[Candidate]:
        return [option for option in uncovered_options(found, known, sources) if option.slug not in options.ignore]

    search = state.search = Search(prover=prover, until=until, say=say, uncovered=uncovered)
    search.try_all(wanted)
    state.kept = list(search.kept)
    for layer in range(1, _MOST_LAYERS):
        if not search.kept or time.monotonic() > until:
            break
        say("looking for what stands behind what is cured")
        found = prover.report_with(state.kept)
        if found is None:
            break
        behind = candidates_behind(found, sources, state.kept, state.search.tried.values(), layer=layer, unsafe=options.unsafe)
        behind = chosen(behind, found, select=options.select, ignore=options.ignore)
        prover.note_sides(behind)
        search = Search(
            prover=prover, until=until, say=say, uncovered=uncovered, base=tuple(state.kept), first=Standing.of(found), tried=search.tried
        )
        search.try_all(behind)
        state.kept += search.kept
    if any(item.layer for item in state.kept):
        whole = Search(prover=prover, until=until, say=say, kept=state.kept, tried=search.tried)
        if (now := prover.recorded(state.kept).report) is not None:
            whole.drop_needless(Standing.of(now))
    _finish(baseline, report, sources, state, say)
    return state


def _finish(baseline: Baseline, report: Report, sources: Sources, state: _State, say: Say) -> None:
    """The last run, with the script's own back end; a change goes as long as it fails."""
    assert state.search is not None and state.runner is not None
    state.after = None
    while state.kept:
        say("running the patched script with its own back end")
        outcome = state.runner.last(_delivered(baseline, sources, state.kept, observed=True))
        outcome = replace(outcome, free=free(state.kept), settings=settings_of(state.kept))
        why = _why_not_in_the_end(state.search.prover, report, outcome, state.kept)
        if why is None:
            state.after = outcome
            return
        last = state.kept.pop()
        state.search.tried[last.id] = Tried(candidate=last, kept=False, why=f"in the last run, with the script's own back end: {why}")


def used_gpu(report: Report) -> bool:
    """Whether the script used a device other than the CPU."""
    return any(process.device not in (None, "cpu") for process in report.run.processes)


def _time(
    baseline: Baseline, report: Report, sources: Sources, options: FixOptions, state: _State, until: float, say: Say, view: View | None
) -> None:
    """Time the program before and after; what makes it slower goes, and the last run is made again without it."""
    assert state.search is not None
    wanted = used_gpu(report) if options.bench is None else options.bench
    if wanted and baseline.launch:
        state.no_speed = "bench times one process, and the program has several"
        return
    if wanted and any(edit.observed is not None for item in state.kept for edit in item.edits):
        state.no_speed = "what is compiled is another callable than before: `dynadiag bench --variants` compares whole iterations"
        return
    if not wanted or time.monotonic() > until:
        state.no_speed = (
            "the time limit was reached" if wanted else "--bench was not given" + (", and no GPU was used" if options.bench is None else "")
        )
        return
    known: dict[tuple[str, ...], Speed] = {}
    calls = state.search.prover.calls

    def judge(changes: Sequence[Candidate]) -> Speed:
        names = tuple(change.id for change in changes)
        if names not in known:
            say(f"timing the script without and with {', '.join(element.slug for element in changes)}")
            begun = cpu_s()
            known[names] = timed(baseline, _delivered(baseline, sources, changes), calls, view=view)
            state.bench_cpu_s += cpu_s() - begun
        return known[names]

    while state.kept:
        left, dropped, speed = not_slower(state.kept, judge)
        state.speed = speed if left else None
        if not dropped:
            return
        for candidate in state.kept:
            if candidate.id in dropped:
                state.search.tried[candidate.id] = Tried(
                    candidate=candidate, kept=False, why=f"timed by bench: {dropped[candidate.id].words}"
                )
        state.kept = left
        _finish(baseline, report, sources, state, say)
    state.no_speed = "no change is left"


def _why_not_in_the_end(prover: Prover, report: Report, outcome: Outcome, kept: Sequence[Candidate]) -> str | None:
    why = why_other_at_last(prover, outcome, lambda: prover.runner.last({})) or why_not_warned(prover.plain, outcome, kept)
    if why is not None or outcome.report is None:
        return why or "nothing was recorded"
    if prover.fails_compiled:
        return None
    first, now = Standing.of(report), Standing.of(outcome.report)
    if any(first.shows(candidate.cures) and first.shows(candidate.cures) <= set(now.findings) for candidate in kept):
        return "a finding is still there"
    moved = any(item.moves_region for item in kept)
    return why_not_better(first, first, now, [cure for item in kept for cure in item.cures], moved=moved)


def _result(baseline: Baseline, report: Report, sources: Sources, state: _State, left: dict[str, str]) -> FixResult:
    """What came of it; the files are written."""
    tried = state.search.tried if state.search is not None else {}
    findings = tuple(element for element in report.findings if element.severity != "note")
    whys: dict[str, str] = {}
    for item in tried.values():
        whys |= {cure: item.why for cure in item.candidate.cures if item.why is not None and cure not in whys}
    for finding in findings:
        cures = libraries.cures_of(finding, report)
        if _is_cured(finding, cures, state):
            left.pop(finding.fingerprint, None)
        else:
            said = next((whys[cure] for cure in cures if cure in whys), None)
            left[finding.fingerprint] = said or left.get(finding.fingerprint) or state.not_proven or "it is still there"
    new = sources.whole(_delivered(baseline, sources, state.kept) if state.kept else {})
    old = sources.whole(sources.texts)
    diff = patch(old, new, sources.root)
    if diff:
        write_inside(baseline.directory, "fixes.patch", diff)
    for file, text in new.items():
        write_inside(baseline.directory, f"fixed/{Path(file).relative_to(sources.root)}", text)
    return FixResult(
        directory=str(baseline.directory),
        root=str(sources.root),
        command=baseline.command,
        torch=report.run.torch,
        search_backend=state.backend,
        findings=findings,
        changes=tuple(_changed(entry, sources) for entry in tried.values()),
        left={name: why for name, why in left.items() if any(one.fingerprint == name for one in findings)},
        before=report.summary,
        failed=failure_of(report.run.info),
        after=_summary(state),
        patch=diff,
        new_texts=new,
        old_texts={file: old[file] for file in new if file in old},
        not_proven=state.not_proven,
        speed=state.speed,
        no_speed=None if state.speed is not None else state.no_speed or "no change was kept",
        script_cpu_s=baseline.cpu_s,
        cpu_s=(state.runner.cpu_s if state.runner is not None else 0.0) + (baseline.cpu_s or 0.0),
        bench_cpu_s=state.bench_cpu_s,
        runs=state.runner.runs if state.runner is not None else 0,
    )


def _is_cured(finding: Finding, cures: Sequence[str], state: _State) -> bool:
    """Whether the last run is without it; of one in a library all sites, which have other names where they are left in the patch module."""
    if state.after is None or state.after.report is None:
        return False
    after = Standing.of(state.after.report)
    if finding.fingerprint in cures:
        return finding.fingerprint not in after.findings
    known = set(cures) <= {cure for candidate in state.kept for cure in candidate.cures}
    return not after.shows(cures) and (known or not after.patched)


def _summary(state: _State) -> Summary | None:
    return None if state.after is None or state.after.report is None else state.after.report.summary


def _changed(tried: Tried, sources: Sources) -> Changed:
    candidate, verdict = tried.candidate, tried.verdict
    names = {file: f"{module.replace('.', '/')}.py" for file, module in sources.modules.items()}
    shown = [names.get(edit.file) or Path(edit.file).relative_to(sources.root) for edit in candidate.edits]
    rows = candidate.rows or [span.begin for span in candidate.spans]
    places = tuple(f"{name}:{row}" for name, row in zip(shown, rows, strict=True))
    return Changed(
        id=candidate.id,
        slug=candidate.slug,
        text=candidate.text,
        places=places,
        before=tuple(row for edit in candidate.edits for row in edit.old),
        after=tuple(row for edit in candidate.edits for row in edit.new),
        cures=candidate.cures,
        proven=tried.kept,
        why=tried.why,
        gives_up=candidate.gives_up,
        calls=verdict.calls if verdict is not None and tried.kept else 0,
        runs=verdict.compared if verdict is not None and tried.kept else (),
    )
