"""The kinds of advice (slugs) that `dynadiag fix` applies by itself; `docs/fix-rules.md` shows what each changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BRANCHES: Final = frozenset(("if-where", "if-return-where"))
"""Both sides of a branch are computed and one is selected."""
READS: Final = frozenset(("item-keep-tensor", "tolist-unbind"))
"""A tensor takes the place of a number that was read."""
REWRITES: Final = frozenset(
    (
        *BRANCHES, *READS, "item-print", "print-format", "write-print", "copy-clone", "none-is", "out-result", "mask-where", "data-copy",
        "graph-break-remove", "mark-dynamic", "no-grad-instead-of-data",
    )
)  # fmt: skip
OPTIONS: Final = frozenset(
    (
        "item-capture", "shape-capture", "numpy-trace", "trace-grad", "rnn-allow", "print-reorder", "unspec-int-on-module",
        "parameter-shapes", "raise-limit",
    )
)  # fmt: skip
CAPTURES: Final[Mapping[str, str]] = {
    "scalar read": "capture_scalar_outputs",
    "dynamic shape operator": "capture_dynamic_output_shape_ops",
}
"""Options of torch by the category of breaks that they may end: also tried where no advice is for it, since a proof decides."""
