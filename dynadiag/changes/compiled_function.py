"""The function that a program gave to `torch.compile` above a place: how it was compiled, who calls it, and what its names are there."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dynadiag.facts.statements import function_with_decorators
from dynadiag.facts.user_frames import is_own_file
from dynadiag.model.location import Location
from dynadiag.model.run import CompileCall, Run
from dynadiag.source.line import SourceLine, dotted, parse_line
from dynadiag.source.place import Place, function_around, line_at
from dynadiag.source.seen import with_given


@dataclass(frozen=True, eq=False, kw_only=True)
class CompiledFunction:
    """`way` are the user's lines from the one in it down to the place; `call` is the line that calls it, where the recording shows it."""

    name: str
    place: Place
    way: tuple[Location, ...]
    call: Location | None
    made: CompileCall
    line: SourceLine
    call_line: SourceLine

    @property
    def decorated(self) -> bool:
        """Whether a decorator compiles it, so that no line names what it belongs to."""
        return self.line.code.startswith("@")

    @cached_property
    def compile_call(self) -> ast.Call | None:
        """The `torch.compile(...)` of the recorded line; None where that goes on or is another one."""
        return next((call for call in self.line.calls("torch.compile") if call.args), None)

    @property
    def receiver(self) -> str:
        """What the object of its method is called where it is compiled; empty where no name is shown."""
        given = None if self.compile_call is None else dotted(self.compile_call.args[0])
        if given is None:
            return ""
        return given if self.made.definition is None else given.rpartition(".")[0]

    @property
    def options(self) -> tuple[str, ...] | None:
        """What else `torch.compile` is given, as it is written; None where the line does not show it."""
        if self.line.code == "@torch.compile":
            return ()
        line = parse_line(self.line.code.removeprefix("@")) if self.decorated else self.line
        call = next((call for call in line.calls("torch.compile") if call.args or self.decorated), None)
        if call is None:
            return None
        return tuple(line.text(word) if word.arg is None else f"{word.arg}={line.text(word.value)}" for word in call.keywords)

    @cached_property
    def entering(self) -> ast.Call | None:
        """The call of it on the line that calls it: by the name that it was compiled under."""
        statement = self.line.statement
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        names = {dotted(target) for target in targets} | {self.name.rpartition(".")[2]}
        found = [call for call in self.call_line.nodes if isinstance(call, ast.Call) and dotted(call.func) is not None]
        named = [call for call in found if dotted(call.func) in names or (dotted(call.func) or "").rpartition(".")[2] in names]
        return named[0] if len(named) == 1 else None

    def named_outside(self, name: str) -> str | None:
        """What `self.model` or a parameter is called outside of it; None where that is not shown."""
        root, dot, rest = name.partition(".")
        if root == "self":
            return f"{self.receiver}{dot}{rest}" if self.receiver else None
        if root not in self.place.parameters:
            return None if self.place.is_local(root) else name
        call, at = self.entering, self.place.parameters.index(root)
        given = None
        if call is not None and not any(isinstance(item, ast.Starred) for item in call.args):
            given = next((word.value for word in call.keywords if word.arg == root), call.args[at] if at < len(call.args) else None)
        text = None if given is None else dotted(given)
        return f"{text}{dot}{rest}" if text is not None else None


def compiled_function(stack: Sequence[Location], run: Run) -> CompiledFunction | None:
    """The outermost function on a stack that a recorded call of `torch.compile` was given."""
    for at, location in enumerate(stack):
        source = function_with_decorators(location, run)
        if source is None or location.line is None or not is_own_file(location.file, run):
            continue
        made = next((call for call in run.compile_calls if _compiles(call, source.name, location.file)), None)
        row = max(location.line, source.line)
        place = with_given(function_around(run, location.file, row), replace(location, line=row), run)
        if made is None or place is None:
            continue
        before = next((one for one in reversed(stack[:at]) if is_own_file(one.file, run)), None)
        return CompiledFunction(
            name=source.name,
            place=place,
            way=tuple(one for one in stack[at:] if is_own_file(one.file, run)),
            call=before,
            made=made,
            line=line_at(made.location, run),
            call_line=line_at(before, run),
        )
    return None


def _compiles(call: CompileCall, name: str, file: str) -> bool:
    target = call.target.replace(".<locals>", "")
    if call.definition is not None and call.definition.file != file:
        return False
    return name in (target, f"{target}.forward") or (call.definition is None and name == f"{target.rpartition('.')[2]}.forward")
