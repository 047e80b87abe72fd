"""What `--parity` compared, in words for the terminal and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynadiag.facts.wording import plural
from dynadiag.model import codes
from dynadiag.model.parity import Parity, Replayed
from dynadiag.render.sanitise import clean


def verdict(parity: Parity) -> str:
    """How many calls of how many graphs were compared, and how many of them were different."""
    total = parity.calls_equal + parity.calls_different
    if not total:
        return _whole(parity) + (
            "no call of a graph could be compared with eager" if parity.not_compared else "no compiled graph was called"
        )
    gradients = parity.gradients_equal + parity.gradients_different
    same = f"{parity.gradients_equal} equal within rounding"
    backwards = f"; gradients of {plural(gradients, 'call')}: {same}, {parity.gradients_different} different"
    return (
        f"{_whole(parity)}{plural(total, 'call')} of {plural(parity.graphs_compared, 'graph')} compared with eager: "
        f"{parity.calls_equal} equal within rounding, {parity.calls_different} different{_strides(parity)}"
        f"{backwards if gradients else ''}{_beyond(parity)}"
    )


def _beyond(parity: Parity) -> str:
    """Where whole calls alone differ: why nothing was seen at the graphs."""
    alone = parity.whole_calls is not None and parity.whole_calls.different and not parity.calls_different + parity.gradients_different
    return "; each graph does what was traced" if alone else ""


def _whole(parity: Parity) -> str:
    """Of how many whole calls the results were to the bit, within rounding, and different."""
    calls = parity.whole_calls
    if calls is None:
        return ""
    total = calls.equal + calls.rounding + len(calls.different)
    out = sum(item.graphs for item in calls.not_compared)
    left = f", {plural(out, 'callable')} with calls not compared" if out else ""
    if not total:
        return "no whole call compared; "
    parts = (f"{calls.equal} equal", f"{calls.rounding} within rounding", f"{len(calls.different)} different")
    return f"{plural(total, 'whole call')} compared with the function in eager: {', '.join(parts)}{left}; "


def _strides(parity: Parity) -> str:
    """Of how many different calls all values are eager's."""
    calls = [call for call in parity.different if not call.backward and not call.more_differences]
    only = sum({difference.kind for difference in call.differences} == {"stride"} for call in calls)
    return "" if not only else " in strides only" if only == parity.calls_different else f", {only} of them in strides only"


def could_happen(replayed: Replayed) -> str:
    """How many graphs `dynadiag parity` replayed over calls that were not made, and what that gave."""
    found = ways([(finding.code, finding.aspect) for finding in replayed.findings]) or "no difference"
    by = f" by torch {clean(replayed.torch, limit=60)}" if replayed.torch else ""
    replays = f"{replayed.compared} of {plural(replayed.graphs, 'graph')} replayed{by}"
    return f"{replays} over calls that the program did not make: {found} (`dynadiag parity`)"


def ways(found: Sequence[tuple[str, str]]) -> str:
    """`1 way to go wrong, 2 ways to differ` of codes, each with what differs of the smallest tensor: strides alone are no wrong result."""
    differ = found.count((codes.REPLAY_METADATA, "stride"))
    wrong = len(found) - differ
    parts = (f"{plural(wrong, 'way')} to go wrong" if wrong else "", f"{plural(differ, 'way')} to differ" if differ else "")
    return ", ".join(filter(None, parts))


def details(parity: Parity) -> Iterator[str]:
    """What was not compared and why, what was random, and what no comparison of graphs shows."""
    if parity.whole_calls is not None:
        for whole in parity.whole_calls.not_compared:
            yield f"whole calls of {plural(whole.graphs, 'callable')} not compared: {clean(whole.why, limit=300)}"
        if parity.whole_calls.random_values:
            yield f"{plural(parity.whole_calls.random_values, 'value')} of whole calls that depend on random numbers: not compared"
        if parity.whole_calls.unsteady:
            yield f"{plural(parity.whole_calls.unsteady, 'value')} that eager itself does not give twice: not compared"
        yield "what a call prints was not compared"
        if parity.whole_calls.rounding:
            yield "where values within rounding first leave eager's, and what ends it: `dynadiag numerics`"
    for not_compared in parity.not_compared:
        yield f"{plural(not_compared.graphs, 'graph')} not compared: {clean(not_compared.why, limit=300)}"
    if parity.no_backward:
        yield f"gradients of {plural(parity.no_backward, 'call')} not compared: no backward ran"
    if parity.random_values:
        yield f"{plural(parity.random_values, 'random value')}: only sizes, dtypes, memory and the presence of gradients compared"
    yield parity.not_shown
