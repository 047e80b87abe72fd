# ruff: noqa: C416, I001, RET504, E731, UP031
"""Cases of advice: debuggers, text of tensors, values and operators that Dynamo does not know."""

import os
import sys
import tempfile
import threading

from pathlib import Path

import numpy as np
import torch
from advice_cases import option

sys.path.insert(0, str(Path(__file__).parent / "site-packages"))


FOLDER = tempfile.mkdtemp()
LOCK = threading.Lock()
MODULE = torch.nn.Linear(3, 3)


class stops_in_a_debugger:
    breaks = {"GB0059"}

    def before(x):
        breakpoint()
        return x * 2

    def debug_guard(x):
        if not torch.compiler.is_compiling():
            breakpoint()
        return x * 2


sys.breakpointhook = lambda *arguments, **options: None


class sorts_a_tensor:
    breaks = {"GB0059"}

    def before(x):
        y = sorted(x)
        return x + y[0]


class evaluates:
    breaks = {"GB0059"}

    def before(x):
        return eval("x * 2")


class makes_text_of_a_tensor:
    breaks = {"GB0569"}
    breaks_old = {"GB0059"}

    def before(x):
        text = str(x)
        return x * 2, text


class formats_a_tensor:
    breaks = {"GB0208"}

    def before(x):
        text = "%s" % x
        return x * 2, text


class asks_the_machine:
    breaks = {"GB0208"}

    def before(x):
        n = torch.get_num_threads()
        return x * n


class asks_a_storage:
    breaks = {"GB0156"}

    def before(x):
        return x * x.untyped_storage().nbytes()


class reads_the_state:
    breaks = {"GB0467"}
    breaks_old = {"GB0059"}

    def before(x):
        state = MODULE.state_dict()
        return x * len(state)


class interpolates_with_numpy:
    breaks = {"GB0294"}

    def before(x):
        y = np.interp(x.numpy(), [0.0, 4.0], [0.0, 4.0])
        return x + torch.from_numpy(y)


class saves_with_numpy:
    breaks = {"GB0294"}

    def before(x):
        np.save(os.path.join(FOLDER, "x.npy"), x.numpy())
        return x * 2


LIBRARY = torch.library.Library("advice_plain", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CPU")


class calls_an_operator_without_fake:
    breaks = {"GB0090"}

    def before(x):
        return torch.ops.advice_plain.twice(x) + 1

    register_fake = option('@torch.library.register_fake("advice_plain::twice")\ndef _(x):\n    return torch.empty_like(x)')


class sums_in_a_generator:
    breaks = {"GB0124", "GB8335"}

    def before(x):
        return x * sum(v.item() for v in x)


class ignores_warnings_inside:
    breaks = {"GB0007", "GB0092"}

    def before(x):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = x + 1
        return x


class raises:
    breaks = {"GB0088"}

    def before(x):
        if x.shape[0] == 3:
            raise ValueError("three")
        return x * 2


class Anything(type):
    def __instancecheck__(cls, instance):
        return True


class Everything(metaclass=Anything):
    pass


class checks_a_type:
    breaks = {"GB2736"}
    breaks_old = set()

    def before(x):
        return x * 2 if isinstance(x, Everything) else x


class identifies:
    breaks = {"GB0055"}
    breaks_old = {"GB0059"}
    shapes_only = True

    def before(x):
        return x * hash(x)


class loops_over_a_break:
    breaks = {"GB0025"}

    def before(x):
        for _ in range(3):
            x = x + 1
            torch._dynamo.graph_break()
        return x

    def graph_break_remove(x):
        for _ in range(3):
            x = x + 1
        return x


class asks_for_inference_mode:
    breaks = {"GB0045", "GB0046"}

    def before(x):
        if x.is_inference():
            x = x + 1
        if torch.is_inference_mode_enabled():
            x = x + 1
        return x * 2


class writes_into_a_tensor_of_another_shape:
    breaks = {"GB0247"}

    def before(x):
        y = torch.empty(2)
        torch.add(x, x, alpha=2, out=y)
        return y

    def out_result(x):
        y = torch.empty(2)
        y = torch.add(x, x, alpha=2)
        return y


class writes_into_a_part_of_a_tensor:
    breaks = {"GB0242"}

    def before(x):
        y = torch.zeros(3, 4)
        torch.mul(x, 2.0, out=y[:, 1])
        return y

    def inputs():
        return (torch.tensor([1.0, 2.0, 3.0]),)


class writes_into_slices_of_a_tensor:
    breaks = {"GB0242"}

    def inputs():
        return (torch.ones(3, 2),)

    def before(x):
        y = torch.zeros(3, 4)
        torch.mul(x, 2.0, out=y[:, :2])
        return y

    def out_assigned(x):
        y = torch.zeros(3, 4)
        y[:, :2] = torch.mul(x, 2.0)
        return y


class asserts_an_address:
    breaks = {"GB0088"}
    breaks_old = {"GB0059"}

    def before(x):
        assert x.data_ptr() % 16 in range(16), "misaligned"
        return x * 2
