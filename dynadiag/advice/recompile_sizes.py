"""Cures for recompiles because of the size of a tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from dynadiag.advice.argument_names import is_torchs_name
from dynadiag.advice.recompile_cause import CONFIG, Cause
from dynadiag.advice.recompile_values import COMPILE_DYNAMIC
from dynadiag.advice.source import parse_line
from dynadiag.facts.guard_sources import dimension
from dynadiag.facts.wording import short_place
from dynadiag.model.report import Advice

# What language models call their input: one token at a time after the prompt.
_TOKENS = re.compile(r"\b(?:input_ids|inputs_embeds|tokens|ids)\b")


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


def size_advice(cause: Cause) -> Iterable[Advice]:
    """Another size than the one that was compiled for."""
    if cause.on_parameter:
        # The second is asked first for parameters of torch's own modules (`tensor_always_has_static_shape`, `_dynamo/utils.py`).
        options = (f"{CONFIG}force_parameter_static_shapes", f"{CONFIG}force_nn_module_property_static_shapes")
        yield Advice(
            slug="parameter-shapes",
            text=(
                f"`{cause.source}` is a size of a parameter, which torch keeps static. Allow dynamic parameter sizes before the first call."
            ),
            after="\n".join(f"{option} = False" for option in options),
            options=options,
        )
        return
    if cause.dynamic_false:
        yield Advice(
            slug="drop-dynamic-false",
            text=(
                "`dynamic=False` compiles every size anew. Leave it out: torch then makes a size that changed dynamic, unless the code "
                "needs its value (a dictionary key, a layer of that size)."
            ),
        )
        return
    if {"0", "1"} & set(cause.values):
        yield from small_sizes(cause)
        return
    place = dimension(cause.source)
    if cause.dynamic is False:
        return  # torch made a constant of it although it had changed: a mark would raise an error
    # An attribute can still be None before the first call.
    # `___` is a guard's function, `__meta_utils_unknown_tensor13` a tensor that torch made while tracing (2.15: the state of the random
    # generator under activation checkpointing).
    named = not cause.raw_source.startswith("___") and not cause.source.startswith(("___", "__meta_utils_unknown_tensor"))
    # What compiled code passes to this function in a part that ran eager has no name outside of it.
    named = named and not cause.called_in_compiled_code
    if place is not None and named and (cause.there_at_first or not re.search(r"^self\b|\.", place[0])):
        tensor, index = place
        advice = Advice(
            slug="mark-dynamic",
            text=(
                f"Say before the first call that dimension {index} of {_shown(tensor, cause)} varies, "
                "so the first version is dynamic already."
            ),
        )
        yield _before_call(advice, cause, "torch._dynamo.maybe_mark_dynamic", tensor, index)
    yield COMPILE_DYNAMIC
    sizes = [int(value) for value in cause.values if re.fullmatch(r"\d{1,9}", value)]
    passed = place is not None and place[1] == 0 and cause.as_written(place[0]) is not None  # a tensor of the caller's
    if passed and len(sizes) == 2 and sizes[0] > sizes[1]:
        yield Advice(
            slug="drop-last",
            text=f"If the batch of {sizes[1]} is the last one of a DataLoader: `drop_last=True` leaves it out, and all have {sizes[0]}.",
        )


def _shown(tensor: str, cause: Cause) -> str:
    """The tensor for a sentence: by its name at the call, else by that in the compiled function."""
    written = cause.as_written(tensor)
    if written is not None:
        return f"`{written}`"
    return f"`{tensor}`, or of the argument that it is computed from," if cause.resumed else f"`{tensor}`"


def small_sizes(cause: Cause) -> Iterable[Advice]:
    """The sizes 0 and 1, which torch compiles on their own."""
    place = dimension(cause.source)
    if cause.beside_cache or (place is not None and place[1] == 1 and _TOKENS.search(place[0])):
        yield Advice(
            slug="bounded-versions",
            text=(
                "The call with the prompt and the calls with one token are two programs and get a version each (torch compiles the size 1 "
                "on its own). No change is needed for that."
            ),
        )
        return
    first = place is None or place[1] == 0
    avoid = (
        "Keep such batches out (`drop_last=True` in the DataLoader) or pad them and cut the result."
        if first
        else "No change is needed for that version."
    )
    yield Advice(
        slug="avoid-size-one",
        text=(
            f"torch compiles the sizes 0 and 1 on their own, also when the dimension is dynamic: one version more, not one a call. {avoid}"
        ),
    )
