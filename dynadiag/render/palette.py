"""The colours and fonts of every picture and page, for a light and a dark ground: plain constants, and the style sheets made of them.

A picture follows the reader's choice by `prefers-color-scheme` inside the SVG, which works in an `<img>`, too. Class names start with
`dd-`, so that a picture that stands inside a page changes nothing around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SANS = "system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace"
WIDTH = 860
"""How wide a picture is at most, in CSS pixels: what a bug report on GitHub shows without making it smaller."""

# By name: on a light ground, on a dark one. Ink on any of the fills has a contrast of at least 4.5 : 1.
COLOURS: Mapping[str, tuple[str, str]] = {
    "ground": ("#ffffff", "#0d1117"),
    "panel": ("#f6f8fa", "#161b22"),
    "inner": ("#eaeef2", "#1f252d"),
    "rule": ("#d0d7de", "#30363d"),
    "line": ("#8c959f", "#6e7681"),
    "ink": ("#1f2328", "#e6edf3"),
    "dim": ("#525b65", "#a3acb6"),
    "accent": ("#8a5a00", "#d29922"),
    "link": ("#0969da", "#58a6ff"),
    "compiled": ("#1a7f37", "#3fb950"),
    "broken": ("#cf222e", "#f85149"),
    "eager": ("#bc4c00", "#f0883e"),
    "unknown": ("#6e7781", "#7d8590"),
    "on_mark": ("#ffffff", "#0d1117"),
    # Source code of a page, also on the fills of a ladder's rows.
    "keyword": ("#cf222e", "#ff7b72"),
    "number": ("#116329", "#56d364"),
    # Fills behind ink.
    "compiled_fill": ("#dafbe1", "#12301b"),
    "partly_fill": ("#fff8c5", "#3a2d05"),
    "broken_fill": ("#ffebe9", "#3c1618"),
    "eager_fill": ("#fff1e5", "#3d2108"),
    "folded_fill": ("#f3ece0", "#2e271c"),
    # Classes of operators.
    "matrix": ("#ddf4ff", "#0c2d4a"),
    "attention": ("#c9d6ff", "#24306f"),
    "normalisation": ("#f7defe", "#431d55"),
    "pointwise": ("#ffffff", "#0d1117"),
    "reduction": ("#fff3b0", "#3b3108"),
    "view": ("#e4e8ec", "#262c34"),
    "write": ("#ffe2df", "#4a1a1d"),
    "collective": ("#c6f1ea", "#0b3a36"),
    "dependent": ("#ffdcbd", "#4d2a0b"),
    "input": ("#dafbe1", "#12301b"),
}

# By class: which property takes which colour, and what else the class says.
CLASSES: Mapping[str, tuple[Mapping[str, str], str]] = {
    "dd-bg": ({"fill": "ground"}, ""),
    "dd-panel": ({"fill": "panel", "stroke": "rule"}, ""),
    "dd-inner": ({"fill": "inner", "stroke": "rule"}, ""),
    "dd-rule": ({"stroke": "rule"}, ""),
    "dd-box": ({"stroke": "line"}, "stroke-width:1"),
    "dd-ends": ({"stroke": "ink"}, "stroke-width:2"),
    "dd-edge": ({"stroke": "line"}, "fill:none"),
    "dd-tip": ({"fill": "line"}, ""),
    "dd-strong": ({"stroke": "broken"}, "fill:none;stroke-width:2"),
    "dd-strong-tip": ({"fill": "broken"}, ""),
    "dd-h": ({"fill": "ink"}, f"font:600 14px {SANS}"),
    "dd-s": ({"fill": "dim"}, f"font:11px {SANS}"),
    "dd-m": ({"fill": "ink"}, f"font:600 12px {MONO}"),
    "dd-halo": ({"stroke": "panel"}, "stroke-width:4;stroke-linejoin:round;paint-order:stroke"),
    "dd-o": ({"fill": "ink"}, f"font:12px {MONO}"),
    "dd-faint": ({"fill": "dim"}, f"font:12px {MONO}"),
    "dd-tag": ({"fill": "accent"}, f"font:600 12px {SANS}"),
    "dd-warn": ({"fill": "broken"}, f"font:600 11px {SANS}"),
    "dd-chip": ({"fill": "broken"}, ""),
    "dd-on": ({"fill": "on_mark"}, f"font:600 11px {MONO}"),
    **{
        f"dd-{name}": ({"fill": name}, "")
        for name in ("matrix", "attention", "normalisation", "pointwise", "reduction", "view", "collective", "input")
    },
    "dd-write": ({"fill": "write", "stroke": "broken"}, "stroke-width:1.5"),
    "dd-dependent": ({"fill": "dependent", "stroke": "eager"}, ""),
    "dd-compiled": ({"fill": "compiled_fill", "stroke": "compiled"}, ""),
    "dd-partly": ({"fill": "partly_fill", "stroke": "accent"}, ""),
    "dd-broken": ({"fill": "broken_fill", "stroke": "broken"}, "stroke-width:1.5"),
    "dd-break": ({"fill": "ground", "stroke": "broken"}, "stroke-width:1.5"),
    "dd-eager": ({"fill": "eager_fill", "stroke": "eager"}, "stroke-dasharray:4 2"),
    "dd-kept": ({"fill": "partly_fill", "stroke": "accent"}, "stroke-width:1.5"),
    "dd-gone": ({"fill": "panel", "stroke": "rule"}, ""),
    "dd-folded": ({"fill": "folded_fill"}, ""),
}


def style(classes: Iterable[str]) -> str:
    """The style sheet of a picture that uses these classes: the light rules, then the dark ones under `prefers-color-scheme`."""
    used = set(classes)
    names = [name for name in CLASSES if name in used]
    light = "".join(_rule(name, 0, CLASSES[name][1]) for name in names)
    dark = "".join(_rule(name, 1, "") for name in names)
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


def _rule(name: str, ground: int, rest: str) -> str:
    colours = ";".join(f"{key}:{COLOURS[colour][ground]}" for key, colour in CLASSES[name][0].items())
    return f".{name}{{{colours}{';' + rest if rest else ''}}}"


def custom_properties() -> str:
    """The colours as CSS custom properties (`--dd-ground`), light and dark, for a page."""

    def block(ground: int) -> str:
        return ";".join(f"--dd-{name.replace('_', '-')}:{pair[ground]}" for name, pair in COLOURS.items())

    return f":root{{{block(0)}}}@media (prefers-color-scheme:dark){{:root{{{block(1)}}}}}"
