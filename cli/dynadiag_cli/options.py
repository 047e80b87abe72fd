"""The options that several verbs have, each declared once: `out: Out = None` in the signature of a verb."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

LONGEST_S = 2_000_000
"""For options in seconds: poll(2) counts milliseconds in 31 bits, 24 days."""
RECORDING, REPORT, ANALYSIS = "Recording", "What is printed", "What is analysed"
"""Headings of `--help` under which options stand (`rich_help_panel`); those without one come first."""


Color = Literal["auto", "always", "never"]
Format = Literal["text", "json", "md"]
"""What a result is printed as."""
PageFormat = Literal[Format, "html"]
"""The same where a result may be a page, too."""
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run directory [default: a new one in dynadiag-runs/].")]
Outputs = Annotated[
    Literal["discard", "all"], typer.Option("--outputs", help="Files that runs of the script write: discard them, or keep all.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace DIR if dynadiag created it.")]
Python = Annotated[
    str | None,
    typer.Option(
        "--python", rich_help_panel=RECORDING, metavar="PATH", help="The script's Python interpreter; dynadiag need not be installed there."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        rich_help_panel=RECORDING,
        metavar="S",
        min=0,
        help="End the script's processes after S seconds, and go on with what was recorded.",
    ),
]
StopWhenStable = Annotated[
    float | None,
    typer.Option(
        "--stop-when-stable",
        rich_help_panel=RECORDING,
        metavar="S",
        min=0,
        help="End the script once nothing new has compiled for S seconds.",
    ),
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", rich_help_panel=REPORT, metavar="FILE", help="Write the output to FILE (- is stdout).")
]
AsFormat = Annotated[Format, typer.Option("--format", "-f", rich_help_panel=REPORT, help="Output format.")]
AsPageFormat = Annotated[PageFormat, typer.Option("--format", "-f", rich_help_panel=REPORT, help="Output format.")]
AsJson = Annotated[bool, typer.Option("--json", rich_help_panel=REPORT, help="Print JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=REPORT, help="Print only the verdict.")]
InColor = Annotated[Color, typer.Option("--color", rich_help_panel=REPORT, help="When to colour the text.")]
Open = Annotated[bool, typer.Option("--open", rich_help_panel=REPORT, help="Open the report's page in a browser afterwards.")]
