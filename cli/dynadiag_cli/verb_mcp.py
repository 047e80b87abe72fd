"""`dynadiag mcp`: the verbs as tools for coding agents, over the Model Context Protocol."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from dynadiag.errors import UsageError

EXAMPLES = """Examples:

  dynadiag mcp

  dynadiag mcp --folder ~/project --python ~/project/.venv/bin/python
"""


def mcp(
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Run programs in DIR [default: where the server is started].")
    ] = None,
    allow_path: Annotated[
        list[Path] | None,
        typer.Option("--allow-path", metavar="DIR", help="Let calls also name what is below DIR, such as a data set; repeatable."),
    ] = None,
    allow_edits: Annotated[
        bool,
        typer.Option("--allow-edits", help="Offer `prove` too, which runs a program with the edit that a call gives: any code, in fact."),
    ] = False,
    python: Annotated[
        list[str] | None,
        typer.Option("--python", metavar="PATH", help="Let calls name this interpreter for their scripts; repeatable."),
    ] = None,
) -> None:
    """Serve explain, rule, graph, fix, minify and check as tools of the Model Context Protocol, on stdin and stdout.

    An agent or an editor starts it. Calls may only name scripts, recordings and paths in DIR. Programs are run with this Python unless a
    call names one of --python; what they print never reaches the protocol. Programs and their children end with the server, except a child
    that started a new session with another environment. Needs the extra `mcp`. Exit status: 0 the client has gone, 2 the extra is missing.
    """
    try:
        from dynadiag_cli.mcp_server import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise UsageError("dynadiag mcp needs the package mcp, version 2 or newer: install dynadiag[mcp]") from None
    from dynadiag.record.guardian import guarded
    from dynadiag_cli.mcp_confinement import Confinement

    confinement = Confinement.of(folder or Path.cwd(), allow_path or (), python or (), edits=allow_edits)
    if folder is not None:
        try:
            os.chdir(folder)
        except OSError as error:
            raise UsageError(f"--folder {folder}: {error.strerror or error}") from None
    if sys.stdin.isatty():
        print("dynadiag: waiting for a client on stdin; an agent or an editor starts this command. Ctrl-C ends it.", file=sys.stderr)
    guarded(outlived=False)
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        # The SDK reads stdin in a thread, which no KeyboardInterrupt ends. As with SIGTERM, the guardian ends what runs.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    server(confinement).run("stdio")
