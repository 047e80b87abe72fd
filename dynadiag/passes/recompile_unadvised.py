"""Why a finding on recompiles advises nothing: what each further change costs, and what the recording would have to show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynadiag.advice.recompile_reasons import split_reason
from dynadiag.facts.wording import listed, unique
from dynadiag.model.clauses import Cause, Clause, Effect, Settled, Unadvised
from dynadiag.passes.recompile_fixes import restless
from dynadiag.passes.recompiled import Recompiled
from dynadiag.passes.transitions import Row

_FEW = 2
_GROWS = Effect("Another value would be one more version, until the limit is reached and such calls run eagerly")
_NOTHING_KNOWN = Unadvised("the recording does not show that a change would end this")
_DYNAMIC, _BOTH_STATES = (
    "what changed is dynamic now, and another version is compiled only if the code branches on it",
    "what changed has two states, and each has its own version",
)


def settled(group: Sequence[Recompiled]) -> bool:
    """True if nothing more is to be expected: everything that changed became dynamic at its first change, or has two states at most."""
    return all(
        len(recompiled.code.steps) == 1 and all(row.dynamic_since or _two_states(row) for row in recompiled.rows) for recompiled in group
    )


def without_advice(group: Sequence[Recompiled], *, hit: bool) -> Iterator[Clause]:
    """Why nothing is advised."""
    splits = [recompiled.split for recompiled in group if recompiled.split is not None]
    if splits and len(splits) == len(group):  # what was entered from uncompiled code has its own versions anyway
        yield Cause(split_reason(splits))
        return
    if settled(group):
        rows = [row for item in group for row in item.rows]
        said = [_DYNAMIC] * any(row.dynamic_since for row in rows) + [_BOTH_STATES] * any(map(_two_states, rows))
        yield Settled("; ".join(said) or "no further versions are expected")
        return
    chosen = {id(row) for row in telling(group)}
    told = [
        why for element in group for row, why in zip(element.rows, element.reasons, strict=True) if id(row) in chosen and why is not None
    ]
    nothing = next((why for row in telling(group) if (why := _why_nothing(row)) is not None), _NOTHING_KNOWN)
    full = next((one.limit.value for one in group if one.limit.value is not None and one.limit.entries >= one.limit.value), None)
    yield from map(Effect, unique(told)[:2])
    if told and not hit and full:
        yield Effect(f"All {full} versions are used: a call that fits none of them is not compiled again, and runs eagerly")
    elif told and not hit and any(_goes_on(row) for one in group for row in one.rows):
        yield _GROWS
    elif told and not hit:
        yield Settled(enough=True)
        return
    yield nothing


def _why_nothing(row: Row) -> Unadvised | None:
    """Why nothing is advised for what has a version for each of its values; None where nothing more is known."""
    texts = bool(row.values) and any(value[:1] in "'\"" for value in row.values)
    if row.kind == "length":
        why = (
            "each number of elements is a constant of its version, and the recording does not show whether a tensor could hold them, "
            "or whether they could be added outside the compiled function"
        )
    elif row.kind == "value" and texts:
        why = "strings are constants of the compiled code, so only code outside of the compiled function can handle any string"
    elif row.kind == "value" and restless(row):
        why = "the recording does not show whether the code would work if torch kept this number dynamic"
    elif row.kind in ("identity", "function"):
        why = "the recording does not show where these objects come from, or whether one could serve for all of them"
    else:
        return None
    return Unadvised(why)


def _goes_on(row: Row) -> bool:
    """Whether it had more than two values, each with a version of its own, and nothing says that these are all."""
    others = sum(value.startswith("another ") for value in row.values)
    different = others + len({value for value in row.values if not value.startswith("another ")})
    return (restless(row) or (row.dynamic_since is None and not _two_states(row))) and different > _FEW


def _two_states(row: Row) -> bool:
    return row.kind == "requires_grad" or row.source in ("grad_mode",) or row.source.endswith(".training")


def because_of(group: Sequence[Recompiled]) -> str:
    """What the title gives as the cause, with a space before it; empty where nothing is known."""
    shown = telling(group)
    causes = listed(unique(row.text for row in shown if row.source), limit=2)
    told = {step.id for row in shown for step in row.steps}
    left_out = any(step.id not in told for recompiled in group for row in recompiled.rows for step in row.steps)
    return f"{', mostly' if left_out else ''} because of {causes}" if causes else ""


def telling(group: Sequence[Recompiled]) -> tuple[Row, ...]:
    """The rows without what became dynamic with its first change, where something else caused most of the recompiles."""
    table = [row for recompiled in group for row in recompiled.rows]
    lasting = tuple(row for row in table if row.dynamic_since is None or len(row.steps) > 1)
    return lasting if max((len(row.steps) for row in lasting), default=0) > 2 else tuple(table)
