"""Modules that lie beside the script become part of it, since the file that comes out must stand alone. Without torch."""

from __future__ import annotations

import ast
import symtable
from dataclasses import dataclass
from pathlib import Path

from dynadiag.errors import UnreadableInputError
from dynadiag.reduce.scripts.program import Program, must_be_first, of_tree, read_script

_OF_A_FILE = frozenset({"__file__", "__name__", "__path__", "__package__", "__spec__", "__loader__"})


class _CannotError(Exception):
    """Why a module stays a file of its own."""


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The program with the modules in it, and why some are not."""

    program: Program
    stay: tuple[str, ...]


def join_local_modules(program: Program, folder: Path) -> Joined:
    """Put the statements of each `folder/NAME.py` that the script imports at its top level where it is imported first.

    A module stays out, with the reason, where the two together would mean something else: both bind a name, it asks for its own file, its
    imports are relative. Nothing is run.
    """
    tree, inside, stay = program.tree, dict[str, set[str]](), dict[str, str]()
    while (found := _next_import(tree, folder, stay)) is not None:
        node, name = found
        try:
            _join(tree, node, name, folder, inside)
        except _CannotError as error:
            stay[name] = f"{name}.py stays a separate file: {error}"
    return Joined(program=of_tree(tree), stay=tuple(stay.values()))


def _next_import(tree: ast.Module, folder: Path, stay: dict[str, str]) -> tuple[ast.Import | ast.ImportFrom, str] | None:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name not in stay and name.isidentifier() and (folder / f"{name}.py").is_file():
                return _alone(tree, node, name), name
    return None


def _alone(tree: ast.Module, node: ast.Import | ast.ImportFrom, name: str) -> ast.Import | ast.ImportFrom:
    """The import of this module, split from others in one statement."""
    if isinstance(node, ast.ImportFrom) or len(node.names) == 1:
        return node
    place = tree.body.index(node)
    tree.body[place : place + 1] = apart = [ast.Import([alias]) for alias in node.names]
    return next(child for child in apart if child.names[0].name == name)


def _join(tree: ast.Module, node: ast.Import | ast.ImportFrom, name: str, folder: Path, inside: dict[str, set[str]]) -> None:
    """Put the module's statements in place of the import; the tree is left as it is when that cannot be."""
    statements = [] if name in inside else _statements(tree, node, name, folder)
    bound = inside.get(name) or _bound(statements)
    place = tree.body.index(node)
    tree.body[place : place + 1] = [*statements, *_after(tree, node, name, bound)]
    inside[name] = bound


def _after(tree: ast.Module, node: ast.Import | ast.ImportFrom, name: str, bound: set[str]) -> list[ast.stmt]:
    """What is left of the import: other names for what the module binds."""
    if isinstance(node, ast.ImportFrom):
        missing = [alias.name for alias in node.names if alias.name != "*" and alias.name not in bound]
        if missing:
            raise _CannotError(f"it does not define {missing[0]}")
        renamed = [alias for alias in node.names if alias.asname not in (None, alias.name)]
        return list(ast.parse("\n".join(f"{alias.asname} = {alias.name}" for alias in renamed)).body)
    _reach_directly(tree, node.names[0].asname or name, bound)
    return []


def _statements(tree: ast.Module, node: ast.stmt, name: str, folder: Path) -> list[ast.stmt]:
    """The module's statements, as far as they fit beside those of the script."""
    try:
        module = read_script(folder / f"{name}.py", []).tree
    except UnreadableInputError as error:
        raise _CannotError(error.message) from error
    futures = {alias.name for statement in tree.body if _is_future(statement) for alias in statement.names}  # type: ignore[attr-defined]
    if any(_is_future(child) and {alias.name for alias in child.names} - futures for child in module.body):  # type: ignore[attr-defined]
        raise _CannotError("it has an import from __future__ that the script lacks")
    statements = [item for item in module.body if not must_be_first(item) and not _is_main(item) and not _binds_only(item, "__all__")]
    body = ast.Module(statements, [])
    if any(isinstance(descendant, ast.ImportFrom) and descendant.level for descendant in ast.walk(body)):
        raise _CannotError("it has relative imports")
    own = sorted(_OF_A_FILE & {part.id for part in ast.walk(body) if isinstance(part, ast.Name)})
    if own:
        raise _CannotError(f"it uses its own {own[0]}")
    return _beside(tree, node, name, statements)


def _beside(tree: ast.Module, node: ast.stmt, name: str, statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements without imports that the script has made by then; refused where a name would mean two things."""
    rest = [
        statement
        for statement in tree.body
        if statement is not node and not (isinstance(statement, ast.ImportFrom) and statement.module == name)
    ]
    same = set(map(ast.dump, filter(_is_import, rest))) & set(map(ast.dump, filter(_is_import, statements)))
    script, module = ([child for child in part if ast.dump(child) not in same] for part in (rest, statements))
    clash = _bound(script) & _bound(module)
    clash |= (_global_reads(module) - _bound(statements)) & _bound(script)
    asked = {
        alias.name
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom) and statement.module == name
        for alias in statement.names
    }
    clash |= set() if "*" in asked else (_global_reads(script) - _bound(rest) - asked) & _bound(module)
    if clash:
        raise _CannotError(f"it and the script both use the name {sorted(clash)[0]}")
    made = set(map(ast.dump, tree.body[: tree.body.index(node)])) & same
    return [item for item in statements if ast.dump(item) not in made]


def _reach_directly(tree: ast.Module, module: str, bound: set[str]) -> None:
    """Write `f` for each `module.f`; refused where the module is used in another way, or a name already means something."""
    uses = [child for child in ast.walk(tree) if isinstance(child, ast.Name) and child.id == module]
    reached = [descendant for descendant in ast.walk(tree) if isinstance(descendant, ast.Attribute) and _is_name(descendant.value, module)]
    if len(uses) != len(reached) or any(not isinstance(attribute.ctx, ast.Load) or attribute.attr not in bound for attribute in reached):
        raise _CannotError(f"{module} is used as an object")
    local = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
    local |= {item.arg for item in ast.walk(tree) if isinstance(item, ast.arg)}
    if clash := sorted(local & {element.attr for element in reached}):
        raise _CannotError(f"the script already defines {clash[0]}")

    class Reach(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
            if _is_name(node.value, module):
                return ast.copy_location(ast.Name(node.attr, ast.Load()), node)
            self.generic_visit(node)
            return node

    Reach().visit(tree)


def _table(statements: list[ast.stmt]) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(ast.Module(statements, [])), "module", "exec")


def _bound(statements: list[ast.stmt]) -> set[str]:
    """The names that these statements bind at the top level."""
    return {symbol.get_name() for symbol in _table(statements).get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def _global_reads(statements: list[ast.stmt]) -> set[str]:
    """The names of the module or of Python itself that these statements read, at any depth."""
    found, waiting = set(), [_table(statements)]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        top = table.get_type() == "module"
        found |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced() and (top or symbol.is_global())}
    return found


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _binds_only(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]
