"""Pages: one self-contained HTML file each, under a content security policy that lets nothing in but its own style and scripts."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dynadiag.render import palette
from dynadiag.render.html.filters import RULES
from dynadiag.render.sanitise import REPLACEMENT, without_unseen

_FOLDER = Path(__file__).parent


def page(template: str, **values: Any) -> str:
    """The page that a template makes of these values: texts, which Jinja escapes, and what is made of them.

    `title`, `version` and `sections` (anchors and their names) are always needed.
    """
    style = palette.custom_properties() + _text("page.css") + RULES
    scripts = (_text("panzoom.min.js"), _text("page.js"))
    html = (
        _templates()
        .get_template(template)
        .render(
            style=Markup(style),
            scripts=[Markup(script) for script in scripts],
            policy=_policy(style, scripts),
            **values,
        )
    )
    return without_unseen(html, REPLACEMENT)


def fragment(template: str, **values: Any) -> str:
    """What a template without head and scripts makes of these values, to stand in somebody else's page."""
    return without_unseen(_templates().get_template(template).render(**values), REPLACEMENT)


def _policy(style: str, scripts: tuple[str, ...]) -> str:
    allowed = " ".join(_hash(script) for script in scripts)
    return f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, undefined=jinja2.StrictUndefined)
    made.trim_blocks = made.lstrip_blocks = True
    made.filters["ticks"] = _with_code
    return made


def _with_code(text: str) -> Markup:
    """The text with what stands between two backticks as code."""
    if "`" not in text:
        return Markup.escape(text)
    parts = text.split("`")
    closed = len(parts) - (len(parts) % 2 == 0)  # a last backtick without its other half stays one
    pieces = [Markup("<code>{}</code>").format(part) if number % 2 else Markup.escape(part) for number, part in enumerate(parts[:closed])]
    return Markup("").join([*pieces, *(Markup.escape(f"`{part}") for part in parts[closed:])])


@lru_cache(maxsize=8)
def _text(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")
