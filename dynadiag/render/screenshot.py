"""A terminal picture as SVG: rich's own export with a frame of ours that needs no web fonts, for the README."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from dynadiag.model.report import Report
from dynadiag.render.sanitise import clean
from dynadiag.render.terminal import print_summary

_THEME = TerminalTheme(
    (13, 17, 23),
    (230, 237, 243),
    [(72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34), (88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)],
    [(110, 118, 129), (255, 161, 152), (86, 211, 100), (227, 179, 65), (121, 192, 255), (210, 168, 255), (86, 212, 221), (255, 255, 255)],
)
"""A dark window with its own ground, so that it reads on light and dark pages."""

_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"

_FORMAT = (
    """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font-family: FONTS; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
).replace("FONTS", _FONTS)


def terminal_svg(
    report: Report,
    *,
    width_columns: int = 100,
    limit: int | None = 3,
    lines: int | None = None,
    title: str = "dynadiag",
    base: Path | None = None,
) -> str:
    """The report as it looks in a terminal, as SVG text with system fonts and no outside references.

    Args:
        report: the diagnosis.
        width_columns: columns of the terminal.
        limit: findings shown, None for all.
        lines: lines shown at most, None for all; a cut picture ends in a line that says so.
        title: what stands in the window's bar.
        base: paths below this absolute folder are shown relative to it.
    """
    console = Console(
        width=width_columns, record=True, file=io.StringIO(), force_terminal=True, color_system="standard", legacy_windows=False
    )
    print_summary(report, console, limit=limit, base=base)
    return ansi_svg(console.export_text(styles=True), width_columns=width_columns, lines=lines, title=title)


def ansi_svg(text: str, *, width_columns: int = 100, lines: int | None = None, title: str = "dynadiag") -> str:
    """Recorded terminal output (text with colours) as the same picture; only colours and styles are taken from its escape sequences."""
    rows = text.rstrip("\n").split("\n")
    if lines is not None and len(rows) > lines:
        rows = [*rows[: max(0, lines - 1)], f"... {len(rows) - lines + 1} more lines"]
    console = Console(
        width=width_columns, record=True, file=io.StringIO(), force_terminal=True, color_system="standard", legacy_windows=False
    )
    for row in (*rows, ""):  # the last row of rich's picture loses what hangs below the line
        console.print(Text.from_ansi(row), soft_wrap=True, highlight=False)
    return console.export_svg(title=clean(title, limit=80), theme=_THEME, code_format=_FORMAT, unique_id="dynadiag")
