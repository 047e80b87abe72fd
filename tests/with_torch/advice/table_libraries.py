# ruff: noqa: C416, I001, RET504, E731, UP031
"""Cases of advice: lines that break inside a library, and a back end that refuses a graph."""

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent / "site-packages"))

import advice_library


class calls_a_library_that_reads:
    breaks = {"GB0124"}

    def before(x):
        y = advice_library.scale(x)
        return y * 2


class calls_a_library_that_branches:
    breaks = {"GB0170"}

    def before(x):
        y = advice_library.clamp(x)
        return y * 2


class calls_a_library_of_unknown_size:
    breaks = {"GB0036"}

    def before(x):
        y = advice_library.rows(x)
        return y * 2


class calls_a_library_that_breaks:
    breaks = {"GB0025"}

    def before(x):
        y = advice_library.stop(x)
        return y * 2


class calls_a_library_that_works_a_number_out:
    breaks = {"GB0124"}

    def before(x):
        y = advice_library.pooled(x)
        return y * 2

    def library_argument(x):
        y = advice_library.pooled(x, size=2)
        return y * 2


class calls_a_library_that_checks:
    breaks = {"GB0124"}

    def before(x):
        y = advice_library.Checked(x, check=True).x
        return y * 2

    def library_argument(x):
        y = advice_library.Checked(x, check=False).x
        return y * 2


class calls_a_logger_of_a_library:
    breaks = {"GB0025"}

    def before(x):
        y = x + 1
        advice_library.logger.info("rows", 3)
        return y * 2

    def logger_guard(x):
        y = x + 1
        if not torch.compiler.is_compiling():
            advice_library.logger.info("rows", 3)
        return y * 2


class Holder:
    value = 1


class sets_a_class_attribute:
    breaks = set()
    breaks_old = {"GB0059"}

    def before(x):
        setattr(Holder, "value", 3)
        return x * 2


class compares_with_none:
    breaks = set()
    breaks_old = {"GB0208"}

    def before(x):
        return x if x == None else x * 2  # noqa: E711

    def none_is(x):
        return x if x is None else x * 2  # noqa: E711


class traces_no_numpy:
    breaks = {"GB0105", "GB0231", "GB0293"}
    setup = "torch._dynamo.config.trace_numpy = False"

    def before(x):
        y = np.sqrt(x.numpy())
        return x + torch.from_numpy(y)


def picky(gm, inputs):
    """A back end that does not take every graph, in the way that makes torch fall back."""
    if any(node.target is torch.sin for node in gm.graph.nodes):
        raise torch._subclasses.fake_tensor.UnsupportedOperatorException("no sin here")
    return gm.forward


class compiles_with_a_back_end_that_refuses:
    breaks = {"GB0219"}
    backend = staticmethod(picky)

    def before(x):
        return torch.sin(x) * 2
