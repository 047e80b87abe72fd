"""What an advice rule may look at: one break, the line it is on, and the options that the torch of that run has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynadiag.advice.blocks import Block, parse_block
from dynadiag.advice.source import SourceLine, parse_line
from dynadiag.advice.surroundings import hidden_reads, holds_work, is_resumed, taken_by
from dynadiag.facts.lookups import compiled_in_epochs, process_of
from dynadiag.facts.user_frames import (
    is_own_file,
    is_standard_library,
    is_torchs_file,
    joined_stack,
    of_last_run,
    own_frame,
    source_function,
)
from dynadiag.model.report import Advice, GraphBreak
from dynadiag.model.run import BreakEvent, Location, Process, Run

_OPTIMIZER = re.compile(r"[/\\]torch[/\\]optim[/\\]")
_DYNAMO = re.compile(r"[/\\]torch[/\\]_dynamo[/\\]")
_PACKED = re.compile(r"\bPackedSequence\b|\bpack(?:_padded)?_sequence\b")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One break as the rules see it.

    `line` is the user's own line; `editable` says that the break is on it and not in a library. `broken` is the line where Dynamo
    stopped, the same one when `editable`; `caller` is the innermost line outside the standard library. `direct`: that is the user's
    line, it calls the function of the standard library that broke. `library`: it is a call into a library, in which the line that
    broke is an implementation detail. `inside`: the user's line is compiled code, and not only the call that leads there. `trains`: an
    optimizer was compiled too, `trains_anywhere`: in any compiled function of the run, or a `backward()`. `block`: the statement on the
    user's own line with what stands behind it, when it broke there. `packs`: the program packs sequences for an RNN. `broken_lines`: the
    lines of the file that broke, this one too. `depth`: how many calls below the user's line the break is.
    `entered`: the file of the function that Dynamo compiled when it broke, unless the user's function breaks on that line as well.
    `taken_by`: the function of a library that calls the user's own as a hook or callback, and takes what it returns. `hidden_reads`: other
    lines of the file that broke because an operator on them reads a number. `holds_work`: at least half of the nodes of all graphs are
    under the call on the user's line. `resumed`: the code goes on after another break.
    """

    gb_id: str | None
    gb_type: str
    explanation: str
    hints: tuple[str, ...]
    context: str
    line: SourceLine
    broken: SourceLine
    caller: SourceLine
    torch_frame: Location | None
    editable: bool
    direct: bool
    library: bool
    inside: bool
    options: TorchOptions
    trains: bool = False
    trains_anywhere: bool = False
    torch: tuple[int, ...] | None = None
    block: Block | None = None
    packs: bool = False
    broken_lines: frozenset[str] = frozenset()
    depth: int = 0
    entered: str = ""
    taken_by: str = ""
    hidden_reads: frozenset[str] = frozenset()
    holds_work: bool = False
    resumed: bool = False

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


# What an advice that leaves a call out of compiled code says of it.
CHANGES = "this changes the program, compiled calls then do not do it"

Rule = Callable[[Situation], Iterator[Advice]]


def situation_of(event: BreakEvent | GraphBreak, run: Run, own: Location | None = None) -> Situation:
    """The situation of one event or site. `own` is the user's own frame when the caller has found it already."""
    stack = _stack(event, run)
    own = own or (event.own_frame if isinstance(event, GraphBreak) else own_frame(stack, run))
    torch_frame = event.torch_frame or (event.stack[-1] if event.stack else None)
    reason = event.reason if isinstance(event, GraphBreak) else event.gb_type
    shown = own or torch_frame
    editable = _same_line(own, torch_frame)
    process = _process(event, run)
    line = parse_line(None if shown is None else shown.code)
    below = _below(stack, own)
    inside = editable or _inside(event, run, own, stack)
    return Situation(
        gb_id=event.gb_id,
        gb_type=reason,
        explanation=event.explanation or "",
        hints=event.hints,
        context=event.context or "",
        line=line,
        broken=line if editable or torch_frame is None else parse_line(torch_frame.code),
        torch_frame=torch_frame,
        editable=editable,
        caller=line if editable else parse_line(_calling_code(stack)),
        direct=not editable and bool(below) and all(is_standard_library(frame.file) for frame in below),
        library=not editable and torch_frame is not None and not is_own_file(torch_frame.file, run) and not (inside and _all_torch(below)),
        inside=inside,
        depth=len(below),
        entered="" if own is not None and (own.file, own.line) in _all_breaks(run).calling else _entered(event, run),
        options=TorchOptions() if process is None else TorchOptions(process.option_names),
        trains=own is not None and _epoch(event, run) in _with_optimizer(run, own),
        trains_anywhere=_epoch(event, run) in _all_breaks(run).training,
        torch=_version(process),
        block=_block(shown, run) if editable else None,
        packs=_PACKED.search(f"{event.context} {line.code}") is not None or (own is not None and _epoch(event, run) in _packing(run)),
        broken_lines=frozenset() if shown is None else _all_breaks(run).lines.get(shown.file, frozenset()),
        taken_by=taken_by(own, stack, run) if editable else "",
        hidden_reads=frozenset() if shown is None else _all_breaks(run).hidden.get(shown.file, frozenset()) - {line.code},
        holds_work=inside and not editable and holds_work(own, run),
        resumed=is_resumed((event.frame,) if isinstance(event, BreakEvent) else event.frames, run),
    )


def _block(shown: Location | None, run: Run) -> Block | None:
    """The recorded source from the line on."""
    return None if shown is None or shown.line is None else parse_block(run.blocks.get((shown.file, shown.line)), shown.code)


def _same_line(own: Location | None, torch_frame: Location | None) -> bool:
    """Whether the break is on the user's own line; torch's polyfills stand for a builtin that the line calls itself."""
    if own is None or torch_frame is None or _POLYFILL.search(torch_frame.file):
        return True
    return (own.file, own.line) == (torch_frame.file, torch_frame.line)


def _entered(event: BreakEvent | GraphBreak, run: Run) -> str:
    frame = run.frame(event.frame if isinstance(event, BreakEvent) else (*event.frames, "")[0])
    return "" if frame is None else frame.file or ""


def _stack(event: BreakEvent | GraphBreak, run: Run) -> tuple[Location, ...]:
    """The whole stack of the break: where its frame was entered, then what it inlined."""
    frame = run.frame(event.frame) if isinstance(event, BreakEvent) else None
    stack = event.stack if frame is None else joined_stack(frame.stack, event.stack)
    return tuple(one for one in stack if not _DYNAMO.search(one.file))


def _calling_code(stack: tuple[Location, ...]) -> str | None:
    """The code of the innermost frame outside the standard library."""
    return next((frame.code for frame in reversed(stack) if not is_standard_library(frame.file)), None)


def _below(stack: tuple[Location, ...], own: Location | None) -> tuple[Location, ...]:
    """The frames that the user's line leads to, from its callee on; empty when the line is not on the stack."""
    places = [] if own is None else [index for index, frame in enumerate(stack) if (frame.file, frame.line) == (own.file, own.line)]
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
        return (own.file, own.line) not in {(one.file, one.line) for one in frame.stack}
    if frame is None or frame.file is None or own is None or is_own_file(frame.file, run):
        return True
    function, epoch = source_function(own.function), (frame.key.process, frame.key.epoch)
    if (own.file, function, *epoch) in compiled_in_epochs(run):
        return True
    name = source_function(frame.name)
    first = next((i for i, one in enumerate(stack) if one.file == frame.file and source_function(one.function) == name), len(stack))
    return any((one.file, one.line) == (own.file, own.line) for one in stack[first:])


def _epoch(event: BreakEvent | GraphBreak, run: Run) -> tuple[int, int] | None:
    """The process and the reset epoch of a break; None where its frame is not known."""
    frame = run.frame(event.frame if isinstance(event, BreakEvent) else (*event.frames, "")[0])
    return None if frame is None else (frame.key.process, frame.key.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AllBreaks:
    """What the advice for one break asks of all of them: processes and epochs in which an optimizer broke, by the function that calls it,
    in which sequences are packed, in which compiled code trains; the lines that broke, by file, and those at which an operator read a
    number; and the lines of compiled functions at which they, or what they call, broke.
    """

    optimizers: Mapping[tuple[str, str | None], frozenset[tuple[int, int]]]
    packing: frozenset[tuple[int, int] | None]
    lines: Mapping[str, frozenset[str]]
    hidden: Mapping[str, frozenset[str]]
    training: frozenset[tuple[int, int] | None]
    calling: frozenset[tuple[str, int | None]]


def _with_optimizer(run: Run, own: Location) -> frozenset[tuple[int, int]]:
    """The processes and epochs in which an optimizer broke that the user's function calls."""
    return _all_breaks(run).optimizers.get((own.file, source_function(own.function)), frozenset())


def _packing(run: Run) -> frozenset[tuple[int, int] | None]:
    """The processes and epochs in which the program packs sequences: an RNN then gets one."""
    return _all_breaks(run).packing


@of_last_run
def _all_breaks(run: Run) -> _AllBreaks:
    found: dict[tuple[str, str | None], set[tuple[int, int]]] = {}
    packs: set[tuple[int, int] | None] = set()
    lines: dict[str, set[str]] = {}
    hidden: dict[str, set[str]] = {}
    training: set[tuple[int, int] | None] = set()
    calling: set[tuple[str, int | None]] = set()
    for event in run.breaks:
        file = _entered(event, run)
        calling.update((one.file, one.line) for one in event.stack if file and one.file == file)
        training.update((_epoch(event, run),) if event.gb_id == "GB0123" or _of_optimizer(event) else ())
        packs.update((_epoch(event, run),) if _PACKED.search(event.context or "") else ())
        if (at := event.torch_frame) is not None and at.code:
            lines.setdefault(at.file, set()).add(at.code.strip())
            if hidden_reads(at.code, event.gb_id):
                hidden.setdefault(at.file, set()).add(at.code.strip())
        epoch = _epoch(event, run) if _of_optimizer(event) else None
        for frame in event.stack if epoch is not None else ():
            found.setdefault((frame.file, source_function(frame.function)), set()).update(() if epoch is None else (epoch,))
    return _AllBreaks(
        optimizers={key: frozenset(epochs) for key, epochs in found.items()},
        packing=frozenset(packs),
        lines={file: frozenset(codes) for file, codes in lines.items()},
        hidden={file: frozenset(codes) for file, codes in hidden.items()},
        training=frozenset(training),
        calling=frozenset(calling),
    )


def _of_optimizer(event: BreakEvent) -> bool:
    """Whether this break is in an optimizer."""
    files = any(_OPTIMIZER.search(frame.file) for frame in event.stack)
    return files or re.search(r"\bOptimizer\.|torch\.optim\.", event.context or "") is not None


def _version(process: Process | None) -> tuple[int, ...] | None:
    """The first two numbers of the torch that ran."""
    found = re.match(r"(\d+)\.(\d+)", process.torch or "") if process is not None else None
    return None if found is None else (int(found[1]), int(found[2]))


def _process(event: BreakEvent | GraphBreak, run: Run) -> Process | None:
    if isinstance(event, GraphBreak):
        index = event.processes[0] if event.processes else None
    else:
        frame = run.frame(event.frame)
        index = None if frame is None else frame.key.process
    return None if index is None else process_of(run, index)


def option(situation: Situation, slug: str, name: str, statement: str, text: str) -> Iterator[Advice]:
    """Advice to set one option of `torch._dynamo.config`.

    Left out when the torch that ran does not have it; with "if your torch has this option" when that is not known.
    `statement` is what follows `torch._dynamo.config.<name>` (` = True`, `.add(print)`).
    """
    has = situation.options.known("dynamo", name)
    if has == "no":
        return
    full = f"torch._dynamo.config.{name}"
    doubt = " (if your torch has this option)" if has == "unknown" else ""
    yield Advice(slug=slug, text=f"{text}{doubt}", after=f"{full}{statement}", options=(full,))


def rewrite(
    situation: Situation, slug: str, after: str, text: str, *, options: tuple[str, ...] = (), own_call: bool = False
) -> Iterator[Advice]:
    """Advice to rewrite the user's line.

    Nothing if the break is on a line of a library, which the user cannot edit, unless the rule has recognised the call on the user's
    own line that leads there (`own_call`). `after` is the whole new line: what has gaps to fill is a `sketch`.
    """
    if situation.editable or own_call:
        yield Advice(slug=slug, text=text, before=situation.line.code or None, after=after, options=options)


def sketch(situation: Situation, slug: str, text: str, *, options: tuple[str, ...] = ()) -> Iterator[Advice]:
    """Advice to rewrite the user's line in a way that cannot be written out (the branch is not known, a size is missing)."""
    if situation.editable:
        yield Advice(slug=slug, text=text, options=options)


def say(slug: str, text: str, *, after: str | None = None) -> Iterator[Advice]:
    """Advice in words; `after` is code to add somewhere else than on the line (never a replacement of it: that is `rewrite`)."""
    yield Advice(slug=slug, text=text, after=after)


def guarded(situation: Situation, slug: str, text: str) -> Iterator[Advice]:
    """Advice to put the whole line, when it is one call whose value nobody uses, behind `torch.compiler.is_compiling()`.

    That changes the program, since compiled calls then leave the call out: `text` says what is lost, and such advice comes last.
    """
    line = situation.line
    own = situation.editable or situation.direct
    if not own or situation.options.known("compiler", "is_compiling") == "no":
        return
    options = ("torch.compiler.is_compiling",)
    if line.only_call() is not None:
        after = f"if not torch.compiler.is_compiling():\n    {line.code}"
        yield Advice(slug=slug, text=text, before=line.code, after=after, options=options)
    elif line.begins_call():
        where = "put the statement that begins there under `if not torch.compiler.is_compiling():`"
        yield Advice(slug=slug, text=f"{text}: {where}", options=options)


def leaves_out(advice: Advice) -> bool:
    """Whether the advice makes compiled calls leave out something that the program does."""
    return advice.slug.endswith(("-guard", "-ignore"))


def moves_to(situation: Situation) -> str:
    """Words for a change that only moves the break: the recorded source shows a later line that decides by the value; else ""."""
    later = None if situation.block is None else situation.block.decided_later(situation.broken_lines)
    return "" if later is None else f"alone it only moves the break to {quoted(later)}, which decides by it: that line has to change too"


def quoted(code: str, limit: int = 80) -> str:
    """Code in backticks for a sentence, cut when long."""
    return f"`{code if len(code) <= limit else code[: limit - 3] + '...'}`"


def line_name(situation: Situation) -> str:
    """The line in backticks, or "this line" when it was not recorded."""
    return quoted(situation.line.code) if situation.line.code else "this line"
