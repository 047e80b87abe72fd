"""Advice for `torch.compile(DDP(net))`: the breaks are DDP's own bookkeeping around the model, and compiling the model inside avoids them.

Counted on torch 2.11 and 2.15: `DDP(torch.compile(net))` has no such break, and `DDPOptimizer` splits its graph at DDP's buckets into as
many parts as that of `torch.compile(DDP(net))` (`ConvertFrameAssert.__call__`, `torch/_dynamo/convert_frame.py`: it asks for the DDP module
that is running, whichever of the two was compiled).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.advice.break_context import BreakContext, say
from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.user_frames import callers, of_last_run
from dynadiag.model.report import Advice
from dynadiag.model.run import Frame, Run

_DDP = re.compile(r"[/\\]torch[/\\]nn[/\\]parallel[/\\]distributed\.py$")
_ENTRY = re.compile(r"[/\\]torch[/\\]_dynamo[/\\]eval_frame\.py$")
_OWN_CALLS = re.compile(r"\bDistributedDataParallel\._inside_ddp_forward\b")


def in_ddp(context: BreakContext) -> bool:
    """Whether the break is in DDP's own code, not in the model that it calls."""
    file = context.torch_frame.file if context.torch_frame is not None else ""
    return not context.editable and (_DDP.search(file) is not None or _OWN_CALLS.search(context.gb_context) is not None)


def ddp_advice(run: Run) -> Iterator[Advice]:
    """What the break means and what avoids it; the same words for each line of DDP, so that one finding says them once."""
    yield from say(
        "ddp-compile-inside",
        "To avoid these breaks, compile the inner model (adapt the names): `model = DDP(torch.compile(net))` instead of "
        "`torch.compile(DDP(net))`. The graph is still split at DDP's buckets (`torch._dynamo.config.optimize_ddp`), so that gradients "
        f"are reduced while the backward runs. {_inside(run)}",
    )


@of_last_run
def _inside(run: Run) -> str:
    graphs = kept_graphs(run)
    if any(frame.id in graphs and _called_by_ddp(frame) for frame in run.frames):
        return "The inner model is still compiled, as separate frames"
    return (
        "No graph of the inner model was captured: after the break, Dynamo starts no frame in torch's own classes such as `nn.Sequential`"
    )


def _called_by_ddp(frame: Frame) -> bool:
    """Whether the compiled DDP module called this frame: no other compiled callable was entered in between."""
    for caller in reversed(callers(frame)):
        if _ENTRY.search(caller.file):
            return False
        if _DDP.search(caller.file):
            return True
    return False
