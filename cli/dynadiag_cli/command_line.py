"""How a command line is split into our options and the script's: ours end at the script, at `-m MODULE`, or at `--`."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from dynadiag.errors import DynadiagError, UsageError
from dynadiag.trace.sources import is_recording, recording_at

if TYPE_CHECKING:
    from dynadiag.record import Target

MODE = "dynadiag.target_mode"
_LIMITS = re.compile(r"^(?:(?P<least>[\d.]+)<=x<=(?P<most>[\d.]+)|x>=(?P<only>[\d.]+))$")
_UNLIMITED = 1_000_000
"""An option's greatest value from here on is a limit of the system, not of what it is for."""
_PYDANTIC = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"^Input should be a valid integer\b.*"), "not a whole number."),
    (re.compile(r"^Input should be a valid number\b.*"), "not a number."),
    (re.compile(r"^Input should be "), "should be "),
)


class Command(TyperCommand):
    """A command whose help has its options under headings, and whose help and errors name no types of Python."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Typer, in words for people."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            for pattern, words in _PYDANTIC:
                error.message = pattern.sub(words, error.message)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The line "Usage:" with our own names of the arguments, which say what may be left out and repeated."""
        arguments = [parameter for parameter in self.get_params(ctx) if parameter.param_type_name == "argument"]
        return [str(self.options_metavar), *(_named(argument) for argument in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments, then the options: those without a heading first."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                text = re.sub(r"\s*\[required\]$", "", record[1])
                groups["Arguments"].append((_named(parameter), text))
            else:
                heading = getattr(parameter, "rich_help_panel", None) or "Options"
                groups.setdefault(heading, []).append((record[0], _readable(record[1])))
        for heading, rows in groups.items():
            if not rows:
                continue
            with formatter.section(heading):
                formatter.write_dl(rows)


def _readable(text: str) -> str:
    """An option's help with its default and limits in words: `[default: 3.0; 3<=x<=9]` is `[default: 3; 3 to 9]`."""
    found = re.search(r"\s*\[([^][]*)\]$", text)
    if found is None:
        return text
    notes = (_LIMITS.sub(_limits, re.sub(r"^(default: \d+)\.0$", r"\1", note)) for note in found[1].split("; "))
    return text[: found.start()] + (f" [{said}]" if (said := "; ".join(filter(None, notes))) else "")


def _limits(found: re.Match[str]) -> str:
    """`20 to 100`, `at least 20`; nothing for what everybody would expect: at least 0 or 1."""
    least, most = found["least"] or found["only"], found["most"]
    if most is not None and float(most) < _UNLIMITED:
        return f"{least} to {most}"
    return "" if least in ("0", "1") else f"at least {least}"


def _named(argument: Any) -> str:
    name = argument.metavar or str(argument.name).upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


class TargetCommand(Command):
    """A command whose options stop at its target, so that `explain --cost train.py --lr 3` gives `--lr 3` to the script.

    `ctx.meta[MODE]` says what the target is: "path", "module" (after `-m`, as in `python -m`) or "command" (after `--`).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        settings = {"allow_interspersed_args": False, **(kwargs.pop("context_settings", None) or {})}
        super().__init__(*args, context_settings=settings, **kwargs)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse our options only; the rest is the target and what belongs to it."""
        module_at = self._module_flag(ctx, args)
        if module_at is not None:
            ctx.meta[MODE] = "module"
            return super().parse_args(ctx, [*args[:module_at], "--", *args[module_at + 1 :]])
        rest = self._target_of(ctx, args)
        if rest and not rest[0]:  # `Path("")` would be the current folder
            raise UsageError("the target is an empty string (an unset shell variable?): pass a script, a run directory or a log")
        consumed = len(args) - len(rest)
        ctx.meta[MODE] = "command" if rest and consumed and args[consumed - 1] == "--" else "path"
        if len(rest) > 1 and ctx.meta[MODE] == "path" and _names_a_recording(rest[0]):
            # A recording takes no arguments of its own, so options behind it, or behind two of them, are ours.
            named = list(takewhile(_names_a_recording, rest))
            args = [*args[:consumed], *rest[len(named) :], *named]
        return super().parse_args(ctx, args)

    def _module_flag(self, ctx: Any, args: list[str]) -> int | None:
        """Where `-m` stands as an option of ours (not as the value of another option, not after the target)."""
        for position, word in enumerate(args):
            if word == "--":
                return None
            if word == "-m":
                return position if self._target_of(ctx, [*args[:position], "\0"]) == ["\0"] else None
        return None

    def _target_of(self, ctx: Any, args: list[str]) -> list[str]:
        """The words that are not options of ours, as the parser sees them: the last parameter takes them all."""
        values = self.make_parser(ctx).parse_args(list(args))[0]
        (target,) = (parameter.name for parameter in self.params if parameter.param_type_name == "argument")
        return list(values.get(target) or ())


def program_of(ctx: typer.Context, target: list[str]) -> Target:
    """The program that a target names."""
    from dynadiag.record import Target

    kinds = {"module": "module", "command": "command"}
    return Target(kind=kinds.get(ctx.meta.get(MODE, "path"), "script"), argv=tuple(target))  # type: ignore[arg-type]


def recording_named(ctx: typer.Context, target: list[str]) -> Path | None:
    """The run or log that a target names; None for a program to run."""
    if ctx.meta.get(MODE, "path") != "path" or not is_recording(Path(target[0])):
        return None
    if len(target) > 1:
        raise UsageError(f"{target[0]} is a run or a log and takes no arguments, but got: {' '.join(target[1:])}")
    return recording_at(Path(target[0]))


def _names_a_recording(word: str) -> bool:
    """Also `RUN#g3`, a graph of a recording."""
    path, mark, _ = word.rpartition("#")
    try:
        return is_recording(Path(path if mark and not Path(word).exists() else word))
    except DynadiagError:
        return False
