"""Makes docs/fix-rules.md and the tables of docs/fix.md: `python -m tests.documented_fixes`. What each kind of change does, gives up, and
looks like.

The words are those of the table of changes (`dynadiag/changes/kinds.py`). Of advice the code is a case with which it is tested
(`table_*.py` of its tests); of the rules of `fix` it is what the rule makes of a script of its corpus, or of a text that stands here.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dynadiag.changes import hoist, library_messages
from dynadiag.changes.branch import branch_at, rewritten
from dynadiag.changes.dynamic import compiled_dynamic, compiled_static
from dynadiag.changes.edits import Edit, applied, dedented
from dynadiag.changes.kinds import Kind, all_kinds
from dynadiag.changes.library_cure import slug_of
from dynadiag.changes.number_as_tensor import with_tensor
from dynadiag.changes.number_loops import with_numbers
from dynadiag.changes.operator import as_operator
from dynadiag.changes.size_reads import read_once
from dynadiag.changes.smaller_region import smaller_regions
from dynadiag.changes.train_step_edits import compiled_apart
from dynadiag.changes.varying_number import as_tensors
from dynadiag.fix.inside.running import NUMBER
from dynadiag.fix.libraries import of_one_size
from dynadiag.fix.moves import PROOF_NAMES
from dynadiag.rules.libraries.entries import all_libraries
from tests.advice_cases import cases

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/fix-rules.md"
FIX = ROOT / "docs/fix.md"
CORPUS = ROOT / "tests/corpus/fix/cures"
HEAD = """# The changes of fix

Made by `python -m tests.documented_fixes`; do not edit.

What each kind of change does, what it gives up, and one example of code before (`-`) and after (`+`). Those of advice are cases with which
the advice is tested: the break is there before and not after, and the results are equal. The others are what the rule makes of a script of
the corpus on which `fix` is tested, or of the lines of a library. [fix.md](fix.md) says how a change is proven.
"""
CHECK = "def f(x):\n    if x.isnan().any():\n        raise ValueError('not a number')\n    return x * 2\n"
BUFFER = """def f(self, n):
    if n.max() > self.most:
        self.register_buffer("scale", self.long, persistent=False)
    else:
        self.register_buffer("scale", self.short, persistent=False)
    return self.scale
"""
SIZE = "def f(mask, x):\n    most = mask.sum(dim=1).max()\n    return x.new_zeros(2, most)\n"
WARNING = "import warnings\n\nimport torch\n\n\ndef f(x):\n    warnings.warn('this is old', FutureWarning)\n    return x\n"
ONCE = "import torch\n\n\ndef f(x):\n    logger.warning_once('this is old')\n    return x\n"
CAPTURE = "import torch\n"
MASKED = """import torch
import torch.nn.functional as F


def loss_of(logits, labels, mask):
    return F.cross_entropy(logits[mask], labels[mask])
"""

Edits = Sequence[Edit]


def _branch(begin: str, *, masked: bool = False) -> Callable[[str], Edits]:
    def edits(text: str) -> Edits:
        new = rewritten(branch_at(text, _row(text, begin)), masked=masked)
        return (Edit(file="a.py", old=dedented(text, new.rows), new=new.new, near=new.rows.start),)

    return edits


def _option(name: str) -> Callable[[str], Edits]:
    return lambda text: (Edit(file="a.py", old=(), new=(f"torch._dynamo.config.{name} = True",)),)


def _said(begin: str) -> Callable[[str], Edits]:
    def edits(text: str) -> Edits:
        made = library_messages.while_tracing("f", "a.py", text, _row(text, begin))
        assert made is not None
        return made.edits

    return edits


def _compiled_apart(text: str) -> Edits:
    return compiled_apart("a.py", text, "train_step", "model", PROOF_NAMES, in_place=True)


def _smaller(text: str) -> Edits:
    return next(smaller_regions("a.py", text, {_row(text, "if err.item")}, PROOF_NAMES)).edits


RULES: dict[str, tuple[str, Callable[[str], Edits]]] = {
    "branch-select": ("branch_two_statements", _branch("if y.sum")),
    "branch-masked": ("branch_division_trained", _branch("if y.sum", masked=True)),
    "branch-cond": ("branch_floor_division", _branch("if total")),
    "raise-check": (CHECK, _branch("if x.isnan")),
    "buffer-select": (BUFFER, _branch("if n.max")),
    "compile-dynamic": ("recompiles_parameter_shapes", lambda text: (compiled_dynamic("a.py", text),)),
    "number-as-tensor": ("range_as_number", lambda text: with_tensor("a.py", text, _row(text, "bound ="))),
    "static-shape": (MASKED, lambda text: tuple(of_one_size("a.py", text, _row(text, "return F")))),
    "tensor-argument": ("time_of_each_step", lambda text: as_tensors("a.py", text, "step", _row(text, "def step"), ["t"], NUMBER)),
    "compile-static": ("recompiles_parameter_shapes", lambda text: tuple(compiled_static("a.py", text))),
    "compile-model-apart": (
        "train_step_compiled",
        lambda text: compiled_apart("a.py", text, "train_step", "model", PROOF_NAMES, in_place=True),
    ),
    "compile-smaller": ("loop_until_small", _smaller),
    "hoist-out-of-loop": ("compiled_in_a_loop", lambda text: next(hoist.out_of_loops("a.py", text, None))[0]),
    "hoist-constant": ("parameter_in_each_call", lambda text: hoist.out_of_function("a.py", text, _row(text, "weight ="))[0]),
    "numbers-of-tensor": ("sizes_beside_their_tensor", lambda text: with_numbers("a.py", text, _row(text, "rows ="))),
    "eager-operator": ("loop_marks_rows", lambda text: as_operator("a.py", text, _row(text, "if marks[row]"))[:1]),
    "size-item": (SIZE, lambda text: (read_once("a.py", text, _row(text, "return x")),)),
    "log-while-tracing": (ONCE, _said("logger.")),
    "warn-while-tracing": (WARNING, _said("warnings.")),
    "capture-scalar-outputs": (CAPTURE, _option("capture_scalar_outputs")),
    "trace-autograd-ops": (CAPTURE, _option("trace_autograd_ops")),
    "capture-dynamic-output-shape-ops": (CAPTURE, _option("capture_dynamic_output_shape_ops")),
}


def _row(text: str, begin: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if line.strip().startswith(begin))


def of_rule(slug: str) -> str:
    """What a rule of fix makes of its example, as a diff."""
    source, make = RULES[slug]
    text = before = source if "\n" in source else (CORPUS / f"{source}.py").read_text()
    # From the end, so that what an edit puts in moves no line of another.
    for edit in sorted(make(text), key=lambda edit: -(edit.near or 0)):
        text, _ = applied(text, edit)
    return difference(before, text)


def difference(before: str, after: str) -> str:
    """What changes, with a line around it."""
    rows = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
    return textwrap.dedent("\n".join("" if row.startswith("@@") else row for row in rows)).strip("\n")


def of_advice() -> dict[str, str]:
    """The shortest case of each advice, as a diff or as the statement that is put before it; those of libraries are in the atlas."""
    found: dict[str, list[str]] = {}
    for case in cases():
        for name, text in case.functions.items() if "before" in case.functions else ():
            if name != "before" and not name.startswith("_"):
                found.setdefault(name.replace("_", "-"), []).append(difference(case.functions["before"], text))
        for name, statement in case.options.items() if "before" in case.functions else ():
            found.setdefault(name.replace("_", "-"), []).append(textwrap.indent(statement, "+ "))
    for entry in (entry for library in all_libraries() for entry in library.entries if entry.edit is not None):
        found.setdefault(slug_of(entry), []).append(difference(entry.before, entry.after))
    return {slug: min(diffs, key=len) for slug, diffs in found.items()}


def grouped() -> tuple[list[Kind], list[Kind]]:
    """What `fix` applies, without and with `--unsafe`: one row for all kinds that the same is said of."""
    found: dict[tuple[str, str, str | None], Kind] = {}
    for kind in all_kinds():
        if kind.applied is not None:
            key = (kind.does, kind.asks, kind.gives_up)
            known = found.get(key)
            found[key] = kind if known is None else replace(known, slugs=(*known.slugs, *kind.slugs))
    rows = list(found.values())
    return [kind for kind in rows if kind.gives_up is None], [kind for kind in rows if kind.gives_up is not None]


def kinds() -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """The kinds of each row, and its words as paragraphs."""
    safe, unsafe = grouped()
    for kind in (*safe, *unsafe):
        begin = "Only with `--unsafe`. Gives up: " if kind.gives_up is not None else ""
        words = [kind.does, f"Before it is tried: {kind.asks}" if kind.asks else "", f"{begin}{kind.gives_up}" if begin else ""]
        yield kind.slugs, [f"{text[0].upper()}{text[1:]}." for text in words if text]


def tables() -> str:
    """The tables of docs/fix.md."""
    safe, unsafe = grouped()
    rows = [
        "[fix-rules.md](fix-rules.md) shows each kind with code before and after.\n",
        "| kind | change | before it is tried |",
        "|---|---|---|",
    ]
    rows += [f"| {_named(kind)} | {kind.does} | {kind.asks} |".replace("  |", " |") for kind in safe]
    rows += ["\nWith `--unsafe`, each with what it gives up:\n", "| kind | change | gives up |", "|---|---|---|"]
    rows += [f"| {_named(kind)} | {kind.does or 'the line as the advice writes it'} | {kind.gives_up} |" for kind in unsafe]
    return "\n".join(rows)


def _named(kind: Kind) -> str:
    return ", ".join(f"`{slug}`" for slug in kind.slugs)


def fix_page() -> str:
    """docs/fix.md with the tables as they are."""
    before, _, rest = FIX.read_text().partition("## What is changed\n")
    behind = rest.partition("\nOther advice is left to you")[2]
    return f"{before}## What is changed\n\n{tables()}\n\nOther advice is left to you{behind}"


def page() -> str:
    """The whole page."""
    advice = of_advice()
    parts = [HEAD]
    for slugs, words in kinds():
        parts.append(f"## {', '.join(f'`{one}`' for one in slugs)}\n")
        parts += [f"{textwrap.fill(one, 140, break_long_words=False, break_on_hyphens=False)}\n" for one in words]
        for slug in slugs:
            diff = of_rule(slug) if slug in RULES else advice.get(slug)
            if diff is not None:
                parts.append(f"{f'`{slug}`:' if len(slugs) > 1 else 'For example:'}\n\n```diff\n{diff}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    FIX.write_text(fix_page())
