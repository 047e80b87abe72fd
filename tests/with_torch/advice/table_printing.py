# ruff: noqa: C416, I001, RET504, E731, UP031
"""Cases of advice: prints, logging, warnings, clocks, progress bars. Run by `run_advice_cases.py`; read there how."""

import functools
import inspect
import io
import logging
import sys
import time
import warnings

import torch
from advice_cases import cure, option
from tqdm import tqdm

logger = logging.getLogger("cases")
loud = logging.getLogger("cases.loud")
loud.setLevel(logging.INFO)
loud.addHandler(logging.StreamHandler(io.StringIO()))


@functools.lru_cache(None)
def warning_once(self, text):
    self.warning(text)


logging.Logger.warning_once = warning_once
PRINT = "torch._dynamo.config.reorderable_logging_functions.add(print)"


class prints_a_constant:
    breaks = {"GB0059"}

    def before(x):
        x = x + 1
        print("a")
        return x * 2

    print_reorder = option(PRINT)


class prints_a_tensor:
    breaks = {"GB0059"}

    def before(x):
        x = x + 1
        print("sum", x.sum(), f"{x}")
        return x * 2

    print_reorder = option(PRINT)


class prints_in_an_inlined_function:
    """Said later, it would be lost: `test_what_an_inlined_function_says_later_is_lost`."""

    breaks = {"GB0059"}

    def before(x):
        def report(x):
            print("a")
            return x + 1

        return report(x) * 2

    def print_guard(x):
        def report(x):
            if not torch.compiler.is_compiling():
                print("a")
            return x + 1

        return report(x) * 2


class prints_a_shape:
    breaks = {"GB0059"}

    def before(x):
        x = x + 1
        print("shape", x.shape)
        return x * 2

    @cure(setup=PRINT)
    def print_format(x):
        x = x + 1
        print(f"shape {x.shape}")
        return x * 2


class prints_to_a_file:
    breaks = {"GB0059"}

    def before(x):
        x = x + 1
        print("a", file=sys.stdout)
        return x * 2

    def print_guard(x):
        x = x + 1
        if not torch.compiler.is_compiling():
            print("a", file=sys.stdout)
        return x * 2


class prints_in_a_try:
    breaks = {"GB0059"}

    def before(x):
        try:
            x = x + 1
            print("a")
        except ValueError:
            x = x - 1
        return x * 2

    def print_guard(x):
        try:
            x = x + 1
            if not torch.compiler.is_compiling():
                print("a")
        except ValueError:
            x = x - 1
        return x * 2


class prints_before_it_raises:
    """Said after the graph it would be lost: the graph does not come to its end. Without the break one graph has the exception as well."""

    breaks = {"GB0059"}

    def before(x):
        x = x + 1
        print("a")
        if x.dim() > 3:
            raise ValueError("rank")
        return x * 2


class prints_a_tensor_that_is_written_behind_it:
    breaks = {"GB0059"}

    def before(x):
        y = x + 1
        print("y", y)
        y.add_(1)
        return y * 2

    def print_guard(x):
        y = x + 1
        if not torch.compiler.is_compiling():
            print("y", y)
        y.add_(1)
        return y * 2


class prints_what_cannot_be_moved:
    """The first advice, taken without looking at the arguments, leads here."""

    breaks = {"GB0296"}
    setup = PRINT

    def before(x):
        x = x + 1
        print(x.shape)
        return x * 2

    @cure(setup=PRINT)
    def print_format(x):
        x = x + 1
        print(f"{x.shape}")
        return x * 2


class logs:
    breaks = {"GB0291"}

    def before(x):
        x = x + 1
        logger.info("step")
        return x * 2

    logger_reorder = option("torch._dynamo.config.reorderable_logging_functions.add(logging.Logger.info)", only="2.15")


class logs_a_shape:
    breaks = {"GB0291"}

    def before(x):
        x = x + 1
        logger.warning("shape %s", x.shape)
        return x * 2

    def logger_guard(x):
        x = x + 1
        if not torch.compiler.is_compiling():
            logger.warning("shape %s", x.shape)
        return x * 2


class logs_a_tensor:
    """The call of `info` that runs eager is compiled on its own, and Dynamo stops inside logging: the advice names `info` still."""

    breaks = {"GB0291", "GB0007", "GB9193"}
    breaks_old = {"GB0291", "GB0007"}

    def before(x):
        x = x + 1
        loud.info("sum %s", x.sum())
        return x * 2

    def logger_guard(x):
        x = x + 1
        if not torch.compiler.is_compiling():
            loud.info("sum %s", x.sum())
        return x * 2


class logs_by_a_method_of_its_own:
    """As transformers does with `warning_once`."""

    breaks = {"GB0291"}

    def before(x):
        x = x + 1
        logger.warning_once("odd")
        return x * 2

    logger_reorder = option("torch._dynamo.config.reorderable_logging_functions.add(logging.Logger.warning_once)", only="2.15")


class logs_to_the_root:
    breaks = {"GB4841"}
    breaks_old = {"GB0156"}

    def before(x):
        x = x + 1
        logging.info("step")
        return x * 2

    logging_reorder = option("torch._dynamo.config.reorderable_logging_functions.add(logging.info)")


class warns:
    breaks = {"GB0007"}

    def before(x):
        x = x + 1
        warnings.warn("odd")
        return x * 2

    warn_reorder = option("torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)")


class warns_with_a_category:
    breaks = {"GB0007"}

    def before(x):
        x = x + 1
        warnings.warn("odd", UserWarning, stacklevel=2)
        return x * 2

    def warn_guard(x):
        x = x + 1
        if not torch.compiler.is_compiling():
            warnings.warn("odd", UserWarning, stacklevel=2)
        return x * 2


class writes_to_stdout:
    breaks = {"GB0156"}

    def before(x):
        x = x + 1
        sys.stdout.write("a\n")
        return x * 2

    @cure(setup=PRINT)
    def write_print(x):
        x = x + 1
        print("a")
        return x * 2


class times_itself:
    breaks = {"GB9193"}
    breaks_old = {"GB0007"}
    shapes_only = True

    def before(x):
        start = time.time()
        x = x * 2
        return x, time.time() - start


class sleeps:
    breaks = {"GB0007"}

    def before(x):
        time.sleep(0)
        return x * 2


class shows_a_bar:
    breaks = {"GB0007", "GB0008"}

    def before(x):
        for _ in tqdm(range(2), disable=True):
            x = x + 1
        return x

    def tqdm_outside(x):
        for _ in range(2):
            x = x + 1
        return x


class looks_at_the_stack:
    breaks = {"GB0007"}

    def before(x):
        inspect.stack()
        return x * 2

    def frames_guard(x):
        if not torch.compiler.is_compiling():
            inspect.stack()
        return x * 2


class prints_the_time:
    breaks = {"GB9193", "GB0059"}
    breaks_old = {"GB0007", "GB0059"}

    def before(x):
        start = torch.ones(())
        y = x * 2
        print("took", time.time())
        return y + start
