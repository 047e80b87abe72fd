# ruff: noqa: C416, I001, RET504, E731, UP031
"""Cases of advice: calls that Dynamo does not enter, context managers, text of tensors, objects and operators it does not know."""

import contextlib
import gc
import io
import json
import os
import pickle
import sys
import tempfile
import threading
import zlib

from pathlib import Path

import markupsafe._speedups
import torch

sys.path.insert(0, str(Path(__file__).parent / "site-packages"))


FOLDER = tempfile.mkdtemp()
LOCK = threading.Lock()
MODULE = torch.nn.Linear(3, 3)


class breaks_on_purpose:
    breaks = {"GB0025"}

    def before(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    def graph_break_remove(x):
        x = x + 1
        return x * 2


@torch.compiler.disable
def disabled(x):
    return x + 1


def enabled(x):
    return x + 1


class calls_a_disabled_function:
    breaks = {"GB0098"}

    def before(x):
        y = disabled(x)
        return y * 2


class disables_inside:
    breaks = {"GB0377", "GB0098"}
    breaks_old = {"GB0007", "GB0098"}

    def before(x):
        function = torch.compiler.disable(enabled)
        return function(x)


class writes_a_file:
    breaks = {"GB0059", "GB0142"}

    def before(x):
        with open(os.path.join(FOLDER, "log.txt"), "w") as file:
            file.write("x")
        return x * 2


class saves:
    breaks = {"GB0007"}

    def before(x):
        torch.save(x, os.path.join(FOLDER, "x.pt"))
        return x * 2


class pickles:
    breaks = {"GB0007"}

    def before(x):
        data = pickle.dumps([1])
        return x * len(data)


class writes_to_memory:
    breaks = {"GB0156"}
    breaks_old = {"GB0007", "GB0156"}

    def before(x):
        buffer = io.BytesIO()
        buffer.write(b"a")
        return x * 2


class encodes_json:
    breaks = {"GB0156"}
    breaks_old = {"GB0007"}

    def before(x):
        text = json.dumps({"a": 1})
        return x * len(text)


class makes_a_directory:
    breaks = {"GB0007"}

    def before(x):
        os.makedirs(FOLDER, exist_ok=True)
        return x * 2


class collects_garbage:
    breaks = {"GB0007"}

    def before(x):
        gc.collect()
        return x * 2

    def setting_guard(x):
        if not torch.compiler.is_compiling():
            gc.collect()
        return x * 2


class holds_a_lock:
    breaks = {"GB0142"}

    def before(x):
        with LOCK:
            x = x + 1
        return x


class sets_a_device:
    breaks = {"GB0142"}

    def before(x):
        with torch.device("cpu"):
            y = x + torch.ones(3)
        return y


class redirects_stdout:
    breaks = {"GB0156", "GB0262"}
    breaks_old = {"GB0007", "GB0262", "GB0142"}

    def before(x):
        with contextlib.redirect_stdout(io.StringIO()):
            x = x + 1
        return x


class defines_a_class:
    breaks = {"GB8977"}
    breaks_old = {"GB0007"}

    def before(x):
        class Scale:
            def factor(self):
                return 2

        return x * Scale().factor()


class ScaleOfModule:
    def factor(self):
        return 2


class calls_c_code:
    breaks = {"GB0007"}

    def before(x):
        n = zlib.crc32(b"a")
        return x * (n % 7)


@torch.library.custom_op("advice_cases::escaped", mutates_args=())
def escaped(x: torch.Tensor) -> torch.Tensor:
    return x * len(markupsafe._speedups._escape_inner("<a>"))


@escaped.register_fake
def _(x):
    return torch.empty_like(x)


class calls_a_librarys_c_code:
    breaks = {"GB0007"}

    def before(x):
        return x * len(markupsafe._speedups._escape_inner("<a>"))


class calls_c_code_on_tensors:
    breaks = {"GB0007"}

    def before(x):
        n = zlib.crc32(b"a") % 7
        return x * n


class calls_c_code_for_nothing:
    breaks = {"GB0007"}

    def before(x):
        zlib.crc32(b"a")
        return x * 2
