"""What a capture leaves of the garbage collector in the script's own process."""

import os
import subprocess
import sys
from pathlib import Path

from dynadiag.capture.graph_capture import VARIABLE, CaptureSettings

PROGRAM = """
import atexit, gc
atexit.register(lambda: print("at exit:", gc.get_freeze_count()))
from dynadiag.capture.graph_capture import start
start()
import torch
print("frozen:", gc.get_freeze_count() > 0)
"""


def test_the_end_of_the_script_frees_what_a_plain_run_frees(tmp_path):
    """Objects that are kept out of the collector's sight at exit are leaks to nanobind, which prints 27 lines (torch 2.15, triton)."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    settings = CaptureSettings(directory=str(tmp_path))
    environment = {**os.environ, VARIABLE: settings.dumps(), "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["frozen: True", "at exit: 0"], done.stderr
