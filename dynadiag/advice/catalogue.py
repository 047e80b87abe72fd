"""The page that lists every break type with advice (`docs/advice.md`), made from the tables themselves.

`python -m dynadiag.advice.catalogue > docs/advice.md` writes it; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from dynadiag.advice.catalogue_slugs import described
from dynadiag.advice.gb_types import GB_TYPES
from dynadiag.advice.graph_breaks import RULES
from dynadiag.advice.reasons import REASONS

_HEAD = """# Advice on graph breaks

Made by `python -m dynadiag.advice.catalogue`; do not edit.

For each type of graph break in this table, dynadiag either knows a change (to the line that broke, or an option of torch) or says why it
advises nothing. Each piece of advice is tested by a case in `tests/with_torch/advice/table_*.py`, on the oldest and the newest supported
torch: the break occurs before the change and not after it, and the results are equal.

Rules of the advice:

- At most two changes per finding, the best one first. A change is advised only where the recording establishes that it does what it says:
  the line, the source of its function, the code after the line. Where it does not, the finding says why nothing is advised.
- A tensor replaces a number only where every use of the number is arithmetic with tensors; `torch.where` replaces an `if` only where both
  sides are certain to have the same shape.
- An option is named only if the torch of the recorded run has it. Where that was not recorded (a log from elsewhere) the advice says
  "if your torch has this option". An option applies to the whole program: it is named only if no other line that broke rules it out.
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


if __name__ == "__main__":
    sys.stdout.write(page())
