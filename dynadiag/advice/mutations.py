"""What to change about a mutation: one rule a code. Each recipe is tried by a test that runs it before and after."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from dynadiag.advice.mutation_lines import copied_into, out_of_place, receiver, under_no_grad
from dynadiag.advice.parity import undeclared_write
from dynadiag.advice.source import dotted, parse_line
from dynadiag.facts.lookups import compiled_functions, traced_by_frame
from dynadiag.facts.user_frames import callers, is_own_file, normal_path, own_frame, source_function
from dynadiag.model import codes
from dynadiag.model.report import Advice, Mutation
from dynadiag.model.run import Frame, Run

_Rule = Callable[[Mutation], tuple[Advice, ...]]
_OPTIMIZER = re.compile(r"/torch/optim/")
# Sources that are also code: variables, their attributes and items. `___stack0` and the like are Dynamo's own.
_PLAIN_SOURCE = re.compile(r"[LG]\['(?P<root>(?!___)\w+)'\](?P<rest>(?:\.(?!_modules|_parameters|_buffers)\w+|\[\d+\]|\['\w+'\])*)")
_MARK = "torch._dynamo.mark_static_address"


def mutation_advice(mutation: Mutation, run: Run) -> tuple[Advice, ...]:
    """The changes that end what this mutation costs; empty for one that costs nothing."""
    rule = _RULES.get(mutation.code)
    free = mutation.worst in (None, "free") and mutation.code != codes.UNDECLARED_WRITE
    if rule is None or free or _is_apart(mutation, run):
        return ()
    frame = run.frame(mutation.frame)
    if rule is _plain_input and frame is not None and frame.file is not None and not is_own_file(frame.file, run):
        return (_static_address(_passed(mutation, frame, run)),)
    given = rule(mutation) if _self_is_module(mutation, run) else tuple(filter(None, map(_without_buffer, rule(mutation))))
    return tuple(one if one.after is not None else replace(one, before=None) for one in given)


def _passed(mutation: Mutation, frame: Frame, run: Run) -> str | None:
    """What the user's line passes as an input that only a library's wrapper names: `r` for `args[1]` in `kernel[grid](x, r, n)`."""
    found = re.fullmatch(r"L\['args'\]\[(\d{1,3})\]", mutation.input)
    caller = own_frame(callers(frame), run)
    if found is None or caller is None or caller.code is None:
        return None
    calls = [node for node in parse_line(caller.code).nodes if isinstance(node, ast.Call)]
    launches = [call for call in calls if isinstance(call.func, ast.Subscript)] or calls
    given = launches[0].args[: int(found[1]) + 1] if len(launches) == 1 else []
    if len(given) <= int(found[1]) or any(isinstance(one, ast.Starred) for one in given):
        return None
    return dotted(given[-1])


def _self_is_module(mutation: Mutation, run: Run) -> bool:
    """Whether what is written is an attribute of `self`, and `self` has submodules, parameters or buffers: only a Module has buffers."""
    if not re.match(r"L\['self'\]\.\w+$", mutation.input):
        return False
    frames = {mutation.frame, *mutation.frames}
    of_module = re.compile(r"L\['self'\]\._(?:modules|parameters|buffers)\b")
    return any(of_module.match(one.source) for frame in frames for one in traced_by_frame(run).get(frame, ()))


def _without_buffer(advice: Advice) -> Advice | None:
    """The advice for an object that is no Module: without `register_buffer`."""
    if advice.slug == "module-buffer":
        return None
    if advice.slug == "tensor-counter" and advice.after is not None:
        text = "Keep the number in a tensor (`torch.zeros((), dtype=torch.long)`, then `add_(1)`): its value is no part of the guards."
        return replace(advice, text=text, after=None)
    return advice


def _is_apart(mutation: Mutation, run: Run) -> bool:
    """Whether an optimizer writes this in a step that is compiled for itself: no function that calls `step()` is compiled as well."""
    sites = [site for site in mutation.sites if _OPTIMIZER.search(normal_path(str(site.get("library") or "")))]
    if not sites or len(sites) < len(mutation.sites):
        return False
    return not any((site.get("file"), source_function(str(site.get("function")))) in compiled_functions(run) for site in sites)


def _line(mutation: Mutation) -> str | None:
    """The user's own line of the first write, or None when it is in a library."""
    site = next((one for one in mutation.sites if one.get("own")), None)
    code = site.get("code") if site is not None else None
    return code if isinstance(code, str) else None


def _name(mutation: Mutation) -> str:
    return receiver(_line(mutation)) or re.sub(r"^L\['(\w+)'\]", r"\1", mutation.input)


def _outer_name(mutation: Mutation) -> str:
    """The tensor as the compiled function names it: a variable of a loop or helper is not there outside, and `.data` is another tensor."""
    written = re.sub(r"\.data$", "", _name(mutation))
    plain = _PLAIN_SOURCE.fullmatch(mutation.input)
    if plain is None or re.split(r"\W", written)[0] == plain["root"]:
        return written
    return f"{plain['root']}{plain['rest']}"


def _plain_input(mutation: Mutation) -> tuple[Advice, ...]:
    if mutation.input.endswith(".grad") and any("compiled autograd passes it" in effect["detail"] for effect in mutation.effects):
        text = "Clear the gradients before backward (zero_grad(set_to_none=True)): it then makes new ones and adds to none."
        return (Advice(slug="clear-gradients", text=text, after="optimizer.zero_grad(set_to_none=True)"),)
    name = _outer_name(mutation)
    attribute = next((word for word in reversed(re.findall(r"\w+", name)) if word.isidentifier()), "cache")
    made = _static_address(name)
    buffer = Advice(
        slug="module-buffer",
        text="Or keep it on the module as a buffer: tensors of modules keep their address.",
        after=f'self.register_buffer("{attribute}", {name}, persistent=False)',
    )
    return (made, buffer)


def _static_address(name: str | None) -> Advice:
    if name is None:
        text = f"If the tensor that is written is the same on every call, say so once where it is made, with `{_MARK}(tensor)`; "
        return Advice(slug="static-address", text=f"{text}CUDA graphs then write it where it lies.", options=(_MARK,))
    return Advice(
        slug="static-address",
        text=f"If {name} is the same tensor on every call, say so once where it is made; CUDA graphs then write it where it lies.",
        after=f"{_MARK}({name})",
        options=(_MARK,),
    )


def _copied(mutation: Mutation) -> tuple[Advice, ...]:
    line = _line(mutation)
    plain = out_of_place(line)
    first = Advice(
        slug="out-of-place",
        text="Write a new tensor and return it: the copy back into the input is there only so that the caller and autograd see the write.",
        before=line if plain else None,
        after=plain,
    )
    second = Advice(
        slug="no-grad-write",
        text="If autograd need not see this write (statistics, an average), put it under torch.no_grad(): it then stays in the graph.",
        before=line,
        after=under_no_grad(line),
    )
    return (first, second)


def _hidden(mutation: Mutation) -> tuple[Advice, ...]:
    line = _line(mutation)
    return (
        Advice(
            slug="no-grad-instead-of-data",
            text="Write the tensor itself under torch.no_grad() instead of through .data or .detach(): the write then stays in the graph.",
            before=line,
            after=under_no_grad(line),
        ),
    )


def _metadata(mutation: Mutation) -> tuple[Advice, ...]:
    line = _line(mutation)
    plain = out_of_place(line)
    op = str(mutation.sites[0].get("op") or "") if mutation.sites else ""
    if plain is None and op == "detach_":
        plain = f"{_name(mutation)} = {_name(mutation)}.detach()"
    return (
        Advice(
            slug="view-instead",
            text="Take the view out of place: it shares the memory, costs nothing, and changes nobody else's tensor.",
            before=line if plain else None,
            after=plain,
        ),
    )


def _storage(mutation: Mutation) -> tuple[Advice, ...]:
    name, written = _name(mutation), copied_into(_line(mutation))
    return (
        Advice(
            slug="copy-instead-of-set",
            text=f"Write new values into the memory that {name} has, if the shapes match; else do this outside the compiled function.",
            before=_line(mutation) if written else None,
            after=written,
        ),
    )


def _requires_grad(mutation: Mutation) -> tuple[Advice, ...]:
    text = "Call requires_grad_() before the compiled function, on what is passed in; for a tensor made inside, return it detached."
    return (Advice(slug="requires-grad-outside", text=text, before=_line(mutation)),)


def _leaf(mutation: Mutation) -> tuple[Advice, ...]:
    line = _line(mutation)
    text = "Put the write under torch.no_grad(), or write out of place: eager refuses this line too."
    return (Advice(slug="leaf-no-grad", text=text, before=line, after=under_no_grad(line)),)


def _refused(mutation: Mutation) -> tuple[Advice, ...]:
    said = mutation.refusal or ""
    if "in backward for create_graph=True" in said or "a backward input that had data" in said:
        text = (
            "Let the backward (a custom autograd.Function, a hook) make a new tensor instead of writing in place (`g = g * 2` for "
            "`g.mul_(2)`); or leave `create_graph=True` out, if no gradient of the gradient is needed."
        )
        return (Advice(slug="backward-out-of-place", text=text),)
    if "different dtypes" in said:
        text = "Take the other dtype's view inside the compiled function; or pass a clone, if it need not see the write."
    elif "tensor subclass" in said:
        text = "Pass one of the aliased inputs as a clone: mutated aliases and tensor subclasses do not go together in one graph."
    elif "set_" in said or mutation.kind == "storage":
        text = "Use copy_() under no_grad, or give aot_autograd() of your back end keep_inference_input_mutations=True."
    else:
        text = "Write out of place, or clone this input before the call."
    return (Advice(slug="accepted-by-aot", text=text, before=_line(mutation)),)


def _merged(mutation: Mutation) -> tuple[Advice, ...]:
    others = ", ".join(mutation.overlaps) or "another input"
    text = f"Pass the common base once and slice it inside the compiled function, instead of {mutation.input} and {others}."
    return (Advice(slug="pass-the-base", text=text, before=_line(mutation)),)


def _python(mutation: Mutation) -> tuple[Advice, ...]:
    line = _line(mutation) or ""
    if re.search(r"\.(append|appendleft|extend|insert|add|setdefault|update)\(", line) or "[" in line.partition("=")[0]:
        text = "Return the value and put it into the container outside the compiled function: its length or keys are part of the guards."
        return (Advice(slug="append-outside", text=text, before=line or None),)
    name = mutation.input.rpartition(".")[2]
    if not name.isidentifier():
        return (Advice(slug="state-outside", text="Change this object outside the compiled function.", before=line or None),)
    counter = Advice(
        slug="tensor-counter",
        text="Keep the number in a tensor buffer: a tensor's value is not part of the guards.",
        before=line or None,
        after=f'self.register_buffer("{name}", torch.zeros((), dtype=torch.long))\n...\nself.{name}.add_(1)',
    )
    position = Advice(
        slug="tensor-index",
        text=f"Where {name} indexes a tensor, write with index_copy_ and a tensor index.",
        after=f"cache.index_copy_(dim, self.{name}.view(1), new)",
    )
    return (counter, position)


def _body(mutation: Mutation) -> tuple[Advice, ...]:
    if any(" in a register_" in str(effect.get("detail")) for effect in mutation.effects):
        text = "Let the hook return the changed gradient (`return g * 0.5` for `g.mul_(0.5)`)."
        return (Advice(slug="hook-return", text=text),)
    text = "Return the value from the body and change things behind the call; a while_loop or scan carries the tensor as an operand."
    return (Advice(slug="return-from-body", text=text, before=_line(mutation)),)


def _missed(mutation: Mutation) -> tuple[Advice, ...]:
    if (statement := parse_line(_line(mutation)).statement) is not None and _reads_itself(statement):
        return ()
    text = "Do not read the old value behind the write (take the rows needed before it); give separately written parts their own tensors."
    return (Advice(slug="let-it-write-in-place", text=text, before=_line(mutation)),)


def _reads_itself(statement: ast.stmt) -> bool:
    """Whether the line moves values inside one tensor (`buf[:-1] = buf[1:].clone()`): the copy is what it asks for."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Subscript):
        return False
    base = dotted(target.value)
    return base is not None and any(dotted(node) == base for node in ast.walk(statement.value))


def _backend(mutation: Mutation) -> tuple[Advice, ...]:
    text = "Let the back end keep writes of inputs in its graph."
    return (Advice(slug="keep-mutations", text=text, after="aot_autograd(fw_compiler=..., keep_inference_input_mutations=True)"),)


def _across(mutation: Mutation) -> tuple[Advice, ...]:
    text = "Remove the graph break before this line (see its own finding), or write out of place: ReLU(inplace=False), y = y.relu()."
    return (Advice(slug="across-break", text=text, before=_line(mutation)),)


def _out(mutation: Mutation) -> tuple[Advice, ...]:
    text = "Allocate the out= tensor with the result's shape before the call, or assign the result instead of using out=."
    return (Advice(slug="out-right-size", text=text, before=_line(mutation)),)


def _state(mutation: Mutation) -> tuple[Advice, ...]:
    return (Advice(slug="state-outside", text="Set this state outside the compiled function.", before=_line(mutation)),)


def _parameter(mutation: Mutation) -> tuple[Advice, ...]:
    written = copied_into(_line(mutation))
    text = "Write the parameter in place instead of replacing it: guards and optimizers hold on to the object."
    return (Advice(slug="write-the-parameter", text=text, before=_line(mutation) if written else None, after=written),)


def _autograd(mutation: Mutation) -> tuple[Advice, ...]:
    text = "Write out of place (or on a clone): autograd still needs the old value, or may not see this tensor change; eager fails too."
    line = _line(mutation)
    return (Advice(slug="keep-the-old-value", text=text, before=line, after=out_of_place(line)),)


def _optimizer(mutation: Mutation) -> tuple[Advice, ...]:
    kept_out = next((str(site.get("op")) for site in mutation.sites if mutation.graph is None), None)
    if kept_out is not None:
        return (_kept_out(kept_out, mutation),)
    text = "Compile the model and the optimizer's step apart; inside torch.optim the one break costs next to nothing."
    return (Advice(slug="optimizer-apart", text=text, after="step = torch.compile(optimizer.step)"),)


def _kept_out(op: str, mutation: Mutation) -> Advice:
    """For what torch itself never compiles."""
    if op.endswith("zero_grad"):
        text = "Call zero_grad outside the compiled function; torch keeps Dynamo out of it."
        return Advice(slug="zero-grad-outside", text=text, before=_line(mutation))
    text = f"Call the step outside the compiled function: torch never compiles {op}."
    more = " It is one kernel already; foreach=True instead of fused=True makes a step that compiles." if "fused" in op else ""
    return Advice(slug="step-outside", text=text + more, before=_line(mutation))


def _undeclared(mutation: Mutation) -> tuple[Advice, ...]:
    op = next((str(site["op"]) for site in mutation.sites if site.get("op")), "the operator")
    return (undeclared_write(op, mutation.input),)


_RULES: Final[Mapping[str, _Rule]] = {
    codes.INPUT_WITHOUT_ADDRESS: _plain_input,
    codes.COPIED_BACK: _copied,
    codes.WRITTEN_THROUGH_DATA: _hidden,
    codes.SIZES_CHANGED: _metadata,
    codes.STORAGE_REPLACED: _storage,
    codes.REQUIRES_GRAD_CHANGED: _requires_grad,
    codes.LEAF_WRITTEN: _leaf,
    codes.AOT_REFUSED_WRITE: _refused,
    codes.OVERLAPPING_INPUTS: _merged,
    codes.PYTHON_RECOMPILES: _python,
    codes.WRITTEN_IN_BODY: _body,
    codes.MISSED_IN_PLACE: _missed,
    codes.BACKEND_KEEPS_NO_WRITES: _backend,
    codes.OPTIMIZER_STEP: _optimizer,
    codes.WRITTEN_BEHIND_BREAK: _across,
    codes.OUT_RESIZED: _out,
    codes.STATE_SET: _state,
    codes.PARAMETER_REPLACED: _parameter,
    codes.AUTOGRAD_REFUSED_WRITE: _autograd,
    codes.UNDECLARED_WRITE: _undeclared,
}
