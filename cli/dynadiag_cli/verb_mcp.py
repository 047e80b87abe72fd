"""`dynadiag mcp`: the verbs as tools for coding agents, over the Model Context Protocol."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from dynadiag.errors import UsageError

EXAMPLES = """Examples:

  dynadiag mcp

  dynadiag mcp --folder ~/project
"""


def mcp(
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Run programs in DIR [default: where the server is started].")
    ] = None,
) -> None:
    """Serve explain, rule, graph, fix, minify and check as tools of the Model Context Protocol, on stdin and stdout.

    An agent or an editor starts it. Programs are run with this Python unless a call names another; what they print never reaches the
    protocol. Needs the extra `mcp`. Exit status: 0 the client has gone, 2 the extra is missing.
    """
    try:
        from dynadiag_cli.mcp_server import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError("dynadiag mcp needs the package mcp, version 2 or newer: install dynadiag[mcp]") from None
    if folder is not None:
        try:
            os.chdir(folder)
        except OSError as error:
            raise UsageError(f"--folder {folder}: {error.strerror or error}") from None
    if sys.stdin.isatty():
        print("dynadiag: waiting for a client on stdin; an agent or an editor starts this command. Ctrl-C ends it.", file=sys.stderr)
    server().run("stdio")
