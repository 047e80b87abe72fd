"""Recompiles that a library causes: what is known to end them outside of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynadiag.advice.recompile_cause import Cause
from dynadiag.model.report import Advice

_CACHE = re.compile(r"\b(?:past_key_values?|(?:\w+_)?cache|kv_cache)\b", re.IGNORECASE)
# What a DynamicCache of transformers holds: `layers[0].keys` (5.x), `key_cache[0]` (4.x), and the length that it counts.
_IN_CACHE = re.compile(r"\.(?:layers|key_cache|value_cache|self_attention_cache|cross_attention_cache|_seen_tokens|cumulative_length)\b")


def library_advice(cause: Cause) -> Iterable[Advice]:
    """What the user can set for a cause in transformers; empty for everything else."""
    if not (cause.library or cause.foreign):
        return
    if _CACHE.search(cause.source) and _IN_CACHE.search(cause.source):
        yield Advice(
            slug="static-cache",
            text=(
                "The key-value cache grows with each token, and a new one starts empty. A cache of fixed size keeps its shapes: "
                "transformers' `StaticCache(config=model.config, max_cache_len=<longest>)` instead of `DynamicCache`, one for all prompts, "
                'with `reset()` between them (`cache_implementation="static"` for `generate`).'
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
