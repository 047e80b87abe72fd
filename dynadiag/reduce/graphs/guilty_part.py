"""Which layer is guilty, and in it which pass, decomposition or lowering: named only when the failure was gone without it, every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dynadiag.children.forked import Tell, run_forked
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.judge import Observation, observation, observe_isolated
from dynadiag.reduce.graphs.observing import observe
from dynadiag.reduce.graphs.setting import Setting, backend_name
from dynadiag.torch_compat.dynamo.compiling import LAYERS, config_path
from dynadiag.torch_compat.inductor.bisector import SUBSYSTEMS, SuspectedPart, can_leave_out_by_name, leaving_out, switches, value_now
from dynadiag.torch_compat.inductor.cpp_answers import errors_too

_NAMES = {"eager": "dynamo", "aot_eager": "aotautograd", "aot_eager_decomp_partition": "decompositions", "inductor": "inductor"}
_FAMILIES = {"runtime_error": "compile_error", "wrong_gradient": "wrong_result"}
"""Kinds that differ only in the phase: a backward that cannot be compiled is a compile error when it is compiled alone."""


@dataclass(frozen=True, kw_only=True)
class GuiltyLayer:
    """`layer` is guilty: the first that shows the failure. `steps` says for each backend "passes", "fails" or what else happened.

    `guilt` is the part of the compiler, None when it was not looked for.
    """

    layer: str
    steps: Mapping[str, str] = field(default_factory=dict)
    guilt: Guilt | None = None


def find_guilty_layer(candidate: Candidate, setting: Setting, failure: Failure, *, timeout_s: float, repeats: int = 1) -> GuiltyLayer:
    """Try each layer up to the backend of the setting; a backend of another kind is guilty itself when the layers pass.

    A flaky failure is given `repeats` chances to show itself in each layer.
    """
    own = backend_name(setting.backend)
    layers = LAYERS[: LAYERS.index(own)] if own in LAYERS else ("eager", "aot_eager")
    steps: dict[str, str] = {}
    for layer in layers:
        for _ in range(repeats):
            steps[layer] = _step(observe_isolated(candidate, _in_layer(setting, layer), timeout_s=timeout_s), failure)
            if steps[layer] != "passes":
                break
        if steps[layer] == "fails":
            return GuiltyLayer(layer=_NAMES[layer], steps=steps)
    steps[own] = "fails"
    return GuiltyLayer(layer=_NAMES.get(own, own), steps=steps)


def _in_layer(setting: Setting, layer: str) -> Setting:
    """Modes and options belong to the backend that the user chose."""
    return replace(setting, backend=layer, mode=None, options={}, backend_source=None, inner=False)


def _step(seen: Observation, failure: Failure) -> str:
    if seen.invalid is not None:
        return f"not run: {seen.invalid}"
    if seen.failure is None:
        return "passes"
    return "fails" if same_cause(seen.failure, failure) else f"another failure: {seen.failure.title()}"


def same_cause(failure: Failure, other: Failure) -> bool:
    """Whether two failures have one cause, though another backend or graph came to it on another way and perhaps in another phase."""
    return _cause(failure) == _cause(other)


def _cause(failure: Failure) -> tuple[object, ...]:
    # Where it was raised differs between backends; it decides only where there is no message.
    place = () if failure.message else failure.frames[-1:]
    return (_FAMILIES.get(failure.kind, failure.kind), failure.exceptions[-1:], failure.message, place)


RUNS = 3
_WORDS = {
    "decomposition": "the decomposition of {}",
    "lowerings": "inductor's lowering of {}",
    "cudagraphs": "CUDA graphs",
}
_PASS = "the pass {} of inductor's {}"


State = Literal["gone", "there", "unknown"]
"""Of the failure under a change of the compiler; unknown where something else went wrong."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of the compiler: another `layer`, a `subsystem` left out (or only the parts of it that are called `part`), or options."""

    layer: str | None = None
    subsystem: str | None = None
    part: str | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def describe(self) -> str:
        """In words."""
        if self.layer is not None:
            return f"the back end {self.layer}"
        if self.options:
            return ", ".join(f"{config_path(name)} = {value!r}" for name, value in self.options)
        return f"no {self.part or 'part'} of inductor's {self.subsystem}"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Whether the failure of a graph is gone under a change, which can be asked of another graph too. `claimed`: a report says so."""

    change: Change
    gone: bool
    claimed: bool = False

    def describe(self) -> str:
        """In words."""
        return f"{'passes' if self.gone else 'fails'} with {self.change.describe()}"


@dataclass(frozen=True, kw_only=True)
class Cure:
    """A change with which the failure was gone in all of `runs` runs. `what` says it in words, `option` as a line of a script."""

    what: str
    runs: int
    option: str | None = None

    def claim(self) -> str:
        """One sentence for a person."""
        how = f"with `{self.option}`" if self.option is not None else f"without {self.what}"
        return f"the failure is gone {how}: run {self.runs} of {self.runs}"


@dataclass(frozen=True, kw_only=True)
class Guilt:
    """The narrowest part of the compiler whose absence cures, and an option that does; None where none was found. `queries` it took.

    `answers` are to the questions that can be asked of another graph.
    """

    part: Cure | None = None
    option: Cure | None = None
    answers: tuple[Answer, ...] = ()
    queries: int = 0
    cpu_s: float = 0.0

    @property
    def cures(self) -> tuple[Cure, ...]:
        """Both, as far as they are known."""
        return tuple(cure for cure in (self.part, self.option) if cure is not None)


def guilt_of(data: Mapping[str, Any]) -> Guilt:
    """The guilt that `dataclasses.asdict` made plain data of."""
    part, option = (None if data[name] is None else Cure(**data[name]) for name in ("part", "option"))
    answers = tuple(Answer(**{**item, "change": _change_of(item["change"])}) for item in data.get("answers", ()))
    return Guilt(**{**data, "part": part, "option": option, "answers": answers})


def _change_of(data: Mapping[str, Any]) -> Change:
    return Change(**{**data, "options": tuple((name, value) for name, value in data["options"])})


@dataclass(frozen=True, kw_only=True)
class Suspected:
    """What is asked about: a graph, whose `failure` (None: any) comes in one of `repeats` runs at least."""

    candidate: Candidate
    setting: Setting
    timeout_s: float
    failure: Failure | None = None
    repeats: int = 1
    on_gpu: bool = False
    stop: Callable[[], bool] = field(default=lambda: False)


def bisect(subject: Suspected) -> Guilt:
    """Ask for the guilty part first, then for an option."""
    search = _Search(subject)
    part = search.guilty_part()
    option = search.helpful_option(part)
    return Guilt(
        part=None if part is None else Cure(what=_words(part), runs=search.runs),
        option=option,
        answers=tuple(search.answers),
        queries=search.queries,
        cpu_s=search.cpu_s,
    )


def answers_of(guilty: GuiltyLayer) -> tuple[Answer, ...]:
    """What was asked of the graph and can be asked of another, the claims of a report first. That a subsystem or all options change nothing
    is no claim, and asked only where no part or option is named.
    """
    layers = [
        Answer(change=Change(layer=layer), gone=step == "passes", claimed=True)
        for layer, step in guilty.steps.items()
        if step in ("passes", "fails") and layer in LAYERS
    ]
    found = guilty.guilt.answers if guilty.guilt is not None else ()
    claims = [answer for answer in found if answer.claimed]
    return (*layers, *claims, *(() if claims else found))


def state_under(change: Change, subject: Suspected) -> State:
    """What a run of the graph shows under a change."""
    return _Search(subject).state(change)


def disagreement(answers: Sequence[Answer], subject: Suspected) -> Answer | None:
    """The first of the answers that another graph does not give, as that graph gives it. Where something else goes wrong there, nothing is
    known.
    """
    for answer in answers:
        state = state_under(answer.change, subject)
        if state != "unknown" and (state == "gone") != answer.gone:
            return replace(answer, gone=not answer.gone)
    return None


def other_cause_of(answers: Sequence[Answer], subject: Suspected) -> str | None:
    """Why the failure of a graph has another cause than the one that gave these answers; None where it gives them too."""
    other = disagreement(answers, subject)
    if other is None:
        return None
    return f"another cause: unlike the captured graph it {other.describe()}"


def _words(part: SuspectedPart) -> str:
    words = _WORDS.get(part.subsystem)
    return words.format(part.name) if words is not None else _PASS.format(part.name, part.subsystem)


class _Search:
    def __init__(self, subject: Suspected) -> None:
        self._subject = subject
        self.runs = max(RUNS, subject.repeats)
        self.answers: list[Answer] = []
        self.queries = 0
        self.cpu_s = 0.0
        self._parts = 0

    def guilty_part(self) -> SuspectedPart | None:
        """The one application whose absence cures."""
        parts = self._applied()
        self._parts = len(parts)
        for subsystem in SUBSYSTEMS:
            own = [part for part in parts if part.subsystem == subsystem]
            if not own:
                self.answers.append(Answer(change=Change(subsystem=subsystem), gone=False))  # nothing of it is applied
            elif self._is_gone(Change(subsystem=subsystem)):
                return self._narrowed(subsystem, own)
        return None

    def _narrowed(self, subsystem: str, parts: Sequence[SuspectedPart]) -> SuspectedPart | None:
        """The first application that is enough together with those before it; None when leaving it out alone does not cure."""
        passing, failing = 0, len(parts)
        while failing - passing > 1:
            middle = (passing + failing) // 2
            if self._cures_without(subsystem, lambda part, first=middle: part.number >= first):  # type: ignore[misc]
                passing = middle
            else:
                failing = middle
        guilty = parts[failing - 1]
        alone = all(self._cures_without(subsystem, lambda part: part.number == guilty.number) for _ in range(self.runs))
        if alone:
            self.answers.append(Answer(change=Change(subsystem=subsystem, part=guilty.name), gone=True, claimed=True))
        return guilty if alone else None

    def _cures_without(self, subsystem: str, chosen: Callable[[SuspectedPart], bool]) -> bool:
        around = lambda: leaving_out(lambda part: part.subsystem == subsystem and chosen(part), lambda part: None)  # noqa: E731
        return self._state(self._subject.candidate, self._subject.setting, around) == "gone"

    def _applied(self) -> list[SuspectedPart]:
        """Every application in one compile; none when nothing of torch's compiler asks for it."""

        def work(tell: Tell) -> None:
            with leaving_out(lambda part: False, lambda part: tell({"part": [part.subsystem, part.number, part.name]})), errors_too():
                observe(self._subject.candidate, self._subject.setting, tell, spend=True)

        report = run_forked(work, timeout_s=self._subject.timeout_s)
        self._count(observation(report))
        told = [message for message in report.messages if "part" in message]
        return [SuspectedPart(subsystem=of, number=number, name=name) for of, number, name in (message["part"] for message in told)]

    def helpful_option(self, guilty: SuspectedPart | None) -> Cure | None:
        """One option that cures: what the user set himself, the guilty pass by its name, or a switch of torch's."""
        mine = self._subject.candidate.configs
        proposals = [(name, value_now(name)) for name, _ in mine]
        if guilty is not None and guilty.subsystem.endswith("_passes") and can_leave_out_by_name():
            proposals.append(("inductor.disabled_passes", guilty.name))
        for proposal in proposals:
            if self._passes_always([proposal]):
                return self._cure(proposal)
        if not self._parts and self._subject.setting.backend != "inductor":
            return None  # no part of torch's compiler that a switch of it could change
        return self._by_halves(switches(dict(mine), on_gpu=self._subject.on_gpu))

    def _by_halves(self, options: Sequence[tuple[str, Any]]) -> Cure | None:
        """One of the options, the first half before the second. All together first: mostly none helps, which then costs one question."""
        if not options or not self._is_gone(Change(options=tuple(options))):
            return None
        while len(options) > 1:
            middle = len(options) // 2
            options = options[:middle] if self._passes_with(options[:middle]) else options[middle:]
        return self._cure(options[0]) if self._passes_always(options) else None

    def _cure(self, option: tuple[str, Any]) -> Cure:
        self.answers.append(Answer(change=Change(options=(option,)), gone=True, claimed=True))
        name, value = option
        return Cure(what=config_path(name), runs=self.runs, option=f"{config_path(name)} = {value!r}")

    def _passes_always(self, options: Sequence[tuple[str, Any]]) -> bool:
        return all(self._passes_with(options) for _ in range(self.runs))

    def _passes_with(self, options: Sequence[tuple[str, Any]]) -> bool:
        return self.state(Change(options=tuple(options))) == "gone"

    def _is_gone(self, change: Change) -> bool:
        """Whether a question that can be asked of another graph is answered with yes."""
        state = self.state(change)
        if state != "unknown":
            self.answers.append(Answer(change=change, gone=state == "gone"))
        return state == "gone"

    def state(self, change: Change) -> State:
        """What a run shows under a change."""
        own, setting, around = self._subject.candidate, self._subject.setting, nullcontext
        if change.layer is not None:
            return self._state(own, _in_layer(setting, change.layer), around)
        if change.options:
            return self._state(replace(own, configs=tuple({**dict(own.configs), **dict(change.options)}.items())), setting, around)

        def chosen(part: SuspectedPart) -> bool:
            return part.subsystem == change.subsystem and change.part in (None, part.name)

        return self._state(own, setting, lambda: leaving_out(chosen, lambda part: None))

    def _state(self, candidate: Candidate, setting: Setting, around: Callable[[], AbstractContextManager[Any]]) -> State:
        """Gone is where a run shows no failure at all: another failure is no cure. A flaky one has several chances."""

        def work(tell: Tell) -> None:
            with around(), errors_too():
                observe(candidate, setting, tell, spend=True)

        for _ in range(self._subject.repeats):
            if self._subject.stop():
                return "unknown"
            seen = observation(run_forked(work, timeout_s=self._subject.timeout_s))
            self._count(seen)
            if seen.failure is not None or seen.invalid is not None:
                same = seen.failure is not None and (self._subject.failure is None or same_cause(seen.failure, self._subject.failure))
                return "there" if same else "unknown"
        return "gone"

    def _count(self, seen: Observation) -> None:
        self.queries += 1
        self.cpu_s += seen.cpu_s
