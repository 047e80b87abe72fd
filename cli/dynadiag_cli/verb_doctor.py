"""`dynadiag doctor`: what is installed here, what is supported and what is missing, in a form to paste into an issue."""

from __future__ import annotations

from typing import Annotated

import typer

from dynadiag_cli.options import AsJson

EXAMPLES = """Examples:

  dynadiag doctor

  dynadiag doctor --python ~/train/.venv/bin/python --json
"""

_TORCH_UNUSABLE = 3


def doctor(
    python: Annotated[
        str | None, typer.Option("--python", metavar="PATH", help="The interpreter whose torch is inspected [default: dynadiag's own].")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print versions, devices and tools, and what is missing, in a form to paste into an issue.

    Exit status 3 when torch is missing or older than 2.6, else 0: whatever else is missing is listed, and only limits what works.
    """
    import json

    from dynadiag import doctor as examination

    checkup = examination.examine(python)
    typer.echo(json.dumps(examination.as_dict(checkup), indent=2) if as_json else examination.as_text(checkup))
    if not checkup.torch.supported:
        raise typer.Exit(_TORCH_UNUSABLE)
