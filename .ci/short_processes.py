"""Makes the tests' many short processes cheaper: `.ci/setup.sh` puts it beside torch, `tests/conftest.py` asks for it by a variable.

Importing torch and compiling leave little garbage, and looking for it among a million old objects takes a seventh of the time of such a
process: young objects are looked at as always, old ones hardly ever. At its end Python looks for it among all objects, four times, which
takes a quarter of the time: that is left out. What the exit handlers of a program do, its output and its exit status stay as they are.
"""

import atexit
import contextlib
import gc
import os
import sys


def end_soon() -> None:
    """The last exit handler, since it is the first that was registered."""
    gc.freeze()
    if "triton._C.libtriton" in sys.modules:
        # It counts on stderr what the collector would have freed.
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


gc.set_threshold(50_000, 100, 100)
atexit.register(end_soon)
