"""`dynadiag rule`: what a code means, what torch says of it, and what dynadiag advises."""

from __future__ import annotations

import difflib
import re
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dynadiag.advice.graph_breaks import RULES
from dynadiag.advice.reasons import REASONS
from dynadiag.errors import UsageError
from dynadiag.model.codes import TABLE
from dynadiag.rules.hint_trials import with_trials
from dynadiag.rules.libraries.entries import all_libraries
from dynadiag.rules.library_rules import library_named, library_sections, library_title
from dynadiag.rules.torch_breaks import torch_break, torch_ids

_PAGES = Path(__file__).with_name("pages")
# Where torch's own messages link to (`torch/_dynamo/exc.py`, 2.11 and 2.15).
_SITE = "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb{}.html"
_COST = (
    "The code before and after this line is compiled separately, and Python runs the line between (under `fullgraph=True` it is an error). "
    "`dynadiag explain --cost` measures what that costs in your program."
)
_TORCHS = re.compile(r"GB[0-9]{4}")
_GB = re.compile(r"(?:GB)?(\d{1,6})")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A code: its title, what it is given for, in `sections` of a name and a text what is to be said of it, the address of its page."""

    code: str
    title: str
    severity: str | None = None
    sections: tuple[tuple[str, str], ...] = ()
    address: str | None = None


def find_rule(name: str) -> Rule:
    """What is known of a code, in any case, or of a library; `GB170` and `170` are GB0170.

    UsageError for an unknown one, with those that look like it.
    """
    code = name.strip().upper()
    if number := _GB.fullmatch(code):
        code = f"GB{int(number[1]):04}"
    if code in TABLE:
        row = TABLE[code]
        return Rule(code=code, title=row.title, severity=row.severity, sections=_page(code))
    said = torch_break(code)
    if said is None:
        if (library := library_named(name)) is not None:
            return Rule(code=library.library, title=library_title(library), sections=library_sections(library))
        near = difflib.get_close_matches(code, [*TABLE, *torch_ids()], 3)
        hint = f": did you mean {' or '.join(near)}?" if near else "; `dynadiag rule` lists all"
        raise UsageError(f"no code {code[:40]!r}{hint}")
    hints = "\n".join(f"- {with_trials(hint)}" for hint in said["hints"])
    sections = [("torch says", said["explanation"]), ("Hints of torch", hints), ("dynadiag advises", _advised(code)), ("Cost", _COST)]
    return Rule(
        code=code,
        title=said["type"],
        sections=tuple((title, text) for title, text in sections if text),
        address=page_address(code),
    )


def is_known(code: str) -> bool:
    """Whether `dynadiag rule` has this code, written as it is written there."""
    return code in TABLE or torch_break(code) is not None


def page_address(code: str) -> str | None:
    """The address of torch's page for an id of torch's that is known; made of its four digits and nothing else."""
    return _SITE.format(code.removeprefix("GB")) if _TORCHS.fullmatch(code) and torch_break(code) is not None else None


def _page(code: str) -> tuple[tuple[str, str], ...]:
    """The sections of the page of a code of ours: What, Why, Cost, Fix with its code before and after."""
    body = (_PAGES / f"{code}.md").read_text("utf-8").partition("\n")[2]
    parts = re.split(r"^\*\*(\w+)\.\*\* ", body, flags=re.MULTILINE)[1:]
    return tuple((title, _plain(text)) for title, text in zip(parts[::2], parts[1::2], strict=True))


def _plain(text: str) -> str:
    """Markdown without fences and links; code is indented."""
    pieces = re.split(r"^```\w*\n(.*?)^```\n?", text, flags=re.MULTILINE | re.DOTALL)
    code = ["".join(f"    {line}".rstrip() + "\n" for line in piece.splitlines()) for piece in pieces[1::2]]
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", piece) for piece in pieces[::2]]
    woven = [words[0]] + [part for pair in zip(code, words[1:], strict=True) for part in pair]
    return re.sub(r"\n{3,}", "\n\n", "".join(woven)).strip()


def _advised(code: str) -> str:
    if code in REASONS:
        return f"Nothing: {REASONS[code]}."
    return "\n".join((rule.__doc__ or "").strip().split("\n")[0] for rule in RULES.get(code, ()))


def listing() -> list[tuple[str, str]]:
    """All codes of ours with their titles, then torch's ids with their types, then the libraries of the atlas."""
    ours = [(row.id, row.title) for row in TABLE.values()]
    breaks = [(gb_id, said["type"]) for gb_id in torch_ids() if (said := torch_break(gb_id))]
    return ours + breaks + [(library.library, library_title(library)) for library in all_libraries()]


def as_text(rule: Rule, width: int | None = None) -> str:
    """For a terminal of so many columns, None for one without an end; no line of code is folded."""
    lines = [f"{rule.code}  {rule.title}{f'  ({rule.severity})' if rule.severity else ''}"]
    for title, text in rule.sections:
        lines += ["", title, *(row for line in text.splitlines() for row in _folded(f"  {line}".rstrip(), width))]
    if rule.address:
        lines += ["", rule.address]
    return "\n".join(lines)


def _folded(line: str, width: int | None) -> list[str]:
    if width is None or line.startswith("      "):
        return [line]
    hang = "    " if line.startswith("  - ") else "  "
    return textwrap.wrap(line, max(width, 20), subsequent_indent=hang, break_long_words=False, break_on_hyphens=False) or [""]


def as_dict(rule: Rule) -> dict[str, Any]:
    """As JSON has it."""
    found = asdict(rule)
    return {**found, "sections": [{"title": title, "text": text} for title, text in rule.sections]}
