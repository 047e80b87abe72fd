"""What to change so that a source stops causing recompiles: one small table a kind of failed guard.

Every slug is a row of `tests/with_torch/recompiles/cures_program.py`, which runs the program without and with the change on both torch
versions and compares recompiles and results. A change is told only where what was recorded shows that it does what it says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from dynadiag.advice.recompile_reasons import is_split
from dynadiag.changes.library_cure import library_cures
from dynadiag.changes.recompile import (
    condition_advice,
    is_learning_rate,
    is_module_integer,
    key_order_advice,
    length_advice,
    size_advice,
    value_advice,
)
from dynadiag.changes.recompile_cause import CONFIG, Cause
from dynadiag.facts.failed_attempts import failed_dynamic
from dynadiag.facts.lookups import process_of
from dynadiag.facts.user_frames import of_last_run, source_function
from dynadiag.facts.wording import listed, short_place
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import Run
from dynadiag.source.function import parse_function
from dynadiag.source.line import parse_line

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_BACKEND = re.compile(r"compiler='(\w+)'|<function ([\w.<>]+)>")


_CACHE = re.compile(r"\b(?:past_key_values?|(?:\w+_)?cache|kv_cache)\b", re.IGNORECASE)
# What a DynamicCache of transformers holds: `layers[0].keys` (5.x), `key_cache[0]` (4.x), and the length that it counts.
_IN_CACHE = re.compile(r"\.(?:layers|key_cache|value_cache|self_attention_cache|cross_attention_cache|_seen_tokens|cumulative_length)\b")


def recompile_advice(cause: Cause, run: Run) -> tuple[Advice, ...]:
    """The changes that end or reduce recompiles of this cause, the closest first; empty when none is established."""
    found = list(library_advice(cause)) or list(_of_atlas(cause, run))
    own = not cause.foreign and not cause.source.startswith("___")
    kept = is_learning_rate(cause) or (cause.kind == "value" and is_module_integer(cause))  # no break makes it change
    if not found and own and (not is_split(cause) or kept):
        found += _TABLE[cause.kind](cause) if cause.kind in _TABLE else ()
    if is_learning_rate(cause) and (written := _rate_written(run)):
        found = [replace(advice, text=f"{written} {advice.text}", how_sure="idea") for advice in found]
    if failed_dynamic(run):  # what a mark asks for at the first call is what does not compile
        found = [advice for advice in found if advice.slug != "mark-dynamic"]
    return tuple(advice for advice in found if all(_has_option(option, cause.code.process, run) for option in advice.options))


def _of_atlas(cause: Cause, run: Run) -> Iterable[Advice]:
    """What the atlas has for the function of a library in which the guard was asked for."""
    origin = cause.guard.origin
    return (
        ()
        if origin is None
        else library_cures((origin,), run, process_of(run, cause.code.process), guard=cause.guard.raw_source, line=cause.code.calls.shown)
    )


@of_last_run
def _rate_written(run: Run) -> str:
    """Where a compiled function sets a learning rate itself: what it writes there is a constant of each version, in a tensor too."""
    compiled = {(frame.file, source_function(frame.name)) for frame in run.frames}
    for source in run.functions:
        function = parse_function(source.text) if (source.file, source.name.rpartition(".")[2]) in compiled else None
        for node in () if function is None else function.nodes(ast.Subscript):
            if (
                isinstance(node.ctx, ast.Store)
                and isinstance(node.slice, ast.Constant)
                and node.slice.value == "lr"
                and function is not None
            ):
                place = short_place(Location(source.file, source.line + node.lineno - 1))
                row = function.code.splitlines()[node.lineno - 1].strip()
                return (
                    f"`{row}` ({place}) stands in the compiled `{source.name}`, where each rate is a constant of its version: set it in "
                    f"plain Python, "
                    "before the call."
                )
    return ""


def limit_advice(process: int, limit: int | None, needed: int, run: Run) -> tuple[Advice, ...]:
    """A higher limit, where all that changed has few states."""
    option, value = f"{CONFIG}recompile_limit", max(needed, (limit or 8) * 2)
    text = (
        f"What changed has so few states that {value} versions are enough: raise the limit before the first call, and what now runs "
        f"eagerly is compiled."
    )
    advice = Advice(slug="raise-limit", text=text, after=f"{option} = {value}", options=(option,))
    return (advice,) if _has_option(option, process, run) else ()


def _has_option(option: str, process: int, run: Run) -> bool:
    """False only if the torch that ran is known not to have the option."""
    found = process_of(run, process)
    names = None if found is None else found.option_names.get("dynamo")
    return not option.startswith(CONFIG) or not names or option.removeprefix(CONFIG) in names


def _backend(cause: Cause) -> Iterable[Advice]:
    """Back ends of one name are one function that is made anew; of two names they are meant."""
    names = {_ADDRESS.sub("", value) for value in cause.values}
    match = _BACKEND.search(names.pop()) if len(names) == 1 else None
    if match is not None:
        text = (
            f"`torch.compile` was given a different back end `{match[1] or match[2]}` each time, so nothing compiled before can be "
            f"reused. Create it once, and pass the same object."
        )
        yield Advice(slug="one-backend-object", text=text)


def _marked_later(cause: Cause) -> Iterable[Advice]:
    text = f"`{cause.source}` was marked (`mark_dynamic` or similar) only after the first call. Mark it before that call as well."
    yield Advice(slug="mark-before-first-call", text=text)


def _state_before(cause: Cause) -> Iterable[Advice]:
    """A setting that stays what it is until somebody sets it again: once, before the first compiled call."""
    if not cause.set_at:
        return
    lines = listed([f"`{location.code}` ({short_place(location)})" for location in cause.set_at])
    text = f"{lines} sets `{cause.source}`, for which torch compiles each value separately. Set it once, before the first compiled call."
    yield Advice(slug="state-before-compile", text=text)


def _equal_at_first(cause: Cause) -> Iterable[Advice]:
    text = "torch took two sizes to be the same because they were once equal. Turn that off before the first call."
    yield Advice(slug="no-duck-shape", text=text, after="torch.fx.experimental._config.use_duck_shape = False")


_TABLE: Mapping[str, Callable[[Cause], Iterable[Advice]]] = {
    "size": size_advice,
    "value": value_advice,
    "length": length_advice,
    "key_order": key_order_advice,
    "condition": condition_advice,
    "global_state": _state_before,
    "backend": _backend,
    "dim_marking": _marked_later,
    "duck_size": _equal_at_first,
}


def _generates(cause: Cause) -> bool:
    """Whether a `generate` of transformers calls the model: it makes caches of its own, of another length for each prompt."""
    lines = (parse_line(location.code) for location in (cause.code.calls.shown, *cause.code.calls.entered) if location is not None)
    return any(next(line.methods("generate"), None) is not None for line in lines)


def _is_static(cause: Cause) -> bool:
    """Whether the cache is one of fixed size already, which is made at its first use."""
    return cause.source.endswith((".is_initialized", ".max_cache_len"))


def library_advice(cause: Cause) -> Iterable[Advice]:
    """What the user can set for a cause in transformers; empty for everything else."""
    if not (cause.code.library or cause.foreign):
        return
    if _CACHE.search(cause.source) and _IN_CACHE.search(cause.source) and not (_generates(cause) or _is_static(cause)):
        yield Advice(
            slug="static-cache",
            text=(
                "The key-value cache grows with each token, and a new one starts empty. A cache of fixed size keeps its shapes: "
                "transformers' `StaticCache(config=model.config, max_cache_len=<longest>)` instead of `DynamicCache`, one for all prompts, "
                "with `reset()` between them, passed as `past_key_values=`."
            ),
        )
    elif cause.source.endswith(".problem_type") and "None" in cause.values:
        value = next((value for value in cause.values if value != "None"), "'single_label_classification'")
        yield Advice(
            slug="problem-type",
            text=(
                f"transformers sets `{cause.source}` in the first call with labels, after that call was compiled. Set it before: "
                f"`model.config.problem_type = {value}`."
            ),
        )
