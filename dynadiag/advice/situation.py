"""What an advice rule may look at: one break, the line it is on, and the options that the torch of that run has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynadiag.advice.source import SourceLine, parse_line
from dynadiag.model.report import Advice, GraphBreak
from dynadiag.model.run import BreakEvent, Location, Process, Run

_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages)[/\\]|[/\\]lib(?:64)?[/\\]python3")
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
    """One break as the rules see it. `line` is the user's own line; `editable` says that the break is on it and not in a library."""

    gb_id: str | None
    gb_type: str
    explanation: str
    hints: tuple[str, ...]
    context: str
    line: SourceLine
    torch_frame: Location | None
    editable: bool
    options: TorchOptions

    @property
    def where(self) -> str:
        """The file and line inside a library where Dynamo stopped, for wording; empty when it is the user's own line."""
        if self.editable or self.torch_frame is None:
            return ""
        parts = [part for part in re.split(r"[/\\]", self.torch_frame.file) if part not in ("", ".", "..")]
        name = "/".join(parts[-2:])
        return name if self.torch_frame.line is None else f"{name}:{self.torch_frame.line}"


Rule = Callable[[Situation], Iterator[Advice]]


def situation_of(event: BreakEvent | GraphBreak, run: Run, own_frame: Location | None = None) -> Situation:
    """The situation of one event or site. `own_frame` is the user's own frame when the caller has found it already."""
    own = own_frame or (event.own_frame if isinstance(event, GraphBreak) else _own_frame(event.stack, run))
    torch_frame = event.torch_frame or (event.stack[-1] if event.stack else None)
    reason = event.reason if isinstance(event, GraphBreak) else event.gb_type
    shown = own or torch_frame
    return Situation(
        gb_id=event.gb_id,
        gb_type=reason,
        explanation=event.explanation or "",
        hints=event.hints,
        context=event.context or "",
        line=parse_line(None if shown is None else shown.code),
        torch_frame=torch_frame,
        editable=_same_line(own, torch_frame),
        options=_options(event, run),
    )


def _same_line(own: Location | None, torch_frame: Location | None) -> bool:
    """Whether the break is on the user's own line; torch's polyfills stand for a builtin that the line calls itself."""
    if own is None or torch_frame is None or _POLYFILL.search(torch_frame.file):
        return True
    return (own.file, own.line) == (torch_frame.file, torch_frame.line)


def _own_frame(stack: tuple[Location, ...], run: Run) -> Location | None:
    own = (frame for frame in reversed(stack) if not _is_installed(frame.file, run.site_prefixes))
    return next(own, None)


def _is_installed(file: str, prefixes: tuple[str, ...]) -> bool:
    if file.startswith("<"):
        return not file.startswith(("<stdin", "<string", "<ipython", "<console"))
    return any(prefix and file.startswith(prefix) for prefix in prefixes) or _INSTALLED.search(file) is not None


def _options(event: BreakEvent | GraphBreak, run: Run) -> TorchOptions:
    process = _process(event, run)
    return TorchOptions() if process is None else TorchOptions(process.option_names)


def _process(event: BreakEvent | GraphBreak, run: Run) -> Process | None:
    if isinstance(event, GraphBreak):
        index = event.processes[0] if event.processes else None
    else:
        frame = run.frame(event.frame)
        index = None if frame is None else frame.key.process
    return next((process for process in run.processes if process.index == index), None)


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
    own line that leads there (`own_call`).
    """
    if situation.editable or own_call:
        yield Advice(slug=slug, text=text, before=situation.line.code or None, after=after, options=options)


def say(slug: str, text: str, *, situation: Situation | None = None, after: str | None = None) -> Iterator[Advice]:
    """Advice in words, with the line it is about when `situation` is given."""
    yield Advice(slug=slug, text=text, before=situation.line.code or None if situation else None, after=after)


def guarded(situation: Situation, slug: str, text: str) -> Iterator[Advice]:
    """Advice to put the whole line, when it is one call whose value nobody uses, behind `torch.compiler.is_compiling()`."""
    line = situation.line
    if line.only_call() is None or situation.options.known("compiler", "is_compiling") == "no":
        return
    after = f"if not torch.compiler.is_compiling():\n    {line.code}"
    yield Advice(slug=slug, text=text, before=line.code, after=after, options=("torch.compiler.is_compiling",))


def quoted(code: str, limit: int = 80) -> str:
    """Code in backticks for a sentence, cut when long."""
    return f"`{code if len(code) <= limit else code[: limit - 3] + '...'}`"


def line_name(situation: Situation) -> str:
    """The line in backticks, or "this line" when it was not recorded."""
    return quoted(situation.line.code) if situation.line.code else "this line"
