"""Advice for graph breaks: which concrete change to make on the very line that broke.

The tables are keyed by torch's graph-break id (`torch/_dynamo/graph_break_registry.json`), which is stable over versions; a log without
ids is looked up by the type's text as 2.11 and 2.15 write it. What no table knows gets torch's own hints, marked as torch's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dynadiag.advice.backends import BACKENDS
from dynadiag.advice.bodies import BODIES
from dynadiag.advice.calls import CALLS
from dynadiag.advice.collectives import collective_advice, in_collective
from dynadiag.advice.data_shapes import DATA_SHAPES
from dynadiag.advice.ddp import ddp_advice, in_ddp
from dynadiag.advice.gb_types import GB_TYPES, OLD_TYPES
from dynadiag.advice.printing import PRINTING, in_logging, logging_functions
from dynadiag.advice.scalars import SCALARS, guards_on_data
from dynadiag.advice.situation import Rule, Situation, leaves_out, line_name, say, situation_of
from dynadiag.advice.training import OWN_BREAK, TRAINING
from dynadiag.model.report import Advice, GraphBreak
from dynadiag.model.run import BreakEvent, Location, Run

RULES: Mapping[str, tuple[Rule, ...]] = MappingProxyType({**SCALARS, **DATA_SHAPES, **PRINTING, **TRAINING, **CALLS, **BACKENDS, **BODIES})

# Breaks that carry no id: what their text says, and the rule for it (`torch/_dynamo/exc.py` UserError, 2.11 and 2.15).
_WITHOUT_ID: tuple[tuple[re.Pattern[str], Rule], ...] = (
    (
        re.compile(r"could not (?:guard on|extract) .*data-dependent|consider annotating your code using torch\._check", re.IGNORECASE),
        guards_on_data,
    ),
)
_EMPTY_HINT = re.compile(r"report an issue|file an issue|developer|it may be possible to write dynamo tracing rules", re.IGNORECASE)
_MAX_HINTS = 3


def break_advice(event: BreakEvent | GraphBreak, run: Run, own_frame: Location | None = None) -> tuple[Advice, ...]:
    """What to change for one graph break, best first; never empty.

    `own_frame` is the user's own frame where the caller knows it. Only options that the torch of the run has are named; where that is
    not recorded they carry "if your torch has it". Hints of torch come last and say that they are torch's (slug `torch-hint`).
    """
    situation = situation_of(event, run, own_frame)
    if in_ddp(situation):
        return tuple(ddp_advice(run))
    if in_collective(situation):
        return tuple(collective_advice(situation))
    if _asks_for_causality(situation):
        return tuple(_causal(situation))
    ours = _unique(advice for rule in _rules(situation) for advice in rule(situation))
    if situation.library and not any(advice.slug == OWN_BREAK for advice in ours):
        return (*(advice for advice in ours if advice.after), *_library(situation))
    if ours:
        return ours
    # What a rule looked at and did not advise is not advised by torch's general hint either.
    hints = tuple(hint for hint in situation.hints if "torch._dynamo.config" not in hint or not _rules(situation))
    return (*_unknown(situation), *_torch_hints(hints))


def _asks_for_causality(situation: Situation) -> bool:
    """`_detect_is_causal_mask` of `torch/nn/modules/transformer.py` (2.11 to 2.15) compares the mask when nobody says what it is."""
    frame = situation.torch_frame
    return frame is not None and not situation.editable and (frame.function or "").endswith("_detect_is_causal_mask")


def _causal(situation: Situation) -> Iterable[Advice]:
    text = (
        f"torch reads the mask to see whether it is causal. Say it where {line_name(situation)} passes the mask: `is_causal=True` "
        "(`tgt_is_causal=True` of nn.Transformer) for a causal mask, `False` for any other"
    )
    return say("say-is-causal", text)


def _library(situation: Situation) -> Iterable[Advice]:
    """What holds for each break on a line of a library: the user can only keep the library from running it."""
    whose, project = _whose(situation)
    if situation.holds_work:
        text = (
            f"{line_name(situation)} does most of the work that is compiled: leave it where it is, or give it arguments with which it does "
            "not get there"
        )
    elif situation.inside:
        text = f"call {line_name(situation)} before or after the compiled function, or give it arguments with which it does not get there"
    else:
        text = (
            "compile a submodule that does not run it (`module.compile()` on that part) instead of the whole, or choose an option of the "
            "library that avoids it"
        )
    upgrade = f"; a newer {project} may be without it, else it is one to report there" if project else ""
    return say("library-line", f"What breaks inside is {whose}, not yours to edit: {text}{upgrade}")


def _whose(situation: Situation) -> tuple[str, str]:
    """Whose code it is and the name of the installed package; code that `exec` made has a name in angle brackets and may be anybody's."""
    file = situation.torch_frame.file if situation.torch_frame is not None else ""
    if file.startswith("<"):
        return "code without a source file", ""
    package = re.search(r"[/\\](?:site-packages|dist-packages)[/\\]([A-Za-z]\w*)(?:[/\\]|\.py$)", file)
    name = package[1] if package else ""
    return (f"{name}'s code" if name else "a library's code"), name


def _rules(situation: Situation) -> tuple[Rule, ...]:
    """The rules of this break; whatever breaks inside the logging package is cured at the logger call."""
    if in_logging(situation):
        return (logging_functions,)
    return rules_for(situation.gb_id, situation.gb_type, situation.explanation)


def rules_for(gb_id: str | None, gb_type: str, explanation: str = "") -> tuple[Rule, ...]:
    """The rules of a break: by id, by the text of its type, or by its wording; empty for a break that we do not know."""
    key = gb_id if gb_id in RULES else _known_by_text(_normal(gb_type))
    if key is not None and key in RULES:
        return RULES[key]
    text = f"{gb_type}\n{explanation}"
    return tuple(rule for pattern, rule in _WITHOUT_ID if pattern.search(text))


def _known_by_text(gb_type: str) -> str | None:
    said = gb_type.removeprefix("unsupported: ")
    return GB_TYPES.get(gb_type) or next((gb_id for pattern, gb_id in OLD_TYPES if pattern.search(said)), None)


def _normal(gb_type: str) -> str:
    return " ".join(gb_type.lower().split())


def _unknown(situation: Situation) -> Iterable[Advice]:
    text = f"dynadiag has no tried change for this break: keep {line_name(situation)} as it is, or write it in another way"
    if situation.resumed:
        text += "; this code was compiled on its own because of a break before it: cure that one first, and see whether this one stays"
    return say("move-out", text)


def _torch_hints(hints: tuple[str, ...]) -> Iterable[Advice]:
    useful = [hint for hint in hints if not _EMPTY_HINT.search(hint)]
    return (Advice(slug="torch-hint", text=f"torch says: {hint}") for hint in useful[:_MAX_HINTS])


def _unique(found: Iterable[Advice]) -> tuple[Advice, ...]:
    """The advice once each, since rules share what they fall back to; what changes the program comes last."""
    once = {(advice.slug if advice.after is None else "", advice.before, advice.after or ""): advice for advice in reversed(tuple(found))}
    found = tuple(once.values())[::-1]
    return tuple(sorted(found, key=leaves_out))
