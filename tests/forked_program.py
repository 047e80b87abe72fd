"""Programs of the tests that need a process of their own but no fresh interpreter: importing torch again would take three CPU seconds."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from pathlib import Path

import torch
import torch._dynamo

from dynadiag.reduce.core.isolation import run_forked


def forked_program(script: Path, *arguments: object, timeout_s: float = 900) -> str:
    """What a script prints that runs as `__main__` in a fork of this process, with nothing compiled before it."""

    def work(tell):
        torch.set_num_threads(1)
        torch._dynamo.reset()
        sys.argv = [str(script), *map(str, arguments)]
        sys.path.insert(0, str(script.parent))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            runpy.run_path(str(script), run_name="__main__")
        tell({"said": said.getvalue()})

    report = run_forked(work, timeout_s=timeout_s)
    assert [list(one) for one in report.messages] == [["said"]], (report.messages, report.signal, report.exit_status, report.timed_out)
    return report.messages[0]["said"]
