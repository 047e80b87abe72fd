"""The page that lists every break type with advice (`docs/advice.md`), made from the tables themselves.

`python -m dynadiag.advice.catalogue > docs/advice.md` writes it; a test compares the two.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dynadiag.advice.gb_types import GB_TYPES
from dynadiag.advice.graph_breaks import RULES
from dynadiag.advice.reasons import REASONS
from dynadiag.source.tree import nodes_in, nodes_of

_HEAD = """# Advice on graph breaks

Made by `python -m dynadiag.advice.catalogue`; do not edit.

For each type of graph break in this table, dynadiag either knows a change (to the line that broke, or an option of torch) or says why it
advises nothing. Each piece of advice is tested by a case in `tests/with_torch/advice/table_*.py`, on the oldest and the newest supported
torch: the break occurs before the change and not after it, and the results are equal.

A finding of severity warning or worse that has no such change has up to two *ideas* (`how_sure` is `idea`, else `established`): what an
experienced engineer would try first, made from the recorded source, with what is left to check. `dynadiag fix` takes no line of an idea;
what it tries of the same kind it finds by its own rules, and proves. `dynadiag prove` proves an edit that you made.

Rules of the established advice:

- At most two changes per finding, the best one first. A change is advised only where the recording establishes that it does what it says:
  the line, the source of its function, the code after the line. Where it does not, the finding says why nothing is advised.
- A tensor replaces a number only where every use of the number is arithmetic with tensors, the tensor surely has no dimensions, and all
  floats that the graphs took are float32: another type, or a shape of (1,), would give other results.
- `torch.where` replaces an `if` only where both sides are certain to have the same shape and type and may both be computed, nothing is
  written into them later, and the side that keeps a tensor keeps one that nothing else has: `torch.where` gives a new one. `dynadiag fix`
  asks the same judge (`changes/legality.py`) which sides may be computed.
- A check in the graph replaces `raise` and `assert` only where the exception was not raised in the run and no recorded caller catches it.
- No line is changed between the read of a tensor and a write into it where a gradient may flow: in one graph torch's backward pass may
  take the values after the write, and gradients were then wrong without a word.
- One line of a loop, `try` or `with` is not changed where another one breaks as well: the function would run eagerly as before.
- An option is named only if the torch of the recorded run has it. Where that was not recorded (a log from elsewhere) the advice says
  "if your torch has this option". An option applies to the whole program: it is named only if no other line that broke rules it out.
- A message is said after the graph (`reorderable_logging_functions`) only where the compiled function itself says it, since Dynamo loses
  what an inlined function says in this way; where nothing behind it may raise; and where no tensor in it is written behind it. Each line
  of the run that says something in this way has to allow it, since the option applies to all.
- What leaves a message out of compiled code says so, and is told only where no way to keep it is known.
- A change is shown as code only where it is the whole new line. Comments are left out.
- A line of a library is not rewritten.
- Ids are torch's (`torch/_dynamo/graph_break_registry.json`); a log without ids is looked up by the type's text.

"""

_SLUGS = """
## Slugs

Each piece of advice in `report.json` has a `slug` that stays the same when its wording changes. "…" stands for what depends on the program.
The advice on recompiles has its own table in [recompiles.md](recompiles.md); slugs that begin with `nothing-` say why nothing was compiled.

| slug | says |
|---|---|
"""


_SLUG = re.compile(r"[a-z]+[0-9]*(?:-[a-z0-9]+)+")
_FOLDERS = (Path(__file__).parent, Path(__file__).parents[1] / "changes")
_NOT_TABLES = ("catalogue.py",)
Assigned = Mapping[str, Sequence[ast.expr]]


def page() -> str:
    """The page as Markdown: one row for each type, with what its rule is about."""
    rows = [f"| {gb_id} | {_types(gb_id)} | {_about(gb_id)} |" for gb_id in sorted({*RULES, *REASONS})]
    ids = (
        f"{_HEAD}{len(RULES) + len(REASONS)} ids.\n\n| id | torch's words | what the advice is about |\n|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )
    return (
        f"{ids}{_SLUGS}" + "\n".join(f"| `{slug}` | {_cell(text) or 'depends on the line'} |" for slug, text in described().items()) + "\n"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _types(gb_id: str, types: Mapping[str, str] = GB_TYPES) -> str:
    return "; ".join(text.replace("|", "\\|") for text, owner in types.items() if owner == gb_id)


def _about(gb_id: str) -> str:
    if gb_id in REASONS:
        return f"Nothing: {REASONS[gb_id]}."
    return " ".join((rule.__doc__ or "").strip().split("\n")[0] for rule in RULES[gb_id]).replace("|", "\\|")


def described() -> Mapping[str, str]:
    """All slugs in alphabetical order, each with the words of its first use; gaps that are filled for a program are "…"."""
    found: dict[str, str] = {}
    for file in sorted((file for folder in _FOLDERS for file in folder.glob("*.py")), key=lambda file: file.name):
        if file.name not in _NOT_TABLES:
            for slug, text in _of_module(ast.parse(file.read_text(encoding="utf-8"))):
                found[slug] = found.get(slug) or text
    return dict(sorted(found.items()))


def _of_module(tree: ast.Module) -> Iterator[tuple[str, str]]:
    names = _assigned(tree)
    for scope in (*nodes_of(ast.FunctionDef, tree), tree):
        local = _assigned(scope)
        for node in nodes_in(scope):
            parts = _parts(node)
            slug = next((text for part in parts if _SLUG.fullmatch(text := _words(part, names))), None)
            if slug is not None:
                yield slug, next((text for part in parts if (text := _words(part, local)).count(" ") > 2), "")


def _parts(node: ast.AST) -> list[ast.expr]:
    """What stands together: the arguments of a call, the elements of a tuple."""
    if isinstance(node, ast.Call):
        return [*node.args, *(keyword.value for keyword in node.keywords)]
    return list(node.elts) if isinstance(node, ast.Tuple) else []


def _assigned(scope: ast.AST) -> Assigned:
    """The values of each simple name of a function or module, in the order of the text."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes_in(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found.setdefault(node.target.id, []).append(node.value)
    return {name: sorted(values, key=lambda value: value.lineno) for name, values in found.items()}


def _words(part: ast.expr, names: Assigned, depth: int = 0) -> str:
    """The text of a literal, of an f-string with "…" for its gaps, or of a name by its last value above; else nothing."""
    if isinstance(part, ast.Constant):
        return part.value if isinstance(part.value, str) else ""
    if isinstance(part, ast.JoinedStr):
        return "".join(str(value.value) if isinstance(value, ast.Constant) else "…" for value in part.values)
    if isinstance(part, ast.Name) and depth < 3:
        above = [value for value in names.get(part.id, ()) if value.lineno <= part.lineno]
        return _words(above[-1], names, depth + 1) if above else ""
    return ""


if __name__ == "__main__":
    sys.stdout.write(page())
