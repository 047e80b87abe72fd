"""Draws the README's picture from a real run: `python docs/make_picture.py OUT.svg` (`make readme-picture`).

It is rich's own export of a terminal in a frame that needs no web fonts.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

import dynadiag
from dynadiag.model.report import Report
from dynadiag.render.sanitise import clean
from dynadiag.render.terminal import print_summary

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = "samples/bert_train_step.py"
RUN = "dynadiag-runs/readme-picture"
COLUMNS = 90
LINES = 36
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


def main(out: Path) -> None:
    """Record the sample as `make demo` does, and write its report as terminal output to `out`."""
    # Relative names of the interpreter and of the run, so that the picture shows no path of the machine that drew it.
    python = Path(sys.executable).relative_to(ROOT)
    options = ["--no-pictures", "--force", "--out", RUN, "--python", str(python)]
    subprocess.run([sys.executable, "-m", "dynadiag", "explain", *options, SAMPLE], cwd=ROOT, check=True)
    report = dynadiag.load(ROOT / RUN)
    picture = terminal_svg(report, width_columns=COLUMNS, lines=LINES, title=f"dynadiag explain {SAMPLE}", base=ROOT)
    if str(ROOT) in picture or str(Path.home()) in picture:
        sys.exit("the picture shows a path of this machine, so it is not written")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(picture, encoding="utf-8")


def terminal_svg(
    report: Report,
    *,
    width_columns: int = 100,
    lines: int,
    title: str,
    base: Path | None = None,
) -> str:
    """The report as it looks in a terminal, as SVG text with system fonts and no outside references.

    A picture of more than `lines` lines is cut and ends in a line that says so. Paths below the absolute folder `base` are relative to it.
    """
    recorded = _console(width_columns)
    print_summary(report, recorded, limit=3, base=base)
    rows = recorded.export_text(styles=True).rstrip("\n").split("\n")
    if len(rows) > lines:
        rows = [*rows[: lines - 1], f"... {len(rows) - lines + 1} more lines"]
    console = _console(width_columns)
    for row in (*rows, ""):  # the last row of rich's picture loses what hangs below the line
        console.print(Text.from_ansi(row), soft_wrap=True, highlight=False)
    return console.export_svg(title=clean(title, limit=80), theme=_THEME, code_format=_FORMAT, unique_id="dynadiag")


def _console(columns: int) -> Console:
    return Console(width=columns, record=True, file=io.StringIO(), force_terminal=True, color_system="standard", legacy_windows=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
