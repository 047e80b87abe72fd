"""Advice for autograd, optimizers, hooks, random state and modules: what belongs around a compiled model, not inside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.advice.mutation_lines import out_of_place
from dynadiag.advice.outside import instead, outside
from dynadiag.advice.situation import Rule, Situation, line_name, option, rewrite, say
from dynadiag.advice.source import dotted
from dynadiag.model.report import Advice

OWN_BREAK = "optimizer-own-break"


def train_step(situation: Situation) -> Iterator[Advice]:
    """A whole train step was compiled: compile the model, and the optimizer's step on its own.

    The words are the same for each line of the step, so that one finding about all of them says them once.
    """
    if not situation.inside and in_optimizer(situation):
        text = "torch.optim breaks the graph here on purpose, before its update, which is one graph: nothing has to change"
        yield from say(OWN_BREAK, text)
        return
    if _makes_optimizer(situation):
        yield from say("optimizer-outside", f"Make the optimizer once outside the compiled function: {line_name(situation)}")
        return
    yield from say(
        "compile-model-apart",
        "Do not compile the whole train step: take `torch.compile` off the function that calls the optimizer or `backward`, and compile "
        "the model once after it is made (put your name for it); the train step itself stays plain Python",
        after="model = torch.compile(model)",
    )
    calls = list(situation.line.methods("step"))
    call = calls[0] if len(calls) == 1 and ";" not in situation.line.code else None
    if call is not None and isinstance(call.func, ast.Attribute) and not call.args and not call.keywords:
        optimizer = situation.line.text(call.func.value)
        text = (
            f"Then the update can be a graph of its own: make `compiled_step = torch.compile({optimizer}.step)` once before the loop and "
            "call that (torch.optim breaks once before its update, on purpose: that break stays and is harmless)"
        )
        yield from rewrite(situation, "compile-optimizer-step", situation.line.replaced(call, "compiled_step()"), text, own_call=True)


def backward(situation: Situation) -> Iterator[Advice]:
    """`loss.backward()` inside the compiled function."""
    yield from train_step(situation)
    if situation.editable and not situation.trains:
        text = "Or let Dynamo trace `backward()` itself, as long as nothing of an optimizer is in the compiled function (experimental)"
        yield from option(situation, "trace-backward", "trace_autograd_ops", " = True", text)


def autograd_backward(situation: Situation) -> Iterator[Advice]:
    """`torch.autograd.backward(...)`: the same, but Dynamo cannot trace this spelling at all."""
    yield from train_step(situation)


def autograd_grad(situation: Situation) -> Iterator[Advice]:
    """`torch.autograd.grad(...)` inside the compiled function.

    Behind a break its graph came from outside, and the option leaves the break where it is; what differentiates again (`create_graph`) is
    an error of AOTAutograd in compiled code.
    """
    text = (
        f"Let Dynamo trace {line_name(situation)} into the graph (the option also takes `backward()` calls in: only where no compiled "
        "function calls `backward()` or an optimizer, else results can change; compare them once with eager)"
    )
    traced = not (situation.trains_anywhere or situation.resumed)
    yield from option(situation, "trace-grad", "trace_autograd_ops", " = True", text) if traced else ()
    call = next(situation.line.methods("grad"), None)
    again = {keyword.arg for keyword in call.keywords if getattr(keyword.value, "value", None) is not False} if call is not None else set()
    if "create_graph" in again:
        text = (
            "Compiled code has no second backward, which `create_graph=True` asks for: leave the calls whose gradient this line takes, and "
            "the line itself, out of compiled code, and compile the rest"
        )
        yield from say("grad-again", text)
        return
    around = "Compile only the forward computation and take the gradient outside the compiled function"
    yield from say("grad-outside", around)


def zero_grad(situation: Situation) -> Iterator[Advice]:
    """`optimizer.zero_grad()`: never traced."""
    yield from train_step(situation)


def schedulers(situation: Situation) -> Iterator[Advice]:
    """Learning-rate schedulers and gradient scalers keep Python state and belong outside."""
    yield from say(
        "scheduler-outside",
        f"Call {line_name(situation)} after the compiled function, in plain Python: it keeps Python state that Dynamo does not trace",
    )


def requires_grad(situation: Situation) -> Iterator[Advice]:
    """`requires_grad_()` or `t.requires_grad = True` inside."""
    name = _subject_of(situation, "requires_grad_", "requires_grad")
    tensor = f"`{name}`" if name else "the tensor"
    text = f"Set it on {tensor} outside the compiled function: on an input before the call, on a result after it"
    yield from say("requires-grad-outside", text)


def leaf_creation(situation: Situation) -> Iterator[Advice]:
    """`torch.zeros(3, requires_grad=True)` inside."""
    keyword = next(
        (k for node in situation.line.nodes if isinstance(node, ast.Call) for k in node.keywords if k.arg == "requires_grad"), None
    )
    text = "Make the leaf outside the compiled function and pass it in"
    if keyword is None:
        yield from say("leaf-outside", text)
        return
    yield from say(
        "leaf-outside",
        f"{text}: the gradient of a leaf created inside cannot be read (else drop `requires_grad=True`)",
    )


def parameters(situation: Situation) -> Iterator[Advice]:
    """`torch.nn.Parameter(...)` or a new module inside."""
    yield from say(
        "parameter-in-init",
        f"Create it once outside the compiled function (in `__init__`): {line_name(situation)} would make a new one at every call",
    )


def retain_grad(situation: Situation) -> Iterator[Advice]:
    """`y.retain_grad()` on an intermediate."""
    name = _subject_of(situation, "retain_grad", "retain_grad") or "the tensor"
    yield from say(
        "retain-grad-outside",
        f"Return `{name}` from the compiled function and call `retain_grad()` on it outside, before `backward()`",
    )


def grad_fn(situation: Situation) -> Iterator[Advice]:
    """`y.grad_fn`: the autograd graph of compiled code has other nodes."""
    text = (
        "Compiled code has no autograd node for each line: ask `requires_grad` instead, or look at `grad_fn` outside the compiled function"
    )
    yield from say("grad-fn-outside", text)


def forward_hooks(situation: Situation) -> Iterator[Advice]:
    """Registering or removing a hook inside."""
    yield from say("hook-outside", f"Register and remove hooks outside the compiled function, not by {line_name(situation)}")


def backward_hooks(situation: Situation) -> Iterator[Advice]:
    """A module with a full backward hook inside."""
    yield from say(
        "backward-hook-tensor",
        "Replace `register_full_backward_hook` by a tensor hook on the output (`output.register_hook(...)`) in the module's forward",
    )


def random_state(situation: Situation) -> Iterator[Advice]:
    """`torch.manual_seed`, `get_rng_state`, `set_rng_state`, `fork_rng` inside."""
    yield from say(
        "seed-outside",
        f"Call {line_name(situation)} before the compiled function: random state is not part of a graph",
    )


def generators(situation: Situation) -> Iterator[Advice]:
    """A `torch.Generator` made or used inside."""
    call = next(
        (node for node in situation.line.nodes if isinstance(node, ast.Call) and any(k.arg == "generator" for k in node.keywords)), None
    )
    drawn = f"`{situation.line.text(call)}`" if call is not None else "what it draws"
    yield from say("noise-outside", f"Draw {drawn} with the generator outside the compiled function and pass the tensor in")


def delayed(situation: Situation) -> Iterator[Advice]:
    """`GB0148`: a call that torch broke at on purpose, for the reason in its explanation; without one it is an RNN (torch 2.11)."""
    reason = re.search(r"Reason: (.+)", situation.explanation)
    if re.search(r"in-?place view", situation.explanation):
        form = instead(situation.line, out_of_place(situation.line.code))
        text = (
            f"{line_name(situation)} changes the shape or the memory of an input, which the caller sees: do it outside the compiled "
            f"function; where only later lines here need it, write {form}"
        )
        yield from say("view-input", text)
    elif (reason is None and not situation.explanation) or re.search(r"\b(RNN|GRU|LSTM|allow_rnn)\b", situation.explanation):
        yield from rnn(situation)
    else:
        yield from say("call-outside", outside(situation))


def rnn(situation: Situation) -> Iterator[Advice]:
    """An LSTM, GRU or RNN module."""
    if situation.packs:
        yield from packed(situation)
        return
    yield from option(
        situation, "rnn-allow", "allow_rnn", " = True", "Let Dynamo trace RNN, GRU and LSTM modules (not on packed sequences)"
    )
    text = f"Or leave it out on purpose: call {line_name(situation)} between two compiled parts"
    yield from say("rnn-apart", text)


def autograd_function(situation: Situation) -> Iterator[Advice]:
    """A custom `autograd.Function` that calls `ctx.mark_dirty`."""
    text = "Return a new tensor from `forward` instead of changing the input in place, and drop `ctx.mark_dirty(...)`"
    yield from say("function-out-of-place", text)


def anomaly(situation: Situation) -> Iterator[Advice]:
    """`detect_anomaly`, `saved_tensors_hooks`, `save_on_cpu` entered inside."""
    item = situation.line.statement
    name = situation.line.text(item.items[0].context_expr) if isinstance(item, ast.With) else None
    called = f"`with {name}:`" if name else line_name(situation)
    yield from say(
        "context-around",
        f"Enter {called} around the call of the compiled function, not inside it: it must see eager autograd",
    )


def grad_modes(situation: Situation) -> Iterator[Advice]:
    """`stack.enter_context(torch.no_grad())`: Dynamo traces the mode as a `with` statement, and not through contextlib."""
    call = next(situation.line.methods("enter_context"), None)
    if call is not None and len(call.args) == 1:
        mode = f"`with {situation.line.text(call.args[0])}:`"
        text = f"Write {mode} around the lines that {line_name(situation)} is for: Dynamo traces the `with` statement, not the stack's call"
        yield from say("with-statement", text)


def deepcopy(situation: Situation) -> Iterator[Advice]:
    """`copy.deepcopy(tensor)` or of something with tensors, `dataclasses.asdict`."""
    call = next(situation.line.calls("copy.deepcopy", "deepcopy", "copy.copy"), None)
    if call is not None and call.args and "TensorVariable()" in situation.context + situation.explanation and situation.depth <= 1:
        after = situation.line.replaced(call, f"{situation.line.text(call.args[0])}.clone()")
        yield from rewrite(
            situation,
            "copy-clone",
            after,
            "If it is a tensor, clone it (a clone stays in the autograd graph, a deepcopy does not)",
            own_call=True,
        )
    if any(True for _ in situation.line.methods("asdict")):
        text = "Read the fields (`getattr(obj, field.name) for field in dataclasses.fields(obj)`): `asdict` copies every tensor"
        yield from say("asdict-fields", text)
        return
    yield from say("copy-outside", f"Copy outside the compiled function: {line_name(situation)} needs the real object")


def shallow_copy(situation: Situation) -> Iterator[Advice]:
    """`copy.copy(tensor)`."""
    call = next(situation.line.calls("copy.copy"), None)
    if call is None or not call.args:
        return
    text = "If it is a tensor, `detach()` it for a new tensor of the same data, or clone it"
    yield from rewrite(
        situation, "copy-clone", situation.line.replaced(call, f"{situation.line.text(call.args[0])}.clone()"), text, own_call=True
    )


def set_data(situation: Situation) -> Iterator[Advice]:
    """`y.data = x`."""
    statement = situation.line.statement
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if isinstance(statement, ast.Assign) and isinstance(target, ast.Attribute) and target.attr == "data":
        after = f"{situation.line.text(target.value)}.copy_({situation.line.text(statement.value)})"
        text = "Copy the values into the tensor (under `torch.no_grad()` for a parameter); use the new tensor itself when the shape changes"
        yield from rewrite(situation, "data-copy", after, text)
    yield from say("data-outside", "Or assign `.data` outside the compiled function")


def resize(situation: Situation) -> Iterator[Advice]:
    """`resize_`, `set_` and their like change storage."""
    yield from say(
        "resize-new",
        "Make a new tensor of the wanted size (`torch.cat`, `torch.nn.functional.pad`) instead of resizing in place",
    )


def random_inplace(situation: Situation) -> Iterator[Advice]:
    """`t.random_(0, 5)`."""
    call = next(situation.line.methods("random_"), None)
    text = "Draw with `torch.randint` and copy the values in"
    if call is not None and len(call.args) == 2 and isinstance(call.func, ast.Attribute):
        base = situation.line.text(call.func.value)
        low, high = (situation.line.text(argument) for argument in call.args)
        after = situation.line.replaced(call, f"{base}.copy_(torch.randint({low}, {high}, {base}.shape))")
        yield from rewrite(situation, "random-randint", after, text)
        return
    yield from say("random-randint", text)


def sparse(situation: Situation) -> Iterator[Advice]:
    """A sparse tensor in the compiled function."""
    yield from say(
        "sparse-outside",
        "Sparse tensors are not compiled: keep them in eager code and pass dense tensors (or their indices and values) in; "
        f"move {line_name(situation)} out of the compiled function",
    )


def nested(situation: Situation) -> Iterator[Advice]:
    """A strided nested tensor."""
    call = next(situation.line.methods("nested_tensor", "as_nested_tensor"), None)
    text = "Use the jagged layout, which compiles"
    if call is not None and not any(k.arg == "layout" for k in call.keywords):
        after = situation.line.replaced(call, f"{situation.line.text(call)[:-1]}, layout=torch.jagged)")
        yield from rewrite(situation, "nested-jagged", after, text)
        return
    yield from say("nested-jagged", f"{text}: `layout=torch.jagged` where the nested tensor is made")


def script(situation: Situation) -> Iterator[Advice]:
    """A TorchScript module."""
    yield from say("script-original", "Compile the module as it was before `torch.jit.script` or `torch.jit.trace`")


def packed(situation: Situation) -> Iterator[Advice]:
    """`pack_padded_sequence` reads lengths, and no option lets Dynamo trace an RNN on what it returns."""
    text = (
        "Dynamo traces no packed sequences (not with `allow_rnn` either): keep packing, the RNN and unpacking together in a plain "
        "function, and compile what comes before and after it as functions of their own"
    )
    yield from say("pack-outside", text)


def share_memory(situation: Situation) -> Iterator[Advice]:
    """`x.share_memory_()`."""
    yield from say("share-outside", f"Call {line_name(situation)} once outside the compiled function")


def in_optimizer(situation: Situation) -> bool:
    """Whether the break is in torch.optim or at a call of an optimizer's step."""
    file = situation.torch_frame.file if situation.torch_frame is not None else ""
    return re.search(r"torch[/\\]optim[/\\]", file) is not None or "torch.optim" in situation.context


def _makes_optimizer(situation: Situation) -> bool:
    made = next((dotted(node.func) or "" for node in situation.line.nodes if isinstance(node, ast.Call)), "")
    return "add_param_group" in situation.context or re.search(r"(?:^|\.)optim\.[A-Z]\w*$", made) is not None


def _subject_of(situation: Situation, method: str, attribute: str) -> str | None:
    call = next(situation.line.methods(method), None)
    if call is not None and isinstance(call.func, ast.Attribute):
        return situation.line.text(call.func.value)
    found = next((node for node in situation.line.nodes if isinstance(node, ast.Attribute) and node.attr == attribute), None)
    return None if found is None else situation.line.text(found.value)


TRAINING: dict[str, tuple[Rule, ...]] = {
    "GB0123": (backward,),
    "GB9186": (autograd_grad,),
    "GB0125": (requires_grad,),
    "GB0206": (requires_grad,),
    "GB8985": (requires_grad,),
    "GB7324": (requires_grad,),
    "GB0225": (leaf_creation,),
    "GB0228": (parameters,),
    "GB0264": (parameters,),
    "GB0108": (retain_grad,),
    "GB0104": (grad_fn,),
    "GB0013": (forward_hooks,),
    "GB0083": (backward_hooks,),
    "GB0363": (generators,),
    "GB7650": (generators,),
    "GB0014": (rnn,),
    "GB0148": (delayed,),
    "GB2019": (autograd_function,),
    "GB0179": (deepcopy,),
    "GB4198": (deepcopy,),
    "GB0056": (set_data,),
    "GB6602": (set_data,),
    "GB9182": (set_data,),
    "GB0220": (set_data,),
    "GB0126": (resize,),
    "GB0127": (resize,),
    "GB0128": (resize,),
    "GB0107": (random_inplace,),
    "GB0015": (sparse,),
    "GB0277": (sparse,),
    "GB0374": (sparse,),
    "GB0016": (nested,),
    "GB0233": (nested,),
    "GB0357": (script,),
    "GB4695": (script,),
    "GB4197": (share_memory,),
}
