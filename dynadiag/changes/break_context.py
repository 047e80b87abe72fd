"""What an advice rule may look at: one break, the line it is on, and the options that the torch of that run has."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Literal

from dynadiag.changes.all_breaks import PACKED, READS, SIZES, AllBreaks, all_breaks, entered_file, epoch_of, in_function_itself, whole_stack
from dynadiag.changes.kinds import kind_of
from dynadiag.changes.library_cure import library_cures
from dynadiag.changes.library_guards import Step, steps_of
from dynadiag.changes.replayed import unheard
from dynadiag.facts.lookups import compiled_in_epochs, excluded_at, process_of
from dynadiag.facts.user_frames import (
    is_own_file,
    is_standard_library,
    is_torchs_file,
    of_last_run,
    own_frame,
    resume_line,
    source_function,
)
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, GraphBreak
from dynadiag.model.run import BreakEvent, Process, Run
from dynadiag.source.call_arguments import texts_passed
from dynadiag.source.effects import catching_around, raises_behind
from dynadiag.source.function import FunctionText
from dynadiag.source.imports import imports_of
from dynadiag.source.line import SourceLine, dotted, parse_line
from dynadiag.source.place import Place, function_around, line_at
from dynadiag.source.python_names import changes_something
from dynadiag.source.seen import called_modules, sizes_vary, takes_leaves, with_given
from dynadiag.source.uses import scalar_calls

_MOST_OTHERS = 50
_POLYFILL = re.compile(r"[/\\]torch[/\\]_dynamo[/\\]polyfills[/\\]")


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """The option names of the torch that ran, as recorded there; None where nothing was recorded (a foreign log)."""

    names: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def known(self, area: str, name: str) -> Literal["yes", "no", "unknown"]:
        """Whether `torch._dynamo.config` (area "dynamo") or `torch.compiler` (area "compiler") has the name."""
        names = self.names.get(area)
        if names is None:
            return "unknown"
        return "yes" if name in names else "no"


@dataclass(frozen=True, eq=False, kw_only=True)
class BreakContext:
    """One break as the rules see it: questions to its record and to its run, answered when a rule asks.

    `known_own` is the user's own frame where the caller has found it already, `instead` another line of the same function in the place of
    the one that broke.
    """

    event: BreakEvent | GraphBreak
    run: Run
    known_own: Location | None = None
    instead: tuple[SourceLine, Place] | None = None

    @property
    def gb_id(self) -> str | None:
        """Torch's id of the break, where it has one."""
        return self.event.gb_id

    @property
    def gb_type(self) -> str:
        """The words that torch has for this type of break."""
        return self.event.reason if isinstance(self.event, GraphBreak) else self.event.gb_type

    @property
    def explanation(self) -> str:
        """Torch's explanation."""
        return self.event.explanation or ""

    @property
    def gb_context(self) -> str:
        """What torch says of the values at this break."""
        return self.event.context or ""

    @cached_property
    def all_contexts(self) -> str:
        """What torch said of the arguments each time that the line broke."""
        return "\n".join((self.gb_context, *self._all.contexts.get((self.gb_id, self.torch_frame), ())))

    @cached_property
    def torch_frame(self) -> Location | None:
        """Where Dynamo stopped."""
        return self.event.torch_frame or (self.event.stack[-1] if self.event.stack else None)

    @cached_property
    def excluded(self) -> Location | None:
        """Where the user excludes the function that a library calls here: the line is then not the caller, but this."""
        in_library = self.torch_frame is not None and not is_own_file(self.torch_frame.file, self.run)
        return excluded_at(self.event, self.run) if in_library and isinstance(self.event, BreakEvent) else None

    @cached_property
    def own(self) -> Location | None:
        """The user's own frame."""
        known = self.event.own_frame if isinstance(self.event, GraphBreak) else own_frame(self._stack, self.run)
        return self.excluded or self.known_own or known

    @cached_property
    def editable(self) -> bool:
        """Whether the break is on the user's own line, and not in a library."""
        return _same_line(self.own, self.torch_frame)

    @cached_property
    def line(self) -> SourceLine:
        """The user's own line."""
        return self.instead[0] if self.instead is not None else line_at(self._shown, self.run)

    @cached_property
    def broken(self) -> SourceLine:
        """The line where Dynamo stopped, the same one when `editable`."""
        return self.line if self.editable or self.torch_frame is None else line_at(self.torch_frame, self.run)

    @cached_property
    def caller(self) -> SourceLine:
        """The innermost line outside the standard library."""
        place = next((frame for frame in reversed(self._stack) if not is_standard_library(frame.file)), None)
        return self.line if self.editable else line_at(place, self.run)

    @cached_property
    def direct(self) -> bool:
        """Whether the user's line calls the function of the standard library that broke."""
        return not self.editable and bool(self._below) and all(is_standard_library(frame.file) for frame in self._below)

    @cached_property
    def inside(self) -> bool:
        """Whether the user's line is compiled code, and not only the call that leads there."""
        return self.editable or _inside(self.event, self.run, self.own, self._stack)

    @cached_property
    def library(self) -> bool:
        """Whether it is a call into a library, in which the line that broke is an implementation detail."""
        if self.editable or self.torch_frame is None or is_own_file(self.torch_frame.file, self.run):
            return False
        return not (self.inside and _all_torch(self._below))

    @cached_property
    def entered(self) -> str:
        """The file of the function that Dynamo compiled when it broke, unless the user's function breaks on that line as well."""
        calls = self.own is not None and (self.own.file, self.own.line) in self._all.calling
        return "" if calls else entered_file(self.event, self.run)

    @cached_property
    def options(self) -> TorchOptions:
        """The options that the torch of the run has."""
        return TorchOptions() if self._process is None else TorchOptions(self._process.option_names)

    @cached_property
    def torch(self) -> tuple[int, ...] | None:
        """The first two numbers of the torch that ran."""
        found = re.match(r"(\d+)\.(\d+)", self._process.torch or "") if self._process is not None else None
        return None if found is None else (int(found[1]), int(found[2]))

    @cached_property
    def trains(self) -> bool:
        """Whether in some compiled function of the run an optimizer or a `backward()` broke."""
        return self._epoch in self._all.training

    @cached_property
    def place(self) -> Place | None:
        """The user's own line in the source of its function, when it broke there, or in the standard library that it calls."""
        if self.instead is not None:
            return self.instead[1]
        shown = self._shown
        return _place(shown, self.torch_frame, self.run) if shown is not None and (self.editable or self.direct) else None

    @cached_property
    def around(self) -> Place | None:
        """The line in its function, where it did not break itself."""
        return None if self.own is None or self.editable else function_around(self.run, self.own.file, self.own.line)

    @cached_property
    def reads(self) -> tuple[tuple[SourceLine, Place | None, ast.Call | None], ...]:
        """What the other lines read that broke because of a number."""
        return _other_reads(self.event, self._shown, self.run)

    @cached_property
    def reads_here(self) -> bool:
        """Whether the line broke because it reads a number, now or at another time."""
        shown = self._shown
        return shown is not None and (shown.file, shown.line) in self._all.places.get((self._epoch, READS), {})

    @cached_property
    def sizes(self) -> tuple[Place | None, ...]:
        """The other lines that broke because of a size."""
        return tuple(function_around(self.run, file, line) for file, line, _ in _others(self.event, self._shown, self.run, SIZES))

    @cached_property
    def sizes_vary(self) -> bool:
        """Whether a function was compiled for several sizes of a tensor."""
        return sizes_vary(self.run)

    @cached_property
    def packs(self) -> bool:
        """Whether the line packs sequences for an RNN, or the program does."""
        here = PACKED.search(f"{self.event.context} {self.line.code}") is not None
        return here or (self.own is not None and self._epoch in self._all.packing)

    @cached_property
    def returns(self) -> bool:
        """Whether the line is in the compiled function itself, so that what it returns goes to the program."""
        return self.editable and in_function_itself(self.event, self.run)

    @cached_property
    def itself(self) -> bool:
        """Whether it broke in the compiled function itself at least once."""
        return self.editable and self.torch_frame in self._all.itself

    @cached_property
    def resumed(self) -> bool:
        """Whether the code goes on after another break, in all frames of the break."""
        found = [self.run.frame(name) for name in self._frames]
        return bool(found) and all(frame is not None and resume_line(frame.name) is not None for frame in found)

    @cached_property
    def ends(self) -> bool:
        """Whether nothing shows that the code behind the line ran: what the line calls then raised, each time."""
        return _ends(self.event, self.torch_frame, self.run)

    @cached_property
    def leaves(self) -> bool:
        """Whether no tensor that it was given has a history."""
        return takes_leaves(self._frames, self.run)

    @cached_property
    def unheard(self) -> Mapping[str, str]:
        """What Dynamo would lose if it were to say it after the graph (`replayed.unheard`)."""
        return unheard(self.event, self.run)

    @cached_property
    def on_the_way(self) -> frozenset[int | None]:
        """The lines of the user's file that broke or led to a line that did."""
        return self._all.on_the_way.get(self._file, frozenset())

    @cached_property
    def raised(self) -> frozenset[int | None]:
        """The lines of the user's file at which an exception was raised while Dynamo traced."""
        return self._all.raised.get(self._file, frozenset())

    @cached_property
    def only_reads(self) -> bool:
        """Whether all other code was compiled, but for lines that broke because of a number."""
        return self._epoch in self._all.only_reads

    @cached_property
    def backends(self) -> frozenset[str]:
        """The back ends that `torch.compile` was given."""
        return _backends(self.run).get(self._epoch, frozenset())

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The modules that the user's function calls."""
        return called_modules(self.own, self.run)

    @cached_property
    def functions(self) -> Mapping[str, FunctionText]:
        """The user's functions that the run compiled, by their names, methods among them."""
        return _functions(self.run)

    @cached_property
    def callers(self) -> tuple[Place, ...]:
        """The recorded functions, `try` and `with` on the stack, each at its row."""
        return tuple(_callers(self._stack, self.run))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The functions of libraries from the line to the break, as far as their source was recorded."""
        return () if self.editable or self.excluded is not None else steps_of(self._below, self.run)

    @cached_property
    def library_cures(self) -> tuple[Advice, ...]:
        """What the atlas of libraries has for the functions between the line and the break."""
        return () if self.editable else tuple(library_cures(self._below, self.run, self._process, line=self.own))

    @property
    def where(self) -> str:
        """The file and line inside a library where Dynamo stopped, for wording; empty when it is the user's own line."""
        if self.editable or self.torch_frame is None:
            return ""
        parts = [part for part in re.split(r"[/\\]", self.torch_frame.file) if part not in ("", ".", "..")]
        name = "/".join(parts[-2:])
        return name if self.torch_frame.line is None else f"{name}:{self.torch_frame.line}"

    @property
    def called(self) -> str:
        """What to call the code that broke: the user's line, or the line of the library that it leads to; for wording."""
        if self.editable or self.direct:
            return line_name(self)
        shown = f"{quoted(self.broken.code)} in {self.where}" if self.broken.code else self.where
        return shown or line_name(self)

    @cached_property
    def _all(self) -> AllBreaks:
        return all_breaks(self.run)

    @cached_property
    def _stack(self) -> tuple[Location, ...]:
        return whole_stack(self.event, self.run)

    @cached_property
    def _shown(self) -> Location | None:
        return self.own or self.torch_frame

    @cached_property
    def _file(self) -> str:
        return "" if self._shown is None else self._shown.file

    @cached_property
    def _below(self) -> tuple[Location, ...]:
        return _below(self._stack, self.own)

    @cached_property
    def _epoch(self) -> tuple[int, int] | None:
        return epoch_of(self.event, self.run)

    @cached_property
    def _process(self) -> Process | None:
        return _process(self.event, self.run)

    @cached_property
    def _frames(self) -> tuple[str, ...]:
        return (self.event.frame,) if isinstance(self.event, BreakEvent) else self.event.frames


# What an advice that leaves a call out of compiled code says of it.
CHANGES = "compiled calls then skip it, which changes the program"


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why nothing is advised: a clause that goes on after a colon."""

    reason: str


Said = Advice | Withheld
Rule = Callable[[BreakContext], Iterator[Said]]


def break_context_of(event: BreakEvent | GraphBreak, run: Run, own: Location | None = None) -> BreakContext:
    """The context of one event or site. `own` is the user's own frame when the caller has found it already."""
    return BreakContext(event=event, run=run, known_own=own)


def _callers(stack: tuple[Location, ...], run: Run) -> Iterator[Place]:
    """The recorded functions on the stack, then the `try` and `with` of code of no function, each at its row."""
    yield from (place for location in stack if (place := function_around(run, location.file, location.line)) is not None)
    yield from (place for item in stack if item.function == "<module>" for place in catching_around(run, item.file, item.line))


@of_last_run
def _backends(run: Run) -> Mapping[tuple[int, int] | None, frozenset[str]]:
    """The back ends that calls of torch.compile named, by process and epoch."""
    found: dict[tuple[int, int] | None, set[str]] = {}
    for call in run.compile_calls:
        found.setdefault((call.process, call.epoch), set()).add(str(call.backend))
    return {key: frozenset(names) for key, names in found.items()}


def _place(shown: Location, torch_frame: Location | None, run: Run) -> Place | None:
    """The line in its function, with what the recording shows of what that is given."""
    place = with_given(function_around(run, shown.file, shown.line), shown, run)
    lines = all_breaks(run).callers.get(torch_frame, frozenset()) if torch_frame is not None else frozenset()
    if place is None or not lines:
        return place
    names = [argument.arg for argument in place.node.args.args]
    return replace(place, texts=texts_passed(lines, place.node.name, names[1:] if names[:1] == ["self"] else names))


@of_last_run
def _functions(run: Run) -> Mapping[str, FunctionText]:
    """The user's own functions that were compiled, by the last part of their names; empty for one that several have."""
    found: dict[str, FunctionText] = {}
    for one in run.functions:
        name, known = one.name.rpartition(".")[2], FunctionText(one.text, imports_of(one.file, run))
        found[name] = known if found.get(name, known) == known else FunctionText("")
    return found


def _same_line(own: Location | None, torch_frame: Location | None) -> bool:
    """Whether the break is on the user's own line; torch's polyfills stand for a builtin that the line calls itself."""
    if own is None or torch_frame is None or _POLYFILL.search(torch_frame.file):
        return True
    return own.is_same_line(torch_frame)


def _below(stack: tuple[Location, ...], own: Location | None) -> tuple[Location, ...]:
    """The frames that the user's line leads to, from its callee on; empty when the line is not on the stack."""
    places = [] if own is None else [index for index, frame in enumerate(stack) if frame.is_same_line(own)]
    return stack[places[-1] + 1 :] if places else ()


def _all_torch(below: tuple[Location, ...]) -> bool:
    """Whether the user's line itself calls a function of torch or of the standard library, in which the break is."""
    return bool(below) and all(is_standard_library(frame.file) or is_torchs_file(frame.file) for frame in below)


def _inside(event: BreakEvent | GraphBreak, run: Run, own: Location | None, stack: tuple[Location, ...]) -> bool:
    """Whether the user's line is compiled code: in the frame itself, inlined into it, or in a function that was compiled too.

    After a break the functions that a line calls are compiled on their own, with that line as their caller. True where it is not known.
    """
    names = (event.frame,) if isinstance(event, BreakEvent) else event.frames
    frame = run.frame(names[0]) if names else None
    if frame is not None and own is not None and own.function == "<module>" != frame.name:
        # torch's stack of a break inside a loop leaves out the frame itself (2.15): the line is the one that calls it.
        return (own.file, own.line) not in {(location.file, location.line) for location in frame.stack}
    if frame is None or frame.file is None or own is None or is_own_file(frame.file, run):
        return True
    function, epoch = source_function(own.function), (frame.key.process, frame.key.epoch)
    if (own.file, function, *epoch) in compiled_in_epochs(run):
        return True
    name = source_function(frame.name)
    first = next((i for i, item in enumerate(stack) if item.file == frame.file and source_function(item.function) == name), len(stack))
    return any(element.is_same_line(own) for element in stack[first:])


def _others(
    event: BreakEvent | GraphBreak, shown: Location | None, run: Run, ids: frozenset[str]
) -> list[tuple[str, int | None, str | None]]:
    """The other lines that broke with one of these ids in the same process, between the same resets."""
    here = None if shown is None else (shown.file, shown.line)
    places = islice(all_breaks(run).places.get((epoch_of(event, run), ids), {}).items(), _MOST_OTHERS + 1)
    return [(*place, code) for place, code in places if place != here][:_MOST_OTHERS]


def _other_reads(
    event: BreakEvent | GraphBreak, shown: Location | None, run: Run
) -> tuple[tuple[SourceLine, Place | None, ast.Call | None], ...]:
    found: list[tuple[SourceLine, Place | None, ast.Call | None]] = []
    for file, number, code in _others(event, shown, run, READS) if event.gb_id in READS else ():
        place = function_around(run, file, number)
        line = parse_line(code, imports_of(file, run) if place is None else place.imports)
        found.extend((line, place, read) for read in scalar_calls(line) or (None,))
    return tuple(found)


def _ends(event: BreakEvent | GraphBreak, place: Location | None, run: Run) -> bool:
    """Whether the frame of the break could go on behind it and nothing did: what the line calls then raised, each time."""
    frame = run.frame(event.frame) if isinstance(event, BreakEvent) else None
    could = frame is not None and frame.outcome == "broke" and in_function_itself(event, run) and event.skip_reason is None
    return could and place is not None and (place.file, place.line) not in all_breaks(run).goes_on


def _process(event: BreakEvent | GraphBreak, run: Run) -> Process | None:
    if isinstance(event, GraphBreak):
        index = event.processes[0] if event.processes else None
    else:
        frame = run.frame(event.frame)
        index = None if frame is None else frame.key.process
    return None if index is None else process_of(run, index)


def option(context: BreakContext, slug: str, name: str, statement: str, text: str) -> Iterator[Advice]:
    """Advice to set one option of `torch._dynamo.config`.

    Left out when the torch that ran does not have it; with "if your torch has this option" when that is not known.
    `statement` is what follows `torch._dynamo.config.<name>` (` = True`, `.add(print)`).
    """
    has = context.options.known("dynamo", name)
    if has == "no":
        return
    full = f"torch._dynamo.config.{name}"
    doubt = " (if your torch has this option)" if has == "unknown" else ""
    yield Advice(slug=slug, text=f"{text}{doubt}", after=f"{full}{statement}", options=(full,))


def rewrite(
    context: BreakContext, slug: str, after: str, text: str, *, options: tuple[str, ...] = (), own_call: bool = False
) -> Iterator[Advice]:
    """Advice to rewrite the user's line.

    Nothing if the break is on a line of a library, which the user cannot edit, unless the rule has recognised the call on the user's
    own line that leads there (`own_call`). `after` is the whole new line: what has gaps to fill is a `sketch`.
    """
    if context.editable or own_call:
        yield Advice(slug=slug, text=text, before=context.line.code or None, after=after, options=options)


def withhold(reason: str) -> Iterator[Withheld]:
    """No advice, for this reason."""
    yield Withheld(reason)


def say(slug: str, text: str, *, after: str | None = None) -> Iterator[Advice]:
    """Advice in words; `after` is code to add somewhere else than on the line (never a replacement of it: that is `rewrite`)."""
    yield Advice(slug=slug, text=text, after=after)


def guarded(context: BreakContext, slug: str, *names: str, in_library: bool = False) -> Iterator[Advice]:
    """Advice to put the whole line, when it is one call of these `names` whose value nobody uses, behind `torch.compiler.is_compiling()`.

    That changes the program, since compiled calls then leave the call out: it says so, and comes last. Not where the arguments change
    something, nor where the code behind it may raise: one graph with it is compiled no more once it did.
    """
    line, place = context.line, context.place or context.around
    if not (context.editable or context.direct or in_library) or context.options.known("compiler", "is_compiling") == "no":
        return
    call = line.only_call()
    if call is not None and dotted(call.func) in names and not (changes_something(call) or (place is not None and raises_behind(place))):
        after = f"if not torch.compiler.is_compiling():\n    {line.code}"
        text = f"Exclude {line_name(context)} from compiled code: {CHANGES}"
        yield Advice(slug=slug, text=text, before=line.code, after=after, options=("torch.compiler.is_compiling",))


def leaves_out(advice: Advice) -> bool:
    """Whether the advice makes compiled calls leave out something that the program does."""
    return kind_of(advice.slug).leaves_out


def quoted(code: str, limit: int = 80) -> str:
    """Code in backticks for a sentence, cut when long."""
    return f"`{code if len(code) <= limit else code[: limit - 3] + '...'}`"


def line_name(context: BreakContext) -> str:
    """The line in backticks, or "this line" when it was not recorded."""
    return quoted(context.line.code) if context.line.code else "this line"
