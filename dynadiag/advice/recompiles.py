"""What to change so that a source stops causing recompiles: one small table a kind of failed guard.

Every slug is a row of `tests/with_torch/recompiles/cures_program.py`, which runs the program without and with the change on both torch
versions and compares recompiles and results.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from dynadiag import trace
from dynadiag.advice.argument_names import by_name
from dynadiag.advice.recompile_cause import CONFIG, Cause, Written, none
from dynadiag.advice.recompile_conditions import condition_advice
from dynadiag.advice.recompile_containers import keys_advice, length_advice
from dynadiag.advice.recompile_libraries import library_advice, split_advice
from dynadiag.advice.recompile_sizes import size_advice, small_sizes
from dynadiag.advice.recompile_values import absent, another_module, is_number, type_advice, value_advice
from dynadiag.errors import UnreadableInputError
from dynadiag.facts.guard_sources import readable, stripped
from dynadiag.facts.lookups import compiled_functions, process_of, side_effects_by_function
from dynadiag.facts.user_frames import of_last_run
from dynadiag.model.mutations import SideEffect
from dynadiag.model.report import Advice
from dynadiag.model.run import MutationRecord, Run

# What a closure can hold, or the function itself; tensors that are passed in change on their own.
_OF_OBJECTS = frozenset({"value", "none", "type", "function", "identity", "length", "keys", "contains", "attribute", "invalidated"})


# What has the same name and the same cure in a function that goes on after a break.
_WHEREVER_SPLIT = frozenset({"size", "zero_one", "duck_size", "global_state", "function_mode", "dim_marking", "backend"})


def recompile_advice(cause: Cause, run: Run) -> tuple[Advice, ...]:
    """The changes that end or reduce recompiles of this cause, the closest first; empty when we know none that was tried."""
    cause = replace(cause, called_in_compiled_code=_compiled_line(cause, run), written=_written(cause, run))
    found = list(library_advice(cause))
    if not found and not cause.foreign and not _is_intermediate(cause):
        found = list(split_advice(cause))
        if not found or (cause.kind in _WHEREVER_SPLIT - {"zero_one"} and {"0", "1"}.isdisjoint(cause.values)):
            found += _TABLE.get(cause.kind, none)(cause)
    if cause.compiled_again and cause.kind in _OF_OBJECTS and cause.dynamic is not True:
        found.insert(0, _compile_once(cause))
    if cause.modules > 2 and cause.kind in (*_OF_OBJECTS, "unknown") and re.search(r"\bself\b", cause.source or cause.text):
        found.insert(0, _compile_parent(cause))
    known = (advice for advice in found if all(_has_option(option, cause.process, run) for option in advice.options))
    return tuple(replace(advice, text=by_name(advice.text, cause)) for advice in known)


def _is_intermediate(cause: Cause) -> bool:
    """Whether the source may be a value that the function computed before the break after which this code goes on."""
    if cause.split is None or not cause.resumed or cause.kind in _WHEREVER_SPLIT:
        return False
    return cause.kind != "value" or is_number(cause)


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
    return call is not None and (call.file, call.function) in compiled_functions(run)


def _written(cause: Cause, run: Run) -> Written | None:
    """What torch's record of side effects says that the code of the finding does to the object whose length or keys it guards on."""
    if cause.kind not in ("length", "keys", "contains") or cause.call is None:
        return None
    name = cause.frame_name or cause.call.function
    raw = stripped(re.sub(r"^(?:len\(|keys of |.* in )", "", cause.raw_source).removesuffix(")"))
    return _changed_objects(run)(name).get(raw)


@of_last_run
def _changed_objects(run: Run) -> Callable[[str | None], Mapping[str, Written]]:
    """Finds by the name of a function what torch recorded that it does to Python objects, by their sources; each record is read once."""
    records = side_effects_by_function(run)

    @functools.cache
    def of(name: str | None) -> Mapping[str, Written]:
        found: dict[str, Written] = {}
        for effect in (effect for one in records.get(name, ()) for effect in _effects(one)):
            if effect.source is not None:
                written = Written(effect.type, next((stack[-1] for stack in effect.stacks if stack), None))
                found.setdefault(stripped(effect.source), written)
                found.setdefault(readable(effect.source), written)
        return found

    return of


def _effects(record: MutationRecord) -> tuple[SideEffect, ...]:
    """What the record says; nothing where it cannot be read (the mutation pass says so)."""
    try:
        return trace.side_effects(record.payload)
    except UnreadableInputError:
        return ()


def _function(cause: Cause) -> Iterable[Advice]:
    if "Not a function" in cause.text:  # `CodeGuardAccessor`, 2.15: what came is a callable of another kind, such as a partial
        yield Advice(
            slug="bounded-versions",
            text=(
                f"`{cause.source}` is a callable of another kind than before (a function, a `functools.partial`, a module): each kind "
                "takes one compiled version, and no change is needed."
            ),
        )
        return
    if "__code__" in f"{cause.raw_source} {cause.text}":  # what is made anew from the same lines keeps its code object
        text = (
            f"`{cause.source}` is a function of other code than before: each takes one compiled version, and no change is needed. Only "
            "what `exec` or `eval` makes anew for each call is to be made once."
        )
        yield Advice(slug="bounded-versions", text=text)
        return
    yield Advice(
        slug="hoist-function",
        text=(
            f"`{cause.source}` is another function object than before. Really different functions take one version each, and need no "
            "change. If it is made anew for each call (a lambda, a partial, a nested function), define it once, outside the loop, and pass "
            "the same object; what it captures and changes from call to call becomes an argument of the compiled function."
        ),
    )


def _identity(cause: Cause) -> Iterable[Advice]:
    if re.search(r"function|method|code object|<lambda>", cause.text):
        yield from _function(cause)
    else:
        yield Advice(
            slug="bounded-versions",
            text=(
                f"`{cause.source}` is another object than before: each object takes one compiled version, and no change is needed while "
                "there are fewer objects than versions. If it is made anew for each call, make it once."
            ),
        )


def _compile_once(cause: Cause) -> Advice:
    return Advice(
        slug="compile-once",
        text=(
            "`torch.compile` is called again and again on the same line, and each new function has its own closure. "
            "Compile once and pass what changes as an argument."
        ),
    )


def _compile_parent(cause: Cause) -> Advice:
    return Advice(
        slug="compile-parent",
        text=(
            f"One line compiles a module {cause.modules} times. Modules of one class share the compiled versions of their code, and each "
            "that is set up differently takes one. Compile the module that holds them instead: it is then one graph."
        ),
    )


def _one(slug: str, text: str, *, after: str | None = None) -> Callable[[Cause], Iterable[Advice]]:
    """A kind with a single cure; `{source}` and `{tensor}` in the texts are filled in."""

    def build(cause: Cause) -> Iterable[Advice]:
        tensor = re.sub(r"\.(?:\w+\(\d*\)|dtype|device(?:\.index)?|requires_grad)$", "", cause.source)
        names = {"source": cause.source, "tensor": tensor}
        yield Advice(slug=slug, text=_filled(text, names), after=None if after is None else _filled(after, names))

    return build


def _layout(what: str, slug: str, change: str) -> Callable[[Cause], Iterable[Advice]]:
    """A property of a tensor that differs between calls: one version each, unless the caller can give it one."""

    def build(cause: Cause) -> Iterable[Advice]:
        tensor = re.sub(r"\.(?:\w+\(\d*\)|dtype|device(?:\.index)?|requires_grad)$", "", cause.source)
        if cause.on_parameter:
            text = f"`{tensor}` is a parameter or buffer that has different {what} in some calls: the module was converted between them."
            yield Advice(slug=slug, text=f"{text} Convert it before the first call; where both are meant, no change is needed.")
            return
        text = f"`{tensor}` comes in different {what}: each takes one compiled version, and no change is needed where they are meant."
        yield Advice(slug=slug, text=f"{text} Else {_filled(change, {'tensor': tensor})}.")

    return build


def _filled(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: names[match[1]], text)


def _missing(cause: Cause) -> Iterable[Advice]:
    asked = re.search(r"\b(?:has|get)attr\(", "" if cause.origin is None else cause.origin.code or "")
    if asked or cause.origin is None or not cause.origin.code:
        text = (
            f"`{cause.source}` is there in some calls and missing in others: one compiled version with it and one without, and no change "
            "is needed. Setting it earlier would change what a question such as `hasattr` gives."
        )
        yield Advice(slug="bounded-versions", text=text)
        return
    text = f"`{cause.source}` is there in some calls and missing in others. Set it before the first call, to a value of the later type."
    yield Advice(slug="set-attribute-always", text=text)


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
                f"`{cause.source}` comes under `torch.inference_mode()`, or was made there, in some calls and not in others. Use "
                "`torch.no_grad()` there instead, or `torch.inference_mode()` around all calls and what makes their tensors."
            ),
        )


def _gradients(cause: Cause) -> Iterable[Advice]:
    tensor = cause.source.removesuffix(".requires_grad")
    if cause.on_parameter:
        text = (
            f"`{tensor}` is a parameter that is frozen in some calls and trained in others: one version for each, and no change is needed "
            "where both are meant. Else set `requires_grad` of the parameters before the first call and leave it."
        )
    else:
        text = (
            f"`{tensor}` needs a gradient in some calls and not in others: two versions, and no change is needed where both are meant (the "
            "first of several compiled layers, real and generated data). Else detach it where no gradient is wanted "
            f"(`{tensor}.detach()`), and freeze parameters before the first call."
        )
    yield Advice(slug="same-requires-grad", text=text)


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
    "size": size_advice,
    "value": value_advice,
    "none": absent,
    "module": another_module,
    "type": type_advice,
    "function": _function,
    "identity": _identity,
    "length": length_advice,
    "keys": keys_advice,
    "contains": keys_advice,
    "global_state": _global_state,
    "dispatch_keys": _dispatch_keys,
    "zero_one": small_sizes,
    "attribute": _missing,
    "requires_grad": _gradients,
    "dtype": _layout("dtypes", "one-dtype", "convert it to one dtype before the call (other results where the precision differs)"),
    "device": _layout("devices", "one-device", "move it to one device before the call, as in `{tensor}.to(device)`"),
    "stride": _layout(
        "memory layouts", "contiguous", "bring it into one layout before the call, as in `{tensor}.contiguous()`, which copies it"
    ),
    "rank": _layout("numbers of dimensions", "one-rank", "reshape it to one number of dimensions before the call"),
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
    "aliasing": _one(
        "no-aliased-arguments",
        (
            "{source} are sometimes the same object. Pass a clone (`.clone()`) for one of them there, and not for one that the function "
            "writes into: what is written into a clone is lost."
        ),
    ),
    "dim_marking": _one(
        "mark-before-first-call",
        "The tensor was marked (`mark_dynamic` and its kin) only after the first compiled call. Mark every input from the first call on.",
    ),
    "condition": condition_advice,
    "duck_size": _one(
        "no-duck-shape",
        "torch took two sizes for the same because they were equal at first. Compile first with sizes that differ, or turn that off.",
        after="torch.fx.experimental._config.use_duck_shape = False",
    ),
    "invalidated": _invalidated,
}
