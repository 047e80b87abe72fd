"""Recompiles that a library causes: the commonest by name, else the graph break that the code was split by, else no advice at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from dynadiag.advice.recompile_cause import Cause
from dynadiag.facts.wording import short_place
from dynadiag.model.report import Advice

_CACHE = re.compile(r"\b(?:past_key_values?|(?:\w+_)?cache|kv_cache)\b", re.IGNORECASE)
# What a DynamicCache of transformers holds: `layers[0].keys` (5.x), `key_cache[0]` (4.x), and the length that it counts.
_IN_CACHE = re.compile(r"\.(?:layers|key_cache|value_cache|self_attention_cache|cross_attention_cache|_seen_tokens|cumulative_length)\b")
# Around an optimizer's step torch breaks on purpose: nobody can cure that (2.11 to 2.15).
_TORCHS_OWN_BREAK = re.compile(r"/torch/(?:optim/optimizer|_dynamo/external_utils)\.py$")
_TRAINER = re.compile(r"(?:^|/)(?:lightning|pytorch_lightning)/")


def library_advice(cause: Cause) -> Iterable[Advice]:
    """What to change for a library's own source; empty where no line of the user's would help."""
    for matches, build in _NAMED:
        if matches(cause):
            return (build(cause),)
    place = None if cause.split is None else cause.split.place
    if place is not None and _TORCHS_OWN_BREAK.search(place.file.replace("\\", "/")):
        return ()
    if cause.split is not None and (cause.foreign or cause.source.startswith("___")):
        return (_break_first(cause),)
    return ()


def split_advice(cause: Cause) -> tuple[Advice, ...]:
    """The break that splits code of the user's own from what calls it, unless it is one that torch makes on purpose.

    Established: each of its recompiles was entered from code that a break ended at that call, or that runs eager because of a break.
    """
    place = None if cause.split is None else cause.split.place
    on_purpose = place is not None and _TORCHS_OWN_BREAK.search(place.file.replace("\\", "/"))
    return () if cause.split is None or cause.resumed or cause.library or on_purpose else (_break_first(cause),)


def is_in_cache(cause: Cause) -> bool:
    """Whether the source is something that a key-value cache holds."""
    return _CACHE.search(cause.source) is not None and _IN_CACHE.search(cause.source) is not None


def _break_first(cause: Cause) -> Advice:
    split = cause.split
    assert split is not None
    break_ = "a graph break" if split.gb_id is None else f"the graph break {split.gb_id}"
    at = "" if split.place is None else f" at {short_place(split.place)}"
    return Advice(
        slug="cure-break",
        text=(
            f"This code has versions of its own only because {break_}{at} ends the graph of `{split.outer}`: without the break it is part "
            "of that graph. Cure the break first."
        ),
    )


def _static_cache(cause: Cause) -> Advice:
    return Advice(
        slug="static-cache",
        text=(
            "The key-value cache gets longer with each token, and a new one begins empty. A cache of fixed size keeps its shapes: "
            "transformers' `StaticCache(config=model.config, max_cache_len=<longest>)` instead of `DynamicCache`, one for all prompts, "
            'with `reset()` between them (`cache_implementation="static"` for `generate`).'
        ),
    )


def _problem_type(cause: Cause) -> Advice:
    value = next((value for value in cause.values if value != "None"), "'single_label_classification'")
    return Advice(
        slug="problem-type",
        text=(
            f"transformers sets `{cause.source}` in the first call with labels, after that call was compiled. Set it before: "
            f"`model.config.problem_type = {value}`."
        ),
    )


def _lightning(cause: Cause) -> Advice:
    return Advice(
        slug="compile-inner-module",
        text=(
            f"`{cause.source}` is Lightning's own: it changes with each step, also because of `self.log`. Compile the network inside the "
            "LightningModule (`self.net = torch.compile(self.net)` in `__init__`) instead of the LightningModule."
        ),
    )


def _is_lightning(cause: Cause) -> bool:
    origin = cause.origin
    return origin is not None and _TRAINER.search(origin.file.replace("\\", "/")) is not None


def _optimizers(cause: Cause) -> Advice:
    return Advice(
        slug="bounded-versions",
        text=(
            "The steps of all optimizers begin in one function of torch: each optimizer takes one of its versions, and no change is needed "
            "while there are fewer optimizers than versions."
        ),
    )


def _is_optimizer(cause: Cause) -> bool:
    """The optimizer itself as the first argument of torch's wrapper around `step` (`profile_hook_step`, `torch/optim/optimizer.py`)."""
    origin = cause.origin
    at_entry = origin is not None and origin.file.replace("\\", "/").endswith("optim/optimizer.py")
    return at_entry and cause.kind in ("identity", "function") and cause.source == "args[0]"


_NAMED: tuple[tuple[Callable[[Cause], bool], Callable[[Cause], Advice]], ...] = (
    (is_in_cache, _static_cache),
    (lambda cause: cause.source.endswith(".problem_type") and "None" in cause.values, _problem_type),
    (_is_lightning, _lightning),
    (_is_optimizer, _optimizers),
)
