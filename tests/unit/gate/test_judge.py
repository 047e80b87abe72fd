"""What passes the gate and what does not: severities, limits, comments, the baseline, and recordings that cannot be judged."""

from dataclasses import replace

import pytest

from dynadiag.errors import NothingFoundError, TorchUnsupportedError, UnreadableInputError, UsageError
from dynadiag.facts.fingerprint import SCHEME
from dynadiag.gate.baseline import KnownProblems
from dynadiag.gate.judge import earlier_program_of, entries_for, judge, program_of
from dynadiag.gate.result import GateOptions
from dynadiag.model import run as m
from dynadiag.model.compiled import CompiledWork
from tests.unit.gate.gate_builders import CALL, FILE, PRINT, STEP, finding, location, mutation, report, run


def judged(of, known=None, sources=None, **options):
    return judge(of, GateOptions(**options), known=known, sources=sources or {})


def codes(result):
    return [one.code for one in result.failed]


def test_warnings_fail_by_default_and_notes_never():
    of = run()
    findings = [finding(of, code, severity, PRINT) for code, severity in (("DF02", "warning"), ("DF10", "error"), ("DC01", "note"))]
    assert codes(judged(report(of, breaks=(), findings=findings))) == ["DF02", "DF10"]
    assert codes(judged(report(of, breaks=(), findings=findings), fail_on="error")) == ["DF10"]


@pytest.mark.parametrize(
    ("options", "entries", "failed"),
    [
        ({"max_breaks": 1}, {}, []),
        ({"max_breaks": 0}, {}, ["GB0059", "max-breaks"]),
        ({"max_recompiles": 2}, {"recompiles": 2, "breaks": ()}, []),
        ({"max_recompiles": 1}, {"recompiles": 2, "breaks": ()}, ["max-recompiles"]),
        ({"max_fallbacks": 0}, {"fallbacks": 1, "breaks": ()}, ["max-fallbacks"]),
        ({"min_graphs": 2}, {"breaks": ()}, []),
        ({"min_graphs": 3}, {"breaks": ()}, ["min-graphs"]),
    ],
)
def test_a_limit_decides_on_what_it_counts(options, entries, failed):
    assert codes(judged(report(**entries), **options)) == failed


def test_cache_misses_are_counted_by_compilation_and_late_ones_by_their_call():
    of = report(breaks=())
    hit, miss = (
        m.CacheEvent(frame=of.run.frames[0].id, cache=cache, result=result) for cache, result in (("fx_graph", "hit"), ("fx_graph", "miss"))
    )
    assert codes(judged(replace(of, run=replace(of.run, caches=(hit,))), max_cache_misses=0)) == []
    missed = replace(of, run=replace(of.run, caches=(hit, miss, miss)))
    (failed,) = judged(missed, max_cache_misses=0).failed
    assert failed.title == "1 compilation not from the caches, at most 0 allowed"
    assert codes(judged(missed, max_cache_misses=1)) == []
    with pytest.raises(UnreadableInputError, match="no look-up in a compile cache"):
        judged(of, max_cache_misses=0)
    late = replace(of, run=replace(of.run, frames=(replace(of.run.frames[0], call=41), *of.run.frames[1:])))
    (failed,) = judged(late, max_compiles_after=40).failed
    assert failed.title == "1 compilation after the first 40 calls, at most 0 allowed"
    assert codes(judged(late, max_compiles_after=41)) == []
    with pytest.raises(UnreadableInputError, match="does not say in which call"):
        judged(of, max_compiles_after=1)


def test_a_share_of_compiled_operators_is_wanted():
    work = CompiledWork(process=0, function="f", call=3, in_graphs=36, outside=4, graphs=2, regions={})
    of = report(breaks=())
    counted = replace(of, run=replace(of.run, work=(work,)))
    assert codes(judged(counted, min_compiled=0.9)) == []
    (failed,) = judged(counted, min_compiled=0.91).failed
    assert (failed.code, failed.title) == ("min-compiled", "36 compiled operators of the 40 in a call, at least 37 required")
    with pytest.raises(UnreadableInputError, match="--min-compiled cannot be checked, since it is not known"):
        judged(of, min_compiled=0.5)


def test_sites_beyond_the_evidence_of_their_finding_are_let_through_with_it():
    """A finding names at most 40 of its sites."""
    of = run()
    sites = tuple((number, PRINT) for number in range(60))
    one = finding(of, "GB0059", "warning", PRINT, tuple(f"b{number}" for number in range(40)))
    known = known_after(of)
    assert codes(judged(report(of, breaks=sites, findings=[one]), known, max_breaks=0)) == []
    other = finding(of, "GB0001", "warning", PRINT, ("b50",))
    assert codes(judged(report(of, breaks=sites, findings=[one, other]), known, max_breaks=0)) == ["GB0001", "max-breaks"]


def test_an_error_fails_whatever_a_limit_allows():
    of = run()
    broken = finding(of, "GB0059", "error", PRINT, ("b1",))
    assert codes(judged(report(of, findings=[broken]), max_breaks=5)) == ["GB0059"]


def test_copies_of_written_inputs_fail_where_none_is_allowed():
    of = run()
    assert codes(judged(report(of, breaks=(), mutations=[mutation(of)]))) == []
    result = judged(report(of, breaks=(), mutations=[mutation(of)]), no_mutation_copy=True)
    assert codes(result) == ["DM03", "no-mutation-copy"]
    assert result.failed[0].where.line == 13
    assert codes(judged(report(of, breaks=(), mutations=[mutation(of, copied=False)]), no_mutation_copy=True)) == []


def test_other_mutations_are_not_counted_with_the_copies():
    of = run()
    others = [finding(of, "DM02", "note", CALL, ("m1",)), finding(of, "DM42", "warning", PRINT, ("m2",))]
    copied = finding(of, "DM03", "note", location(13, "cache.add_(y)"), ("m0",))
    failing = judged(report(of, breaks=(), findings=[copied, *others], mutations=[mutation(of)]), no_mutation_copy=True)
    assert codes(failing) == ["DM03", "DM42", "no-mutation-copy"]
    assert codes(judged(report(of, breaks=(), findings=others), no_mutation_copy=True)) == ["DM42"]


def allowed(comment, at=2):
    rows = STEP.split("\n")
    rows[at] += f"  {comment}"
    return run("\n".join(rows))


def test_a_comment_with_a_reason_allows_a_finding_and_its_count():
    of = allowed("# dynadiag: allow[GB0059, DF02] printed once a day")
    of = replace(of, functions=(replace(of.functions[0], text=of.functions[0].text),))
    where = location(12, of.functions[0].text.split("\n")[2].strip())
    result = judged(report(of, breaks=((1, where),)), max_breaks=0)
    assert (codes(result), result.problems[0].status, result.problems[0].reason) == ([], "allowed", "printed once a day")


def test_a_comment_may_stand_above_and_inside_the_statement():
    text = 'def step(x):\n    # dynadiag: allow[GB0059] above\n    # of it\n\n    print(\n        "loss",\n        x.sum(),\n    )'
    of = run(text)
    assert codes(judged(report(of, breaks=((1, location(16, "x.sum(),")),)))) == []
    assert codes(judged(report(run(text.replace("GB0059", "GB0001")), breaks=((1, location(16, "x.sum(),")),)))) == ["GB0059"]


def test_a_comment_that_nothing_needs_is_told_where_its_function_was_compiled():
    of = allowed("# dynadiag: allow[GB0123] old", at=1)
    result = judged(report(of, breaks=()))
    assert [(one.code, one.where.line) for one in result.remarks] == [("unused-allow", 11)]
    assert result.exit_status == 0
    present = "# dynadiag: allow[GB0123] elsewhere\nother = 1\n" + "\n" * 7 + of.functions[0].text
    assert [one.where.line for one in judged(report(of, breaks=()), sources={FILE: present}).remarks] == [11]


@pytest.mark.parametrize(
    "comment",
    [
        "# dynadiag: allow[GB0123]",
        "# dynadiag: allow[GB0123]  --",
        "# dynadiag: allow[] why",
        "# dynadiag: allow",
        "# dynadiag: allow[print] x",
    ],
)
def test_a_comment_without_a_reason_or_code_is_refused_in_one_line(comment):
    with pytest.raises(UsageError, match=r"train\.py:12: .*write `# dynadiag: allow\[GB0123\]") as error:
        judged(report(allowed(comment)))
    assert "\n" not in error.value.message


def test_a_comment_in_a_string_or_in_a_library_is_none():
    text = STEP.replace('"loss"', '"# dynadiag: allow[GB0059]"')
    assert judged(report(run(text), breaks=())).exit_status == 0
    library = m.SourceFunction("/x/site-packages/lib/a.py", 1, "f", "def f():  # dynadiag: allow[GB0059]\n    pass")
    assert judged(report(replace(run(), functions=(library,)), breaks=())).exit_status == 0


def known_after(of, **options):
    found = report(of)
    result = judged(found, **options)
    return KnownProblems(torch="2.15.0", entries=entries_for(found, result, None))


def test_a_baseline_with_fingerprints_of_another_scheme_is_matched_by_lines_and_a_note_says_so():
    of = run()
    known = known_after(of)
    (entry,) = known.entries
    old = replace(known, scheme=0, entries=(replace(entry, fingerprint="00000-00000000-000000-000000-000000"),))
    here, more = report(of), report(of, breaks=((1, PRINT), (2, PRINT)))
    result = judged(here, old)
    assert codes(result) == [] and result.gone == 0
    assert [note for note in result.notes if "fingerprint" in note] == [
        "the baseline is of a dynadiag that makes other fingerprints, so its problems were also looked for by code, function and line: "
        "--update-baseline rewrites it"
    ]
    assert entries_for(here, result, old) == known.entries
    assert codes(judged(more, old)) == ["GB0059"]  # one entry lets one through
    assert codes(judged(here, replace(old, scheme=SCHEME))) == ["GB0059"]


def test_a_baseline_of_before_names_hung_on_the_folder_is_matched_by_the_ends_of_files():
    """A program in `app` that was started there: it and its file were `train.py`."""
    was = known_after(run())
    moved = replace(run(), project={"/home/me": ""})
    assert [entry.file for entry in known_after(moved).entries] == ["proj/train.py"] != [entry.file for entry in was.entries]
    here = report(moved)
    assert (program_of(here), earlier_program_of(here)) == ("proj/train.py", "train.py")
    assert codes(judged(here, was)) == ["GB0059"] and codes(judged(here, replace(was, scheme=1))) == []


def test_what_the_baseline_lists_passes_and_is_not_counted():
    of = run()
    known = known_after(of)
    assert [one.code for one in known.entries] == ["GB0059"]
    result = judged(report(of), known, max_breaks=0)
    assert (codes(result), result.problems[0].status) == ([], "known")
    later = report(of, breaks=((1, PRINT), (2, CALL)))
    assert codes(judged(later, known)) == ["GB0059"]
    assert codes(judged(later, known, max_breaks=0)) == ["GB0059", "max-breaks"]


def test_the_ratchet_takes_out_what_is_gone_and_takes_in_nothing_new():
    of = run()
    known = known_after(of)
    cured = report(of, breaks=((2, CALL),))
    result = judged(cured, known)
    assert codes(result) == ["GB0059"] and result.gone == 1 and "1 problem of the baseline no longer there" in result.notes[0]
    assert entries_for(cured, result, known) == ()


def test_a_renamed_function_is_still_the_one_in_the_baseline():
    known = known_after(run())
    text = STEP.replace("def step", "def train_step")
    of = replace(
        run(text), functions=(m.SourceFunction(FILE, 10, "train_step", text),), frames=(replace(run().frames[0], name="train_step"),)
    )
    where = location(12, PRINT.code, "train_step")
    result = judged(report(of, breaks=((1, where),)), known)
    assert codes(result) == [] and "under another fingerprint" in result.notes[0]


@pytest.mark.parametrize(
    "info",
    [
        {"exit_status": None, "killed": True},
        {"exit_status": None, "running": True},
        {"interrupted": True},
        {"stopped": ("the disk was full",)},
    ],
)
def test_a_recording_that_is_not_whole_is_not_judged(info):
    with pytest.raises(UnreadableInputError, match="the recording is not complete, so nothing was checked") as error:
        judged(report(run(**info)))
    assert error.value.exit_code == 2 and "\n" not in error.value.message


@pytest.mark.parametrize("info", [{"command": None, "exit_status": None}, {}])
def test_a_log_that_ends_while_a_frame_is_compiled_is_not_judged(info):
    of = run(**info)
    cut = replace(of, frames=(replace(of.frames[0], outcome="failed", error=m.UNFINISHED),))
    with pytest.raises(UnreadableInputError, match="the log ends while step is compiled"):
        judged(report(cut))


def test_it_is_said_where_nobody_knows_whether_the_recording_is_whole():
    of = run()
    unfinished = replace(of, processes=(replace(of.processes[0], finished=False),))
    assert judged(report(unfinished, breaks=())).notes[0].startswith("whether the recording is complete is not known: process 1 ended")
    of = run(command=None, exit_status=None)
    alone = judged(report(of, breaks=()))
    assert alone.notes == ("whether the recording is complete is not known: a log alone does not say how the program ended",)
    foreign = judged(report(replace(of, processes=(replace(of.processes[0], pid=None),)), breaks=()))
    assert foreign.notes == ("whether the recording is complete is not known: the log was not recorded by dynadiag",)


def test_a_failed_pass_is_no_pass():
    with pytest.raises(UnreadableInputError, match="find_guards"):
        judged(report(breaks=(), failed_passes=("find_guards",)))


def test_nothing_compiled_has_a_status_of_its_own():
    with pytest.raises(NothingFoundError) as error:
        judged(report(replace(run(), frames=())))
    assert error.value.exit_code == 5


@pytest.mark.parametrize("info", [{"exit_status": 1}, {"exit_status": 139, "signal": "SIGSEGV"}])
def test_a_program_that_failed_before_anything_was_compiled_fails_and_is_no_program_without_compilations(info):
    result = judged(report(replace(run(**info), frames=()), breaks=()), max_breaks=0, min_compiled=0.5)
    assert codes(result) == ["exit-status"] and result.problems[-1].title.endswith(" before anything was compiled")
    assert result.exit_status == 1


def test_a_program_whose_python_has_no_torch_is_told_so():
    of = replace(run(exit_status=1), frames=())
    missing = m.Problem(kind="uncaught", text="ModuleNotFoundError: No module named 'torch'", process=0, stack=())
    without = replace(of, problems=(missing,), processes=(replace(of.processes[0], torch=None),))
    with pytest.raises(TorchUnsupportedError, match="has no torch, so nothing was checked") as error:
        judged(report(without))
    assert error.value.exit_code == 3
    other = replace(missing, text="ModuleNotFoundError: No module named 'torchdata'")
    assert codes(judged(report(replace(without, problems=(other,)), breaks=()))) == ["exit-status"]


def test_nothing_compiled_is_not_said_where_the_log_was_cut_before_anything_could_be():
    of = replace(run(), frames=())
    cut = replace(of, processes=(replace(of.processes[0], finished=False),))
    with pytest.raises(UnreadableInputError, match=r"no compilation was recorded, and whether .* is not known: process 1 ended"):
        judged(report(cut))
    worker = replace(cut.processes[0], index=1, pid=2)  # one that called os._exit, as workers do
    with pytest.raises(NothingFoundError):
        judged(report(replace(of, processes=(of.processes[0], worker))))


@pytest.mark.parametrize(
    ("info", "failed"),
    [
        ({"exit_status": 3}, ["exit-status"]),
        ({"exit_status": -11, "signal": "SIGSEGV"}, ["exit-status"]),
        ({"exit_status": 124, "timed_out": True}, []),
        ({"exit_status": 0, "stopped_stable": True}, []),
        ({"exit_status": None, "command": None}, []),
    ],
)
def test_a_program_that_failed_does_not_pass(info, failed):
    assert codes(judged(report(run(**info), breaks=()))) == failed


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "train.py", "--lr", "1"), "train.py"),
        (("python", "-m", "pkg.train", "-x"), "-m pkg.train"),
        (("torchrun", "--nproc-per-node", "2", "train.py"), "train.py"),
        (None, "train.py"),
    ],
)
def test_programs_are_named_without_their_arguments(command, name):
    assert program_of(report(run(command=command))) == name
