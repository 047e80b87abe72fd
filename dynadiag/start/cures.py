"""Changes for the causes of a cold start that a machine can make; starts of the program with them show whether they help."""

# ruff: noqa: N802 - LibCST's names of methods

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import libcst as cst
from libcst import matchers

from dynadiag.changes.dynamic import compiled_dynamic
from dynadiag.changes.edits import Edit, applied
from dynadiag.changes.syntax import tree_of
from dynadiag.errors import EditError
from dynadiag.start.bypasses import PASSES
from dynadiag.start.result import Cause, CauseKind, ChangeKind, Compilation, StartResult
from dynadiag.start.setting_lines import Source

_CACHE_OPTIONS: Mapping[str, bool] = {"force_disable_caches": False, "fx_graph_cache": True, "enable_autograd_cache": True}
_CACHE_VARIABLES = {
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
    "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
}
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
_SEED = "PYTHONHASHSEED"
_MADE_OF_SET = frozenset({"list", "tuple", "enumerate", "iter", "dict.fromkeys"})
# What a program calls it is its own: a name that it has already is not taken.
_CLASS = "CachedPass"
_PASS_CLASS = f'''
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files


class {_CLASS}(CustomGraphPass):
    """A pass whose graphs are cached until this file changes."""

    def __init__(self, run):
        self.run = run

    def __call__(self, *given):
        return self.run(*given)

    def uuid(self):
        return get_hash_for_files((__file__,))
'''.strip().split("\n")
_GRAPH_PASSES = frozenset(name for name in PASSES if not name.startswith("_") and name != "custom_partitioner_fn")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change: new texts of files by their paths, and variables of the start. `causes` are those that it is for."""

    kind: ChangeKind
    said: str
    causes: tuple[Cause, ...] = ()
    texts: Mapping[Path, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


def changes_of(result: StartResult, sources: Sequence[Source], variables: Mapping[str, str]) -> list[Change]:
    """One change for each kind that its causes ask for, each on top of the texts of those before.

    `sources` are the program's own files; without them only variables are changed. `variables` are those of the start.
    """
    texts = {source.path: source.text for source in sources if source.path is not None}
    paths = {source.name: source.path for source in sources if source.path is not None}
    made: list[Change] = []
    for kinds, rule in _RULES:
        causes = tuple(
            replace(cause, place=cause.place or concerned[0].place) for cause, concerned in result.causes() if cause.kind in kinds
        )
        change = rule(causes, texts, paths, variables) if causes else None
        if change is not None:
            made.append(change)
            texts |= change.texts
    if late := [item for item in result.late if item.place is not None]:
        change = _dynamic_sizes(late, texts, paths)
        if change is not None:
            made.append(change)
    return made


_Texts = Mapping[Path, str]
_Paths = Mapping[str, Path]
_Rule = Callable[[tuple[Cause, ...], _Texts, _Paths, Mapping[str, str]], Change | None]


def _sort_sets(causes: tuple[Cause, ...], texts: _Texts, paths: _Paths, variables: Mapping[str, str]) -> Change | None:
    """What walks through a set in the files of the causes takes it sorted; where no set is found, each start has one hash seed."""
    causes = tuple(cause for cause in causes if cause.name is None)  # a number with a name is given as a tensor
    files = {paths[cause.place.file] for cause in causes if cause.place is not None and cause.place.file in paths}
    changed = _changed({path: texts[path] for path in files}, lambda module: _SortedSets(module))
    if changed:
        return Change(kind="sort_set", said="walk through the set in sorted order", causes=causes, texts=changed)
    causes = tuple(cause for cause in causes if cause.kind == "hash_order")
    if not causes:
        return None
    return Change(kind="fixed_hash_seed", said=f"start with {_SEED}=0", causes=causes, variables={_SEED: "0"})


class _SortedSets(cst.CSTTransformer):
    """Puts `sorted(...)` around sets that something walks through: loops, comprehensions, `list(...)`."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__()
        self._names: set[str] = set()
        for node in matchers.findall(module, matchers.Assign(targets=[matchers.AssignTarget()])):
            target = node.targets[0].target  # type: ignore[attr-defined]
            if self._is_set(node.value):  # type: ignore[attr-defined]
                self._names |= {name for name in (_name_of(target),) if name is not None}

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        return updated_node.with_changes(iter=self._sorted(updated_node.iter))

    def leave_CompFor(self, original_node: cst.CompFor, updated_node: cst.CompFor) -> cst.CompFor:
        return updated_node.with_changes(iter=self._sorted(updated_node.iter))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if _code(updated_node.func) not in _MADE_OF_SET or not updated_node.args:
            return updated_node
        first, *others = updated_node.args
        return updated_node.with_changes(args=[first.with_changes(value=self._sorted(first.value)), *others])

    def _sorted(self, node: cst.BaseExpression) -> cst.BaseExpression:
        return cst.Call(cst.Name("sorted"), [cst.Arg(node)]) if self._is_set(node) else node

    def _is_set(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Call):
            return _code(node.func) in ("set", "frozenset")
        if isinstance(node, cst.BinaryOperation):
            return isinstance(node.operator, cst.BitOr | cst.BitAnd | cst.Subtract) and self._is_set(node.left)
        return isinstance(node, cst.Set | cst.SetComp) or _name_of(node) in self._names


def _give_uuid(causes: tuple[Cause, ...], texts: _Texts, paths: _Paths, variables: Mapping[str, str]) -> Change | None:
    """Passes over a graph become objects of a class whose uuid is a hash of the file that defines and sets them."""

    def rule(module: cst.Module) -> cst.CSTTransformer:
        defined = {cst.ensure_type(node, cst.FunctionDef).name.value for node in matchers.findall(module, matchers.FunctionDef())}

        def wrapped(name: str, value: cst.BaseExpression) -> cst.BaseExpression:
            if isinstance(value, cst.List | cst.Tuple):
                return value.with_changes(elements=[item.with_changes(value=wrapped(name, item.value)) for item in value.elements])
            is_own = isinstance(value, cst.Lambda) or (isinstance(value, cst.Name) and value.value in defined)
            return cst.Call(cst.Name(_CLASS), [cst.Arg(value)]) if is_own else value

        return _Values(_GRAPH_PASSES, wrapped)

    changed = _changed(texts, rule)
    made = {}
    for path, text in changed.items():
        if _CLASS in texts[path]:
            return None
        try:
            made[path] = applied(text, Edit(file=str(path), old=(), new=("", *_PASS_CLASS, "")))[0]
        except EditError:
            return None
    said = f"give the pass a uuid: a {_CLASS} whose key is the text of its file"
    return Change(kind="pass_uuid", said=said, causes=causes, texts=made) if made else None


def _leave_caches_on(causes: tuple[Cause, ...], texts: _Texts, paths: _Paths, variables: Mapping[str, str]) -> Change | None:
    """The options and variables that switch a cache off."""

    def on(name: str, value: cst.BaseExpression) -> cst.BaseExpression:
        if name in _CACHE_VARIABLES:
            return cst.SimpleString(f'"{_CACHE_VARIABLES[name]}"')
        return cst.Name(str(_CACHE_OPTIONS[name]))

    changed = _changed(texts, lambda module: _Values(frozenset({*_CACHE_OPTIONS, *_CACHE_VARIABLES}), on))
    off = {name: value for name, value in _CACHE_VARIABLES.items() if variables.get(name, value) != value}
    if not changed and not off:
        return None
    said = f"start with {' '.join(f'{name}={value}' for name, value in off.items())}" if off else "leave the caches on"
    return Change(kind="caches_on", said=said, causes=causes, texts=changed, variables=off)


def _share_folder(causes: tuple[Cause, ...], texts: _Texts, paths: _Paths, variables: Mapping[str, str]) -> Change | None:
    """A folder that the program itself sets for each start is set no more."""

    class Removed(cst.CSTTransformer):
        def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> Any:
            keys = (_key_of(target.target) for target in updated_node.targets)
            return cst.RemoveFromParent() if _FOLDER in keys else updated_node

    changed = _changed(texts, lambda module: Removed())
    said = f"do not set {_FOLDER} in the program, so that all starts share one folder"
    return Change(kind="one_cache_folder", said=said, causes=causes, texts=changed) if changed else None


def _numbers_as_tensors(causes: tuple[Cause, ...], texts: _Texts, paths: _Paths, variables: Mapping[str, str]) -> Change | None:
    """A number with a name becomes a tensor where the program gives it that name, so that it is no part of the compiled code."""
    texts = dict(texts)
    made: dict[Path, str] = {}
    cured = []
    for cause in causes:
        name = None if cause.name is None else re.split(r"\W+", cause.name)[-1]
        if not name or not name.isidentifier() or cause.new is None:
            continue
        dtype = ", dtype=torch.float64" if re.search(r"[.eE]", cause.new) else ""  # of a tensor with one value it decides no other dtype

        given: set[str] = set()  # what becomes a tensor where it gets its name, and is one where it is an argument

        def tensor(_: str, value: cst.BaseExpression, dtype: str = dtype, given: set[str] = given) -> cst.BaseExpression:
            if isinstance(value, cst.BaseNumber) or "torch." in (code := _code(value)) or code in given:
                return value
            return cst.parse_expression(f"torch.as_tensor({code}{dtype})")

        def rule(module: cst.Module, name: str = name, tensor: _Value = tensor, given: set[str] = given) -> cst.CSTTransformer:
            targets = matchers.findall(module, matchers.AssignTarget(matchers.Name(name)))
            given.update({name} if targets else ())
            return _Values(frozenset({name}), tensor, plain_names=True, positions=_positions(module, name))

        changed = {path: text for path, text in _changed(texts, rule).items() if _has_torch(text)}
        if changed:
            cured.append(cause)
            texts |= changed
            made |= changed
    said = "give the number to compiled code as a tensor"
    return Change(kind="number_as_tensor", said=said, causes=tuple(cured), texts=made) if made else None


def _dynamic_sizes(late: Sequence[Compilation], texts: _Texts, paths: _Paths) -> Change | None:
    """What is compiled again after the warm-up is compiled for dynamic sizes from the first call on."""
    made: dict[Path, str] = {}
    for compilation in late:
        assert compilation.place is not None
        for path, text in {**texts, **made}.items():
            try:
                made[path] = applied(text, compiled_dynamic(str(path), text, compilation.function))[0]
                break
            except EditError:
                continue
    return Change(kind="dynamic_sizes", said="compile for dynamic sizes: `dynamic=True`", texts=made) if made else None


_RULES: Sequence[tuple[frozenset[CauseKind], _Rule]] = (
    (frozenset({"hash_order", "per_process"}), _sort_sets),
    (frozenset({"custom_pass"}), _give_uuid),
    (frozenset({"caches_off"}), _leave_caches_on),
    (frozenset({"entry_gone", "cache_folder"}), _share_folder),
    (frozenset({"per_process"}), _numbers_as_tensors),
)


_Value = Callable[[str, cst.BaseExpression], cst.BaseExpression]


class _Values(cst.CSTTransformer):
    """Changes what is given to one of some names: `x.name = ...`, `name=...` in a call, `{"name": ...}`, `environ["name"] = ...`.

    With `plain_names` also `name = ...`; `positions` are functions and the argument that has the name there.
    """

    def __init__(
        self, names: frozenset[str], value: _Value, *, plain_names: bool = False, positions: Mapping[str, int] | None = None
    ) -> None:
        super().__init__()
        self._names, self._value, self._plain, self._positions = names, value, plain_names, positions or {}

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        for target in (item.target for item in updated_node.targets):
            name = _key_of(target) if isinstance(target, cst.Subscript) else _name_of(target)
            if name in self._names and (self._plain or not isinstance(target, cst.Name)):
                assert name is not None
                return updated_node.with_changes(value=self._value(name, updated_node.value))
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        at = self._positions.get(_name_of(updated_node.func) or "")
        arguments = [
            argument.with_changes(value=self._value(name, argument.value))
            if (name := None if argument.keyword is None else argument.keyword.value) in self._names
            else argument.with_changes(value=self._value("", argument.value))
            if number == at and argument.keyword is None and not argument.star
            else argument
            for number, argument in enumerate(updated_node.args)
        ]
        return updated_node.with_changes(args=arguments)

    def leave_DictElement(self, original_node: cst.DictElement, updated_node: cst.DictElement) -> cst.DictElement:
        name = _text_of(updated_node.key)
        if name is None or name not in self._names:
            return updated_node
        return updated_node.with_changes(value=self._value(name, updated_node.value))


def _positions(module: cst.Module, name: str) -> dict[str, int]:
    """The place of a parameter of this name in each function of a file that has one, also for what `torch.compile` made of it."""
    found = {}
    for function in matchers.findall(module, matchers.FunctionDef()):
        parameters = [item.name.value for item in cst.ensure_type(function, cst.FunctionDef).params.params]
        if name in parameters:
            found[cst.ensure_type(function, cst.FunctionDef).name.value] = parameters.index(name) - (parameters[0] == "self")
    compiled = matchers.Assign(targets=[matchers.AssignTarget(matchers.Name())], value=matchers.Call())
    for node in matchers.findall(module, compiled):
        call = cst.ensure_type(cst.ensure_type(node, cst.Assign).value, cst.Call)
        first = _name_of(call.args[0].value) if _code(call.func) == "torch.compile" and call.args else None
        if first in found:
            found[_code(cst.ensure_type(node, cst.Assign).targets[0].target)] = found[first]
    return found


def _changed(texts: _Texts, rule: Callable[[cst.Module], cst.CSTTransformer]) -> dict[Path, str]:
    """The new texts of the files that a rule changes; one that cannot be parsed stays as it is."""
    found = {}
    for path, text in texts.items():
        try:
            tree = tree_of(text)
            new = cst.ensure_type(tree.module.visit(rule(tree.module)), cst.Module).code + tree.tail
        except (EditError, RecursionError):
            continue
        if new != text:
            found[path] = new
    return found


def _has_torch(text: str) -> bool:
    return re.search(r"^import torch$", text, re.MULTILINE) is not None


def _name_of(node: cst.CSTNode) -> str | None:
    """`name` of `name` and of `x.name`."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else None


def _key_of(node: cst.CSTNode) -> str | None:
    """The text by which `x["text"]` reads."""
    index = node.slice[0].slice if isinstance(node, cst.Subscript) else None
    return _text_of(index.value) if isinstance(index, cst.Index) else None


def _text_of(node: cst.CSTNode) -> str | None:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)
