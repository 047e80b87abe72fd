"""Options of `torch._dynamo.config` that let Dynamo trace what it broke at: by the kind of break, or because torch itself names one."""

from __future__ import annotations

import re

from dynadiag.changes.kinds import CAPTURES, IMPORTS_TORCH, Kind
from dynadiag.model.report import GraphBreak

TRACES = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops", "trace_autograd_ops")
"""Those that change only what is traced; a proof says whether they help."""
_NAMED = re.compile(r"torch\._dynamo\.config\.(\w+)")


def options_for(site: GraphBreak) -> tuple[str, ...]:
    """The options that may end a break."""
    said = " ".join((site.reason, site.explanation or "", *site.hints, *site.other_reasons))
    named = [option for option in _NAMED.findall(said) if option in TRACES]
    of_kind = [CAPTURES[site.category]] if site.category in CAPTURES else []
    return tuple(dict.fromkeys((*of_kind, *named)))


KINDS = (
    Kind(
        slugs=tuple(option.replace("_", "-") for option in TRACES),
        applied="rule",
        does="the option of `torch._dynamo.config`: in a library, and for your own lines without advice, where torch names it",
        asks=IMPORTS_TORCH,
    ),
)
