"""`dynadiag rule`: what a code of a report means, and what the atlas says of a library."""

from __future__ import annotations

from typing import Annotated

import typer

from dynadiag_cli.options import AsJson

EXAMPLES = """Examples:

  dynadiag rule GB0170 DM05 kornia

  dynadiag rule | grep backward
"""


def rule(
    codes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CODE", help="A code of a report, such as GB0170 or DM05, or a library, such as kornia [default: list all]."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain codes of a report, or what a library does under torch.compile: why it costs something, and what to change.

    Needs no run and no torch. Exit status 2 for a code or library that is not known.
    """
    import json
    import shutil
    import sys

    from dynadiag.rules import rule as rules

    found = [rules.find_rule(code) for code in codes or ()]
    if found:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        text = "\n\n\n".join(rules.as_text(item, width) for item in found)
        typer.echo(json.dumps([rules.as_dict(element) for element in found], indent=2) if as_json else text)
    else:
        rows = rules.listing()
        typer.echo(json.dumps(dict(rows), indent=2) if as_json else "\n".join(f"{code}  {title}" for code, title in rows))
