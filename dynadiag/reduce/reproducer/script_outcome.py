"""`repro_min.py`, `almost.py`, `report.md`, `report.html` and `minify.json` of a reduced script."""

from __future__ import annotations

import ast
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dynadiag.reduce.core.failure import Failure, without_accidents
from dynadiag.reduce.core.failure import shows as failure_shows
from dynadiag.reduce.reproducer import bug_report, compared_calls, proving, result_files
from dynadiag.reduce.reproducer.minify_keys import GuiltyKeys, ScriptResultKeys, SizeKeys
from dynadiag.reduce.reproducer.proving import Proof, proven_with_variables, run_fresh, template_for, with_variables
from dynadiag.reduce.reproducer.result_files import common_json, figures, machine_facts, no_almost, versions, write_almost, write_text
from dynadiag.reduce.scripts.names import SCOPES
from dynadiag.reduce.scripts.oracle import SEEDS
from dynadiag.reduce.scripts.program import Program, imported
from dynadiag.reduce.scripts.recorded_failures import KINDS, WRONG_CALL
from dynadiag.reduce.scripts.reduction import ScriptReduction

_NO_GRAPH = "a script was reduced, not a graph"
_NOT_COUNTED = "the calls of a script are not counted"


_SIGNS = {
    "graph_break": "AssertionError: graph break",
    "cudagraph_skip": "AssertionError: cudagraph skip",
    WRONG_CALL: "AssertionError: wrong call",
}


@dataclass(frozen=True, kw_only=True)
class Written:
    """The files and the proof; `almost_why` says why there is no neighbour."""

    source: str
    proof: Proof
    almost: str | None = None
    almost_why: str | None = None
    almost_differs: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def write_first(reduction: ScriptReduction, out: Path) -> Written:
    """Write `repro_min.py` before it is proven: after an interrupt nobody may wait for that."""
    source = reproducer(reduction.best, reduction.confirmed.failure, Header(versions=versions(), story=story_of(reduction)), form=FORMS[0])
    write_text(source, out / "repro_min.py")
    return Written(source=source, proof=Proof(runs=0, reproduced=0), almost_why="not tried yet")


def write_reproducer(reduction: ScriptReduction, out: Path, *, timeout_s: float) -> Written:
    """Write and prove `repro_min.py`, then `almost.py`."""
    header = Header(versions=versions(), story=story_of(reduction))
    failure = reduction.confirmed.failure

    def fails(text: str, variables: Mapping[str, str]) -> bool:
        how = template_for(text, failure, variables)
        return shows(failure, *run_fresh(text, timeout_s=timeout_s, variables=variables, template=how))

    sometimes = reduction.confirmed.failed < reduction.confirmed.of
    forms = FORMS if failure.kind in ("graph_break", "recompile") else FORMS[:1]
    for form in forms:
        source = reproducer(reduction.best, failure, header, form=form)
        source, proof, variables = proven_with_variables(
            source, lambda text: prove(text, failure, timeout_s=timeout_s, sometimes=sometimes), fails
        )
        if proof.holds:
            break
    write_text(source, out / "repro_min.py")
    return _with_almost(reduction, Written(source=source, proof=proof, variables=variables), header, out, form, timeout_s)


def _with_almost(reduction: ScriptReduction, written: Written, header: Header, out: Path, form: str, timeout_s: float) -> Written:
    """The closest program that passes, kept only when it passes in a fresh process: as often as a flaky failure needs to show itself."""
    if (why := no_almost(reduction, out)) is not None or reduction.almost is None:
        return replace(written, almost_why=why)
    source = with_variables(
        reproducer(reduction.almost, reduction.confirmed.failure, header, expect_failure=False, form=form), written.variables
    )

    def exit_status() -> int | None:
        how = template_for(source, reduction.confirmed.failure)
        return run_fresh(source, timeout_s=timeout_s, variables={}, template=how)[0]

    otherwise = "the closest passing program did not pass in a fresh process"
    if (why := write_almost(source, out, exit_status, repeats=reduction.confirmed.repeats, otherwise=otherwise)) is not None:
        return replace(written, almost_why=why)
    return replace(written, almost="almost.py", almost_differs=difference(reduction.best, reduction.almost))


def difference(failing: Program, passing: Program) -> str:
    """How the passing program differs, by its lines."""
    lines = list(difflib.ndiff(failing.text.splitlines(), passing.text.splitlines()))
    gone = [line[2:].strip() for line in lines if line.startswith("- ")]
    new = [line[2:].strip() for line in lines if line.startswith("+ ")]
    if gone and new:
        return f"it has {_quoted(new)} instead of {_quoted(gone)}"
    return f"it lacks {_quoted(gone)}" if gone else f"it also has {_quoted(new)}"


def _quoted(lines: list[str]) -> str:
    shown = "; ".join(f"`{line[:100]}`" for line in lines[:4])
    return shown if len(lines) <= 4 else f"{shown} and {len(lines) - 4} more lines"


def story_of(reduction: ScriptReduction) -> str:
    """How far the script was reduced, in one or two sentences."""
    ended = "" if reduction.complete else " (interrupted: the best result so far)"
    dropped = reduction.confirmed.dropped
    left = (
        f" Removed first, because candidates must not affect anything outside their own folder: {_quoted(list(dropped))}."
        if dropped
        else ""
    )
    sizes = f"From {reduction.original.statements} statements to {reduction.best.statements}"
    return f"{sizes} in {sum(reduction.queries.values())} queries{ended}.{left}"


def write_report(reduction: ScriptReduction, written: Written, out: Path, *, command: str, with_gpu: bool) -> dict[str, str]:
    """Write `report.md` and `report.html`; gives the reason why there is no page, by the name "page"."""
    failure, proof, notes = reduction.confirmed.failure, written.proof, list[str]()
    if reduction.confirmed.failed < reduction.confirmed.of:
        notes.append(f"It is flaky: it occurred in {reduction.confirmed.failed} of {reduction.confirmed.of} runs.")
    if written.almost is not None:
        notes.append(f"`almost.py` is the closest program found that does not show it: {written.almost_differs}.")
    report = bug_report.BugReport(
        failure=failure,
        command=command,
        about=bug_report.about_script(failure, recorded=failure.kind in KINDS),
        story=story_of(reduction),
        source=written.source,
        source_why=None,
        cells=(),
        facts=machine_facts(with_gpu=with_gpu),
        notes=notes,
        other_failures=reduction.other_failures,
        error=proof.output if proof.holds else None,
        proof=proving.headline({"reproduced": proof.reproduced, "runs": proof.runs}),
        figures=figures(reduction, "statements", reduction.original.statements, reduction.best.statements),
    )
    why: dict[str, str] = {}
    result_files.write_report(bug_report.document_of(report), out, why)
    return why


def to_json(reduction: ScriptReduction, written: Written, *, wall_s: float, level_why: str) -> ScriptResultKeys:
    """The content of `minify.json` (docs/minify.schema.json)."""
    confirmed = reduction.confirmed
    return {
        **common_json(reduction, confirmed.failure, written.proof, wall_s=wall_s),
        "level": "script",
        "level_why": level_why,
        "size_before": _size(reduction.original),
        "size_after": _size(reduction.best),
        "guilty": _guilty(confirmed.failure.kind),
        "reproducer": "repro_min.py",
        "why_not": None,
        "variables": list(written.variables),
        "almost": written.almost,
        "almost_why": written.almost_why,
        "almost_differs": written.almost_differs,
        "left_out": list(confirmed.dropped),
        "pictures": {"before": None, "after": None, "kept": None},
        "pictures_why": _NO_GRAPH,
        "report": "report.md",
        "report_why": None,
        "ablation": [],
    }


def _size(program: Program) -> SizeKeys:
    return {"nodes": None, "nodes_why": _NO_GRAPH, "statements": program.statements, "calls": None, "calls_why": _NOT_COUNTED}


def _guilty(kind: str) -> GuiltyKeys:
    layer = ("inductor" if kind == "cudagraph_skip" else "dynamo") if kind in KINDS and kind != WRONG_CALL else None
    why = "not looked for in a script"
    steps = {} if layer is not None else {"layer": why}
    return {"layer": layer, "steps": steps, "pass": None, "pass_why": why, "config": None, "config_why": why, "needs": [], "queries": 0}


def prove(source: str, failure: Failure, *, timeout_s: float, runs: int = proving.RUNS, sometimes: bool = False) -> proving.Proof:
    """Run the source `runs` times, each in a fresh process and an empty directory: as it is, then with other random numbers.

    `sometimes` as in `proof_by`.
    """
    further = template_for(source, failure)

    def run_seeded(number: int) -> tuple[int | None, str]:
        seed = SEEDS[(number - 1) % len(SEEDS)] if number else 0
        return proving.run_fresh(seeded(source, seed), timeout_s=timeout_s, variables={}, template=further if number else None)

    return proving.proof_by(source, failure, run_seeded, shows, runs=runs, sometimes=sometimes)


def seeded(source: str, seed: int) -> str:
    """The source with torch's generator set behind the first import of torch; itself for 0, or where it imports none."""
    if seed == 0:
        return source
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [item.name for item in getattr(node, "names", [])]
        if isinstance(node, ast.Import | ast.ImportFrom) and any(str(name).partition(".")[0] == "torch" for name in names):
            lines.insert(node.end_lineno or node.lineno, f'__import__("torch").manual_seed({seed})\n')
            break
    return "".join(lines)


def shows(failure: Failure, status: int | None, output: str) -> bool:
    """Whether a run that ended so shows the failure."""
    if failure.kind == "graph_break":
        return status == 1 and f"{_SIGNS['graph_break']}" in output and _reason(failure) in without_accidents(output)
    if failure.kind == "recompile":
        _, raised, said = output.rpartition("RecompileError" if "RecompileError" in output else "AssertionError: recompile")
        return status == 1 and bool(raised) and guarded_name(failure) in said
    if failure.kind == "fallback":
        return status == 1 and ("AssertionError: eager fallback" in output or "FailOnRecompileLimitHit" in output)
    if failure.kind in _SIGNS:
        return status == 1 and _SIGNS[failure.kind] in output
    return failure_shows(failure, status, output)


def _reason(failure: Failure) -> str:
    """The first line without the id: torch's name for the break."""
    first = failure.message.splitlines()[0]
    return without_accidents(first.partition(" ")[2] if first.startswith("GB") else first)


# `repro_min.py` of a script: a header, the program, and a last assertion that shows the failure with torch alone. Without torch.

_GB_ID = re.compile(r"^GB(\d{4})\b")
_OF_TORCH = ("torch", "functorch", "torchgen")  # what the wheel installs


@dataclass(frozen=True, kw_only=True)
class Header:
    """What the first lines say: `versions`, and the `story` of how the program came about."""

    versions: str
    story: str


def reproducer(program: Program, failure: Failure, header: Header, *, expect_failure: bool = True, form: str = "counters") -> str:
    """The text of the file. `form` says how a graph break is looked for: in torch's counters, or in its trace, which tells every break."""
    before, after = _shown_by(failure, form)
    body = program.tree.body
    future = _spaced([node for node in body if _is_first(node)])
    rest = _spaced([node for node in body if not _is_first(node)])
    return "\n\n".join(part for part in (_header(program, failure, header, expect_failure), future, before, rest, after) if part) + "\n"


FORMS = ("counters", "trace")


def _shown_by(failure: Failure, form: str) -> tuple[str, str]:
    """What stands before and behind the program."""
    if failure.kind == "graph_break":
        number = _GB_ID.match(failure.message)
        sign = f"gb{number[1]}.html" if number else failure.message.splitlines()[0]
        if form == "trace":
            return _TRACE, _AFTER_BREAK.replace("SIGN", repr(sign)).replace("REASONS", "_reasons")
        return "", "import torch._dynamo.utils\n\n" + _AFTER_BREAK.replace("SIGN", repr(sign)).replace(
            "REASONS", 'torch._dynamo.utils.counters["graph_break"]'
        )
    if failure.kind == "hang":
        return "import faulthandler\n\nfaulthandler.dump_traceback_later(30, exit=True)  # it hangs: show where, and end", ""
    if failure.kind == "recompile" and form == "trace":
        return _TRACE.replace(*_RECOMPILES), _AFTER_RECOMPILE.replace("SIGN", repr(guarded_name(failure)))
    if failure.kind == "recompile":
        return "import torch._dynamo\n\ntorch._dynamo.config.error_on_recompile = True", ""
    if failure.kind == "cudagraph_skip":
        return "", _AFTER_CUDAGRAPHS
    if failure.kind == WRONG_CALL:
        return compared_calls.BEFORE, compared_calls.AFTER
    if failure.kind == "fallback" and failure.phase == "recompile_limit":
        return "import torch._dynamo\n\ntorch._dynamo.config.fail_on_recompile_limit_hit = True", ""
    if failure.kind == "fallback":
        return "", _AFTER_FALLBACK.replace("WHAT", failure.phase.replace("_", " "))
    return "", ""


def guarded_name(failure: Failure) -> str:
    """The name in the guard that failed; "" where it has none."""
    name = failure.message.rpartition(" of ")[2].partition(".")[0]
    return name if name.isidentifier() else ""


_AFTER_BREAK = """breaks = [reason for reason in REASONS if SIGN in reason]
assert not breaks, f"graph break: {breaks[0]}\""""
_TRACE = '''import logging

import torch

_reasons = []


class _Breaks(logging.Handler):
    """Keeps what torch writes into its trace of it (as with TORCH_TRACE)."""

    def emit(self, record):
        artifact = (getattr(record, "metadata", None) or {}).get("artifact", {})
        if artifact.get("name") == "dynamo_graph_break_reason":
            _reasons.append(record.payload)


torch._logging._internal.trace_log.addHandler(_Breaks())
torch._logging._internal.trace_log.setLevel(logging.DEBUG)'''
_RECOMPILES = ("dynamo_graph_break_reason", "recompile_reasons")
_AFTER_RECOMPILE = """again = [reason for reason in _reasons if SIGN in reason]
assert not again, f"recompile: {again[0]}\""""
_AFTER_CUDAGRAPHS = """import torch._dynamo.utils

skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
assert not skips, f"cudagraph skip: {skips} graphs run without CUDA graphs\""""
_AFTER_FALLBACK = """import torch._dynamo.utils

frames = torch._dynamo.utils.counters["frames"]
assert frames["ok"] == frames["total"] > 0, f"eager fallback (WHAT): {frames['ok']} of {frames['total']} frames were compiled\""""


def _header(program: Program, failure: Failure, header: Header, expect_failure: bool) -> str:
    packages = sorted(name for name in imported(program) if name not in sys.stdlib_module_names and name not in _OF_TORCH)
    lines = [
        f"{failure.kind.replace('_', ' ')}: {_first_line_of(failure)}",
        "This program shows the failure." if expect_failure else "This program does not show the failure; repro_min.py does.",
        header.story,
        f"Measured with {header.versions}.",
        *([f"Besides torch it needs: {', '.join(packages)}."] if packages else []),
    ]
    return "\n".join(f"# {_one_line(line)}" for line in lines)


def _first_line_of(failure: Failure) -> str:
    return failure.message.splitlines()[0] if failure.message and not failure.exceptions else failure.title()


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))[:300]


def _spaced(statements: Sequence[ast.stmt]) -> str:
    """Their text, with blank lines around definitions."""
    text = ""
    for before, node in zip([None, *statements], statements, strict=False):
        around = isinstance(before, SCOPES) or isinstance(node, SCOPES)
        text += ("\n\n" if before is not None and around else "") + ast.unparse(node).strip("\n") + "\n"
    return text.rstrip("\n")


def _is_first(node: ast.stmt) -> bool:
    """Whether Python wants it before any other statement: annotations that name nothing may depend on it."""
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
