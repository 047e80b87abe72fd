"""What to change so that a source stops causing recompiles: one small table a kind of failed guard.

Every slug is a row of `tests/with_torch/recompiles/cures_program.py`, which runs the program without and with the change on both torch
versions and compares recompiles and results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from dynadiag import trace
from dynadiag.advice.argument_names import by_name, is_torchs_name
from dynadiag.advice.recompile_cause import CONFIG, Cause, none
from dynadiag.advice.recompile_values import COMPILE_DYNAMIC, absent, another_module, type_advice, value_advice, variants
from dynadiag.advice.source import parse_line
from dynadiag.errors import UnreadableInputError
from dynadiag.model.mutations import SideEffect
from dynadiag.model.report import Advice
from dynadiag.model.run import MutationRecord, Run
from dynadiag.passes.base import process_of, short_place
from dynadiag.passes.guard_sources import dimension, is_global, stripped
from dynadiag.passes.places import source_function

# What a closure can hold, or the function itself; tensors that are passed in change on their own.
_OF_OBJECTS = frozenset({"value", "none", "type", "function", "identity", "length", "keys", "contains", "attribute", "invalidated"})


def recompile_advice(cause: Cause, run: Run) -> tuple[Advice, ...]:
    """The changes that end or reduce recompiles of this cause, the closest first; empty when we know none that was tried."""
    cause = replace(cause, called_in_compiled_code=_compiled_line(cause, run), written=_written(cause, run))
    found = list(_TABLE.get(cause.kind, none)(cause))
    if cause.compiled_again and cause.kind in _OF_OBJECTS:
        found.insert(0, _compile_once(cause))
    known = (advice for advice in found if all(_has_option(option, cause.process, run) for option in advice.options))
    return tuple(replace(advice, text=by_name(advice.text, cause)) for advice in known)


def limit_advice(process: int, limit: int | None, run: Run) -> tuple[Advice, ...]:
    """What helps when a frame hit the recompile limit and its causes cannot be removed."""
    text = (
        "If the number of variants is small and known, raise the limit above it; the calls that now run eager are then compiled. "
        "If the values are unbounded, remove the cause instead: a higher limit only moves the point where it ends."
    )
    option = f"{CONFIG}recompile_limit"
    advice = Advice(slug="raise-limit", text=text, after=f"{option} = {(limit or 8) * 2}", options=(option,))
    return (advice,) if _has_option(option, process, run) else ()


def _has_option(option: str, process: int, run: Run) -> bool:
    """False only if the torch that ran is known not to have the option."""
    found = process_of(run, process)
    names = None if found is None else found.option_names.get("dynamo")
    return not option.startswith(CONFIG) or not names or option.removeprefix(CONFIG) in names


def _compiled_line(cause: Cause, run: Run) -> bool:
    """Whether the line of the call is in a function that was compiled itself."""
    call = cause.entered
    return call is not None and any(one.file == call.file and source_function(one.name) == call.function for one in run.frames)


def _written(cause: Cause, run: Run) -> bool:
    """Whether torch's record of side effects says that the code of the finding changes the object whose length it guards on."""
    if cause.kind != "length" or cause.call is None:
        return False
    here = {one.id for one in run.frames if one.file == cause.call.file and source_function(one.name) == cause.call.function}
    records = [one for one in run.mutation_records if one.kind == "side_effects" and one.frame in here]
    changed = (effect.source for one in records for effect in _effects(one))
    return any(f"len({stripped(source)})" == stripped(cause.raw_source) for source in changed if source is not None)


def _effects(record: MutationRecord) -> tuple[SideEffect, ...]:
    """What the record says; nothing where it cannot be read (the mutation pass says so)."""
    try:
        return trace.side_effects(record.payload)
    except UnreadableInputError:
        return ()


def _before_call(advice: Advice, cause: Cause, function: str, tensor: str, index: int) -> Advice:
    """The advice with the line to put before the call where the tensor's name there is known, else the same in words."""
    code, name = parse_line(cause.entered.code if cause.entered is not None else None).code, cause.as_written(tensor)
    if name is None or not code:
        if cause.resumed:
            return advice
        shown = "<the tensor>" if is_torchs_name(tensor) else tensor
        there = "" if shown != tensor else " (by the name that the tensor has there)"
        return replace(advice, text=f"{advice.text[:-1]}: `{function}({shown}, {index})` outside the compiled function{there}.")
    text = advice.text.replace("before the first call", f"before the first call{_elsewhere(cause)}")
    return replace(advice, text=text, before=code, after=f"{function}({name}, {index})\n{code}")


def _elsewhere(cause: Cause) -> str:
    """Where the line is, when it is not the one that the finding shows."""
    same = (
        cause.call is not None
        and cause.entered is not None
        and (cause.call.file, cause.call.line) == (cause.entered.file, cause.entered.line)
    )
    return "" if same or cause.entered is None else f" (at {short_place(cause.entered)})"


def _size(cause: Cause) -> Iterable[Advice]:
    if cause.on_parameter:
        option = f"{CONFIG}force_parameter_static_shapes"
        yield Advice(
            slug="parameter-shapes",
            text=(
                f"`{cause.source}` is a size of a parameter, which torch keeps static. Allow dynamic parameter sizes before the first call."
            ),
            after=f"{option} = False",
            options=(option,),
        )
        return
    if cause.dynamic_false:
        yield Advice(
            slug="drop-dynamic-false",
            text="`dynamic=False` compiles every size anew. Leave it out: torch then makes a size that changed dynamic.",
        )
        return
    if {"0", "1"} & set(cause.values):
        yield from _small_sizes(cause)
        return
    place = dimension(cause.source)
    if place is not None and not cause.raw_source.startswith("___") and not cause.source.startswith("___"):
        tensor, index = place
        advice = Advice(
            slug="mark-dynamic",
            text=(
                f"Say before the first call that dimension {index} of {_shown(tensor, cause)} varies, "
                "so the first version is dynamic already."
            ),
        )
        yield _before_call(advice, cause, "torch._dynamo.mark_dynamic", tensor, index)
    yield COMPILE_DYNAMIC


def _shown(tensor: str, cause: Cause) -> str:
    """The tensor for a sentence: by its name at the call, else by that in the compiled function."""
    written = cause.as_written(tensor)
    if written is not None:
        return f"`{written}`"
    return f"`{tensor}`, or of the argument that it is computed from," if cause.resumed else f"`{tensor}`"


def _small_sizes(cause: Cause) -> Iterable[Advice]:
    place = dimension(cause.source)
    first = place is None or place[1] == 0
    avoid = "Keep such batches out (`drop_last=True` in the DataLoader) or pad them" if first else "To be without it, pad to at least 2"
    yield Advice(
        slug="avoid-size-one",
        text=(
            "torch compiles the sizes 0 and 1 on their own, also when the dimension is dynamic: one version more, not one a call. "
            f"{avoid} and cut the result."
        ),
    )
    if place is not None and not place[0].startswith("___"):
        advice = Advice(
            slug="mark-unbacked",
            text=(
                f"Or declare dimension {place[1]} of {_shown(place[0], cause)} unbacked, which turns that specialisation off; code that "
                "branches on it then no longer compiles."
            ),
        )
        yield _before_call(advice, cause, "torch._dynamo.decorators.mark_unbacked", place[0], place[1])


def _function(cause: Cause) -> Iterable[Advice]:
    yield Advice(
        slug="hoist-function",
        text=(
            f"`{cause.source}` is another function object each time it is made. Define it once, outside the loop, and pass the same object."
        ),
    )


def _identity(cause: Cause) -> Iterable[Advice]:
    if re.search(r"function|method|code object|<lambda>", cause.text):
        yield from _function(cause)
    else:
        yield from variants(cause)


def _compile_once(cause: Cause) -> Advice:
    return Advice(
        slug="compile-once",
        text=(
            "`torch.compile` is called again and again on the same line, and each new function has its own closure. "
            "Compile once and pass what changes as an argument."
        ),
    )


def _one(slug: str, text: str, *, after: str | None = None) -> Callable[[Cause], Iterable[Advice]]:
    """A kind with a single cure; `{source}` and `{tensor}` in the texts are filled in."""

    def build(cause: Cause) -> Iterable[Advice]:
        tensor = re.sub(r"\.(?:\w+\(\d*\)|dtype|device(?:\.index)?|requires_grad)$", "", cause.source)
        names = {"source": cause.source, "tensor": tensor}
        yield Advice(slug=slug, text=_filled(text, names), after=None if after is None else _filled(after, names))

    return build


def _filled(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: names[match[1]], text)


def _length(cause: Cause) -> Iterable[Advice]:
    if re.search(r"(?:^|\()(?:\w*kwargs|args)\)?$", cause.source):
        yield Advice(
            slug="same-arguments",
            text="The function is called with more arguments in some calls than in others. Always pass the same ones.",
        )
        return
    if " != " in cause.text:
        yield from _FIXED_KEYS(cause)
        return
    if _grows(cause):
        yield Advice(
            slug="append-outside",
            text=(
                f"`{cause.source}` gets longer from call to call, and each length is compiled on its own. Return what is appended and "
                "append it outside the compiled function."
            ),
        )
        return
    yield Advice(
        slug="stack-list",
        text=(
            "Each number of elements is compiled on its own. If they are tensors of one shape, stack them and mark the "
            "first dimension dynamic (`x = torch.stack(tensors)`, `torch._dynamo.mark_dynamic(x, 0)`); else pad to a fixed number."
        ),
    )


def _grows(cause: Cause) -> bool:
    """Whether a list that the code itself changes, or that belongs to an object, a module or the closure, was longer each time."""
    numbers = [int(value) for value in cause.values if re.fullmatch(r"\d{1,9}", value)]
    raw = cause.raw_source.removeprefix("len(")
    kept = cause.written or "." in cause.source or is_global(raw) or "closure" in cause.source or "__closure__" in raw
    return kept and len(numbers) > 1 and all(one < other for one, other in pairwise(numbers))


def _invalidated(cause: Cause) -> Iterable[Advice]:
    if not cause.source.startswith("___"):
        yield from _KEEP_ALIVE(cause)


def _global_state(cause: Cause) -> Iterable[Advice]:
    name = cause.source
    for part, (slug, text) in _STATES.items():
        if part in name:
            yield Advice(slug=slug, text=text)
            return
    yield Advice(
        slug="state-before-compile",
        text=f"`{name}` was changed after the first compiled call. Set it once, before anything is compiled.",
    )


def _dispatch_keys(cause: Cause) -> Iterable[Advice]:
    if any("Autograd" in value or "ADInplaceOrView" in value for value in cause.values):
        yield Advice(
            slug="same-inference-mode",
            text=(
                f"`{cause.source}` is an inference tensor in some calls and a normal one in others. Create it in the same "
                "mode (`torch.inference_mode()` around all, or around none)."
            ),
        )


_FIXED_KEYS = _one(
    "fixed-keys",
    "The dictionary or set does not always hold the same keys. Always pass the same keys, with a neutral value for what is absent.",
)
_KEEP_ALIVE = _one(
    "keep-object-alive", "`{source}` was freed, and the version compiled for it with it. Keep the object alive and pass the same one."
)
_STATES: Mapping[str, tuple[str, str]] = {
    "grad_mode": (
        "same-grad-mode",
        (
            "The function is called with and without gradients, which are two programs with one version each. Warm up "
            "and measure in the mode that you use; after both are compiled nothing more happens."
        ),
    ),
    "autocast": (
        "same-autocast",
        (
            "The function is called under different autocast settings. Put every call under the same "
            "`torch.autocast(...)`, warm-up and evaluation too."
        ),
    ),
}


_TABLE: Mapping[str, Callable[[Cause], Iterable[Advice]]] = {
    "size": _size,
    "value": value_advice,
    "none": absent,
    "module": another_module,
    "type": type_advice,
    "function": _function,
    "identity": _identity,
    "length": _length,
    "keys": _FIXED_KEYS,
    "contains": _FIXED_KEYS,
    "global_state": _global_state,
    "dispatch_keys": _dispatch_keys,
    "zero_one": _small_sizes,
    "attribute": _one(
        "set-attribute-always",
        "`{source}` is there in some calls and missing in others. Always set it, with a neutral value where it is not used.",
    ),
    "requires_grad": _one(
        "same-requires-grad",
        (
            "`{tensor}` needs a gradient in some calls and not in others: two versions, and no change is needed where both are meant (the "
            "first of several compiled layers, real and generated data). Else detach it where no gradient is wanted "
            "(`{tensor}.detach()`), and freeze parameters before the first call."
        ),
    ),
    "dtype": _one(
        "one-dtype", "`{tensor}` comes in different dtypes. Convert it to one dtype before the call, as in `{tensor}.to(torch.float32)`."
    ),
    "device": _one(
        "one-device", "`{tensor}` comes from different devices. Move it to one device before the call, as in `{tensor}.to(device)`."
    ),
    "stride": _one(
        "contiguous",
        "`{tensor}` comes in different memory layouts. Bring it into one layout before the call, as in `{tensor}.contiguous()`.",
    ),
    "rank": _one(
        "one-rank",
        "`{tensor}` comes with different numbers of dimensions. Reshape it to one number of dimensions before the call.",
    ),
    "function_mode": _one(
        "same-function-mode",
        (
            "A torch function mode (`with torch.device(...)`, `torch.set_default_device`, or one of your own) is active "
            "in some calls only. Enter it before the first call, or create tensors with `device=`."
        ),
    ),
    "backend": _one(
        "one-backend-object",
        (
            "`torch.compile` was given another backend object, so nothing compiled before can be used. Create the "
            "backend once and pass the same object."
        ),
    ),
    "aliasing": _one("no-aliased-arguments", "{source} are sometimes the same object. Pass a clone (`.clone()`) where they are."),
    "dim_marking": _one(
        "mark-before-first-call",
        "The tensor was marked (`mark_dynamic` and its kin) only after the first compiled call. Mark every input from the first call on.",
    ),
    "condition": _one(
        "branch-outside",
        (
            "The compiled code holds for one side of a condition on `{source}`. Take the branch outside and compile "
            "each side on its own, or make both sides one formula."
        ),
    ),
    "duck_size": _one(
        "no-duck-shape",
        "torch took two sizes for the same because they were equal at first. Compile first with sizes that differ, or turn that off.",
        after="torch.fx.experimental._config.use_duck_shape = False",
    ),
    "invalidated": _invalidated,
}
