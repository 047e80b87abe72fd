"""What to do about an exception that torch.compile raised into the program, while it compiled or afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.model.report import Advice

# `torch/_functorch/_aot_autograd/runtime_wrappers.py`, 2.11 to 2.15.
_CONSTRAINT = re.compile(r"You marked .* as dynamic but your code specialized it to be a constant")
_DOUBLE_BACKWARD = re.compile(r"does not currently support double backward")


def uncaught_advice(text: str) -> tuple[Advice, ...]:
    """What is known for this text of torch, then how to see what eager does."""
    return tuple(_chosen(text))


def failure_advice(text: str) -> tuple[Advice, ...]:
    """What is known for the error of a compilation that failed; empty for others."""
    if not _CONSTRAINT.search(text):
        return ()
    maybe = "Mark it with `torch._dynamo.maybe_mark_dynamic` instead of `mark_dynamic`: the size is then compiled in, without an error."
    keep = "Or keep the code from deciding by that size (a comparison with a number, a parameter of a fixed shape): it then stays dynamic."
    return Advice(slug="maybe-mark-dynamic", text=maybe), Advice(slug="keep-size-open", text=keep)


def _chosen(text: str) -> Iterator[Advice]:
    if _DOUBLE_BACKWARD.search(text):
        yield Advice(
            slug="gradient-inside",
            text=(
                "Take the first gradient inside the compiled function with `torch.func.grad` (or `torch.func.value_and_grad`): the "
                "`backward()` outside is then the only one that AOTAutograd sees."
            ),
        )
        yield Advice(
            slug="backend-without-aot",
            text='Or compile this function with `backend="eager"`: Dynamo\'s graph then runs on plain autograd, which can do it.',
        )
        return
    yield Advice(
        slug="compare-with-eager",
        text="Run the program once with `TORCH_COMPILE_DISABLE=1` in its environment: that shows what eager does at this line.",
    )
