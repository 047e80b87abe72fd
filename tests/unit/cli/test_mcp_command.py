"""Bad input of `dynadiag mcp` in one line; what it serves is tested with a client (`tests/with_torch/test_mcp.py`)."""

import sys

from typer.testing import CliRunner

from dynadiag_cli.app import app


def test_a_folder_that_is_not_there_and_a_missing_extra_are_one_line(monkeypatch):
    found = CliRunner().invoke(app, ["mcp", "--folder", "nowhere"])
    assert found.exception.exit_code == 2 and found.exception.message == "--folder nowhere: No such file or directory"
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    monkeypatch.delitem(sys.modules, "dynadiag_cli.mcp_server", raising=False)
    missing = CliRunner().invoke(app, ["mcp"])
    assert missing.exception.exit_code == 2 and missing.exception.message.endswith("install dynadiag[mcp]")
