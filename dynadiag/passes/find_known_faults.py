"""Known faults of torch that what was traced will meet, also where no call was compared with eager (torch 2.11 to 2.15)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dynadiag.advice.uncaught import TRY_OUTSIDE
from dynadiag.advice.whole_calls import CHECK_ARGUMENTS, GENERATOR_OUTSIDE, whole_call_advice
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.user_frames import own_frame
from dynadiag.facts.wording import short_place
from dynadiag.model import codes
from dynadiag.model.clauses import Basis, Cause, Clause, Effect
from dynadiag.model.location import Location
from dynadiag.model.parity import WholeCall
from dynadiag.model.report import Advice, Finding, PassResult
from dynadiag.model.run import Run, SourceFunction, UnguardedState
from dynadiag.passes.base import Priority
from dynadiag.passes.find_uncaught import lost_handler
from dynadiag.passes.mutation_graphs import read_nodes
from dynadiag.passes.parity_calls import wrong_things
from dynadiag.source.function import parse_function

HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
# Operators that look at values and raise: `linalg_cholesky` does, `linalg_cholesky_ex` does not.
_RAISING = re.compile(r"\blinalg_(?:cholesky|inv|solve|lu_factor|lu_solve|ldl_factor|eig|eigh|eigvals|eigvalsh|svd)$|_assert_async")
_ADDS = frozenset({"append", "appendleft", "extend", "extendleft", "insert"})
_BASIS = Basis("Predicted from what was traced; `dynadiag explain --parity` compares the calls of a run")
_MOST_GRAPHS = 500


def find_known_faults(run: Run) -> PassResult:
    """One finding for each line; none for what a compared call, or an exception that ended the program, was seen to do already."""
    seen = [call for call in run.whole_calls if call.verdict == "different"]
    findings: dict[tuple[str, str, int | None], Finding] = {}
    for state in run.unguarded:
        if state.what == "late hook" and not any(change.what == "hooks" for call in seen for change in call.changes):
            found = _late_hook(state, run)
        elif state.what == "full deque" and not any(call.full_deques for call in seen):
            found = _full_deque(state, run)
        elif (where := own_frame(state.stack, run)) is None:
            continue
        elif state.what == "generator" and not _was_compared(state, seen, run):
            found = _generator(state, where, run)
        elif state.what == "unchecked argument":
            found = _unchecked_argument(state, where, run)
        else:
            continue
        if found is not None and found.where is not None:
            findings.setdefault((found.title, found.where.file, found.where.line), found)
    if not any(problem.kind == "uncaught" for problem in run.problems):
        for found in _lost_handlers(run):
            assert found.where is not None
            findings.setdefault((found.title, found.where.file, found.where.line), found)
    return PassResult(findings=tuple(findings.values()))


def registration_of(state: UnguardedState, run: Run) -> Location | None:
    """The program's line that registered a late hook."""
    return own_frame(state.stack, run)


def _late_hook(state: UnguardedState, run: Run) -> Finding | None:
    where = registration_of(state, run)
    kind = HOOKS.get(state.kind or "", "hook")
    if where is None:
        return None
    clauses = (
        Cause(f"A {state.name} gets its first {kind} here, after it was compiled; no guard looks at hooks that are not there"),
        Effect("A call that uses the compiled version runs without the hook"),
        _BASIS,
    )
    title = f"Silently wrong when called again: a {kind} came after {state.name} was compiled"
    return _finding(run, where, title, clauses, whole_call_advice("hooks", state.name))


def _full_deque(state: UnguardedState, run: Run) -> Finding | None:
    name = readable(state.name)
    place = next((line for function in run.functions if (line := _read_after_append(function, name)) is not None), None)
    if place is None:
        return None
    clauses = (
        Cause(f"{name} is full, so this drops an element; the trace keeps it, because Dynamo forgets `maxlen`"),
        Effect("What reads the deque further down in the graph sees too many elements"),
        _BASIS,
    )
    return _finding(
        run, place, f"Silently wrong: in compiled code {name} grows beyond its maxlen", clauses, whole_call_advice("full deque", name)
    )


def _was_compared(state: UnguardedState, seen: Sequence[WholeCall], run: Run) -> bool:
    """Whether a call of the function was seen to differ."""
    frame = run.frame(state.frame) if state.frame is not None else None
    return frame is not None and any(
        call.where is not None and (call.where.file, call.where.line) == (frame.file, frame.line) for call in seen
    )


def _generator(state: UnguardedState, where: Location, run: Run) -> Finding:
    clauses = (
        Cause(f"Dynamo runs the generator `{state.name}` to its end while it traces; the compiled call hands out an iterator"),
        Effect("What it does between its elements is done before the caller takes the first; `send`, `throw` and `close` are gone"),
        _BASIS,
    )
    return _finding(run, where, f"The generator {state.name} runs to its end in the compiled call", clauses, (GENERATOR_OUTSIDE,))


def _unchecked_argument(state: UnguardedState, where: Location, run: Run) -> Finding:
    clauses = (
        Cause(f"{state.name} does not satisfy {state.kind}; without torch.compile this line raises ValueError"),
        Effect("The first call of torch.compile turns these checks off for the whole process, also for eager code"),
    )
    return _finding(run, where, f"Silently accepted: {state.name} breaks its constraint", clauses, (CHECK_ARGUMENTS,))


def _read_after_append(function: SourceFunction, name: str) -> Location | None:
    """The line that appends to the deque, if the same function reads it behind that, or anywhere in a loop around it."""
    parsed = parse_function(function.text)
    nodes: list[ast.Attribute | ast.Name] = [] if parsed is None else [*parsed.nodes(ast.Attribute), *parsed.nodes(ast.Name)]
    nodes = [node for node in nodes if isinstance(node.ctx, ast.Load)]
    held = [node for node in nodes if ast.unparse(node).rpartition(".")[2] == name.rpartition(".")[2]]
    adding = {id(node.value): node for node in nodes if isinstance(node, ast.Attribute) and node.attr in _ADDS}
    added = [node for node in held if id(node) in adding]
    read = [node for node in held if id(node) not in adding]
    loops = [] if parsed is None else [*parsed.nodes(ast.For), *parsed.nodes(ast.While)]
    for node in added:
        around = [loop for loop in loops if loop.lineno <= node.lineno <= (loop.end_lineno or 0)]
        if any(other.lineno > node.lineno or any(loop.lineno <= other.lineno for loop in around) for other in read):
            code = function.text.split("\n")[node.lineno - 1].strip()
            return Location(function.file, function.line + node.lineno - 1, function.name, code)
    return None


def _lost_handlers(run: Run) -> Iterator[Finding]:
    told = {(wrong.where.file, wrong.where.line) for wrong in wrong_things(run) if wrong.where is not None}
    kept = {name for names in kept_graphs(run).values() for name in names}
    graphs = [graph for graph in run.graphs if graph.id in kept and any(map(_RAISING.search, graph.ops))]
    for graph in graphs[:_MOST_GRAPHS]:
        for node in read_nodes(graph, lambda op: _RAISING.search(op) is not None):
            where = node.location
            if where is None or (where.file, where.line) in told:
                continue
            kind = "AssertionError" if "_assert_async" in node.target else "LinAlgError"
            if (lost := lost_handler(kind, (where,), run)) is None:
                continue
            clause = f"`{lost.clause.code}` ({short_place(lost.clause)})"
            clauses = (
                Cause(f"In eager {clause} catches what this raises; a graph contains no `try`"),
                Effect("Where this fails, the compiled call raises"),
                _BASIS,
            )
            yield _finding(run, where, "An `except` has no effect in compiled code", clauses, (TRY_OUTSIDE,))


def _finding(run: Run, where: Location, title: str, clauses: tuple[Clause, ...], fix: tuple[Advice, ...]) -> Finding:
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(codes.KNOWN_FAULT, where, title), run),
        code=codes.KNOWN_FAULT,
        severity=codes.severity_of(codes.KNOWN_FAULT),
        title=title,
        where=where,
        clauses=clauses,
        fix=fix,
        cost=None,
        evidence=(),
        rank=(float(Priority.WRONG_RESULT), float(int(codes.KNOWN_FAULT[2:]))),
    )
