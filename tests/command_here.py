"""The command line in the tests' own process, for its words and exit status: a process of its own would import torch first."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from dynadiag_cli.main import main


@dataclass(frozen=True)
class Ended:
    """What a command printed, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


def command_here(*words: str | Path, cwd: Path) -> Ended:
    """Runs `dynadiag WORDS` in a folder as its program does, but without a guardian: the tests' process goes on."""
    with pytest.MonkeyPatch.context() as patch, CliRunner().isolation() as (out, err, _):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["dynadiag", *map(str, words)])
        patch.setattr("dynadiag.record.guardian.guarded", mock.Mock())
        with pytest.raises(SystemExit) as end:
            main()
        sys.stderr.flush()
        return Ended(end.value.code or 0, out.getvalue().decode(), err.getvalue().decode())
