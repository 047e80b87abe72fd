"""What a compiled function calls that has no break of its own: to be compiled instead of it, as far as the recording names it.

`smaller_region` makes the edits of it from the whole file; this is what a recording alone shows, so that it is an idea.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from dynadiag.changes.all_breaks import whole_stack
from dynadiag.changes.compiled_function import CompiledFunction
from dynadiag.changes.train_step import IN_PLACE
from dynadiag.facts.captured_operators import captured_operators
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.statements import recorded_function, recorded_functions
from dynadiag.facts.user_frames import is_own_file, of_last_run
from dynadiag.facts.wording import listed, short_place
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import Run
from dynadiag.source.effects import drives_training
from dynadiag.source.line import dotted
from dynadiag.source.place import Place, function_around
from dynadiag.source.seen import called_modules
from dynadiag.source.torch_names import is_of_torch
from dynadiag.source.tree import calls_in, holds

COMPILE_CALLED = "compile-called"
_MOST_STEPS = 4
_NO_MODULE = re.compile(r"loss|crit|opt|sched|scal|log|metric|tqdm|print|callback|^cb$", re.IGNORECASE)
_TWICE = re.compile(r"\bcreate_graph\s*=\s*True")
_MOST_PARTS = 3


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is called: its name where the whole is compiled, whether it is a module, and the lines of its function where it is none."""

    name: str
    module: bool
    lines: frozenset[tuple[str, int]] = frozenset()

    def row(self, options: str) -> str:
        """The statement that compiles it."""
        given = ", ".join(filter(None, ("" if self.module else self.name, options)))
        return f"{self.name}.compile({given})" if self.module else f"{self.name} = torch.compile({given})"


def drives(place: Place) -> bool:
    """Whether the function drives the computation: it calls `backward()` or an optimizer, or loops until something holds."""
    return drives_training(place.node) or any(holds(statement, ast.While) for statement in place.node.body)


def compile_called(compiled: CompiledFunction, run: Run, *, torch: tuple[int, ...] | None) -> Iterator[Advice]:
    """Leave the function in Python, and compile what it calls that has no break."""
    if any(_TWICE.search(source.text) for source in run.functions):
        return  # "torch.compile with aot_autograd does not currently support double backward" (2.11 and 2.15)
    walk = _Walk(run)
    walk.into(compiled.place, compiled.way[0], {"self": compiled.receiver} if compiled.receiver else {}, compiled)
    counts = {place: count for place, count in captured_operators(run).items() if is_own_file(place[0], run)}
    inside = sum(count for place, count in counts.items() if place not in walk.plain) + sum(counts.get(place, 0) for place in walk.called)
    parts, said = (
        list(walk.parts.values()),
        (f", where nothing broke: {inside} of the {sum(counts.values())} operators that were captured at your lines"),
    )
    is_driver = drives(compiled.place)
    if not inside or (inside * 2 < sum(counts.values()) and not (is_driver and any(part.module for part in parts))):
        objects = dict.fromkeys(_objects_called(compiled, run)) if is_driver else ()
        parts, said = [Part(name=name, module=True) for name in objects], ". Check that it is a module, and that nothing in it breaks"
    parts = [part for part in parts if part.module or _may_be_bound(part.name, compiled, run)][:_MOST_PARTS]
    in_place = torch is not None and torch >= IN_PLACE
    if not parts or (any(part.module for part in parts) and not in_place):
        return
    options = compiled.options
    rows = [row for part in parts for row in _rows(part, compiled, "" if options is None else ", ".join(options))]
    where = "" if compiled.made.location is None else f" ({short_place(compiled.made.location)})"
    before, after = None, "\n".join(rows)
    call = compiled.compile_call
    if call is not None and not compiled.decorated:
        before, after = compiled.line.code, "\n".join((*rows, compiled.line.replaced(call, compiled.line.text(call.args[0]))))
    names = listed([f"`{part.name}`" for part in parts])
    sentences = (
        f"Compile the smaller thing: leave `{compiled.name}` in plain Python{where}, and compile {names}{said}",
        "" if before is not None else f"Remove `{compiled.line.code or 'torch.compile'}` there, and write this once, before the first call",
        "" if options is not None else "Pass what `torch.compile` was given",
        "Last digits and random numbers (dropout) may differ",
    )
    yield Advice(slug=COMPILE_CALLED, text=". ".join(filter(None, sentences)), before=before, after=after, how_sure="idea")


def _rows(part: Part, compiled: CompiledFunction, options: str) -> Iterator[str]:
    if not part.module and "." not in part.name and compiled.made.location is not None and compiled.made.location.function != "<module>":
        yield f"global {part.name}"
    yield part.row(options)


def _may_be_bound(name: str, compiled: CompiledFunction, run: Run) -> bool:
    """Whether a name can get another value at the line that compiles: a function must not be used there before."""
    at = compiled.made.location
    place = None if at is None else function_around(run, at.file, at.line)
    return "." in name or place is None or all(read.lineno > place.row for read in place.reads(name))


def _objects_called(compiled: CompiledFunction, run: Run) -> Iterator[str]:
    """What a driver calls that was made of a class where it is compiled (`model = Net()`), or whose making was not recorded."""
    at = compiled.made.location
    place = None if at is None else function_around(run, at.file, at.line)
    known = {source.name.rpartition(".")[2] for source in run.functions} | set(dir(builtins))
    for call in calls_in(*compiled.place.node.body):
        name = dotted(call.func) or ""
        outside, last = compiled.named_outside(name) if name else None, name.rpartition(".")[2]
        if outside is None or last in known or is_of_torch(name) or last[:1].isupper():
            continue
        made = () if place is None else place.values(outside)
        unseen = (
            not made
            and (place is None or outside not in place.index.stores)
            and name in (f"self.{last}", last)
            and _NO_MODULE.search(last) is None
        )
        if any(map(_makes_object, made)) or unseen:
            yield outside


def _makes_object(value: ast.expr) -> bool:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Call):
        value = value.func.value  # `Net().to(device)`
    return isinstance(value, ast.Call) and (dotted(value.func) or "").rpartition(".")[2][:1].isupper()


class _Walk:
    """The calls of a function that breaks, and of what breaks below it, down to what does not."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.parts: dict[str, Part] = {}
        self.plain: set[tuple[str, int]] = set()
        self.called: set[tuple[str, int]] = set()
        self._below = _reached_below(run)

    def into(
        self, place: Place, at: Location, names: dict[str, str], outer: CompiledFunction | None = None, steps: int = _MOST_STEPS
    ) -> None:
        if steps <= 0 or at.line is None:
            return
        begin = at.line - place.row + 1
        rows = {(at.file, begin + row) for row in range(place.node.end_lineno or 1)}
        if rows <= self.plain:
            return
        self.plain |= rows
        modules = called_modules(at, self._run)
        for call in calls_in(*place.node.body):
            name = dotted(call.func)
            if name is None:
                continue
            lines = range(begin + call.lineno - 1, begin + (call.end_lineno or call.lineno))
            below = [inner for line in lines for inner in self._below.get((at.file, line), ())]
            broken = [inner for inner in below if _is_called(name, inner, is_function=self._is_defined(name, at.file))]
            outside = self._outside(name, names, outer)
            if broken:
                self._go_on(broken[0], call, outside, names, outer, steps)
            elif outside is not None and (name in modules or (function := self._function(name, at.file, place)) is not None):
                if name in modules and not self._is_leaf(name):
                    self.called.update((at.file, line) for line in lines)
                    self.parts[outside] = Part(name=outside, module=True)
                elif name not in modules and function:
                    self.parts[outside] = Part(name=outside, module=False, lines=function)

    def _go_on(
        self, inner: Location, call: ast.Call, outside: str | None, names: dict[str, str], outer: CompiledFunction | None, steps: int
    ) -> None:
        place = function_around(self._run, inner.file, inner.line)
        if place is None:
            return
        given = {"self": outside.rpartition(".")[0] if place.node.name == (outside.rpartition(".")[2]) else outside} if outside else {}
        for parameter, argument in zip(place.parameters, call.args, strict=False):
            text = dotted(argument)
            known = None if text is None else self._outside(text, names, outer)
            given.update({} if known is None else {parameter: known})
        self.into(place, inner, given, None, steps - 1)

    @staticmethod
    def _outside(name: str, names: dict[str, str], outer: CompiledFunction | None) -> str | None:
        root, dot, rest = name.partition(".")
        if root in names:
            return f"{names[root]}{dot}{rest}"
        return outer.named_outside(name) if outer is not None else None

    def _is_leaf(self, name: str) -> bool:
        """Whether the module has parameters itself and no parts with any: one such as `Linear`, which is no graph worth a call."""
        sources = {readable(item.source) for item in self._run.traced_inputs if item.is_parameter}
        own = [source.removeprefix(f"{name}.") for source in sources if source.startswith(f"{name}.")]
        return bool(own) and all("." not in source and "[" not in source for source in own)

    def _is_defined(self, name: str, file: str) -> bool:
        """Whether a function of that name was recorded in the file: the name is then no module's."""
        last = name.rpartition(".")[2]
        return any(found.name.rpartition(".")[2] == last for found in recorded_functions(file, self._run))

    def _function(self, name: str, file: str, place: Place) -> frozenset[tuple[str, int]]:
        """The lines of the recorded function of the user's that is called, if operators stand there and nothing broke."""
        last = name.rpartition(".")[2]
        found = [one for one in recorded_functions(file, self._run) if one.name.rpartition(".")[2] == last and one.name != place.node.name]
        if len(found) != 1 or ("." in name and "." not in found[0].name) or name.count(".") > 2:
            return frozenset()
        lines = frozenset((file, found[0].line + row) for row in range(found[0].text.count("\n") + 1))
        counts = captured_operators(self._run)
        own = {line for line in lines if recorded_function(*line, self._run) is found[0]}
        return lines if sum(counts.get(line, 0) for line in own) > 1 else frozenset()


def _is_called(name: str, inner: Location, *, is_function: bool) -> bool:
    """Whether the function of a stack's next line is what the name calls: one of that name, or `forward` where it is no function.

    `model.decode(model(x))` on one line leads to `Model.forward`, which `model.decode` is not.
    """
    function, last = (inner.function or "").rpartition(".")[2], name.rpartition(".")[2]
    if function.startswith("torch_dynamo_resume"):
        return not is_function or f"_in_{last}_at_" in function
    return function == last or (function in ("forward", "__call__") and not is_function)


@of_last_run
def _reached_below(run: Run) -> dict[tuple[str, int], list[Location]]:
    """By the user's line the lines below it on the way to a break."""
    found: dict[tuple[str, int], list[Location]] = {}
    for event in run.breaks:
        stack = [location for location in whole_stack(event, run) if is_own_file(location.file, run)]
        for upper, inner in pairwise(stack):
            if upper.line is not None:
                found.setdefault((upper.file, upper.line), []).append(inner)
    return found
