"""Layers that a compiled model repeats, and the edit that compiles one for all: with `layer.compile()` for each they share one."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dynadiag.changes.edits import Edit, alone, applied
from dynadiag.errors import DynadiagError, EditError
from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.user_frames import project_path
from dynadiag.model.run import CompileCall, Frame, Run
from dynadiag.render.recorded_graph import recorded_graph
from dynadiag.start.setting_lines import Source

LEAST = 4
"""So many equal blocks are worth a start: fewer save little."""
_HALF = 0.5
_BLOCK = re.compile(r"L\['self'\]\.((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\.(\d+)$")
_NAMES = ("block", "layer", "compiled_block")


@dataclass
class Blocks:
    """What a module list holds: the classes of its members by their number, and how many operators lie in them."""

    holder: str
    classes: dict[int, str] = field(default_factory=dict)
    operators: int = 0

    @property
    def are_alike(self) -> bool:
        """Whether they are enough, and of one class."""
        return len(self.classes) >= LEAST and len(set(self.classes.values())) == 1


def repeated_blocks(run: Run, frame: Frame) -> Blocks | None:
    """The list whose equal members make up at least half of the graphs of a compiled `forward`; None where there is none."""
    found: dict[str, Blocks] = {}
    operators = 0
    wanted = frozenset(kept_graphs(run).get(frame.id, ()))
    for graph in run.graphs:
        if graph.id not in wanted:
            continue
        try:
            recorded = recorded_graph(graph)
        except DynadiagError:
            continue
        for node in recorded.nodes:
            operators += node.op not in ("placeholder", "output", "get_attr")
            for path in node.modules:
                if (block := _BLOCK.match(path)) is not None:
                    blocks = found.setdefault(block[1], Blocks(block[1]))
                    blocks.classes[int(block[2])] = recorded.classes.get(path, "")
                    blocks.operators += 1
                    break
    best = max((blocks for blocks in found.values() if blocks.are_alike), key=lambda blocks: blocks.operators, default=None)
    return best if best is not None and best.operators >= _HALF * operators else None


def one_block_text(run: Run, sources: Sequence[Source]) -> tuple[Blocks, Source, str] | None:
    """The blocks of the one model that is compiled, the file that compiles it, and its text with one block compiled for all."""
    by_name = {source.name: source for source in sources if source.path is not None}
    whole = [blocks for frame in run.frames if (blocks := repeated_blocks(run, frame)) is not None]
    calls = [call for call in run.compile_calls if call.location is not None and not call.disabled]
    if len(whole) != 1 or len(calls) != 1:
        return None  # which call compiles which model would be a guess
    source = by_name.get(_file_of(calls[0], run))
    if source is None or calls[0].location is None:
        return None
    try:
        edit = one_block_edit(source.text, calls[0].location.line, whole[0].holder, str(source.path))
        return whole[0], source, applied(source.text, edit)[0]
    except (EditError, SyntaxError, ValueError, RecursionError):
        return None


def _file_of(call: CompileCall, run: Run) -> str:
    return "" if call.location is None else project_path(call.location.file, run)


def one_block_edit(text: str, line: int | None, holder: str, file: str) -> Edit:
    """The edit of `fast = torch.compile(model, ...)` or `model.compile(...)` on a line. Raises EditError where the line is another one."""
    statement = next((node for node in ast.walk(ast.parse(text)) if _is_at(node, line)), None)
    if not isinstance(statement, (ast.Assign, ast.Expr)) or not isinstance(statement.value, ast.Call):
        raise EditError("the call of torch.compile is not a statement of its own")
    call = statement.value
    keywords = ", ".join(ast.unparse(keyword) for keyword in call.keywords)
    behind: list[str] = []
    if ast.unparse(call.func) == "torch.compile" and len(call.args) == 1 and isinstance(statement, ast.Assign):
        model = call.args[0]
        behind = [ast.unparse(ast.Assign(statement.targets, model, lineno=statement.lineno))]
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and not call.args and isinstance(statement, ast.Expr):
        model = call.func.value
    else:
        raise EditError("torch.compile is called in another way")
    if not isinstance(model, (ast.Name, ast.Attribute)):
        raise EditError("what is compiled has no name")
    name = next(name for name in (*_NAMES, "each_compiled_block") if re.search(rf"\b{name}\b", text) is None)
    rows = [f"for {name} in {ast.unparse(model)}.{holder}:", f"    {name}.compile({keywords})", *behind]
    return Edit(file=file, old=alone(text, statement), new=tuple(rows), near=statement.lineno)


def _is_at(node: ast.AST, line: int | None) -> bool:
    return isinstance(node, (ast.Assign, ast.Expr)) and line is not None and node.lineno <= line <= (node.end_lineno or node.lineno)


def is_cold(run: Run) -> bool:
    """Whether everything that it asked the caches for was missed."""
    return bool(run.caches) and all(event.result == "miss" for event in run.caches)


def class_of(blocks: Blocks) -> str:
    """The class of the members."""
    return next(iter(blocks.classes.values()))
