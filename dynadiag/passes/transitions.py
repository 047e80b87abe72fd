"""The recompiles of one code object read together: each source with the values it went through, and whether it became dynamic."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, takewhile

from dynadiag.facts.guard_sources import dimension, named_in, readable, stripped
from dynadiag.facts.wording import unique
from dynadiag.model.location import Location
from dynadiag.model.report import Change
from dynadiag.model.run import Frame, RecompileEvent, Run, Symbol
from dynadiag.passes.guard_parts import FailedGuard, type_of_literal
from dynadiag.passes.guard_text import failed_guards, parse_guard_code

# The keys of dictionaries that versions were compiled for: torch guards each key by its place (`DictGuardManager`, 2.11 and 2.15).
#
# So another order of the same keys fails at the same guard as another set of them; all guards on keys of a version tell the two apart.
KEY_ORDER = "key_order"
_ONE_KEY = re.compile(r"\)\[(\d{1,6})\] == ")
_MOST_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a dictionary in their order, each as torch writes it; `text` has those that differ between the versions."""

    names: tuple[str, ...]
    text: str


# By compilation and readable source: ("0/1", "keys of d").
KeyLists = Mapping[tuple[str, str], Keys]


def key_lists(frames: Iterable[Frame]) -> KeyLists:
    """The keys that each compilation was made for, where its guards name the first ones of a dictionary without a gap."""
    found: dict[str, dict[str, dict[int, str]]] = {}
    for frame in frames:
        for guard in () if frame.guards is None else (*frame.guards.watched, *frame.guards.examples):
            at = place_of_key(guard.code)
            parsed = None if at is None else parse_guard_code(guard.code)
            if at is not None and parsed is not None and parsed.kind == "keys" and parsed.expected is not None:
                found.setdefault(parsed.source, {}).setdefault(frame.key.text, {})[at] = parsed.expected
    lists: dict[tuple[str, str], Keys] = {}
    for source, versions in found.items():
        whole = {text: tuple(keys[at] for at in sorted(keys)) for text, keys in versions.items() if set(keys) == set(range(len(keys)))}
        different = set(whole.values())
        same = len(list(takewhile(lambda at: len(set(at)) == 1, zip(*different, strict=False)))) if len(different) > 1 else 0
        lists |= {(text, source): Keys(names, _shown(names, same)) for text, names in whole.items()}
    return lists


def _shown(names: tuple[str, ...], same: int) -> str:
    """The keys from the first that is not in the same place in all versions: "..., 'c', 'd', 'e', 'f', ..."."""
    begins = same if len(names) > _MOST_SHOWN else 0
    shown = [*(["..."] if begins else []), *names[begins : begins + _MOST_SHOWN]]
    return ", ".join([*shown, "..."] if begins + _MOST_SHOWN < len(names) else shown)


def place_of_key(code: str) -> int | None:
    """1 for `list(dict.keys(d))[1] == 'b'`; None where a guard is not on one key."""
    match = _ONE_KEY.search(code)
    return int(match[1]) if match is not None and code.startswith("list(") else None


def key_sides(old: Keys | None, new: Keys | None, failed: str, expected: str | None) -> tuple[str | None, str | None]:
    """What a version and a call had: all keys where those of the version are known, else those at the place of the guard that failed."""
    if old is not None:
        return old.text, None if new is None else new.text
    at = place_of_key(failed)
    return expected, new.names[at] if new is not None and at is not None and at < len(new.names) else None


def only_order_differs(pairs: Iterable[tuple[Keys | None, Keys | None]]) -> bool:
    """Whether all these versions and calls have the same keys in another order; False where the guards do not tell."""
    known = list(pairs)
    return bool(known) and all(old is not None and new is not None and sorted(old.names) == sorted(new.names) for old, new in known)


# A guard on the same thing can be on its value, its type, its identity or its absence, depending on what came first.
_VALUE_KINDS, _OBJECT_KINDS = frozenset({"value", "type", "none"}), frozenset({"identity", "function"})
_CONDITIONS = frozenset({"condition", "zero_one", "duck_size"})
_SCALAR_TYPES = {"5": "torch.float16", "6": "torch.float32", "7": "torch.float64", "15": "torch.bfloat16"}  # `c10/core/ScalarType.h`
_BOOLEANS: Mapping[str, str] = {"true": "True", "false": "False"}
# The guard's text may be cut, so it is not read as JSON as a whole.
_STATE = re.compile(r'"(?P<name>\w+)":(?P<value>true|false|\d{1,9})(?=[,}])')
# One flag a device type, the CPU first and then CUDA (`_AUTOCAST_SUPPORTED_DEVICES`, `ATen/autocast_mode.h`).
_AUTOCAST = re.compile(r'"autocast_state":\{[^{}]*"enabled":\[(?P<cpu>true|false),(?P<cuda>true|false)')

CodeKey = tuple[int, int, object]


@dataclass(frozen=True, slots=True)
class RecompileStep:
    """One recompile: the event, its id in the report, the compilation it led to and the failed guards of the cache entries.

    `news` are those of the guards that say why this call needed a new version (`with_news`); the others repeat older changes.
    """

    id: str
    event: RecompileEvent
    frame: Frame
    guards: tuple[FailedGuard, ...]
    news: tuple[FailedGuard, ...] = ()


@dataclass(frozen=True, slots=True)
class CodeObject:
    """All compilations of one code object in one process between two resets, with its recompiles."""

    key: CodeKey
    frames: tuple[Frame, ...]
    steps: tuple[RecompileStep, ...]
    symbols: tuple[Symbol, ...] = ()

    @property
    def named(self) -> Frame:
        """The first compilation that says which code it was: an attempt refused at the limit has neither name nor file."""
        return next((frame for frame in self.frames if frame.name is not None), self.frames[0])


@dataclass(frozen=True, slots=True)
class ChangedSource:
    """One source of one code object: its values in order, the recompiles that it caused, and the guards that failed on it.

    `set_at` are the user's lines that set it, where it is a state of torch; `constant_at` is the one that made a symbol of it a
    constant again.
    """

    source: str
    kind: str
    values: tuple[str, ...]
    steps: tuple[RecompileStep, ...]
    guards: tuple[FailedGuard, ...]
    dynamic_since: str | None
    last_unknown: bool
    first_unknown: bool = False
    said: str = ""
    set_at: tuple[Location, ...] = ()
    constant_at: Location | None = None

    @property
    def text(self) -> str:
        """The source for a sentence: `said` where torch's name of it is no name of the program, else the source in backticks."""
        return self.said or f"`{self.source}`"


@dataclass(frozen=True, slots=True)
class KnownValues:
    """What the log says about the values that a code object was compiled for: symbols, guards and later failures by compilation.

    `dynamic` has by source the compilations that made it symbolic, in their order, `numbers` the same as
    sorted numbers, `conditions` the first that failed on a condition on it.
    """

    symbols: Mapping[tuple[str, str], str] = field(default_factory=dict)
    guards: Mapping[tuple[str, str], str] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dynamic: Mapping[str, Sequence[str]] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    keys: KeyLists = field(default_factory=dict)

    def value(self, compile_text: str, source: str) -> str | None:
        """The value of the source in the call that led to this compilation, or None."""
        return self.symbols.get((compile_text, source)) or self.guards.get((compile_text, source))


def code_objects(run: Run) -> tuple[CodeObject, ...]:
    """Every code object that recompiled, in the order of its first compilation; recompiles are numbered `r1`, `r2`, ... over the run."""
    frames: dict[CodeKey, list[Frame]] = {}
    for frame in run.frames:
        frames.setdefault(_code_key(frame), []).append(frame)
    steps: dict[CodeKey, list[RecompileStep]] = {}
    for number, event in enumerate(run.recompiles, start=1):
        found = run.frame(event.frame)
        if found is not None:
            step = RecompileStep(
                f"r{number}", event, found, tuple(failed_guard for reason in event.reasons for failed_guard in failed_guards(reason))
            )
            steps.setdefault(_code_key(found), []).append(step)
    symbols: dict[str, list[Symbol]] = {}
    for symbol in run.symbols:
        symbols.setdefault(symbol.frame, []).append(symbol)
    return tuple(_code_object(key, tuple(frames[key]), steps[key], symbols) for key in frames if key in steps)


def _code_object(
    key: CodeKey, frames: tuple[Frame, ...], steps: Sequence[RecompileStep], symbols: Mapping[str, Sequence[Symbol]]
) -> CodeObject:
    own = tuple(symbol for frame in frames for symbol in symbols.get(frame.id, ()))
    return CodeObject(key, frames, _with_unnamed_changes(frames, steps, symbols), own)


_NOT_THE_USERS = re.compile(r"\.stride\(|\._base|^__meta_utils")  # the last: what backward saved (`meta_utils.py`)


def _with_unnamed_changes(
    frames: Sequence[Frame], steps: Sequence[RecompileStep], symbols: Mapping[str, Sequence[Symbol]]
) -> tuple[RecompileStep, ...]:
    """The steps with what changed besides: torch names only the first guard that failed, but makes everything dynamic that changed.

    A source that no earlier compilation of the code had as a symbol was a constant before, so its guard would have failed as well.
    """
    began = {frame.id: i for i, frame in enumerate(frames)}
    first: dict[str, int] = {}  # by source the first compilation that had it as a symbol
    for i, frame in enumerate(frames):
        for symbol in symbols.get(frame.id, ()):
            first.setdefault(readable(symbol.source), i)
    result = []
    for step in steps:
        named = {source for guard in step.guards for source in (guard.source, *named_in(guard.raw_source))}
        replaced = tuple(guard.source.removesuffix(".dim()") for guard in step.guards if guard.kind in ("rank", "type", "none"))
        marked = any(guard.kind == "dim_marking" for guard in step.guards)  # then the user asked for it, nothing need have changed
        added = [
            FailedGuard("size" if dimension(source) else "value", source, None, item.value, source, raw_source=stripped(item.source))
            for item in symbols.get(step.frame.id, ())
            if (source := readable(item.source)) not in named
            and first[source] >= began[step.frame.id]
            and not (item.specialized or marked or source.startswith(tuple(f"{name}{mark}" for name in replaced for mark in ".[")))
            and not _NOT_THE_USERS.search(source)
        ]
        result.append(replace(step, guards=(*step.guards, *added)) if step.guards and added else step)
    return tuple(result)


def _code_key(frame: Frame) -> CodeKey:
    """Torch's number of the code object; text logs can lack it, then its place."""
    number = frame.key.frame
    return frame.key.process, frame.key.epoch, (frame.file, frame.line, frame.name) if number is None else number


def known_values(code: CodeObject) -> KnownValues:
    """What is known of the values of each compilation of this code object."""
    ids = {frame.id: frame.key.text for frame in code.frames}
    own = [(ids[symbol.frame], readable(symbol.source), symbol) for symbol in code.symbols]
    symbols = {(text, source): symbol.value for text, source, symbol in own if symbol.value is not None}
    dynamic: dict[str, dict[str, None]] = {}
    for text, source, symbol in own:
        if not symbol.specialized:
            dynamic.setdefault(source, {})[text] = None
    conditions: dict[str, str] = {}
    for guard in (guard for step in code.steps for guard in step.guards):
        if guard.kind == "condition" and guard.entry is not None:
            for source in named_in(guard.raw_source):
                conditions.setdefault(source, guard.entry)
    guards: dict[tuple[str, str], str] = {}
    for step in code.steps:
        for guard in step.guards:
            if guard.entry is not None and guard.expected is not None and guard.kind not in (*_CONDITIONS, "nan"):
                guards.setdefault((guard.entry, guard.source), value_text(guard))
    for frame in code.frames:
        for recorded in () if frame.guards is None else (*frame.guards.watched, *frame.guards.examples):
            parsed = parse_guard_code(recorded.code)
            if parsed is not None and parsed.expected is not None:
                guards.setdefault((frame.key.text, parsed.source), value_text(parsed))
    states = {frame.key.text: state for frame in code.frames if (state := _global_state(frame))}
    numbers = {source: sorted(map(_numbers, texts)) for source, texts in dynamic.items()}
    keys = key_lists(code.frames)
    return KnownValues(symbols, guards, states, {source: tuple(texts) for source, texts in dynamic.items()}, conditions, numbers, keys)


def _global_state(frame: Frame) -> Mapping[str, str]:
    """The state of torch that a compilation is valid for, from its GLOBAL_STATE guard (2.11 and 2.15 print JSON)."""
    codes = () if frame.guards is None else (guard.code for guard in frame.guards.examples if guard.kind == "GLOBAL_STATE")
    states: dict[str, str] = {}
    for code in codes:
        states |= {match["name"]: match["value"] for match in _STATE.finditer(code)}
        for match in _AUTOCAST.finditer(code):
            states |= {f"autocast({name})_enabled": value for name, value in match.groupdict().items()}
    return states


def value_text(guard: FailedGuard) -> str:
    """What a guard expects, as one word of a transition row."""
    if guard.kind == "type":
        return _of_type(guard.expected or "")
    return guard.expected or ""


def _of_type(name: str) -> str:
    """`a float`, `an int`, or None for the type of None."""
    return "None" if name == "NoneType" else f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


def family(guard: FailedGuard) -> str:
    """The kind of a row: guards on a thing's value, type and identity belong together."""
    if guard.kind in _CONDITIONS:
        return "condition"
    if guard.kind in _OBJECT_KINDS:
        return "object"
    return "value" if guard.kind in _VALUE_KINDS else guard.kind


def with_news(code: CodeObject, known: KnownValues) -> CodeObject:
    """The code object with what was new in each recompile.

    torch lists one failed guard for each version in the cache, and a version fails again on what it failed on before. Only the newest
    version's failure is news, unless what came had been seen before (`training` back to True) or is another object (the newest version
    was made for another layer, say); then an older version's failure on something that no version had seen is. So is one on another value
    that no version has, if the new version is compiled for it. Where the newest
    version has only another setting of torch, one that had been seen, some version has the right one: another object came to that.
    """
    seen: dict[tuple[str, str], set[str]] = {}
    steps = []
    for step in code.steps:
        failed = sorted((guard for guard in step.guards if guard.entry is not None), key=_newest_first)
        new = (guard for guard in failed if _is_new(guard, step, known, seen))
        objects = (guard for guard in failed if family(guard) == "object" and failed[0].kind == "global_state")
        chosen = next(chain(new, objects, failed), None)
        entry = None if chosen is None else chosen.entry
        news = tuple(guard for guard in step.guards if guard.entry in (entry, None))
        # Of the settings that differ from a version, those that some version has are no news.
        fresh = tuple(guard for guard in news if guard.kind != "global_state" or _is_new(guard, step, known, seen))
        told = fresh if any(guard.entry is not None for guard in fresh) else news
        here = {(_row_source(guard), family(guard)) for guard in told}
        besides = {
            (_row_source(guard), family(guard)): guard for guard in failed if guard.entry != entry and _is_cause(guard, step, known, seen)
        }
        more = tuple(guard for which, guard in besides.items() if which not in here)
        steps.append(RecompileStep(step.id, step.event, step.frame, step.guards, (*told, *more)))
        for guard in step.guards:
            values = (_expected(guard, known), *both_sides(guard, step, known))
            seen.setdefault((_row_source(guard), family(guard)), set()).update(value for value in values if value is not None)
    return replace(code, steps=tuple(steps))


def _newest_first(guard: FailedGuard) -> tuple[int, ...]:
    return tuple(-number for number in _numbers(guard.entry))


_DIGITS = re.compile(r"\d{1,9}")


@lru_cache(maxsize=4096)
def _numbers(compile_text: str | None) -> tuple[int, ...]:
    """The compile id as numbers: "0/10" comes after "0/9"."""
    return tuple(map(int, _DIGITS.findall((compile_text or "").partition("_")[0])))


def _is_cause(guard: FailedGuard, step: RecompileStep, known: KnownValues, seen: Mapping[tuple[str, str], set[str]]) -> bool:
    """Whether an older version failed on a value that no version has and that the new one is compiled for: it would have been a recompile
    by itself.
    """
    value = known.value(step.frame.key.text, guard.source) or known.value(step.frame.key.text, readable(guard.raw_source))
    other = guard.kind in ("value", "length") and value is not None and value != _expected(guard, known)
    return other and _is_new(guard, step, known, seen)


def _is_new(guard: FailedGuard, step: RecompileStep, known: KnownValues, seen: Mapping[tuple[str, str], set[str]]) -> bool:
    """Whether the guard failed on something that no version was compiled for and none takes; objects have no value that would tell."""
    if family(guard) == "object":
        return False
    dynamic = known.numbers.get(guard.source, ())
    later = bisect_right(dynamic, _numbers(guard.entry))
    if later < len(dynamic) and dynamic[later] < _numbers(step.frame.key.text):
        return False
    old, new = both_sides(guard, step, known)
    new = new or {"True": "False", "False": "True"}.get(old or "")
    had = seen.get((_row_source(guard), family(guard)), set())
    if new is None and old == "None":  # `mask is None` failed: a mask came, whichever
        return had <= {"None"}
    return new is None or new not in had


def changes(step: RecompileStep, known: KnownValues) -> tuple[Change, ...]:
    """What was different in this call, one entry a source, compared with the newest version."""
    found: dict[tuple[str, str], Change] = {}
    for guard in step.news or step.guards:
        old, new = both_sides(guard, step, known)
        found.setdefault((guard.source, family(guard)), Change(source=guard.source or guard.text, kind=guard.kind, old=old, new=new))
    return tuple(found.values())


def both_sides(guard: FailedGuard, step: RecompileStep, known: KnownValues) -> tuple[str | None, str | None]:
    """The old and the new value; None is not in the log."""
    if guard.kind == "global_state":
        return _state(known, guard.entry, guard.property), _state(known, step.frame.key.text, guard.property)
    if guard.kind in _CONDITIONS:
        return guard.source, _values_of_condition(guard, step, known)
    if guard.kind == "keys":
        return key_sides(*keys_of(guard, step, known), guard.text, guard.expected)
    old = _expected(guard, known)
    here = step.frame.key.text
    new = _actual(guard) or known.value(here, guard.source) or known.value(here, readable(guard.raw_source))
    if family(guard) in ("object", "backend"):
        return old, _actual(guard)
    # A guard on the type alone says that the type stayed, not which value came.
    return old, None if new == old or (old is not None and new == type_of_literal(old)) else new


def keys_of(guard: FailedGuard, step: RecompileStep, known: KnownValues) -> tuple[Keys | None, Keys | None]:
    """The keys of a dictionary that the version was compiled for, and those of the call; None is not in the log."""
    return known.keys.get((guard.entry or "", guard.source)), known.keys.get((step.frame.key.text, guard.source))


def _expected(guard: FailedGuard, known: KnownValues) -> str | None:
    """What the cache entry was compiled for; a type guard belongs to a value that is known when it was symbolic."""
    if guard.expected is None:
        return None
    symbol = known.symbols.get((guard.entry or "", guard.source)) if guard.kind == "type" else None
    return symbol or value_text(guard)


def _actual(guard: FailedGuard) -> str | None:
    if guard.kind == "type" and guard.actual is not None:
        return _of_type(guard.actual)
    return None if guard.kind == "none" and guard.actual == "not None" else guard.actual


def _state(known: KnownValues, compile_text: str | None, name: str) -> str | None:
    value = known.states.get(compile_text or "", {}).get(name)
    if name == "default_dtype":
        return _SCALAR_TYPES.get(value or "")
    return None if value is None else _BOOLEANS.get(value, value)


def _values_of_condition(guard: FailedGuard, step: RecompileStep, known: KnownValues) -> str | None:
    """`x.size(0) = 50`: the values that broke a condition, from the symbols of the new compilation or from the other failed guards."""
    actual = {other.source: other.actual for other in step.guards if other.actual is not None}
    parts = []
    for source in named_in(guard.raw_source or guard.source):
        value = known.value(step.frame.key.text, source) or actual.get(source)
        if value is not None:
            parts.append(f"{source} = {value}")
    return ", ".join(parts) or None


def rows(code: CodeObject, known: KnownValues) -> tuple[ChangedSource, ...]:
    """The transition table of a code object (`with_news`), the source that caused most recompiles first."""
    blamed: dict[tuple[str, str], list[tuple[RecompileStep, FailedGuard]]] = {}
    for step in code.steps:
        for guard in step.news:
            blamed.setdefault((_row_source(guard), family(guard)), []).append((step, guard))
    table = [_row(key, uses, known) for key, uses in blamed.items()]
    return tuple(sorted(table, key=lambda row: -len(row.steps)))


def _row_source(guard: FailedGuard) -> str:
    if family(guard) == "condition":
        return ", ".join(named_in(guard.raw_source or guard.source)) or guard.source
    return guard.source or guard.text


def _row(key: tuple[str, str], uses: list[tuple[RecompileStep, FailedGuard]], known: KnownValues) -> ChangedSource:
    source, kind = key
    steps = tuple({step.id: step for step, _ in uses}.values())
    guards = tuple(guard for _, guard in uses)
    kinds = dict.fromkeys(guard.kind for guard in guards)
    values, last_unknown = _values(uses, {step.id for step in steps}, known)
    only = next(iter(kinds)) if len(kinds) == 1 else {"object": "function"}.get(kind, kind)
    first_unknown = bool(values) and guards[0].expected is None and guards[0].kind in ("size", "value")
    return ChangedSource(source, only, values, steps, guards, _dynamic_since(source, kind, uses, known), last_unknown, first_unknown)


def _values(uses: list[tuple[RecompileStep, FailedGuard]], chosen: set[str], known: KnownValues) -> tuple[tuple[str, ...], bool]:
    if family(uses[0][1]) == "object":
        return _objects(uses, chosen)
    at: dict[tuple[int, ...], str] = {}  # by compilation: torch lists the versions in which a guard failed, not in the order of time
    calls: dict[tuple[int, ...], str] = {}
    for step, guard in uses:
        for other in step.guards:
            if _row_source(other) == _row_source(guard) and family(other) == family(guard):
                old, _ = both_sides(other, step, known)
                at |= {} if old is None else {_numbers(other.entry): old}
        _, new = both_sides(guard, step, known)
        unknown, here = new is None, _numbers(step.frame.key.text)
        if family(guard) != "condition":
            calls[here] = step.id
            at |= {} if new is None else {here: new}
    return _in_order(at, {when for when, step in calls.items() if step in chosen}), unknown


def _in_order(at: Mapping[tuple[int, ...], str], blamed: Collection[tuple[int, ...]]) -> tuple[str, ...]:
    """The values by compilation: each once, and again where a compilation that is blamed on it has another one than the last."""
    values, known = list[str](), set[str]()
    for when, value in sorted(at.items()):
        if value not in known or (when in blamed and values[-1] != value):
            values.append(value)
            known.add(value)
    return tuple(values)


def _objects(uses: list[tuple[RecompileStep, FailedGuard]], chosen: set[str]) -> tuple[tuple[str, ...], bool]:
    """Objects have no value to show; what is known is that each differs from all before it (torch compares identities)."""
    texts = unique(guard.expected or "an object" for _, guard in uses if guard.expected != "a Python function") or ("a function",)
    if len(texts) > 1:
        return texts, True
    return (texts[0], *("another object" for step, _ in uses if step.id in chosen)), False


def _dynamic_since(source: str, kind: str, uses: list[tuple[RecompileStep, FailedGuard]], known: KnownValues) -> str | None:
    """The first compilation that made the source symbolic, from torch's `create_symbol`, or from a later condition on it."""
    if kind not in ("size", "stride", "value"):
        return None
    undone = {guard.entry for _, guard in uses}  # an entry that failed on the constant value was specialised after all
    return next((text for text in known.dynamic.get(source, ()) if text not in undone), None) or known.conditions.get(source)
