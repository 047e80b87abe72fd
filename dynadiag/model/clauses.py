"""What a finding claims, one typed clause for each claim. `model/sentences.py` makes the sentences, and nobody reads those back."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.model.location import Location


@dataclass(frozen=True, slots=True)
class Clause:
    """One claim. A reader who needs to know what is claimed asks for its class and its fields, never for the words."""


@dataclass(frozen=True, slots=True)
class Happened(Clause):
    """What happened, or where and how often, in words of the pass: for what has no class of its own."""

    text: str


@dataclass(frozen=True, slots=True)
class Cause(Clause):
    """Why it happened, as far as that is known."""

    text: str


@dataclass(frozen=True, slots=True)
class Effect(Clause):
    """What follows from it, also what stays as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Basis(Clause):
    """What the other claims rest on, and what was not tried or not recorded."""

    text: str


@dataclass(frozen=True, slots=True)
class Doubt(Clause):
    """What the records leave open."""

    text: str


@dataclass(frozen=True, slots=True)
class Quoted(Clause):
    """The words of an exception or of torch, after what said them."""

    text: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class Counted(Clause):
    """How often: a count with its noun, at how many places, on which processes (`who`), and what they are (`named`)."""

    count: int
    noun: str
    places: int | None = None
    place_noun: str = "site"
    who: str = ""
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OnProcesses(Clause):
    """Which ranks or processes it concerns, as `facts` names them; made only where there are several."""

    who: str


@dataclass(frozen=True, slots=True)
class StoppedAt(Clause):
    """The lines of libraries where Dynamo stopped: `inside` the call of the user's line, or where the excluded function is called."""

    places: tuple[Location, ...]
    inside: bool = True


@dataclass(frozen=True, slots=True)
class LeftEager(Clause):
    """The functions that were not compiled because of it, and torch's word for how."""

    functions: tuple[str, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GraphsAround(Clause):
    """The graphs before and after a break, by id; of several breaks together those `between` them."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    between: bool = False


@dataclass(frozen=True, slots=True)
class ResumedIn(Clause):
    """How many resume functions go on after a break, compiled and not."""

    compiled: int
    not_compiled: int = 0


@dataclass(frozen=True, slots=True)
class CompiledApart(Clause):
    """Because of which findings of graph breaks the code is compiled as a function of its own, and whether a change ends one of them."""

    findings: tuple[str, ...]
    curable: bool


@dataclass(frozen=True, slots=True)
class CompileSeconds(Clause):
    """What so many compilations took, measured."""

    seconds: float
    recompiles: int


@dataclass(frozen=True, slots=True)
class VersionsUsed(Clause):
    """How far a code object is from the recompile limit: its compiled versions, the limit where it is known, and what ended it.

    `refused`: how many recompiles torch refused at the limit; `raised`: the next one raised an error; `unfinished`: how many compilations
    the log shows only the beginning of.
    """

    versions: int
    limit: int | None
    refused: int = 0
    raised: bool = False
    unfinished: int = 0


@dataclass(frozen=True, slots=True)
class EndedProgram(Clause):
    """The exception just told is the one that ended the program."""


@dataclass(frozen=True, slots=True)
class SameFor(Clause):
    """The other places that the same change serves."""

    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StillBreaks(Clause):
    """What still breaks the graph at the line after the change."""

    what: str


@dataclass(frozen=True, slots=True)
class EndsRecompiles(Clause):
    """How many of so many recompiles a change ends: at least, as the sizes of all calls show, or as far as torch names their causes."""

    count: int
    of: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Unadvised(Clause):
    """Why nothing is advised; `of` says for which part, where there is advice for another one. `but_ideas`: why there are ideas alone."""

    reason: str
    of: str = ""
    but_ideas: bool = False


@dataclass(frozen=True, slots=True)
class Settled(Clause):
    """Why nothing has to change. `enough`: only while there are fewer versions than the limit."""

    reason: str = ""
    enough: bool = False
