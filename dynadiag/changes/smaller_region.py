"""What was compiled whole (a loop, a step, an epoch) stays plain Python, and what it calls that has no break of its own is compiled.

The functions that a break, or the way to it, stands in are left plain. What they call is the frontier: modules (`model.compile()`),
methods (`solver.step = torch.compile(solver.step)`) and functions, each with what `torch.compile` was given.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dynadiag.changes import region_edits
from dynadiag.changes.edits import Edit
from dynadiag.changes.kinds import Kind
from dynadiag.changes.outlined_part import Part, outlined
from dynadiag.changes.region_edits import ProofNames, Region, edit_at_call, edits_at_decorator, first_caller
from dynadiag.errors import EditError
from dynadiag.source.effects import TRAINING_METHODS, drives_training
from dynadiag.source.line import dotted
from dynadiag.source.program import Function, Program, Scope, argument, program_of
from dynadiag.source.torch_names import is_of_torch
from dynadiag.source.tree import called_method, calls_in, holds, nodes_of

SLUG = "compile-smaller"
_BREAKS = frozenset(("item", "tolist", "numpy", "backward", "zero_grad"))
_UPDATES = frozenset(("append", "update", "extend", "add", "observe"))
_UNROLLED = frozenset(("torch.nn.GRU", "torch.nn.LSTM", "torch.nn.RNN"))  # Dynamo leaves them in Python (GB0014, torch 2.11 to 2.15)
_MOST_STEPS = 6
_OF_PYTHON = frozenset(dir(builtins))


@dataclass(frozen=True)
class Smaller:
    """The edits that compile smaller regions, what these are called, the lines of the functions that stay plain, and whether they drive
    (call `backward()`, an optimizer, or loop until something holds).
    """

    edits: tuple[Edit, ...]
    names: tuple[str, ...]
    plain: frozenset[int]
    drives: bool


def smaller_regions(file: str, text: str, broken: Collection[int], names: ProofNames, *, in_place: bool = True) -> Iterator[Smaller]:
    """For each place of a file where something is compiled in which one of the lines `broken` stands: all that can be compiled instead,
    then only its modules.

    Not `in_place`: `compile()` of a module of torch's own compiles nothing (before torch 2.15), and its `forward` is compiled.
    Raises EditError where there is such a place and it cannot be changed.
    """
    program = program_of(text)
    sites = [site for site in _sites(program, broken, in_place) if _is_broken(site.target, broken)]
    for site in sites:
        site.walk.into(site.target, site.names)
    sites = [site if site.decorates else _with_part(file, program, site, broken) for site in sites]
    groups = [*_sharing(program, sites), *([site] for site in sites)]
    why: EditError | None = None
    for group in groups:
        try:
            yield from _changes(file, program, group, names)
        except EditError as error:
            why = why or error
    if why is not None:
        raise why


class _Site(NamedTuple):
    """Where something is compiled: the call or the decorator, what it compiles, and what the names of that are called there.

    `part` is the largest part of it without a break, and `beside` what else is then compiled.
    """

    node: ast.expr
    target: Function
    names: Mapping[str, str]
    walk: _Walk
    decorates: bool
    part: Part | None = None
    beside: tuple[Region, ...] = ()

    def regions(self, form: str) -> list[Region]:
        """What can be compiled instead: `part` and what is beside it, `all` that is called, or its `modules`."""
        if form == "part" and self.part is not None:
            receiver = self.names.get("self", "")
            plain = "local" if self.walk.is_local(self.target) else "function"
            own = Region("method", f"{receiver}.{self.part.name}") if receiver else Region(plain, self.part.name)
            return [own, *self.beside]
        return [region for region in self.walk.regions if form != "modules" or region.is_module]


def _with_part(file: str, program: Program, site: _Site, broken: Collection[int]) -> _Site:
    calls = [call for call in calls_in(site.target) if called_method(call) in _BREAKS | TRAINING_METHODS | _UPDATES]
    left = {*broken, *(row for call in calls for row in range(call.lineno, (call.end_lineno or call.lineno) + 1))}
    try:
        part = outlined(file, program, site.target, left)
    except EditError:
        return site
    if part is None:
        return site
    walk = _Walk(program, broken, site.walk.around, site.walk.in_place)
    walk.into(site.target, site.names, apart=part.lines)
    return site._replace(part=part, beside=tuple(walk.regions))


def _sharing(program: Program, sites: Sequence[_Site]) -> list[list[_Site]]:
    """Those of one function that have a region in common, from two on."""
    groups: list[list[_Site]] = []
    for site in sites:
        scope = program.scope_of(site.node)
        for group in groups:
            known = {region for other in group for region in other.walk.regions}
            if not site.decorates and program.scope_of(group[0].node) is scope and not known.isdisjoint(site.walk.regions):
                group.append(site)
                break
        else:
            groups.append([site])
    return [group for group in groups if len(group) > 1]


@dataclass
class _Walk:
    """The calls below a function, down to what has no break of its own.

    `around` are the names of the function in which the whole is compiled: those of functions that are defined there know them.
    """

    program: Program
    broken: Collection[int]
    around: Collection[str] = ()
    in_place: bool = True

    def __post_init__(self) -> None:
        self.regions: dict[Region, None] = {}
        self.plain: set[int] = set()
        self.drives = False
        self._seen: set[tuple[int, str]] = set()

    def into(self, function: Function, names: Mapping[str, str], steps: int = _MOST_STEPS, apart: Collection[int] = ()) -> None:
        """Walk a function that stays plain, but for the lines `apart`; `names` says what its own names are called where the whole is
        compiled.
        """
        key = id(function), repr(sorted(names.items()))
        if key in self._seen or steps <= 0:
            return
        self._seen.add(key)
        self.plain |= _lines(function)
        self.drives = self.drives or holds(function, ast.While) or drives_training(function)
        names, lists = self._with_aliases(function, dict(names))
        for call in (call for call in calls_in(*function.body) if call.lineno not in apart):
            self._call(call, function, names, lists, steps)

    def is_local(self, function: Function) -> bool:
        """Whether a function is defined in another one."""
        return isinstance(self.program.scope_of(function), Function)

    def _with_aliases(self, function: Function, names: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Also names that the function gives to what it has, and to each item of a list that it loops over."""
        stored = [node.id for node in nodes_of(ast.Name, *function.body) if isinstance(node.ctx, ast.Store)]
        own = {*stored, *(item.arg for item in nodes_of(ast.arg, function.args))}
        known = {*self.program.global_names, *(self.around if self.is_local(function) else ())}
        names |= {name: name for name in known if name not in own}
        for name in set(stored):
            names.pop(name, None)
        lists: dict[str, str] = {}
        for statement in nodes_of(ast.Assign, *function.body):
            target, value = statement.targets[0], _called(statement.value, names)
            if isinstance(target, ast.Name) and value is not None and stored.count(target.id) == 1:
                names[target.id] = value
        for loop in nodes_of(ast.For, *function.body):
            items = _called(loop.iter, names)
            if isinstance(loop.target, ast.Name) and items is not None and stored.count(loop.target.id) == 1:
                lists[loop.target.id] = items
        return names, lists

    def _call(self, call: ast.Call, function: Function, names: Mapping[str, str], lists: Mapping[str, str], steps: int) -> None:
        program = self.program
        called = program.function_named(call.func.id, function) if isinstance(call.func, ast.Name) else None
        if called is not None and (not self.is_local(called) or called.name in self.around):
            form = "local" if self.is_local(called) else "function"
            self._function(called, call, Region(form, called.name), "", names, steps)
            return
        if isinstance(call.func, ast.Name) and call.func.id in lists:
            self._item(call, function, lists[call.func.id])
            return
        if isinstance(call.func, ast.Attribute):
            owner = program.kind_of(call.func.value, function)
            method = program.method(owner, call.func.attr)
            if method is not None:
                receiver = _called(call.func.value, names)
                if receiver is not None:
                    self._function(method, call, Region("method", f"{receiver}.{method.name}"), receiver, names, steps)
                return
        name = _called(call.func, names)
        kind = program.kind_of(call.func, function)
        if name is None or kind is None:
            return
        entry = program.method(kind, "forward" if program.is_module(kind) else "__call__")
        if entry is not None and (self._stays(entry) or not program.is_module(kind)):
            self.into(entry, {"self": name, **self._given(call, entry, names)}, steps - 1)
        elif program.is_module(kind) and kind not in _UNROLLED and not self._holds_broken(kind, call.func, function):
            own = self.in_place or entry is not None
            self.regions[Region("module", name) if own else Region("method", f"{name}.forward")] = None

    def _item(self, call: ast.Call, function: Function, name: str) -> None:
        """A module of a list whose items all are of one class."""
        kinds = {self.program.kind_of(part, scope) for part, scope in self._items(call, function)}
        entries = [self.program.method(kind, "forward") for kind in kinds]
        if not self.in_place and None in entries:
            return
        if kinds and all(map(self.program.is_module, kinds)) and not any(entry is not None and self._stays(entry) for entry in entries):
            self.regions[Region("list", name)] = None

    def _items(self, call: ast.Call, function: Function) -> Iterator[tuple[ast.expr, Scope]]:
        loops = [loop for loop in nodes_of(ast.For, function) if isinstance(loop.target, ast.Name) and dotted(call.func) == loop.target.id]
        for loop in loops:
            if not isinstance(loop.iter, ast.Attribute):
                continue
            owner = self.program.kind_of(loop.iter.value, function)
            for value, method in self.program.attributes(owner, loop.iter.attr):
                if isinstance(value, ast.Call) and dotted(value.func) == "torch.nn.ModuleList" and value.args:
                    given = value.args[0]
                    parts = [given.elt] if isinstance(given, ast.GeneratorExp | ast.ListComp) else getattr(given, "elts", [])
                    yield from ((part, method) for part in parts)

    def _function(self, node: Function, call: ast.Call, region: Region, receiver: str, names: Mapping[str, str], steps: int) -> None:
        if self._stays(node):
            mapped = {"self": receiver} if receiver else {}
            self.into(node, {**mapped, **self._given(call, node, names)}, steps - 1)
        elif _computes(node):
            self.regions[region] = None

    def _given(self, call: ast.Call, node: Function, names: Mapping[str, str]) -> dict[str, str]:
        parameters = [item.arg for item in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        given = {name: _called(argument(call, node, name), names) for name in parameters}
        return {name: value for name, value in given.items() if value is not None}

    def _stays(self, node: Function) -> bool:
        """Whether a function stays plain: a break stands in it or below it, or it does what plainly breaks."""
        return _is_broken(node, self.broken) or any(
            called_method(call) in _BREAKS or dotted(call.func) == "print" for call in calls_in(node)
        )

    def _holds_broken(self, kind: str, module: ast.expr, scope: Scope) -> bool:
        """Whether a container of torch's may hold a module that breaks: what makes it calls a class that does, or is not plain to see."""
        if kind not in ("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"):
            return False
        if not any(map(self._is_broken_class, self.program.classes)):
            return False
        owner = self.program.kind_of(module.value, scope) if isinstance(module, ast.Attribute) else None
        made: list[tuple[ast.expr, Scope]] = []
        if isinstance(module, ast.Attribute):
            made += self.program.attributes(owner, module.attr)
        else:
            made += self.program.values_of(dotted(module) or "", scope)
        return not made or any(self._makes_broken(value, where, _MOST_STEPS) for value, where in made)

    def _is_broken_class(self, name: str) -> bool:
        entry = self.program.method(name, "forward")
        return entry is not None and self._stays(entry)

    def _makes_broken(self, value: ast.expr, scope: Scope, steps: int) -> bool:
        program = self.program
        if isinstance(value, ast.Constant):
            return False
        if isinstance(value, ast.Starred) and isinstance(value.value, ast.Name) and any(program.assigned(value.value.id, scope)):
            made = (call for call in calls_in(scope) if isinstance(call.func, ast.Name))
            return any(self._makes_broken(call, scope, steps - 1) for call in made if dotted(call.func) not in _OF_PYTHON)
        if not isinstance(value, ast.Call) or steps <= 0:
            kind = program.kind_of(value, scope)
            return kind is None or self._is_broken_class(kind) or kind == "torch.nn.Sequential"
        name = dotted(value.func) or ""
        function = program.function_named(name, scope) if isinstance(value.func, ast.Name) else None
        if function is not None:  # `block(3, 8)`
            returned = [node.value for node in nodes_of(ast.Return, function) if node.value is not None]
            return not returned or any(self._makes_broken(item, function, steps - 1) for item in returned)
        if name in program.classes:
            return self._is_broken_class(name)
        if not name.startswith("torch.nn."):
            return True
        held = value.args if name.rpartition(".")[2] in ("Sequential", "ModuleList", "ModuleDict") else []
        return any(self._makes_broken(item, scope, steps - 1) for item in held)


def _called(node: ast.AST | None, names: Mapping[str, str]) -> str | None:
    """What a dotted name of the function is called outside of it."""
    name = None if node is None else dotted(node)
    if name is None:
        return None
    root, dot, rest = name.partition(".")
    return f"{names[root]}{dot}{rest}" if root in names else None


def _lines(node: Function) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _is_broken(node: Function, broken: Collection[int]) -> bool:
    return not _lines(node).isdisjoint(broken)


def _computes(node: Function) -> bool:
    """Whether a function does enough to be compiled, and can be: it is no generator, and calls torch or a module."""
    if isinstance(node, ast.AsyncFunctionDef) or node.decorator_list or holds(node, ast.Yield, ast.YieldFrom):
        return False
    return any(is_of_torch(dotted(call.func)) for call in calls_in(node)) or len(list(nodes_of(ast.BinOp, node))) > 1


def _target(program: Program, call: ast.Call) -> tuple[Function, str] | None:
    """The function that a `torch.compile(...)` compiles, and the object that it is a method of (empty: none), as it is written there.

    An object that is made there (`net = torch.compile(Net())`) is called what it is given to.
    """
    given, scope = call.args[0], program.scope_of(call)
    name = region_edits.holder_of(program, call) if isinstance(given, ast.Call) else dotted(given)
    if name is None:
        return None
    if isinstance(given, ast.Name) and (function := program.function_named(name, scope)) is not None:
        return function, ""
    if isinstance(given, ast.Attribute):
        owner = program.kind_of(given.value, scope)
        method = program.method(owner, given.attr)
        if method is not None:
            return method, dotted(given.value) or ""
    kind = program.kind_of(given, scope)
    forward = program.method(kind, "forward") if program.is_module(kind) else None
    return None if forward is None else (forward, name)


def _sites(program: Program, broken: Collection[int], in_place: bool) -> Iterator[_Site]:
    """All places where a function or a module of the file is compiled."""
    for call in program.calls:
        target = _target(program, call) if dotted(call.func) == "torch.compile" and call.args else None
        if target is not None:
            statement = program.statement_of(call)
            holders = {name for node in getattr(statement, "targets", ()) if (name := dotted(node)) is not None}
            scope = program.scope_of(call)
            calls = [node for node in program.calls if dotted(node.func) in holders and program.scope_of(node) is scope]
            function, receiver = target
            names = _given_alike(program, calls, function, statement, scope) | ({"self": receiver} if receiver else {})
            walk = _Walk(program, broken, _names_at(program, statement, scope), in_place)
            yield _Site(call, function, names, walk, decorates=False)
    for function in nodes_of(ast.FunctionDef, program.tree):
        decorator = next((node for node in function.decorator_list if _is_compile(node)), None)
        if decorator is not None and len(function.decorator_list) == 1:
            names, around = {"self": "self"}, frozenset[str]()
            if program.class_around(function) is None and (first := first_caller(program, function)) is not None:
                scope = program.scope_of(first)
                names = _given_alike(program, list(program.callers(function)), function, first, scope)
                around = _names_at(program, first, scope)
            yield _Site(decorator, function, names, _Walk(program, broken, around, in_place), decorates=True)


def _is_compile(node: ast.expr) -> bool:
    return dotted(node.func if isinstance(node, ast.Call) else node) == "torch.compile"


def _given_alike(program: Program, calls: Sequence[ast.Call], target: Function, statement: ast.stmt, scope: Scope) -> dict[str, str]:
    """What parameters are called at a statement, where all calls give the same names for them."""
    names: dict[str, str] = {}
    for item in (*target.args.posonlyargs, *target.args.args, *target.args.kwonlyargs):
        given = {dotted(value) if (value := argument(node, target, item.arg)) is not None else None for node in calls}
        if len(given) == 1 and None not in given:
            (name,) = given
            if name is not None and _is_there(program, name, statement, scope):
                names[item.arg] = name
    return names


def _names_at(program: Program, statement: ast.stmt, scope: Scope) -> frozenset[str]:
    """The names of a function's own that have their one value before a statement of it; those of a file are known everywhere."""
    if not isinstance(scope, Function):
        return frozenset()
    stored = {node.id for node in nodes_of(ast.Name, *scope.body) if isinstance(node.ctx, ast.Store)}
    stored |= {item.arg for item in nodes_of(ast.arg, scope.args)}
    functions = (node for node in nodes_of(ast.FunctionDef, *scope.body) if program.scope_of(node) is scope)
    defined = {node.name for node in functions if node.lineno < statement.lineno}
    return frozenset(name for name in stored if _is_there(program, name, statement, scope)) | (defined - stored)


def _is_there(program: Program, name: str, statement: ast.stmt, scope: Scope) -> bool:
    """Whether a name has its one value before a statement."""
    root = name.partition(".")[0]
    inside = [node for node in nodes_of(ast.Name, scope) if node.id == root and isinstance(node.ctx, ast.Store)]
    inside = [node for node in inside if program.scope_of(node) is scope]
    if not inside:
        parameters = [item.arg for item in nodes_of(ast.arg, scope.args)] if isinstance(scope, Function) else []
        return root in parameters or any(True for _ in program.assigned(root, program.tree))
    return len(inside) == 1 and inside[0].lineno < statement.lineno and isinstance(program.statement_of(inside[0]), ast.Assign)


def _changes(file: str, program: Program, group: Sequence[_Site], names: ProofNames) -> Iterator[Smaller]:
    plain = frozenset(line for site in group for line in site.walk.plain)
    drives = any(site.walk.drives for site in group)
    found: list[tuple[str, ...]] = []
    for form in ("part", "all", "modules"):
        if form == "part" and not any(site.part for site in group):
            continue
        edits: list[Edit] = []
        known: list[Region] = []
        for site in group:
            own = site.regions(form)
            new = [region for region in own if region not in known]
            if own and site.decorates:
                edits += edits_at_decorator(file, program, site.target, site.node, new, names)
            elif own and isinstance(site.node, ast.Call):
                edits.append(edit_at_call(file, program, site.node, new, names))
            if form == "part" and site.part is not None:
                edits += site.part.edits
            known += new
        called = tuple(region.name for region in known)
        if called and called not in found:
            found.append(called)
            yield Smaller(tuple(dict.fromkeys(edits)), called, plain, drives)


KINDS = (
    Kind(
        slugs=(SLUG,),
        applied="rule",
        does="what was compiled whole stays plain Python, and with the same options its largest part without a break is compiled, as a "
        "function of its own, or what it calls that has no break: modules in place, methods and functions by `torch.compile`",
        asks="`torch.compile` is a decorator or stands in a plain statement, and what is called has a name there",
        joins=False,
    ),
)
