"""Advice for autograd, optimizers and RNN modules: what belongs around a compiled model, not inside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dynadiag.changes.break_context import BreakContext, Rule, Said, option, quoted, say, withhold
from dynadiag.changes.kinds import IMPORTS_TORCH, SETS_OPTION, Kind
from dynadiag.changes.shape import calls_only_torch
from dynadiag.source.effects import blocks_around
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.place import Place
from dynadiag.source.tree import calls_in, ids_in

_KEEPS_HISTORY = (2, 11)
_MAKES_LEAVES = (2, 12)  # the first that may: 2.11 does not, 2.15 does
IN_PLACE = (2, 15)  # before, `Module.compile()` compiles nothing of a class of torch.nn, a Sequential for one (seen on 2.11 and 2.13)
OWN_BREAK = "torch.optim breaks the graph here on purpose, before its update, which is one graph: nothing has to change"

_NOT_IN_PLACE = (
    "(`{0}.compile()` changes no name, but before torch 2.15 it compiles nothing where the class is one of torch.nn, such as Sequential.)"
)
_UPDATE_ALONE = "this function computes no gradient, only what belongs around the update of an optimizer"
# `LRScheduler.__init__` puts it around the optimizer's `step` (`patch_track_step_called`, torch/optim/lr_scheduler.py, 2.11 to 2.15).
_SCHEDULED = (
    "a learning-rate scheduler of torch wraps the optimizer's `step()` (torch/optim/lr_scheduler.py), and Dynamo leaves that wrapper in "
    "Python; it tries to compile the step itself behind it"
)
COMPILE_APART = "compile-model-apart"
TRACE_GRAD = "trace-grad"
MAY_DIFFER = "Results may differ in the last digits, and random numbers (dropout) altogether: other code is compiled"

APART = (
    "`backward()` and the optimizer break the graph on purpose, so compile only what computes the loss and leave the step in plain Python; "
    "which part that is, the recording does not show for certain"
)


def train_step(context: BreakContext) -> Iterator[Said]:
    """A whole train step was compiled: compile the model and leave the step in plain Python.

    The words are the same for each line of the step, so that one finding about all of them says them once.
    """
    if _is_scheduled_step(context):
        yield from withhold(_SCHEDULED)
    elif not context.inside and in_optimizer(context):
        yield from withhold(OWN_BREAK)
    elif "add_param_group" in context.gb_context or _makes_optimizer(context.line):
        yield from withhold("an optimizer is created inside the compiled function, which Dynamo does not trace")
    elif context.place is not None and _wants_gradient(context.place):
        yield from withhold("the gradient is what the function computes, and Dynamo does not trace `backward()`")
    elif context.returns and context.place is not None and not _computes_gradient(context.place):
        yield from withhold(_update_alone(context))
    elif len(context.modules) != 1:
        yield from withhold(APART)
    else:
        (model,) = context.modules
        in_place = context.torch is not None and context.torch >= IN_PLACE
        yield from say(
            COMPILE_APART,
            "Do not compile the whole train step: remove `torch.compile` from the function that calls the optimizer or `backward`, and "
            f"{compile_once(model, in_place=in_place)} The train step itself stays plain Python. {MAY_DIFFER}",
            after=f"{model}.compile()" if in_place else f"{compiled_name(model)} = torch.compile({model})",
        )


def _is_scheduled_step(context: BreakContext) -> bool:
    """Whether what Dynamo refused is the `step` of an optimizer in the wrapper that a scheduler put around it."""
    said = f"{context.gb_context} {context.explanation}"
    step = re.search(r"qualname: \w+\.step\b", context.gb_context) is not None
    return (
        step
        and re.search(r"[/\\]torch[/\\]optim[/\\]lr_scheduler\.py", said) is not None
        and "module: torch.optim.lr_scheduler" not in said
    )


def _update_alone(context: BreakContext) -> str:
    """What a function does that has no `backward()`: what the line calls is named, since that is what Dynamo does not trace."""
    call = context.line.outer_call()
    if call is None or not isinstance(call.func, ast.Attribute):
        return f"{_UPDATE_ALONE}, which Dynamo does not trace: call that outside of the compiled function"
    return f"{_UPDATE_ALONE}: Dynamo does not trace `{call.func.attr}()` there, so call it outside of the compiled function"


def _makes_optimizer(line: SourceLine) -> bool:
    """Whether the line creates an optimizer of torch: `optim.Adam(...)`."""
    called = (dotted(node.func) or "" for node in line.nodes if isinstance(node, ast.Call))
    return any(re.search(r"(?:^|\.)optim\.[A-Z]\w*$", name) for name in called)


def _computes_gradient(place: Place) -> bool:
    """Whether the function calls a `backward()` or something of `torch.autograd`."""
    attributes = list(place.nodes(ast.Attribute))
    return any(attribute.attr == "backward" or "autograd" in (dotted(attribute) or "").split(".")[:-1] for attribute in attributes)


def compile_once(model: str, *, in_place: bool) -> str:
    """What to do with the model of a train step, and what it changes."""
    if in_place:
        return (
            f"compile `{model}` in place, once after it is created (pass what `torch.compile` was given). Its other calls, such as those "
            "under `no_grad`, are then compiled too. `torch.compile` would give another object, with other names in its `state_dict()`."
        )
    if "." in model:
        return (
            f"wrap `{model}` once, right after it is created (pass what `torch.compile` was given), so that all that follows gets what "
            "`torch.compile` returns. Its other calls, such as those under `no_grad`, are then compiled too, and the names in its "
            f"`state_dict()` begin with `_orig_mod.`: save and load that of `{model}._orig_mod`, which is also what can still be indexed, "
            f"iterated over or asked for its length. {_NOT_IN_PLACE.format(model)}"
        )
    return (
        f"make a compiled one beside `{model}`, once and right after it is created (pass what `torch.compile` was given), and let the step "
        f"call `{compiled_name(model)}(...)` where it calls `{model}(...)`. Both have the same parameters, and all else keeps `{model}`. "
        f"{_NOT_IN_PLACE.format(model)}"
    )


def compiled_name(model: str) -> str:
    """Where the compiled model goes: beside the other, which the program may index or save, or into the attribute that had it."""
    return model if "." in model else f"compiled_{model}"


def _wants_gradient(place: Place) -> bool:
    """Whether the function makes a tensor require a gradient and reads a `.grad`: the gradient is what it computes."""
    names = {node.attr for node in place.nodes(ast.Attribute)}
    return "grad" in names and not names.isdisjoint(("requires_grad_", "requires_grad"))


def autograd_grad(context: BreakContext) -> Iterator[Said]:
    """`torch.autograd.grad(...)` inside the compiled function.

    Dynamo traces it where all that it goes back to is in the same graph, or has no history; the option also takes in every `backward()` of
    the program's compiled functions. A tensor from which the gradient came that leaves the graph breaks it again (GB4927), unless the
    history is kept for a second backward (torch 2.11 and 2.15).
    """
    place, given = context.place, context.line.given("create_graph", "retain_graph")
    again = any(isinstance(expression, ast.Constant) and expression.value is True for expression in given)
    if again and (context.torch is None or context.torch < _KEEPS_HISTORY):
        yield from withhold(
            "`create_graph=True` and `retain_graph=True` keep the history for a second backward, which this torch does not trace"
        )
    elif context.trains or not (context.leaves and context.editable and context.returns) or place is None:
        yield from withhold("Dynamo does not differentiate what another graph, or eager code, computed")
    elif (blocks_around(place) and not (again and _is_plain_loop(place))) or _breaks_elsewhere(context, place):
        yield from withhold("the option only helps where one graph holds the rest of the function, and another line here may end it")
    elif not calls_only_torch(place, *_traced(context, place)):
        yield from withhold("the option only helps where one graph holds the rest of the function, which may call what ends it")
    elif not again and (kept := _keeps_its_graph(place)) is not None:
        yield from withhold(f"`{kept}` leaves the graph with the history that the gradient was computed from, so the break may stay")
    else:
        first, made = _requires_inside(context, place, made=False), _requires_inside(context, place, made=True) if again else None
        begins = "" if first is None else f"; the graph then begins after {quoted(first)}, since no graph makes a tensor require a gradient"
        if first is None and made is not None:
            begins = f"; a graph then ends at {quoted(made)} where the result goes back to that tensor (`create_graph=True`)"
        text = (
            "Let Dynamo trace the gradient computation into the graph: no compiled function of this run calls `backward()` or an optimizer"
        )
        yield from option(context, TRACE_GRAD, "trace_autograd_ops", " = True", f"{text}{begins}")
    yield from withhold("the torch that ran has no option to trace it")


def _is_plain_loop(place: Place) -> bool:
    """Whether only loops over `range(...)` are around the line, and nothing in the function asks, catches or makes text."""
    loops = {id(node) for node in blocks_around(place) if isinstance(node, ast.For) and ast.unparse(node.iter).startswith("range(")}
    plain = all(id(child) in loops for child in blocks_around(place))
    asks = (ast.If, ast.IfExp, ast.While, ast.Assert, ast.Try, ast.With, ast.JoinedStr, ast.comprehension, ast.Lambda)
    return plain and not any(
        isinstance(descendant, asks) or (isinstance(descendant, ast.For) and id(descendant) not in loops)
        for descendant in place.index.nodes
    )


def _traced(context: BreakContext, place: Place) -> list[str]:
    """The modules that the function also calls before the line: Dynamo has traced them up to it."""
    calls = (node for node in place.nodes(ast.Call) if node.lineno < place.row)
    return [name for call in calls if (name := dotted(call.func)) in context.modules]


def _requires_inside(context: BreakContext, place: Place, *, made: bool) -> str | None:
    """The line before this one at which the function makes a tensor require a gradient, and at which a graph ends for it.

    With `trace_autograd_ops` torch 2.15 takes it into the graph for a tensor that the function has made, not for an input; 2.11 for none.
    `made`: also those that it has made, which torch 2.15 refuses where an output goes back to one (GB8985).
    """
    found = [node for node in place.nodes(ast.Attribute) if node.attr in ("requires_grad_", "requires_grad")]
    if not made and (context.torch is None or context.torch >= _MAKES_LEAVES):
        stores = [(child.id, child.lineno) for child in place.nodes(ast.Name) if isinstance(child.ctx, ast.Store)]
        found = [
            attribute
            for attribute in found
            if isinstance(attribute.value, ast.Name)
            and not any(name == attribute.value.id and row < attribute.lineno for name, row in stores)
        ]
    rows = [item.lineno for item in found if item.lineno < place.row]
    return place.rows[max(rows) - 1].strip() if rows else None


def _breaks_elsewhere(context: BreakContext, place: Place) -> bool:
    """Whether another line of what Dynamo compiles from here on broke, or led to a line that did."""
    own, line = place.statement(), None if context.torch_frame is None else context.torch_frame.line
    if own is None or line is None:
        return True
    first = own.lineno if context.resumed else place.node.lineno  # a break before this line left nothing that has a history (`leaves`)
    rows = set(range(first, (place.node.end_lineno or 0) + 1))
    for statement in (own, *(_traced_as_well(place) if _keeps_history(own) else ())):
        rows -= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return any(row + line - place.row in context.on_the_way for row in rows)


def _traced_as_well(place: Place) -> Iterator[ast.stmt]:
    """The statements behind this one that compute a gradient too and keep the history, or leave none of it behind them: the option traces
    each of them (2.11 and 2.15).
    """
    behind = (node for node in place.nodes(ast.Assign) if node.lineno > place.row and len(_gradients(node)) == 1)
    yield from (child for child in behind if _keeps_history(child) or _keeps_its_graph(replace(place, row=child.lineno)) is None)


def _gradients(statement: ast.stmt) -> list[ast.Call]:
    found = calls_in(statement)
    return [call for call in found if dotted(call.func) in ("torch.autograd.grad", "autograd.grad")]


def _keeps_history(statement: ast.stmt) -> bool:
    """Whether the statement takes a gradient from `torch.autograd.grad(..., create_graph=True)`."""
    calls = _gradients(statement)
    kept = [word.value for call in calls for word in call.keywords if word.arg == "create_graph"]
    return len(calls) == len(kept) == 1 and isinstance(kept[0], ast.Constant) and kept[0].value is True


def _keeps_its_graph(place: Place) -> str | None:
    """What the function computed up to the gradient and still has behind it, other than by `.detach()`; None where there is nothing."""
    own = place.statement()
    before = [child for child in place.index.nodes if getattr(child, "lineno", place.row) < place.row]
    stored = next(
        (
            descendant
            for descendant in before
            if isinstance(descendant, ast.Attribute | ast.Subscript) and isinstance(descendant.ctx, ast.Store)
        ),
        None,
    )
    if stored is not None:
        return place.text(stored)
    names = {part.id for part in before if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    inside = ids_in(own)
    for node in place.behind():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names and id(node) not in inside:
            around = (each.func for each in place.around(node) if isinstance(each, ast.Call))
            if not any(isinstance(each, ast.Attribute) and each.attr == "detach" for each in around):
                return node.id
    return None


def delayed(context: BreakContext) -> Iterator[Said]:
    """`GB0148`: a call that torch broke at on purpose, for the reason in its explanation; without one it is an RNN (torch 2.11)."""
    if not context.explanation or re.search(r"\b(RNN|GRU|LSTM|allow_rnn)\b", context.explanation):
        yield from rnn(context)
    else:
        yield from withhold("the line changes the shape or the memory of an input, which the caller sees")


def rnn(context: BreakContext) -> Iterator[Said]:
    """An LSTM, GRU or RNN module."""
    if context.packs:
        yield from withhold("the program packs sequences for an RNN, which Dynamo does not trace, and `allow_rnn` applies to every RNN")
        return
    if context.sizes_vary:
        # Dynamo unrolls it: of two programs with ten lengths one went from 2 recompiles to 8, the other from 3 (torch 2.15).
        yield from withhold("with `allow_rnn` Dynamo unrolls the RNN and compiles each length separately, and the sizes of this run vary")
        return
    if context.backends != {"eager"}:
        # Inductor and aot_eager unroll it step by step, and its backward pass ended the program with an AssertionError (torch 2.15).
        yield from withhold("with `allow_rnn` this back end unrolls the RNN step by step, and training it may end with an error")
        return
    yield from option(context, "rnn-allow", "allow_rnn", " = True", "Let Dynamo trace RNN, GRU and LSTM modules (not on packed sequences)")


def in_optimizer(context: BreakContext) -> bool:
    """Whether the break is in torch.optim or at a call of an optimizer's step."""
    file = context.torch_frame.file if context.torch_frame is not None else ""
    of_scheduler = "lr_scheduler" in f"{file} {context.gb_context}"
    return not of_scheduler and (re.search(r"torch[/\\]optim[/\\]", file) is not None or "torch.optim" in context.gb_context)


TRAINING: dict[str, tuple[Rule, ...]] = {
    "GB0123": (train_step,),
    "GB9186": (autograd_grad,),
    "GB0014": (rnn,),
    "GB0148": (delayed,),
}


KINDS = (
    Kind(
        slugs=(COMPILE_APART,),
        applied="rule",
        does="a compiled train step stays plain Python, and its model is compiled where it is made, with the same options (before torch "
        "2.15 "
        "`model = torch.compile(model)`)",
        asks="model and step stand at the top level of one file, each made once; before torch 2.15, nothing asks for the names of "
        "parameters "
        "or for the class of the model",
        joins=False,
    ),
    Kind(slugs=(TRACE_GRAD, "rnn-allow"), applied="option", does=SETS_OPTION, asks=IMPORTS_TORCH),
)
