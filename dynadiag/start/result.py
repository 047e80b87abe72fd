"""What a comparison of two starts found: `StartResult` and its parts, as all formats show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from dynadiag.diff.result import Side, SourceLine

CauseKind = Literal[
    "constant",
    "operators",
    "input",
    "dynamic",
    "option",
    "setting",
    "version",
    "custom_pass",
    "not_cacheable",
    "caches_off",
    "cache_folder",
    "entry_gone",
    "other_sizes",
    "hash_order",
    "per_process",
    "new_function",
    "unknown",
]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a look-up missed, in terms of the program: `what` differs, its value in each start, and the line.

    `parts` are torch's names of the components of its cache keys that say so; `cure` is what to change, where that is known.
    """

    kind: Annotated[CauseKind, "what kind of thing differs"]
    what: str
    old: Annotated[str | None, "its value in the first start; null where there is none to show"] = None
    new: Annotated[str | None, "its value in the second start"] = None
    place: Annotated[SourceLine | None, "the line of the second program; null where no recording or source shows it"] = None
    parts: Annotated[tuple[str, ...], "torch's names of the components of its keys that differ"] = ()
    cure: str | None = None
    name: Annotated[str | None, "what the program calls the number that differs; null for what has no name or is none"] = None

    @property
    def said(self) -> str:
        """What differs and how, in a few words."""
        values = "" if self.old is None and self.new is None else f": {self.old or 'none'} -> {self.new or 'none'}"
        return f"{self.what}{values}"


@dataclass(frozen=True, kw_only=True)
class CacheAnswer:
    """What one cache answered in the second start: hit, miss or bypass."""

    cache: Annotated[str, "fx_graph or aotautograd"]
    result: Annotated[str, "hit, miss, bypass, or off where it was not asked"]
    why: Annotated[str | None, "torch's reason for a bypass"] = None
    took_s: Annotated[float | None, "what Inductor took after a miss, in seconds, by torch's clock"] = None
    saved_s: Annotated[float | None, "what a hit saved, in seconds, by torch's record of the compilation"] = None


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """One compilation of the second start, with what each cache said and, where it was not warm, why."""

    id: str
    function: str
    place: SourceLine | None
    rank: int | None
    call: Annotated[int | None, "the number, from 1, of the compiled call in its process during which it was compiled"]
    answers: tuple[CacheAnswer, ...]
    compile_s: Annotated[float | None, "all of its compile time in the second start; null where torch recorded none"]
    first_s: Annotated[float | None, "the same of its counterpart in the first start; null where there is none"]
    causes: tuple[Cause, ...]
    late: Annotated[bool, "compiled after the calls that --warm-up names"] = False
    why_late: Annotated[str | None, "torch's reason for a compilation that came late"] = None

    @property
    def cold(self) -> bool:
        """Whether some cache did not give what it was asked for."""
        return any(answer.result != "hit" for answer in self.answers)

    @property
    def worst(self) -> str:
        """What one of its caches answered: a miss before a bypass, a bypass before a cache that is off, these before a hit."""
        results = {answer.result for answer in self.answers}
        return next((result for result in ("miss", "bypass", "off") if result in results), "hit")


ChangeKind = Literal["sort_set", "fixed_hash_seed", "pass_uuid", "caches_on", "number_as_tensor", "one_cache_folder", "dynamic_sizes"]


@dataclass(frozen=True, kw_only=True)
class TriedChange:
    """A change that the program was started with."""

    kind: ChangeKind
    said: str
    lines: Annotated[tuple[str, ...], "the lines that it takes away and brings, with - and + before them"]
    variables: Annotated[Mapping[str, str], "the variables of the start that it sets"]
    cured: Annotated[bool, "whether everything that its causes kept from the caches came from them"]


@dataclass(frozen=True, kw_only=True)
class Cured:
    """Two more starts with all changes at once, on the same cache folder, and what the second of these asked of the caches."""

    changes: tuple[TriedChange, ...] = ()
    missed: Annotated[int | None, "compilations of its second start that were not warm; null where no start was compared"] = None
    late: Annotated[int | None, "compilations of its second start after the warm-up"] = None
    second_s: Annotated[float | None, "compile time of its second start, in seconds, measured once"] = None
    why_not: Annotated[str | None, "why nothing is proven; null where the starts were compared"] = None
    patch: Annotated[str | None, "the file with the changes of the program; null where only variables were set"] = None


@dataclass(frozen=True, kw_only=True)
class OneBlock:
    """Two starts on a new cache folder with one block compiled for all layers of the model, instead of the model as a whole."""

    holder: Annotated[str, "the list of the blocks in the model, such as model.layers"]
    block: Annotated[str, "the class of the blocks"]
    count: int
    lines: Annotated[tuple[str, ...], "the lines that the change takes away and brings, with - and + before them"]
    first_s: Annotated[float | None, "compile time of the first start with it, in seconds, measured once"] = None
    second_s: Annotated[float | None, "the same of the second start"] = None
    compilations: Annotated[int | None, "compilations of the second start with it; null where no start was compared"] = None
    why_not: Annotated[str | None, "why nothing is compared; null where the starts were"] = None
    patch: Annotated[str | None, "the file with the change; null where no start was compared"] = None


@dataclass(frozen=True, kw_only=True)
class StartResult:
    """The comparison. `missed` counts compilations that were not warm."""

    old: Side
    new: Side
    compilations: tuple[Compilation, ...]
    missed: int
    first_s: Annotated[float | None, "compile time of the first start, in seconds, measured once"]
    second_s: Annotated[float | None, "the same of the second start"]
    steps: Annotated[Mapping[str, tuple[float | None, float | None]], "seconds of each step of the start, in the first and the second"]
    notes: tuple[str, ...] = ()
    warm_up: Annotated[int | None, "calls that belong to the warm-up; null where --warm-up was not given"] = None
    cache: Annotated[str | None, "the cache folder of both runs; null where existing recordings were compared"] = None
    cured: Annotated[Cured | None, "what --cure tried; null where it was not asked for, or everything was warm"] = None
    one_block: Annotated[OneBlock | None, "what --cure tried for a model of equal layers; null where it compiles none as a whole"] = None

    @property
    def late(self) -> tuple[Compilation, ...]:
        """What was compiled after the warm-up."""
        return tuple(compilation for compilation in self.compilations if compilation.late)

    @property
    def exit_status(self) -> int:
        """0 all warm, 1 something missed or compiled late, or the program failed; 2 where a run is not complete."""
        if self.old.cut_short or self.new.cut_short:
            return 2
        return 1 if self.missed or self.late or self.new.failed is not None else 0

    def causes(self) -> list[tuple[Cause, list[Compilation]]]:
        """Each cause once, with the compilations that it concerns; those that took longest first."""
        found: dict[tuple[object, ...], tuple[Cause, list[Compilation]]] = {}
        for compilation in self.compilations:
            for cause in compilation.causes:
                key = (cause.kind, cause.what, cause.old, cause.new, cause.place)
                found.setdefault(key, (cause, []))[1].append(compilation)
        return sorted(found.values(), key=lambda entry: -sum(item.compile_s or 0.0 for item in entry[1]))
