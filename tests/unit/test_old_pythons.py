"""What runs in the script's interpreter runs on Python 3.9 too, on which torch 2.6 to 2.8 are used (`--python`)."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "dynadiag"
# The recorder and the probe; what `--parity` imports needs a torch that needs a newer Python.
RECORDER = ("bootstrap/sitecustomize.py", "record/inside.py")
ENTRANCES = (*RECORDER, "fx/probe_main.py", "fx/probe_graph.py", "trace/__init__.py")
NEWER = {"compare"}
# Names of the standard library that Python 3.9 does not have.
TOO_NEW = {
    "itertools": {"pairwise", "batched"},
    "typing": {"Self", "TypeAlias", "ParamSpec", "Concatenate", "TypeGuard", "assert_never", "override", "LiteralString", "NotRequired"},
    "enum": {"StrEnum", "member", "nonmember"},
    "datetime": {"UTC"},
    "contextlib": {"chdir"},
    "types": {"NoneType", "UnionType", "EllipsisType"},
    "builtins": {"aiter", "anext", "ExceptionGroup", "BaseExceptionGroup"},
}
TYPES = {"int", "float", "bool", "str", "bytes", "bytearray", "list", "tuple", "dict", "set", "frozenset", "type", "complex", "object"}


def closure(entrances: tuple[str, ...] = ENTRANCES) -> list[Path]:
    """Every module of ours that an entrance imports, at any depth."""
    pending, found = [ROOT / name for name in entrances], set()
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        for name in imported(path):
            around = [ROOT.parent.joinpath(*name.split(".")[:length], "__init__.py") for length in range(2, name.count(".") + 1)]
            for candidate in (
                *around,
                ROOT.parent / (name.replace(".", "/") + ".py"),
                ROOT.parent / name.replace(".", "/") / "__init__.py",
            ):
                if candidate.is_file() and candidate.relative_to(ROOT).parts[0] not in NEWER:
                    pending.append(candidate)
    return sorted(found - {ROOT / "__init__.py"})


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    names: list[str] = []
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case | ast.Module):  # an expression imports nothing
            pending.extend(ast.iter_child_nodes(node))
    return tuple(names)


def annotations(tree: ast.AST) -> set[int]:
    """The ids of all nodes that are not evaluated: those inside annotations and under `if TYPE_CHECKING:`."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            roots += node.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            roots += [one for one in [node.returns, *(arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg))] if one]
        elif isinstance(node, ast.AnnAssign):
            roots.append(node.annotation)
    return {id(inner) for root in roots for inner in ast.walk(root)}


def too_new(path: Path) -> Iterator[str]:
    text = path.read_text()
    tree = ast.parse(text, str(path))
    try:
        ast.parse(text, str(path), feature_version=(3, 9))
    except SyntaxError as error:
        yield f"line {error.lineno}: {error.msg}"
    quiet = annotations(tree)
    if "from __future__ import annotations" not in text and any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and id(node) in quiet for node in ast.walk(tree)
    ):
        yield "annotations with | and no `from __future__ import annotations`"
    recorded = path.relative_to(ROOT).parts[0] in ("bootstrap", "record", "torch_compat") or path in closure(RECORDER)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"line {node.lineno}: {node.module}.{a.name}" for a in node.names if a.name in TOO_NEW.get(node.module or "", ()))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in TOO_NEW.get(node.value.id, ()):
            yield f"line {node.lineno}: {node.value.id}.{node.attr}"
        elif isinstance(node, ast.Name) and node.id in TOO_NEW["builtins"]:
            yield f"line {node.lineno}: {node.id}"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and id(node) not in quiet and is_union(node):
            yield f"line {node.lineno}: {ast.unparse(node)} is evaluated"
        elif isinstance(node, ast.Call):
            function, names = ast.unparse(node.func), {keyword.arg for keyword in node.keywords}
            if function.endswith("dataclass") and "weakref_slot" in names:
                yield f"line {node.lineno}: dataclass(weakref_slot=) needs Python 3.11"
            if recorded and function.startswith("re.") and any(is_possessive(part) for part in node.args):
                yield f"line {node.lineno}: a possessive pattern in the program's own process"
            if recorded and function == "zip" and "strict" in names:
                yield f"line {node.lineno}: zip(strict=) in the program's own process"
            if recorded and function.endswith("dataclass") and names & {"slots", "kw_only"}:
                yield f"line {node.lineno}: dataclass(slots=, kw_only=) in the program's own process"


def is_possessive(pattern: ast.expr) -> bool:
    """A quantifier or a group that is an error before Python 3.11."""
    texts = [node.value for node in ast.walk(pattern) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return any(re.search(r"(?<!\\)[*+?}]\+|\(\?>", text) for text in texts)


def is_union(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        (isinstance(side, ast.Constant) and side.value is None)
        or (isinstance(side, ast.Name) and side.id in TYPES)
        or (isinstance(side, ast.Attribute) and side.attr[:1].isupper() and not side.attr.isupper() and not side.attr.startswith("O_"))
        or (isinstance(side, ast.Subscript) and ast.unparse(side.value) in {*TYPES, "Callable", "Sequence", "Mapping", "Optional"})
        for side in sides
    )


@pytest.mark.parametrize("path", closure(), ids=lambda path: str(path.relative_to(ROOT)))
def test_python_39_can_run_it(path):
    assert list(too_new(path)) == []


def test_the_check_sees_what_python_39_cannot_run(tmp_path):
    bad = tmp_path / "dynadiag/record/bad.py"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "import itertools\nfrom dataclasses import dataclass\ndef f(x: int | None): ...\nA = str | None\nisinstance(1, int | float)\n"
        "zip([], [], strict=True)\nitertools.pairwise([])\n@dataclass(slots=True, weakref_slot=True)\nclass C: ...\n"
        "match 1:\n    case _: ...\nimport re\nre.compile(r'a++b')\n"
    )
    global ROOT
    before, ROOT = ROOT, tmp_path / "dynadiag"
    try:
        assert len(list(too_new(bad))) == 9
    finally:
        ROOT = before
