"""Advice for autograd, optimizers and RNN modules: what belongs around a compiled model, not inside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.advice.beside import blocks_around
from dynadiag.advice.break_context import BreakContext, Rule, Said, option, say, withhold
from dynadiag.advice.data_shapes import calls_only_torch
from dynadiag.advice.places import Place

OWN_BREAK = "torch.optim breaks the graph here on purpose, before its update, which is one graph: nothing has to change"

UPDATE_ALONE = (
    "this function computes no gradient, only what belongs around the update of an optimizer: Dynamo does not trace `zero_grad()` and the "
    "like, so call them outside of the compiled function"
)
MAY_DIFFER = "Results may differ in the last digits, and random numbers (dropout) altogether: other code is compiled"

APART = (
    "`backward()` and the optimizer break the graph on purpose, so compile only what computes the loss and leave the step in plain Python; "
    "which part that is, the recording does not show for certain"
)


def train_step(context: BreakContext) -> Iterator[Said]:
    """A whole train step was compiled: compile the model and leave the step in plain Python.

    The words are the same for each line of the step, so that one finding about all of them says them once.
    """
    if not context.inside and in_optimizer(context):
        yield from withhold(OWN_BREAK)
    elif "add_param_group" in context.gb_context or re.search(r"\boptim\.[A-Z]\w*\(", context.line.code):
        yield from withhold("an optimizer is created inside the compiled function, which Dynamo does not trace")
    elif context.place is not None and _wants_gradient(context.place):
        yield from withhold("the gradient is what the function computes, and Dynamo does not trace `backward()`")
    elif context.returns and context.place is not None and not re.search(r"\.backward\(|autograd\.", "\n".join(context.place.rows)):
        yield from withhold(UPDATE_ALONE)
    elif len(context.modules) != 1:
        yield from withhold(APART)
    else:
        (model,) = context.modules
        yield from say(
            "compile-model-apart",
            "Do not compile the whole train step: remove `torch.compile` from the function that calls the optimizer or `backward`, and "
            f"compile `{model}` once after it is created (pass what `torch.compile` was given): `{model}.compile()` leaves it the same "
            "object with the same `state_dict()`, as `torch.compile` does not; its other calls, such as those under `no_grad`, are then "
            f"compiled too; the train step itself stays plain Python. {MAY_DIFFER}",
            after=f"{model}.compile()",
        )


def _wants_gradient(place: Place) -> bool:
    """Whether the function makes a tensor require a gradient and reads a `.grad`: the gradient is what it computes."""
    names = {one.attr for one in ast.walk(place.node) if isinstance(one, ast.Attribute)}
    return "grad" in names and not names.isdisjoint(("requires_grad_", "requires_grad"))


def autograd_grad(context: BreakContext) -> Iterator[Said]:
    """`torch.autograd.grad(...)` inside the compiled function.

    Behind a break its graph came from outside, and the option leaves the break where it is; what differentiates again (`create_graph`) is
    an error of AOTAutograd in compiled code; the option also takes in every `backward()` of the program's compiled functions. A tensor
    from which the gradient came that leaves the graph breaks it again (GB4927, torch 2.15).
    """
    place, again = context.place, re.search(r"create_graph|retain_graph", context.line.code) is not None
    if again:
        yield from withhold(
            "`create_graph=True` and `retain_graph=True` are for a second backward, and AOTAutograd raises an error at one that is not in "
            "the same graph"
        )
    elif context.trains or context.resumed or not context.editable or not context.returns or place is None or not place.leaves:
        yield from withhold("Dynamo does not differentiate what another graph, or eager code, computed")
    elif blocks_around(place) or _breaks_elsewhere(context, place) or not calls_only_torch(place):
        yield from withhold("the option only helps where one graph holds the whole function, and another line here ends it")
    elif (kept := _keeps_its_graph(place)) is not None:
        yield from withhold(f"`{kept}` leaves the graph with the history that the gradient was computed from, so the break would stay")
    else:
        text = (
            "Let Dynamo trace the gradient computation into the graph: no compiled function of this run calls `backward()` or an optimizer"
        )
        yield from option(context, "trace-grad", "trace_autograd_ops", " = True", text)
    yield from withhold("the torch that ran has no option to trace it")


def _breaks_elsewhere(context: BreakContext, place: Place) -> bool:
    """Whether another line of the function broke, or led to a line that did."""
    own, line = place.statement(), None if context.torch_frame is None else context.torch_frame.line
    if own is None or line is None:
        return True
    rows = set(range(place.node.lineno, (place.node.end_lineno or 0) + 1)) - set(range(own.lineno, (own.end_lineno or own.lineno) + 1))
    return any(row + line - place.row in context.on_the_way for row in rows)


def _keeps_its_graph(place: Place) -> str | None:
    """What the function computed up to the gradient and still has behind it, other than by `.detach()`; None where there is nothing."""
    own = place.statement()
    before = [one for one in ast.walk(place.node) if getattr(one, "lineno", place.row) < place.row]
    stored = next((one for one in before if isinstance(one, ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store)), None)
    if stored is not None:
        return place.text(stored)
    names = {one.id for one in before if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    inside = {id(one) for one in ast.walk(own or ast.Pass())}
    for one in place.behind():
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in names and id(one) not in inside:
            around = place.parent(one)
            if not (isinstance(around, ast.Attribute) and around.attr == "detach" and isinstance(place.parent(around), ast.Call)):
                return one.id
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
        yield from withhold("with `allow_rnn` Dynamo unrolls the RNN and compiles each length anew, and the sizes of this run vary")
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
