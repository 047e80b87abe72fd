"""A program of 30 lines with a print that breaks the graph, a helper that ran eagerly, recompiles and a written input, as a `Report`."""

from __future__ import annotations

from dataclasses import replace

from dynadiag import report as reports
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.model import report as r
from dynadiag.model import run as m
from dynadiag.model.clauses import Happened

CWD = "/home/me/proj"
FILE = f"{CWD}/train.py"
STEP = """def step(x):
    y = x * 2
    print("loss", y.sum())
    cache.add_(y)
    return helper(y)"""


def location(line, code, function="step", file=FILE):
    return m.Location(file, line, function, code)


PRINT, CACHE, CALL = location(12, 'print("loss", y.sum())'), location(13, "cache.add_(y)"), location(14, "return helper(y)")


def run(step=STEP, **info):
    facts = {"command": ("python", "train.py"), "cwd": CWD, "exit_status": 0} | info
    frame = m.Frame(id="f0", key=m.CompileKey(0, 0, 0, 0), attempts=2, name="step", file=FILE, line=10, outcome="broke")
    process = m.Process(index=0, log="x.log", pid=1, torch="2.15.0", argv=("train.py",), finished=True)
    return m.Run(info=m.RunInfo(**facts), processes=(process,), frames=(frame,), functions=(m.SourceFunction(FILE, 10, "step", step),))


def finding(run, code, severity, where, evidence=(), title="A title", fix=()):
    mark = fingerprint(Subject(code, where), run)
    return r.Finding(
        id="",
        fingerprint=mark,
        code=code,
        severity=severity,
        title=title,
        where=where,
        clauses=(Happened("Because."),),
        fix=fix,
        cost=None,
        evidence=evidence,
        rank=(1.0,),
    )


def graph_break(run, number, where, code="GB0059"):
    return r.GraphBreak(
        id=f"b{number}",
        fingerprint=fingerprint(Subject(code, where), run),
        gb_id=code,
        category="side effect",
        reason="builtin",
        explanation=None,
        hints=(),
        own_frame=where,
        torch_frame=where,
        stack=(where,),
        events=2,
        frames=("f0",),
    )


def mutation(run, copied=True):
    return r.Mutation(
        id="m0",
        fingerprint=fingerprint(Subject("DM03", CACHE, "cache"), run),
        code="DM03",
        frame="f0",
        input="G['cache']",
        kind="data",
        effects=({"kind": "copy_back", "basis": "observed", "detail": ""},)
        if copied
        else ({"kind": "free", "basis": "observed", "detail": ""},),
        bytes_touched=16,
        bytes_written_back=16,
        no_grad=False,
        static=False,
        aliases=(),
        sites=({"file": FILE, "line": 13, "function": "step", "code": CACHE.code, "op": "add_"},),
    )


def report(of=None, *, breaks=((1, PRINT),), findings=None, recompiles=0, fallbacks=0, mutations=(), failed_passes=()):
    """A report with these entries; by default one break with its finding."""
    of = run() if of is None else of
    sites = tuple(graph_break(of, number, where) for number, where in breaks)
    if findings is None:
        findings = tuple(finding(of, "GB0059", "warning", site.own_frame, (site.id,), "Graph break: print") for site in sites)
    changed = tuple(
        r.Recompile(id=f"r{n}", fingerprint=f"r{n}", frame="f0", reasons=(), changed=(), own_frame=CALL) for n in range(recompiles)
    )
    eager = tuple(
        r.Fallback(id=f"x{n}", fingerprint=f"x{n}", kind="skipped_frame", frame="f0", reason="", own_frame=CALL) for n in range(fallbacks)
    )
    empty = reports.build(of, passes=())
    summary = replace(
        empty.summary,
        graphs=2,
        graph_break_sites=len(sites),
        recompiles=recompiles,
        fallbacks=fallbacks,
        mutations=len(mutations),
    )
    return replace(
        empty,
        summary=summary,
        graph_breaks=sites,
        recompiles=changed,
        fallbacks=eager,
        mutations=tuple(mutations),
        findings=tuple(findings),
        failed_passes=failed_passes,
    )
