"""Which options of torch are tried for a break: by its kind, and where torch itself names one that only changes what is traced."""

from __future__ import annotations

import pytest

from dynadiag.changes.named_option import options_for
from dynadiag.model.report import GraphBreak


@pytest.mark.parametrize(
    ("category", "said", "wanted"),
    [
        ("autograd or optimizer call", "with `torch._dynamo.config.trace_autograd_ops=False`", ("trace_autograd_ops",)),
        ("scalar read", "set torch._dynamo.config.capture_scalar_outputs = True", ("capture_scalar_outputs",)),
        ("dynamic shape operator", "no more is said", ("capture_dynamic_output_shape_ops",)),
        ("side effect", "set torch._dynamo.config.suppress_errors = True", ()),
    ],
)
def test_options_for(category: str, said: str, wanted: tuple[str, ...]) -> None:
    site = GraphBreak(
        id="b1", fingerprint="f", gb_id=None, category=category, reason="it broke", explanation=said, hints=(), own_frame=None,
        torch_frame=None, stack=(), events=1, frames=(),
    )  # fmt: skip
    assert options_for(site) == wanted
