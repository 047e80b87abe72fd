"""Advice for graph breaks: which concrete change to make on the very line that broke.

The tables are keyed by torch's graph-break id (`torch/_dynamo/graph_break_registry.json`), which is stable over versions; a log without
ids is looked up by the type's text as 2.11 and 2.15 write it. What is not established by the record is no advice: a reason is told then.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from dynadiag.advice.gb_types import GB_TYPES, OLD_TYPES
from dynadiag.advice.reasons import REASONS
from dynadiag.advice.uncaught import FUNCTIONAL
from dynadiag.changes import train_step
from dynadiag.changes.branch import remains
from dynadiag.changes.break_context import (
    BreakContext,
    Rule,
    Said,
    Withheld,
    break_context_of,
    leaves_out,
    line_name,
    option,
    quoted,
    rewrite,
    say,
    withhold,
)
from dynadiag.changes.calls import CALLS
from dynadiag.changes.copy import VALUES
from dynadiag.changes.joined import counted_behind, read_then_written
from dynadiag.changes.kinds import kind_of
from dynadiag.changes.library_guards import calls_on, library_guards
from dynadiag.changes.message import PRINTING, in_logging, loggers_of_libraries, logging_functions
from dynadiag.changes.number import SCALARS
from dynadiag.changes.shape import DATA_SHAPES
from dynadiag.changes.train_step import TRAINING
from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.user_frames import callers, of_last_run
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, GraphBreak
from dynadiag.model.run import BreakEvent, Frame, Run
from dynadiag.source.line import dotted
from dynadiag.source.torch_names import has_in_place_name

# Advice for graphs that their back end refused: by the operator that it names, whose line torch records.

_AT_OPERATOR = re.compile(r"^ *(?:Original traceback|Found from ?): ?$", re.MULTILINE)
_CAPTURES_INDEX = (2, 15)  # the first seen to: on 2.11 the back end raises another error then
# `table[step]` with a tensor without dimensions: torch reads it as a number, which the back end's tensors do not have.
_INDEXED = re.compile(r"_local_scalar_dense(?:.|\n)*?call_function\[target=\w*operator\.getitem\]\(args = \(%\w+, %\w+\)")


def refused(context: BreakContext) -> Iterator[Said]:
    """`table[step]` with a tensor without dimensions: index with one more, or capture numbers. Nothing for what else a back end refuses."""
    if _AT_OPERATOR.search(context.gb_context) is None:
        yield from withhold("no line of yours breaks the graph: the back end failed on the graph that ends here")
        return
    if _INDEXED.search(context.gb_context):
        yield from _indexed(context)
    yield from withhold(f"the back end refused what {line_name(context)} computes, for the reason that it gives")


def _indexed(context: BreakContext) -> Iterator[Said]:
    found = [
        node
        for node in context.line.nodes
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and dotted(node.slice) is not None
        and not _is_written(context.line.parent(node))
    ]
    if len(found) == 1:
        index = context.line.text(found[0].slice)
        new = f"{context.line.text(found[0].value)}[{index}.view(1)][0]"
        text = (
            f"Index with one dimension more: {quoted(index)} is a tensor without dimensions, which torch reads as a number to index with, "
            "and a graph has no numbers. The values are the same, in a copy"
        )
        yield from rewrite(context, "index-with-dimension", context.line.replaced(found[0], new), text)
    if context.torch is not None and context.torch >= _CAPTURES_INDEX:
        text = "Let Dynamo capture numbers that are read from tensors (without recompiles for their values)"
        yield from option(context, "index-capture", "capture_scalar_outputs", " = True", text)


def _is_written(parent: ast.AST | None) -> bool:
    return isinstance(parent, ast.Attribute) and has_in_place_name(parent.attr)


REFUSED: dict[str, tuple[Rule, ...]] = {"GB0219": (refused,)}


RULES: Mapping[str, tuple[Rule, ...]] = MappingProxyType({**SCALARS, **DATA_SHAPES, **PRINTING, **TRAINING, **CALLS, **VALUES, **REFUSED})
MOST_FIXES = 2

# Breaks that carry no id: what their text says (`torch/_dynamo/exc.py` UserError, 2.11 and 2.15).
_UNDECIDED = re.compile(
    r"could not (?:guard on|extract) .*data-dependent|consider annotating your code using torch\._check", re.IGNORECASE | re.DOTALL
)
_JOINED = (
    "is read before this break and written into behind it; without the break both are in one graph, in which torch's backward pass may "
    "take the values after the write, so gradients could be wrong"
)
_REACHED = "a line behind it raised while it was traced; without this break that would leave the whole function eager"
_NOT_KNOWN = "dynadiag knows no change that removes this break"
_ASYNC = re.compile(r"async_op|\(Work\)|\bWork\b.*\bwait\b")
_DISTRIBUTED = re.compile(r"\btorch\.distributed\b|\bdistributed_c10d\b|[/\\]torch[/\\]distributed[/\\]")
# What `torch.distributed` has and `torch.distributions` has not, which people also call `dist`.
_OF_DISTRIBUTED = re.compile(
    r"(?:^|\.)(?:dist|distributed|c10d)\.(?:\w*(?:all_|reduce|gather|scatter|broadcast)\w*|barrier|monitored_barrier|i?send|i?recv"
    r"|batch_isend_irecv|new_group|ReduceOp|P2POp|\w+Options)(?:\.|$)"
)
_DDP = re.compile(r"[/\\]torch[/\\]nn[/\\]parallel[/\\]distributed\.py$")
_ENTRY = re.compile(r"[/\\]torch[/\\]_dynamo[/\\]eval_frame\.py$")
FIRST_PARAMETERS = (
    "torch may compute with the parameters that `functional_call` was first given: compare the results with those of eager first"
)
_OWN_CALLS = re.compile(r"\bDistributedDataParallel\._inside_ddp_forward\b")


def break_advice(event: BreakEvent | GraphBreak, run: Run, own_frame: Location | None = None) -> tuple[Advice, ...]:
    """What to change for one graph break, best first, two changes at most; empty where nothing was established (`why_nothing` says why).

    `own_frame` is the user's own frame where the caller knows it. Only options that the torch of the run has are named; where that is
    not recorded they carry "if your torch has it".
    """
    return advised(event, run, own_frame)[0]


def advised(event: BreakEvent | GraphBreak, run: Run, own_frame: Location | None = None) -> tuple[tuple[Advice, ...], str]:
    """The advice as `break_advice` gives it, and the reason why there is none: "" where there is some."""
    said = tuple(_said(break_context_of(event, run, own_frame), run))
    fixes = _unique(advice for advice in said if isinstance(advice, Advice))[:MOST_FIXES]
    return fixes, "" if fixes else next((item.reason for item in said if isinstance(item, Withheld)), _NOT_KNOWN)


def _said(context: BreakContext, run: Run) -> Iterable[Said]:
    if in_ddp(context):
        return ddp_advice(run)
    if in_collective(context):
        return collective_advice(context)
    if _asks_for_causality(context):
        return _causal(context)
    if context.library_cures:
        return context.library_cures
    rules = _rules(context)
    ours = tuple(advice for rule in rules for advice in rule(context))
    if not any(isinstance(item, Advice) for item in ours) and (decided := tuple(_decided_by_user(context))):
        return decided
    if not rules:
        return (Withheld(_reason(context)),)
    changes = [element for element in ours if isinstance(element, Advice)]
    if changes and (left := remains(context)) is not None:
        return (Withheld(left),)
    if any(kind_of(change.slug).joins for change in changes) and (why := counted_behind(context, run)):
        return (Withheld(why),)
    if any(_joins(entry, context) for entry in changes):
        if name := read_then_written(context):
            return (Withheld(f"`{name}` {_JOINED}"),)
        if _reaches_what_raised(context):
            return (Withheld(_REACHED),)
    if context.place is not None and any(one.options for one in changes) and any(FUNCTIONAL in row for row in context.place.rows):
        return (Withheld(FIRST_PARAMETERS),)
    ours_to_tell = {train_step.OWN_BREAK, train_step.APART} & {advice.reason for advice in ours if isinstance(advice, Withheld)}
    if context.library and not changes and not ours_to_tell:
        return (Withheld(_library(context)),)
    return ours


def _decided_by_user(context: BreakContext) -> Iterator[Advice]:
    """What the user's own line decides of a break in a library: whether it logs, and what keeps the library from its line."""
    if not context.editable and not in_logging(context):
        yield from loggers_of_libraries(context)
        yield from library_guards(context.steps, context.line, calls_on(context.line, context.around))


def _joins(advice: Advice, context: BreakContext) -> bool:
    """Whether the advice puts what is before and behind the line in one graph that torch may differentiate."""
    return kind_of(advice.slug).joins and (advice.slug != train_step.TRACE_GRAD or bool(context.line.given("create_graph")))


def _reaches_what_raised(context: BreakContext) -> bool:
    """Whether a line behind this one raised while Dynamo traced it, be it in Dynamo alone (`divmod` of a symbol)."""
    place, line = context.place, None if context.torch_frame is None or not context.editable else context.torch_frame.line
    if place is None or line is None:
        return False
    last = line - place.row + (place.node.end_lineno or 0)
    return any(number is not None and line < number <= last for number in context.raised)


def _reason(context: BreakContext) -> str:
    """Why nothing is advised for a type that has no rule."""
    if context.library:
        return _library(context)
    if _UNDECIDED.search(f"{context.gb_type}\n{context.explanation}"):
        return "torch has to decide something based on a number that is only known at run time"
    if context.resumed and not _key(context.gb_id, context.gb_type):
        return f"{_NOT_KNOWN}, and this code was compiled on its own because of a break before it, which comes first"
    return REASONS.get(_key(context.gb_id, context.gb_type) or "", _NOT_KNOWN)


def _asks_for_causality(context: BreakContext) -> bool:
    """`_detect_is_causal_mask` of `torch/nn/modules/transformer.py` (2.11 to 2.15) compares the mask when nobody says what it is."""
    frame = context.torch_frame
    return frame is not None and not context.editable and (frame.function or "").endswith("_detect_is_causal_mask")


def _causal(context: BreakContext) -> Iterable[Advice]:
    text = (
        f"torch reads the mask to see whether it is causal. State it where {line_name(context)} passes the mask: `is_causal=True` "
        "(`tgt_is_causal=True` of nn.Transformer) for a causal mask, `False` for any other; `False` is right for every mask"
    )
    return say("say-is-causal", text)


def _library(context: BreakContext) -> str:
    """What holds for each break on a line of a library."""
    return f"what breaks inside is {_whose(context)}, not yours to edit"


def _whose(context: BreakContext) -> str:
    """Whose code it is; code that `exec` made has a name in angle brackets and may be anybody's."""
    file = context.torch_frame.file if context.torch_frame is not None else ""
    if file.startswith("<"):
        return "code without a source file"
    package = re.search(r"[/\\](?:site-packages|dist-packages)[/\\]([A-Za-z]\w*)(?:[/\\]|\.py$)", file)
    return f"{package[1]}'s code" if package else "a library's code"


def _rules(context: BreakContext) -> tuple[Rule, ...]:
    """The rules of this break; whatever breaks inside the logging package is cured at the logger call."""
    if in_logging(context):
        return (logging_functions,)
    return rules_for(context.gb_id, context.gb_type)


def rules_for(gb_id: str | None, gb_type: str) -> tuple[Rule, ...]:
    """The rules of a break: by id, or by the text of its type; empty for a break that has none."""
    return RULES.get(_key(gb_id, gb_type) or "", ())


def _key(gb_id: str | None, gb_type: str) -> str | None:
    return gb_id if gb_id in RULES or gb_id in REASONS else _known_by_text(" ".join(gb_type.lower().split()))


def _known_by_text(gb_type: str) -> str | None:
    said = gb_type.removeprefix("unsupported: ")
    return GB_TYPES.get(gb_type) or next((gb_id for pattern, gb_id in OLD_TYPES if pattern.search(said)), None)


def _unique(found: Iterable[Advice]) -> tuple[Advice, ...]:
    """The advice once each; what leaves a part of the program out is told only where nothing else helps."""
    once = {(advice.slug if advice.after is None else "", advice.before, advice.after or ""): advice for advice in reversed(tuple(found))}
    found = tuple(once.values())[::-1]
    return tuple(advice for advice in found if not leaves_out(advice)) or found


def in_collective(context: BreakContext) -> bool:
    """Whether the break is at a call of `torch.distributed`, or at the handle that an asynchronous one returned."""
    file = context.torch_frame.file if context.torch_frame is not None else ""
    if context.library:
        return False
    return _waits(context) or any(_DISTRIBUTED.search(text) for text in (context.gb_context, file)) or _calls(context)


def collective_advice(context: BreakContext) -> Iterator[Said]:
    """The form that Dynamo captures."""
    if _waits(context):
        yield from say(
            "collective-sync",
            "Remove `async_op=True` and the corresponding `wait()`: Dynamo captures `all_reduce` and `all_gather` in the form that waits",
        )
    yield from withhold("Dynamo does not trace this `torch.distributed` call, which every rank has to make")


def _waits(context: BreakContext) -> bool:
    return _ASYNC.search(f"{context.gb_type} {context.gb_context}") is not None and not context.library


def _calls(context: BreakContext) -> bool:
    """Option objects of pybind11 have no module in torch 2.11's words; then the user's line tells."""
    if context.editable and "pybind11" not in context.gb_context:
        return False
    called = (dotted(node.func) or "" for node in context.line.nodes if isinstance(node, ast.Call))
    return any(_OF_DISTRIBUTED.search(name) for name in called)


def in_ddp(context: BreakContext) -> bool:
    """Whether the break is in DDP's own code, not in the model that it calls."""
    file = context.torch_frame.file if context.torch_frame is not None else ""
    return not context.editable and (_DDP.search(file) is not None or _OWN_CALLS.search(context.gb_context) is not None)


def ddp_advice(run: Run) -> Iterator[Advice]:
    """What the break means and what avoids it; the same words for each line of DDP, so that one finding says them once."""
    yield from say(
        "ddp-compile-inside",
        "To avoid these breaks, compile the model inside DDP and nothing around the call of DDP (adapt the names): "
        "`model = DDP(torch.compile(net))`. The graph is still split at DDP's buckets (`torch._dynamo.config.optimize_ddp`), so that "
        f"gradients are reduced while the backward runs. {_inside(run)}",
    )


@of_last_run
def _inside(run: Run) -> str:
    graphs = kept_graphs(run)
    if any(frame.id in graphs and _called_by_ddp(frame) for frame in run.frames):
        return "The inner model is still compiled, as separate frames"
    return (
        "No graph of the inner model was captured: after the break, Dynamo starts no frame in torch's own classes such as `nn.Sequential`"
    )


def _called_by_ddp(frame: Frame) -> bool:
    """Whether the compiled DDP module called this frame: no other compiled callable was entered in between."""
    for caller in reversed(callers(frame)):
        if _ENTRY.search(caller.file):
            return False
        if _DDP.search(caller.file):
            return True
    return False
