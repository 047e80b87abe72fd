"""Options of torch that may end a break, where the recording does not show that they do: ideas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dynadiag.changes.break_context import BreakContext, option
from dynadiag.changes.kinds import CAPTURES
from dynadiag.changes.train_step import TRACE_GRAD
from dynadiag.model.report import Advice
from dynadiag.source.uses import scalar_calls

_OF_CATEGORY = {
    "scalar read": "Let Dynamo capture the number in the graph. Check that nothing needs its value while the function is traced (a "
    "branch, `range`, a text)",
    "dynamic shape operator": "Let the graph carry the unknown size. Check that nothing needs it while the function is traced (a "
    "branch, `range`, a text)",
}
_GRADIENT = (
    "Let Dynamo trace the gradient computation into the graph. Check that the tensors that it goes back to are computed in the same "
    "function, and "
    "that no other compiled function of the program calls `backward()` or an optimizer, which the option takes in too"
)


def option_ideas(context: BreakContext, category: str) -> Iterator[Advice]:
    """The option for this kind of break."""
    found: Iterator[Advice] = iter(())
    if context.gb_id == "GB9186":
        found = option(context, TRACE_GRAD, "trace_autograd_ops", " = True", _GRADIENT)
    elif category in CAPTURES and not _is_needed(context):
        found = option(context, "capture-idea", CAPTURES[category], " = True", _OF_CATEGORY[category])
    elif "print" in context.gb_context and context.gb_id == "GB0059":
        text = (
            "Let Dynamo print after the graph has run, once before the first call. Check that it prints constants, tensors and "
            "f-strings alone, and "
            "that the function does not raise behind it"
        )
        found = option(context, "print-reorder", "reorderable_logging_functions", ".add(print)", text)
    yield from (replace(advice, how_sure="idea") for advice in found)


def _is_needed(context: BreakContext) -> bool:
    """Whether the line is the user's own and what becomes of the number may need its value, or is not plain to see: a symbol serves for
    arithmetic and for what the function returns.
    """
    if not context.editable:
        return False
    place, reads = context.place, scalar_calls(context.line)
    nodes = [] if place is None else [place.at(context.line, read) for read in reads]
    uses = [use.kind for node in nodes if node is not None and place is not None for use in place.uses(node)]
    return not uses or not {"arithmetic", "returned"}.issuperset(uses)
