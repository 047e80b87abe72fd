"""The guards of a frame as a tree: what torch printed, nested as the checks are nested."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from dynadiag.facts.wording import plural
from dynadiag.render.sanitise import clean

LINES_AT_MOST = 400
DEEPEST = 12
_LINE = re.compile(r"((?:\| )*)\+- ([^\n]*)", re.MULTILINE)
_KIND = re.compile(r"([A-Z][A-Z0-9_]{0,60}): (.*)\Z", re.DOTALL)
_MANAGER = re.compile(r"(\w{0,40}Manager): source=(.*?), accessed_by=")
_TYPE = re.compile(r"type=<class '([^'>]{1,200})'>")
_SMALL = 12


@dataclass(slots=True)
class _Node:
    text: str
    depth: int
    inside: list[_Node] = field(default_factory=list)
    checks: int = 0


def tree(text: str, parts: Mapping[str, float] | None = None) -> tuple[Markup, int, int]:
    """The tree as nested lists, how many of its lines are shown, and of how many.

    `parts` are the microseconds that a check of a value and of what is below it takes, by source; a value without has no time shown.
    """
    found = [match.groups() for match in _LINE.finditer(text)]
    root = _Node("", -1)
    path = [root]
    for bars, line in found[:LINES_AT_MOST]:
        node = _Node(line, min(len(bars) // 2, DEEPEST))
        while path[-1].depth >= node.depth:
            path.pop()
        path[-1].inside.append(node)
        path.append(node)
        if _KIND.match(line):
            for above in path:
                above.checks += 1
    return Markup("").join(_list(root, parts or {})), min(len(found), LINES_AT_MOST), len(found)


def _list(node: _Node, parts: Mapping[str, float]) -> Iterator[Markup]:
    yield Markup('<ul class="tree">')
    for item in node.inside:
        if item.inside:
            opened = " open" if item.depth == 0 or item.checks <= _SMALL else ""
            yield Markup("<li><details{}><summary>{} <span class='dim'>{}</span></summary>").format(
                Markup(opened), _check_markup(item.text, parts), f"· {plural(item.checks, 'check')}"
            )
            yield from _list(item, parts)
            yield Markup("</details></li>\n")
        else:
            yield Markup("<li>{}</li>\n").format(_check_markup(item.text, parts))
    yield Markup("</ul>")


def _check_markup(line: str, parts: Mapping[str, float]) -> Markup:
    """A check as its kind, its code and the line that asked for it; what leads to a value as the value and its type."""
    manager, check = _MANAGER.match(line), _KIND.match(line)
    if manager is not None:
        named = _TYPE.search(line)
        spent = parts.get(manager[2])
        return Markup("<code>{}</code> <span class='dim'>{}</span>{}").format(
            clean(manager[2], limit=160),
            clean(named[1], limit=80) if named else "",
            "" if spent is None else Markup(" <b>{}</b>").format(f"{spent:,.2f} µs"),
        )
    if check is None:
        return Markup("<code>{}</code>").format(clean(line, limit=200))
    code, _, origin = check[2].partition("  # ")
    asked = f"for {clean(origin, limit=160)}" if origin.strip() else ""
    return Markup("<b class='kind'>{}</b> <code>{}</code> <span class='dim'>{}</span>").format(check[1], clean(code, limit=240), asked)
