"""How mutations are told, the same in the terminal and in Markdown: the verdict, the fold of free ones, effects and places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dynadiag.facts.guard_sources import readable
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.report import Mutation, Report
from dynadiag.render import wording
from dynadiag.render.sanitise import clean

EFFECTS: Mapping[str, str] = {
    "silent_wrong": "silently wrong",
    "error": "error",
    "eager_fallback": "eager fallback",
    "graph_break": "graph break",
    "recompile": "recompiles",
    "cudagraph_skip": "no CUDA graph",
    "copy_back": "copied back",
    "extra_copy": "extra copy",
    "free": "free",
}
_FREE_GROUPS: Mapping[str, tuple[str, str | None]] = {
    codes.OPTIMIZER_STEP: ("optimizer tensor", None),
    codes.BATCHNORM_STATISTICS: ("BatchNorm statistic", None),
    codes.PYTHON_REPLAYED: ("Python object", None),
    codes.MADE_IN_GRAPH: ("tensor made in a graph", "tensors made in a graph"),
    codes.STATIC_INPUT: ("static buffer or parameter", "static buffers and parameters"),
}


def is_folded(mutation: Mutation) -> bool:
    """Whether it goes under the one reassuring line: free, or an optimizer's own write behind torch's own break."""
    kinds = {effect.get("kind") for effect in mutation.effects}
    in_step = mutation.code == codes.OPTIMIZER_STEP and mutation.graph is not None  # else torch keeps Dynamo out of it: eager code writes
    return mutation.worst == "free" or (in_step and bool(kinds) and kinds <= {"free", "graph_break"})


def costly(report: Report) -> int:
    """How many mutations cost something; those that only recompile are counted as recompiles."""
    kinds = [{effect.get("kind") for effect in mutation.effects} - {"free"} for mutation in report.mutations if not is_folded(mutation)]
    return sum(kind != {"recompile"} for kind in kinds)


def source(mutation: Mutation, limit: int = 120) -> str:
    """The input as people write it."""
    return clean(readable(mutation.input[:4000]), limit=limit)


def verdict(report: Report) -> str:
    """The plain answer: whether a mutation forces an eager fallback."""
    refused = [mutation for mutation in report.mutations if any(effect.get("kind") == "eager_fallback" for effect in mutation.effects)]
    if refused:
        inputs = ", ".join(clean(readable(item.input), limit=80) for item in refused[:3])
        ran = any(
            effect.get("kind") == "eager_fallback" and effect.get("basis") == "observed"
            for element in refused
            for effect in element.effects
        )
        outcome = "the frame ran eagerly" if ran else "the program got the error; with suppress_errors the frame would run eagerly"
        return f"AOTAutograd refused a graph because of {inputs}: {outcome}."
    unknown = sum(not entry.effects for entry in report.mutations)
    errors = [one for one in report.mutations if one.worst == "error"]
    if errors:
        inputs = ", ".join(clean(readable(error.input), limit=80) for error in errors[:3])
        return f"The mutation of {inputs} ends in an error; none {'is known to force' if unknown else 'forces'} an eager fallback."
    if unknown:
        costs = wording.plural(unknown, "of them costs", "of them cost")
        return f"No mutation is known to force an eager fallback; what {costs} is not known."
    return "No mutation forces an eager fallback."


def count(report: Report) -> str:
    """`14: 2 cost something, 12 free; ...` for the headline."""
    folded = sum(map(is_folded, report.mutations))
    parts = f"{len(report.mutations):,}" + (
        f" ({len(report.mutations) - folded:,} with a cost, {folded:,} free)" if report.mutations else ""
    )
    return f"{parts}. {verdict(report)}"


def free_line(mutations: Sequence[Mutation]) -> str:
    """`12 free: 6 BatchNorm statistics, 4 optimizer tensors, 2 others`."""
    names = Counter(mutation.code if mutation.code in _FREE_GROUPS else "" for mutation in mutations)
    parts = [wording.plural(number, *_FREE_GROUPS[code]) for code, number in names.items() if code]
    if names.get(""):
        parts.append(wording.plural(names[""], "other"))
    said = f"{wording.plural(len(mutations), 'mutation')} free: {', '.join(parts)}"
    breaks = any(effect.get("kind") == "graph_break" for item in mutations for effect in item.effects)
    return said + (" (torch breaks the graph once around an optimizer's step: harmless)" if breaks else "")


def effects(mutation: Mutation) -> str:
    """`copied back (derived), no CUDA graph (predicted, when ...)`; why it is not known when there is none."""
    if not mutation.effects:
        return f"not known: {clean(mutation.unknown.get('effects', 'not recorded'), limit=160)}"
    return ", ".join(_effect(effect) for effect in mutation.effects)


def _effect(effect: Mapping[str, Any]) -> str:
    kind = EFFECTS.get(str(effect.get("kind")), clean(str(effect.get("kind")), limit=40))
    condition = f", {clean(str(effect['condition']), limit=160)}" if effect.get("condition") else ""
    return f"{kind} ({clean(str(effect.get('basis')), limit=20)}{condition})"


def places(mutation: Mutation, base: Path | None, limit: int = 4) -> str:
    """The lines that write, each once: `train.py:7, train.py:9`."""
    lines = []
    for site in mutation.sites:
        if isinstance(site.get("file"), str):
            line = site.get("line")
            lines.append(wording.place(Location(site["file"], line if isinstance(line, int) else None), base, function=False))
    known = list(dict.fromkeys(lines))
    if not known:
        return f"line not known ({clean(mutation.unknown.get('sites', 'not recorded'), limit=120)})"
    return ", ".join(known[:limit]) + (f" and {len(known) - limit} more" if len(known) > limit else "")
