import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from dynadiag.model import report as r
from dynadiag.model.clauses import Counted, Effect, EndedProgram, GraphsAround, Happened, Quoted, Settled, Unadvised, VersionsUsed
from dynadiag.model.compiled import CompiledWork
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, CompileCall, Problem, RunInfo
from dynadiag.render import markdown
from tests.gold.sample_report import HOSTILE


def folded(text):
    """The lines but those to copy: changed code and the command to type."""
    return [line for line in text.splitlines() if not line.lstrip().startswith(("+ ", "- ", "next  ", "all of it: "))]


@pytest.mark.parametrize("width", [10, 40, 80, 120])
@pytest.mark.parametrize("which", ["sample_report", "hostile_report", "empty_report"])
def test_no_line_is_wider_than_the_console(samples, show, width, which):
    for verbose in (False, True):
        text = show(getattr(samples, which)(), width=width, verbose=verbose)
        assert max(map(cell_len, folded(text))) <= width


@pytest.mark.parametrize("summary", [False, True])
def test_a_line_to_copy_is_never_folded(samples, show, summary):
    report = samples.sample_report()
    code = "torch._dynamo.config.reorderable_logging_functions.add(logging.Logger.info)  # of this program, before the first call"
    finding = replace(report.findings[0], fix=(r.Advice(slug="a", text="Do this", before="x", after=code),))
    text = show(replace(report, findings=(finding,)), width=40, summary=summary)
    assert f"+ {code}\n" in text


def test_without_a_terminal_there_is_no_escape_sequence_and_no_trailing_blank(samples, show):
    text = show(samples.hostile_report())
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_hostile_text_stays_text(samples, show):
    text = show(samples.hostile_report(), width=120, console={"force_terminal": True, "color_system": "standard"})
    assert "[bold red]markup[/]" in text
    assert "\x1b]0;" not in text
    assert "\u202e" not in text
    assert "\x00" not in text


def test_no_color_is_obeyed(samples, show, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = show(samples.sample_report(), console={"force_terminal": True})
    assert "\x1b[3" not in text


def test_an_ascii_stream_gets_ascii_and_no_exception(samples, show):
    report = samples.sample_report()
    finding = replace(report.findings[0], title="große 日本 title")
    assert "gro?e ?? title" in show(replace(report, findings=(finding,)), encoding="ascii")


def test_the_same_report_prints_the_same_text(samples, show):
    assert show(samples.sample_report()) == show(samples.sample_report())


def test_a_finding_shows_its_line_its_reason_its_fix_and_torchs_frame_when_it_differs(samples, show):
    text = show(samples.sample_report())
    for part in (
        "train.py:41 in train_step",
        "41 | loss.backward()",
        "_tensor.py:634 in backward",
        "- step = torch.compile",
        "5 events (counted)",
    ):
        assert part in text
    assert text.count("_tensor.py:634") == 1


def test_both_numbers_of_the_breaks_are_in_the_headline(samples, show):
    assert "2 sites, 6 events" in show(samples.sample_report())


def test_the_headline_says_when_the_graphs_hold_next_to_nothing(samples, show):
    report = samples.sample_report()

    def with_ops(*ops):
        graphs = [replace(graph, ops=ops[index % len(ops)], why_not=None) for index, graph in enumerate(report.run.graphs)]
        return replace(report, run=replace(report.run, graphs=tuple(graphs)))

    small = with_ops({"torch.sin": 1}, {"torch.sin": 1, "operator.gt": 1})
    assert "  graphs        4 (each of at most 2 operators)\n" in show(small)
    assert "4 (each of at most 1 operator)\n" in show(with_ops({"torch.sin": 1}))
    assert "4 (each of" in markdown.render(small) and "4 graphs (each of at most 2 operators)," in show(small, summary=True)
    for other in (with_ops({"torch.sin": 1}, {}), with_ops({"torch.sin": 1}, {"operator.add": 3})):  # one not counted, one large
        assert "  graphs        4\n" in show(other)
    whole = replace(small.summary, graph_break_events=0, fallbacks=0)  # a small program that was compiled whole
    assert "  graphs        4\n" in show(replace(small, summary=whole))


def test_unknown_mutations_are_not_shown_as_none(samples, show):
    assert "mutations     not known" in show(samples.sample_report())


def test_nothing_compiled_is_loud_and_says_why(samples, show):
    text = show(samples.empty_report())
    assert "NOTHING WAS COMPILED\n  switched off by environment: TORCHDYNAMO_DISABLE=1" in text


def test_what_was_not_recorded_is_not_said_to_be_uncompiled(samples, show):
    report = samples.empty_report()
    unseen = replace(samples.sample_report().findings[0], code="DF01", title="No compilation was recorded: no import of torch was seen")
    text = show(replace(report, findings=(unseen,)))
    assert "**No compilation was recorded.**" in markdown.render(replace(report, findings=(unseen,)))
    assert "NO COMPILATION WAS RECORDED" in text and "NOTHING WAS COMPILED" not in text


def test_what_a_recording_that_stopped_does_not_show_is_not_said_to_be_uncompiled(samples, show):
    """With `ulimit -f` the log ended in the first compilation; the program compiled four graphs."""
    report = replace(samples.empty_report(), fallbacks=())
    stopped = replace(
        report, run=replace(report.run, info=replace(report.run.info, stopped=("recording stopped in process 7: File too large",)))
    )
    text = show(stopped)
    assert "NO COMPILATION WAS RECORDED\n" in text and "No findings, because no compilation was recorded." in text
    assert "nothing was compiled" not in text.lower() and "no call of torch.compile" not in text
    assert "**No compilation was recorded.**" in markdown.render(stopped)


def test_nothing_compiled_without_a_call_says_so(samples, show):
    report = replace(samples.empty_report(), fallbacks=())
    assert "no call of torch.compile was recorded" in show(report)
    called = replace(report, run=replace(report.run, compile_calls=(CompileCall(process=0, location=None, target="f", backend=None),)))
    assert "no call of torch.compile" not in show(called)


def test_long_lists_are_folded_and_say_how_many_are_left(samples, show):
    report = samples.big_report(25)
    text = show(report)
    assert "15 more findings not shown: use --limit 0" in text
    assert "18 more notes in report.json" in text
    assert "not shown" not in show(report, limit=None)


def test_a_run_cut_short_says_so(samples, show):
    report = samples.sample_report()
    killed = replace(report, run=replace(report.run, info=replace(report.run.info, exit_status=137, signal="SIGKILL")))
    text = show(killed)
    assert "exit 137, killed by SIGKILL" in text
    assert "cut short: the script was killed by SIGKILL" in text


def test_a_foreign_log_has_no_exit_status_and_no_files(samples, show):
    report = samples.sample_report()
    text = show(replace(report, run=replace(report.run, info=RunInfo())))
    assert "exit status not known" in text
    assert "Files in" not in text


def test_doubts_about_a_break_are_shown(samples, show):
    report = samples.sample_report()
    unsure = replace(report.graph_breaks[0], doubts=("two records share this line",))
    assert "unsure   two records share this line" in show(replace(report, graph_breaks=(unsure,)))


def test_differences_between_ranks_name_the_odd_one(samples, show):
    row = r.RankDifference(id="k0", what="graph count", values={"rank 0": "3", "rank 1": "4"}, odd_ranks=(1,))
    assert "graph count  rank 0: 3, rank 1: 4  rank 1" in show(replace(samples.sample_report(), ranks=(row,)), width=120)


def test_verbose_adds_torchs_explanation_and_the_stack(samples, show):
    report = samples.sample_report()
    assert "does not support tracing" not in show(report)
    text = show(report, verbose=True, width=120)
    assert "does not support tracing" in text
    assert "/opt/env/lib/python3.12" in text or ".../site-packages/torch/_tensor.py" in text


def test_resume_functions_are_named_for_people():
    from dynadiag.render.wording import frame_name

    assert frame_name("main.<locals>.torch_dynamo_resume_in_train_step_at_88") == "train_step, resumed at line 88"
    assert frame_name("Net.torch_dynamo_resume_in_forward_at_13") == "Net.forward, resumed at line 13"
    assert frame_name("forward") == "forward"
    assert frame_name(None) == "unnamed"


def test_code_in_a_fix_keeps_its_indentation(samples, show):
    report = samples.sample_report()
    fix = r.Advice(slug="x", text="t", before="if x:\n    print(x)", after="with y:\n    z = 1")
    text = show(replace(report, findings=(replace(report.findings[0], fix=(fix,)),)))
    assert "         -     print(x)\n" in text
    assert "         +     z = 1\n" in text


@pytest.mark.parametrize(("base", "shown"), [("/", "/home/me/x.py"), ("/home", "me/x.py"), (None, "/home/me/x.py")])
def test_a_path_is_shown_from_the_folder_we_stand_in_unless_that_was_deleted(base, shown):
    from dynadiag.render.wording import path

    assert path("/home/me/x.py", base and Path(base)) == shown


@pytest.mark.parametrize("width", [10, 40, 80])
@pytest.mark.parametrize("which", ["sample_report", "hostile_report", "empty_report"])
def test_the_summary_is_as_safe_and_narrow_as_the_report(samples, show, which, width):
    text = show(getattr(samples, which)(), width=width, summary=True)
    assert max(map(cell_len, folded(text))) <= width
    assert not {"\x1b", "\x00", "\u202e"}.intersection(text) and all(line == line.rstrip() for line in text.splitlines())


def test_the_summary_is_short_and_says_what_it_leaves_out(samples, show):
    report = samples.big_report(12)
    text = show(report, summary=True)
    assert len(text.splitlines()) <= 45 < len(show(report, limit=None).splitlines())
    assert "not shown: 9 more warnings" in text and "all of it: dynadiag explain --full dynadiag-runs/0001-train\n" in text
    assert "more warning" not in show(report, summary=True, limit=None, lines=None)


def test_what_is_zero_is_not_in_the_summary(samples, show):
    report = samples.sample_report()
    none = replace(report.summary, graph_break_sites=0, graph_break_events=0, recompiles=0, fallbacks=0)
    text = show(replace(report, summary=none, mutations=(), findings=()), summary=True)
    assert "4 graphs, 3.21 s of compile time" in text and "No findings." in text
    assert "0 recompiles" not in text and "\nnext" not in text


@pytest.mark.parametrize(
    ("command", "slug", "last"),
    [
        (("python", "train.py", "--lr", "1 2"), "minify", "next  dynadiag minify train.py --lr '1 2'"),
        (("python", "train.py", "--lr", "1 2"), "if-where", "next  dynadiag fix train.py --lr '1 2'"),
        (("/usr/bin/python3.12", "-m", "pkg.train"), "if-where", "next  change a line, then dynadiag explain -m pkg.train"),
        (("/usr/bin/python3.12", "-m", "pkg.train"), "other", "next  change a line, then dynadiag explain -m pkg.train"),
        (("python", "train.py", "--api-key", "***"), "minify", None),
        (("torchrun", "train.py"), "minify", "next  change a line, then dynadiag explain -- torchrun train.py"),
        (None, "minify", None),
    ],
)
def test_the_last_line_is_the_command_to_type(samples, show, command, slug, last):
    report = samples.sample_report()
    finding = replace(report.findings[0], fix=(r.Advice(slug=slug, text="Do it."),))
    run = replace(report.run, info=replace(report.run.info, command=command))
    text = show(replace(report, findings=(finding,), run=run), summary=True)
    assert (text.splitlines()[-1] == last) if last else "\nnext" not in text


def test_the_last_line_does_not_repeat_the_command_that_a_fix_names(samples, show):
    report = samples.sample_report()
    fix = r.Advice(slug="minify", text="`dynadiag minify train.py` finds the smallest program that fails in this way.")
    run = replace(report.run, info=replace(report.run.info, command=("python", "train.py")))
    text = show(replace(report, findings=(replace(report.findings[0], fix=(fix,)),), run=run), summary=True)
    assert text.count("dynadiag minify train.py") == 1


def test_the_summary_says_why_nothing_is_advised(samples, show):
    report = samples.sample_report()
    site = replace(report.graph_breaks[0], id="b7", unadvised="it has no clock")
    clauses = (Counted(3, "break event", 1), GraphsAround(("g0",), ()), Unadvised("it has no clock"))
    finding = replace(report.findings[1], clauses=clauses, fix=(), evidence=("b7",))
    text = show(replace(report, findings=(finding,), graph_breaks=(site,)), summary=True)
    assert "why   3 break events at 1 site. Nothing is advised: it has no clock." in text


@pytest.mark.parametrize(
    ("clauses", "said"),
    [
        (
            (Happened("`tag`: 'a' -> 'b'"), *[Effect("Each value takes a version")] * 6, Unadvised("text is compiled in; no other is")),
            "`tag`: 'a' -> 'b'. Each value takes a version. Each value takes a version. Each value takes a version. Each value takes a "
            "version. Each value takes a version. Nothing is advised: text is compiled in; no other is.",
        ),
        ((Unadvised("it has no clock"),), "Nothing is advised: it has no clock."),
        (
            (Happened("`tag`: 'a' -> 'b'"), *[Effect("Each value takes a version")] * 6, VersionsUsed(8, 8, refused=1, raised=True)),
            "`tag`: 'a' -> 'b'. Each value takes a version. Each value takes a version. Each value takes a version. Each value takes a "
            "version. Each value takes a version. Under `fullgraph=True` the next variant raised an error instead of running eagerly.",
        ),
        ((Happened("`a`: 1 -> 2"), Settled("it is dynamic now")), "`a`: 1 -> 2. No change is needed: it is dynamic now."),
    ],
)
def test_the_summary_ends_a_reason_with_why_nothing_is_to_be_done(samples, show, clauses, said):
    report = samples.sample_report()
    finding = replace(report.findings[1], clauses=clauses, fix=(), evidence=())
    text = show(replace(report, findings=(finding,)), summary=True, width=300)
    assert f"why   {said}\n" in text


def test_what_a_finding_tells_in_whole_is_not_counted_again(samples, show):
    report = samples.sample_report()
    assert report.fallbacks
    opening = "NOTHING WAS COMPILED: the whole program ran eagerly"
    finding = replace(
        report.findings[1],
        code="DF01",
        title="Nothing was compiled: the whole program ran eagerly",
        evidence=tuple(one.id for one in report.fallbacks),
    )  # fmt: skip
    empty = replace(samples.empty_report(), findings=(finding,), fallbacks=report.fallbacks)
    empty = replace(empty, summary=replace(empty.summary, graphs=0, frames_compiled=0, fallbacks=len(report.fallbacks)))
    text = show(empty, summary=True)
    assert opening in text and "fallback" not in text
    written = r.Mutation(
        id="m0", fingerprint="m", code="DM11", frame="f0", input="self.n", kind="python", effects=({"kind": "recompile"},),
        bytes_touched=None, bytes_written_back=None, no_grad=None, static=None, aliases=(), sites=(),
    )  # fmt: skip
    again = show(replace(report, mutations=(written,)), summary=True)
    assert "with a cost" not in again
    assert "1 mutation with a cost" in show(replace(report, mutations=(replace(written, effects=({"kind": "copy_back"},)),)), summary=True)


def test_the_verdict_comes_first_and_says_what_is_not_in_the_counts(samples, show):
    report = samples.sample_report()
    graphs = tuple(replace(graph, ops={"torch.sin": 1}, why_not=None) for graph in report.run.graphs)
    stack = (Location("/home/me/proj/train.py", 60, "log_metrics"),)
    broke = BreakEvent(
        frame="f4", attempt=0, gb_id=None, gb_type="t", explanation=None, hints=(), context=None, stack=stack, torch_frame=None
    )
    report = replace(report, run=replace(report.run, graphs=graphs, breaks=(broke,)))
    words = "ALMOST NOTHING IS COMPILED: 3 operators in 3 graphs; log_metrics() runs in Python"
    text = show(report, summary=True, width=120)
    assert text.startswith(f"{words}\n2 graph breaks (6 events)") and "4 graphs" not in text.split("\n\n")[0]
    assert f"\n\n{words}\n\n  compiled " in show(report, width=120)
    assert f"**{words}.**" in markdown.render(report).replace("\\", "")
    work = CompiledWork(process=0, function="f", call=3, in_graphs=3, outside=338, graphs=3, regions={})
    counted = show(replace(report, run=replace(report.run, work=(work,))), summary=True, width=120)
    assert counted.startswith("ALMOST NOTHING IS COMPILED: 3 of the 341 operators of a call; log_metrics() runs in Python\n2 graph breaks")
    assert "run compiled" not in counted
    more = show(replace(report, run=replace(report.run, work=(replace(work, outside=3),))), summary=True, width=120)
    assert more.startswith("f: 3 of 6 operators run compiled, in 3 graphs\n4 graphs")


def test_a_call_that_ran_next_to_nothing_compiled_is_said_loudly_whatever_its_graphs(samples, show):
    report = samples.sample_report()

    def opening(compiled, outside, kind="disabled"):
        work = CompiledWork(process=0, function="f", call=3, in_graphs=compiled, outside=outside, graphs=1, regions={})
        limits = tuple(replace(one, kind=kind) for one in report.fallbacks)
        made = replace(report, run=replace(report.run, work=(work,)), fallbacks=limits)
        return show(made, summary=True, width=120).split("\n")[0]

    assert opening(1, 65) == "ALMOST NOTHING IS COMPILED: 1 of the 66 operators of a call"
    assert opening(0, 66) == "ALMOST NOTHING IS COMPILED: 0 of the 66 operators of a call"
    assert opening(0, 66, "recompile_limit").startswith("f: 0 of 66 operators run compiled")
    assert opening(4, 62).startswith("f: 4 of 66 operators run") and opening(0, 3).startswith("f: 0 of 3 operators run")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ValueError: no such file", "exit 1 (ValueError at train.py:7: no such file) |"),
        (
            "torch._dynamo.exc.Unsupported: Dynamo does not trace loss.backward(); the graph ends here",
            "exit 1 (Unsupported at train.py:7) |",
        ),
        ("KeyboardInterrupt", "exit 1 (KeyboardInterrupt at train.py:7) |"),
        ("what is this: x", "exit 1 |"),
        (HOSTILE, "exit 1 |"),
    ],
)
def test_an_exit_status_names_the_exception_and_its_line(samples, show, text, shown):
    report = samples.sample_report()
    stack = (Location("/home/me/proj/train.py", 7, "<module>"), Location("/opt/env/lib/python3.12/site-packages/torch/x.py", 9, "f"))
    problem = Problem(kind="uncaught", process=0, text=text, stack=stack)
    run = replace(report.run, problems=(problem,), info=replace(report.run.info, exit_status=1))
    assert shown in show(replace(report, run=run), summary=True, width=140)
    assert "train.py:7" not in show(replace(report, run=replace(run, info=report.run.info)), summary=True, width=140)  # exit 0


def test_the_exception_that_ended_the_program_is_named_and_not_only_its_cause(samples, show):
    report = samples.sample_report()
    stack = (Location("/home/me/proj/train.py", 7, "<module>"),)

    def shown(text, raised):
        problem = Problem(kind="uncaught", process=0, text=text, raised=raised, stack=stack)
        run = replace(report.run, problems=(problem,), info=replace(report.run.info, exit_status=1))
        return show(replace(report, run=run), summary=True, width=140)

    limit = shown("Unsupported: Dynamo recompile limit exceeded", "FailOnRecompileLimitHit: Hard failure due to fullgraph=True")
    assert "exit 1 (FailOnRecompileLimitHit at train.py:7: Hard failure due to fullgraph=True)" in limit
    wrapped = shown("OSError: no disk", "BackendCompilerFailed: backend='mine' raised:\nOSError: no disk")
    assert "exit 1 (BackendCompilerFailed at train.py:7" in wrapped


def test_a_compilation_that_the_limit_refused_is_not_counted_as_a_version(samples, show):
    report = samples.sample_report()
    frame = report.recompiles[0].frame
    refused = Problem(kind="recompile_limit", process=0, text="limit", frame=frame)
    text = show(replace(report, run=replace(report.run, problems=(refused,))), summary=True, width=140)
    assert "1 recompile (refused at the limit)" in text or "of them refused at the limit" in text


def test_an_exception_of_the_compiler_is_named_with_the_line_that_did_not_compile(samples, show):
    report = samples.sample_report()
    called, torchs = samples.loc(7, "f(x)"), Location("/opt/env/lib/python3.12/site-packages/torch/_dynamo/x.py", 9, "f")
    clauses = (Quoted("no", by="f"), EndedProgram())
    failed = replace(report.findings[0], code="DF10", where=samples.loc(9, "y * 2"), clauses=clauses)

    def shown(findings, *stack):
        problem = Problem(kind="uncaught", process=0, text="E: x", stack=stack)
        run = replace(report.run, problems=(problem,), info=replace(report.run.info, exit_status=1))
        return show(replace(report, run=run, findings=findings), summary=True, width=140)

    assert "exit 1 (E at train.py:9)" in shown((failed,), called, torchs)
    assert "exit 1 (E at train.py:7: x)" in shown((), called, torchs)
    assert "exit 1 (E at train.py:3: x)" in shown((failed,), called, torchs, samples.loc(3, "raise", function="my_backend"))


def test_the_exception_of_a_started_process_is_named_with_its_rank_only_where_the_program_has_none_of_its_own(samples, show):
    report = samples.sample_report()
    started = replace(report.run.processes[0], index=1, pid=5, parent_pid=report.run.processes[0].pid, rank=1)
    own = Problem(kind="uncaught", process=0, text="OSError: a", stack=(Location("/home/me/proj/train.py", 7, "<module>"),))
    child = replace(own, process=1, text="KeyError: b", stack=(Location("/home/me/proj/train.py", 9, "<module>"),))
    launcher = replace(own, text="ChildFailedError: c", stack=(Location("/opt/env/lib/python3.12/site-packages/torch/run.py", 9, "f"),))

    def shown(*problems):
        info = replace(report.run.info, exit_status=1)
        run = replace(report.run, processes=(*report.run.processes, started), problems=problems, info=info)
        return show(replace(report, run=run), summary=True, width=140)

    assert "exit 1 (OSError at train.py:7: a)" in shown(child, own)
    assert "exit 1 (KeyError at train.py:9 on rank 1: b)" in shown(launcher, child)


def test_ids_of_torch_are_links_to_torchs_pages_where_asked_and_codes_can_be_looked_up(samples, show):
    report = samples.sample_report()
    codes = ("GB0170", "DR02", "GB9999", "GB0170\x1b]8;;http://evil.example\x1b\\", "GB0170/../x")
    findings = tuple(replace(report.findings[0], code=code, title="t") for code in codes)
    report = replace(report, findings=findings)
    console = {"force_terminal": True, "color_system": "standard"}
    linked = show(report, summary=True, width=120, limit=None, lines=None, links=True, console=console)
    assert re.findall(r"\x1b\]8;[^;]*;([^\x1b]+)", linked) == ["https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html"]
    for text in (
        show(report, summary=True, width=120, limit=None, lines=None, console=console),
        show(report, summary=True, width=120, limit=None, lines=None, links=True),
    ):
        assert "\x1b]8" not in text and "more on a code: dynadiag rule GB0170 DR02\n" in text
    assert "more on a code" not in show(replace(report, findings=findings[2:]), summary=True, limit=None, lines=None)


@pytest.mark.parametrize(
    ("recompiled", "later", "calls", "said"),
    [
        (5, 6, 36, "1 recompile (stable since call 7 of 36)"),
        (36, 36, 36, "1 recompile (still recompiling in call 36 of 36)"),
        (5, 36, 36, "1 recompile (the last in call 5 of 36)"),
        (5, 6, None, "1 recompile (the last in call 5)"),
        (5, 6, 4, "1 recompile (the last in call 5)"),
        (None, None, 36, "1 recompile,"),
        (1, 1, 1, "1 recompile (in the only call)"),
    ],
)
def test_recompiles_say_since_which_call_nothing_was_compiled(samples, show, recompiled, later, calls, said):
    report = samples.sample_report()
    first, *frames = report.run.frames
    frames = (replace(first, call=later), *(replace(one, call=recompiled) if one.id == "f3" else one for one in frames))
    run = replace(report.run, frames=frames, processes=(replace(report.run.processes[0], calls=calls),))
    assert said in show(replace(report, run=run), width=120, summary=True)


def test_a_program_that_failed_is_not_called_stable(samples, show):
    report = samples.sample_report()
    first, *frames = report.run.frames
    frames = (replace(first, call=6), *(replace(one, call=5) if one.id == "f3" else one for one in frames))
    run = replace(
        report.run, frames=frames, processes=(replace(report.run.processes[0], calls=36),), info=replace(report.run.info, exit_status=1)
    )
    assert "1 recompile (the last in call 5 of 36)" in show(replace(report, run=run), width=120, summary=True)


def test_what_hits_the_limit_is_not_called_stable(samples, show):
    report = samples.sample_report()
    frames = tuple(replace(one, call=8) if one.id == "f3" else one for one in report.run.frames)
    run = replace(report.run, frames=frames, processes=(replace(report.run.processes[0], calls=14),))
    limit = replace(report.fallbacks[0], kind="recompile_limit")
    text = show(replace(report, run=run, fallbacks=(limit,)), width=120, summary=True)
    assert "1 recompile (the last in call 8 of 14, then the limit was hit)" in text


@pytest.mark.parametrize(("call", "said"), [(8, "(the last in call 8 of 14),"), (14, "(still recompiling in call 14 of 14),")])
def test_a_limit_that_another_function_hit_before_the_last_recompile_is_not_told_as_after_it(samples, show, call, said):
    report = samples.sample_report()
    frames = tuple(replace(one, call=call) if one.id == "f3" else one for one in report.run.frames)
    run = replace(report.run, frames=frames, processes=(replace(report.run.processes[0], calls=14),))
    limit = replace(report.fallbacks[0], kind="recompile_limit", frame=frames[0].id)
    assert said in show(replace(report, run=run, fallbacks=(limit,)), width=120, summary=True)


def test_of_several_ranks_the_one_that_recompiled_last_is_named(samples, show):
    report = samples.sample_report()
    frames = tuple(replace(one, call=5) if one.id == "f3" else one for one in report.run.frames)
    other = replace(frames[3], id="f9", key=frames[3].key._replace(process=1), call=30)
    ranks = tuple(replace(report.run.processes[0], index=one, rank=one, calls=36) for one in (0, 1))
    recompiles = (*report.recompiles, replace(report.recompiles[0], id="r1", frame="f9"))
    changed = replace(report, run=replace(report.run, frames=(*frames, other), processes=ranks), recompiles=recompiles)
    changed = replace(changed, summary=replace(report.summary, recompiles=2))
    assert "2 recompiles (stable since call 31 of 36 on rank 1)" in show(changed, width=120, summary=True)


def test_counts_and_circumstances_are_folded_only_between_their_parts(samples, show):
    lines = show(samples.sample_report(), summary=True, width=60).split("\n")
    assert any(line.endswith(" |") for line in lines[:6])
    assert not any(line.strip() in ("process", "processes", "of compile time") for line in lines[:8])


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_summary_has_at_most_45_lines_and_counts_what_it_leaves_out(samples, show, width):
    report = samples.sample_report()
    long = [replace(one, clauses=(Happened("A clause of some words"),) * 40, id=f"n{at}") for at, one in enumerate(report.findings * 3)]
    text = show(replace(report, findings=tuple(long)), summary=True, width=width)
    assert len(text.rstrip().split("\n")) <= 45
    shown = text.count("\n  -->")
    assert (
        sum(int(one) for one in re.findall(r"(\d+) more (?:error|warning|note|finding)s?[,. ]", " ".join(text.split())))
        >= len(long) - shown - 1
    )


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.18, 0.473, "0.18 to 0.473 ms per call"), (0.0, 0.771, "at most 0.771 ms per call"), (None, None, "0.18 ms per call")],
)
def test_time_is_shown_with_its_range_however_it_was_obtained(samples, show, low, high, words):
    """On a GPU the cost of a break is derived, and the screen held no millisecond at all."""
    report = samples.sample_report()
    basis = "measured" if high is None else "derived"
    cost = r.Cost(value=0.18, unit="ms per call", basis=basis, remark="of 6.86 ms", low=low, high=high)
    text = show(replace(report, findings=(replace(report.findings[0], cost=cost),)), summary=True, width=120)
    assert f"cost   {words} ({basis}: of 6.86 ms)" in text
    counted = r.Cost(value=3.0, unit="events", basis="counted", remark="break records")
    assert "cost" not in show(replace(report, findings=(replace(report.findings[0], cost=counted),)), summary=True, width=120)


@pytest.mark.parametrize(("hits", "warm"), [(2, True), (1, False)])
def test_a_start_of_which_nothing_was_compiled_says_that_dynamo_traced_again(show, samples, hits, warm):
    report = samples.sample_report()
    time = replace(report.compile_time, phases={"dynamo": 0.5}, caches={"aotautograd": {"hit": hits}, "fx_graph": {"hit": 2}})
    text = show(replace(report, compile_time=time, summary=replace(report.summary, graphs=2)))
    assert "cache fx_graph: 2 hits" in text
    assert ("every graph came from these caches: Dynamo traced again" in text) is warm
