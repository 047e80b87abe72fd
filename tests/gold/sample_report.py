"""Hand-made reports for the renderer tests: an ordinary run, one that compiled nothing, and one whose every text is hostile."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.model import report as r
from dynadiag.model import run as m
from dynadiag.model.clauses import Clause, Happened

SITE = "/opt/env/lib/python3.12/site-packages"
HOSTILE = (
    "../../etc/passwd\x1b[31mred\x1b]0;title\x07\x00\u202egnp.\ud800 [bold red]markup[/] <script>alert(1)</script> "
    '"}; digraph{ \\N \\G & "] `tick` ```fence``` @torvalds #1 | ![x](http://evil.example/x.png) ' + "A" * 5000
)


def loc(line: int, code: str, *, file: str = "/home/me/proj/train.py", function: str = "train_step") -> m.Location:
    return m.Location(file, line, function, code)


TORCH_BACKWARD = m.Location(f"{SITE}/torch/_tensor.py", 634, "backward", "torch.autograd.backward(")
OWN_BACKWARD = loc(41, "loss.backward()")
OWN_PRINT = loc(23, 'print("step", step)')
OWN_SCALE = loc(19, "return self.linear(x) * scale", function="forward")

ITEM_ADVICE = r.Advice(
    slug="compile-apart",
    text="Compile the model and the optimizer step apart, and leave loss.backward() outside the compiled function.",
    before="step = torch.compile(train_step)",
    after="model = torch.compile(model)\noptimizer.step = torch.compile(optimizer.step)",
)


def break_site(
    identity: str, gb: str | None, own: m.Location, torch_frame: m.Location, events: int, frames: tuple[str, ...]
) -> r.GraphBreak:
    return r.GraphBreak(
        id=identity,
        fingerprint=f"fp-{identity}",
        gb_id=gb,
        category="autograd or optimizer call",
        reason="Unsupported Tensor.backward() call",
        explanation="Dynamo currently does not support tracing `Tensor.backward()`.",
        hints=("This graph break is fundamental - it is unlikely that Dynamo will ever be able to trace through your code.",),
        own_frame=own,
        torch_frame=torch_frame,
        stack=(own, torch_frame),
        events=events,
        frames=frames,
        resume_frames=("f1",),
        graphs_before=("g0",),
        graphs_after=("g1",),
        cost=r.Cost(value=events, unit="events", basis="counted"),
        advice=(ITEM_ADVICE,),
        context="call_method TensorVariable() backward [] {}",
    )


def frame(index: int, name: str, outcome: m.Outcome, own: m.Location) -> m.Frame:
    return m.Frame(
        id=f"f{index}",
        key=m.CompileKey(0, 0, index, 0),
        attempts=2 if outcome == "broke" else 1,
        name=name,
        file=own.file,
        line=own.line,
        outcome=outcome,
        stack=(own,),
        metrics=m.CompileMetrics(total_s=1.25, dynamo_s=0.5, guard_count=12),
        guards=m.GuardSet(count=12, by_kind={"TENSOR_MATCH": 10, "ID_MATCH": 2}),
    )


def graph(index: int, frame_id: str, kind: m.GraphKind, nodes: int) -> m.Graph:
    ops = {"linear": nodes // 2, "gelu": 3, "add": 1}
    return m.Graph(id=f"g{index}", frame=frame_id, kind=kind, attempt=0, nodes=nodes, ops=ops, text=None)


def sample_run() -> m.Run:
    process = m.Process(
        index=0,
        log="dedicated_log_torch_trace_4242.log",
        pid=4242,
        torch="2.15.0",
        python="3.12.3",
        device="cpu",
        argv=("train.py", "--steps", "3"),
        started_at="2026-01-02T03:04:05+00:00",
        records=123,
        skipped={"bad JSON": 1},
        config={"dynamo": {"cache_size_limit": 4}},
        finished=True,
    )
    return m.Run(
        info=m.RunInfo(
            directory="/home/me/proj/dynadiag-runs/0001-train",
            dynadiag="0.1.0",
            command=("python", "train.py", "--steps", "3"),
            cwd="/home/me/proj",
            started_at="2026-01-02T03:04:05+00:00",
            ended_at="2026-01-02T03:05:05+00:00",
            exit_status=0,
        ),
        processes=(process,),
        frames=(
            frame(0, "train_step", "broke", loc(38, "def train_step(model, batch):")),
            frame(1, "torch_dynamo_resume_in_train_step_at_41", "compiled", OWN_BACKWARD),
            frame(2, "forward", "compiled", OWN_SCALE),
            frame(3, "forward", "compiled", OWN_SCALE),
            frame(4, "log_metrics", "skipped", OWN_PRINT),
        ),
        graphs=(
            graph(0, "f0", "dynamo", 240),
            graph(1, "f1", "dynamo", 12),
            graph(2, "f0", "aot_joint", 600),
            graph(3, "f2", "dynamo", 5),
            replace(graph(4, "f3", "dynamo", 5), nodes=None, why_not="the graph's text is cut short", ops={}),
        ),
        caches=(m.CacheEvent(frame="f0", cache="fx_graph", result="miss"), m.CacheEvent(frame="f1", cache="fx_graph", result="hit")),
        notes=("dedicated_log_torch_trace_4242.log: 1 record skipped (bad JSON)",),
        site_prefixes=(SITE,),
    )


def sample_findings() -> tuple[r.Finding, ...]:
    return (
        r.Finding(
            id="n0",
            fingerprint="fp0",
            code="DF0001",
            severity="error",
            title="log_metrics runs eagerly: the break is inside a loop",
            where=OWN_PRINT,
            clauses=(
                Happened("Dynamo cannot resume after a break inside a for loop, so the whole frame was skipped and runs uncompiled."),
            ),
            fix=(r.Advice(slug="print", text="Remove the print, or move it out of the compiled function.", before=OWN_PRINT.code),),
            cost=r.Cost(value=1, unit="frames", basis="counted"),
            evidence=("x0", "b1"),
            rank=(0.0, -1.0),
        ),
        r.Finding(
            id="n1",
            fingerprint="fp1",
            code="GB0123",
            severity="warning",
            title="Unsupported Tensor.backward() call",
            where=OWN_BACKWARD,
            clauses=(Happened("Dynamo does not trace loss.backward(); the graph ends here and a resume function starts after it."),),
            fix=(ITEM_ADVICE,),
            cost=r.Cost(value=5, unit="events", basis="counted"),
            evidence=("b0", "f0", "g0"),
            rank=(1.0, -5.0),
        ),
        r.Finding(
            id="n2",
            fingerprint="fp2",
            code="DR0001",
            severity="note",
            title="forward was compiled 2 times: scale takes new values",
            where=OWN_SCALE,
            clauses=(Happened("The float scale is a constant of the graph, so each new value compiles again."),),
            fix=(r.Advice(slug="tensor", text="Pass scale as a tensor.", before="model(x, 1.0)", after="model(x, torch.tensor(1.0))"),),
            cost=r.Cost(value=0.0123, unit="s", basis="measured"),
            evidence=("r0",),
            rank=(2.0,),
        ),
    )


def sample_report() -> r.Report:
    run = sample_run()
    return r.Report(
        run=run,
        summary=r.Summary(
            frames=5,
            frames_compiled=4,
            frames_skipped=1,
            graphs=4,
            graph_break_sites=2,
            graph_break_events=6,
            recompiles=1,
            fallbacks=1,
            mutations=None,
            compile_s=3.21,
            processes=1,
        ),
        graph_breaks=(
            break_site("b0", "GB0123", OWN_BACKWARD, TORCH_BACKWARD, 5, ("f0",)),
            replace(
                break_site("b1", None, OWN_PRINT, OWN_PRINT, 1, ("f4",)),
                category="side effect",
                reason="Data-dependent branching in a loop",
                skipped_frames=("f4",),
                resume_frames=(),
            ),
        ),
        recompiles=(
            r.Recompile(
                id="r0",
                fingerprint="fpr0",
                frame="f3",
                reasons=("0/0: L['scale'] == 1.0",),
                changed=(r.Change(source="L['scale']", kind="value", old="1.0", new="2.0"),),
                own_frame=OWN_SCALE,
            ),
        ),
        transitions=(
            r.Transition(
                frame_name="forward",
                own_frame=OWN_SCALE,
                source="L['scale']",
                kind="value",
                values=("1.0", "2.0"),
                recompiles=("r0",),
                entries=2,
                limit=8,
                limit_hit=False,
                became_dynamic=False,
                why=None,
            ),
        ),
        fallbacks=(
            r.Fallback(
                id="x0",
                fingerprint="fpx0",
                kind="skipped_frame",
                frame="f4",
                reason="graph break inside a for loop",
                own_frame=OWN_PRINT,
                breaks=("b1",),
            ),
        ),
        mutations=(),
        guards=(
            r.GuardReport(
                id="d0",
                frame="f0",
                count=12,
                by_kind={"TENSOR_MATCH": 10, "ID_MATCH": 2},
                latency_us=41.0,
                dearest=(m.Guard("TENSOR_MATCH", "L['batch']", "check_tensor(L['batch'])", "train.py:39"),),
                odd=(),
                failed=("L['scale'] == 1.0",),
            ),
        ),
        compile_time=r.CompileTime(
            total_s=3.21,
            phases={"dynamo": 1.5, "aot": 0.71, "backend": 1.0},
            thrown_away_s=0.25,
            caches={"fx_graph": {"hit": 1, "miss": 1}},
            frames=(
                r.FrameTime(frame="f0", total_s=2.5, phases={"dynamo": 1.2, "backend": 0.9}, thrown_away_s=0.25, caches={}),
                r.FrameTime(frame="f1", total_s=0.71, phases={"dynamo": 0.3}, thrown_away_s=None, caches={}),
            ),
        ),
        ranks=(),
        findings=sample_findings(),
        notes=("1 compile cache look-up was a hit: backward metrics are those of the first run",),
        pictures={"frames": "graphs/frames.svg", "g0": "graphs/g0-train-step.svg"},
    )


def empty_report() -> r.Report:
    """A run that compiled nothing, with the switch that did it."""
    report = sample_report()
    return replace(
        report,
        run=replace(report.run, frames=(), graphs=(), caches=(), notes=()),
        summary=replace(
            report.summary,
            frames=0,
            frames_compiled=0,
            frames_skipped=0,
            graphs=0,
            graph_break_sites=0,
            graph_break_events=0,
            recompiles=0,
            fallbacks=1,
            compile_s=None,
        ),
        graph_breaks=(),
        recompiles=(),
        transitions=(),
        fallbacks=(r.Fallback(id="x0", fingerprint="fp", kind="env_disabled", frame=None, reason="TORCHDYNAMO_DISABLE=1", own_frame=None),),
        guards=(),
        compile_time=None,
        findings=(),
        notes=(),
        pictures={},
    )


def big_report(findings: int) -> r.Report:
    """The sample with many findings."""
    report = sample_report()
    many = tuple(replace(report.findings[1], id=f"n{index}", fingerprint=f"fp{index}") for index in range(findings))
    return replace(report, findings=many, notes=tuple(f"note {index}" for index in range(findings)))


OURS = frozenset(
    [
        "id",
        "frame",
        "frames",
        "evidence",
        "severity",
        "outcome",
        "log",
        "key",
        "exit_status",
        "skipped_frames",
        "resume_frames",
        "graphs_before",
        "graphs_after",
        "breaks",
        "recompiles",
        "processes",
        "text",
    ]
)


def _poison(value: object) -> object:
    """The value with every string that comes from outside replaced by a hostile one; ids, kinds and severities stay."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, tuple):
        return tuple(map(_poison, value))
    if isinstance(value, m.Location):
        return m.Location(HOSTILE, value.line, HOSTILE, HOSTILE)
    if hasattr(value, "__dataclass_fields__"):
        changes = {
            name: _poison(getattr(value, name)) for name in value.__dataclass_fields__ if name not in OURS or isinstance(value, Clause)
        }
        return replace(value, **changes)
    if isinstance(value, dict):
        return {HOSTILE: _poison(item) for item in value.values()}
    return value


def hostile_report() -> r.Report:
    """The sample with hostile text wherever a log could put it."""
    report = sample_report()
    names = ("graph_breaks", "recompiles", "transitions", "fallbacks", "guards", "compile_time", "findings", "notes")
    poisoned = {name: _poison(getattr(report, name)) for name in names}
    run = replace(
        report.run,
        info=_poison(report.run.info),
        processes=_poison(report.run.processes),
        frames=tuple(replace(item, name=HOSTILE, file=HOSTILE, stack=_poison(item.stack), error=HOSTILE) for item in report.run.frames),
        graphs=tuple(replace(item, ops={HOSTILE: 3}, why_not=HOSTILE) for item in report.run.graphs),
        caches=tuple(_poison(item) for item in report.run.caches),
        notes=(HOSTILE,),
    )
    rank = r.RankDifference(id="k0", what=HOSTILE, values={"0": HOSTILE, "1": HOSTILE}, odd_ranks=(1,), location=loc(3, HOSTILE))
    return replace(report, run=run, ranks=(rank,), pictures={}, **poisoned)
