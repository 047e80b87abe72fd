"""Advice for tensors that are written in the body of a higher-order operator: a branch, a loop, a hook on a gradient."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.advice.situation import Rule, Situation, line_name, say
from dynadiag.model.report import Advice

_HOOK = re.compile(r"\bregister_\w*hook\b")


def written_in_body(situation: Situation) -> Iterator[Advice]:
    """A body of a higher-order operator, or a hook, writes into a tensor: return the new value instead."""
    # torch names the hook in its explanation ("Found in register_hook", `torch/_dynamo/variables/higher_order_ops.py`, 2.15).
    if _HOOK.search(situation.explanation):
        text = (
            f"The hook of {line_name(situation)} writes into the gradient that it is given. Let it return the changed gradient "
            "(`return g * 0.5` for `g.mul_(0.5)`)"
        )
        return say("hook-return", text)
    text = (
        f"The body that {line_name(situation)} runs writes into a tensor. Let every branch return the new value as well, and write it "
        "behind the call; a loop or scan carries it as an operand"
    )
    return say("return-from-body", text)


BODIES: dict[str, tuple[Rule, ...]] = {"GB0041": (written_in_body,)}
