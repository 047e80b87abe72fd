# ruff: noqa: C416, E701, E702, I001, RET504, E731, SIM300, UP031
"""Cases of advice: values read out of tensors."""

import logging
import math

import torch
from advice_cases import cure, option

SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
PRINT = "torch._dynamo.config.reorderable_logging_functions.add(print)"
LOSSES = []
logger = logging.getLogger("cases")


def leaf():
    return (torch.tensor([1.0, 2.0, 3.0], requires_grad=True),)


class reads_a_scalar:
    breaks = {"GB0124"}

    def before(x):
        return x * x.sum().item()

    def item_keep_tensor(x):
        return x * x.sum().detach()


class reads_a_detached_scalar:
    breaks = {"GB0124"}
    grads = True
    inputs = leaf

    def before(x):
        scale = x.detach().sum().item()
        return x * scale

    def item_keep_tensor(x):
        scale = x.detach().sum()
        return x * scale


class casts_to_float:
    breaks = {"GB0124"}

    def before(x):
        return x * float(x.sum())

    def item_keep_tensor(x):
        return x * x.sum().detach()


class casts_to_int:
    breaks = {"GB0124"}

    def before(x):
        n = int(x.sum())
        return x * n

    item_capture = option(SCALARS)


class casts_to_bool:
    breaks = {"GB0124"}

    def before(x):
        positive = bool(x.sum() > 0)
        return x * 2 if positive else x


class lists_scalars:
    breaks = {"GB0124"}

    def before(x):
        y = [v.item() for v in x]
        return x * y[0]


class collects_scalars:
    breaks = {"GB0124"}
    breaks_old = {"GB0124", "GB0007"}

    def before(x):
        LOSSES.append(x.sum().item())
        return x * 2


class reads_two_scalars:
    breaks = {"GB0124"}

    def before(x):
        return x * x.sum().item(), float(x.mean().item()), x.max().item()  # three reads

    item_capture = option(SCALARS)


class names_a_size:
    breaks = {"GB0124"}

    def inputs():
        return torch.arange(4.0), torch.tensor([0, 1, 1, 2])

    def before(x, segments):
        n = segments.max().item() + 1
        return torch.zeros(n).scatter_add(0, segments, x)

    item_capture = option(SCALARS)


class looks_a_place_up:
    breaks = {"GB0036", "GB0124"}

    def inputs():
        return torch.arange(5.0), torch.tensor(3.0)

    def before(x, t):
        i = (x == t).nonzero()[0].item()
        return x * x[i]


class writes_into_a_cache:
    """torch 2.15 captures both bounds, 2.11 cannot."""

    breaks = {"GB0124"}

    def inputs():
        return torch.zeros(5), torch.tensor([1.0, 2.0]), torch.tensor(2)

    def before(cache, x, start):
        end = start + x.shape[0]
        cache[start:end] = x
        return cache * 2


class counts_labels:
    breaks = {"GB0036"}

    def inputs():
        return (torch.tensor([0, 2, 2]),)

    def before(x):
        counts = torch.bincount(x, minlength=3)
        return counts * 2

    shape_capture = option(SHAPES)


class logs_a_scalar:
    breaks = {"GB0124", "GB0291"}
    breaks_old = {"GB0124", "GB0291"}

    def before(x):
        x = x + 1
        logger.info("sum %f", x.sum().item())
        return x * 2

    def logger_guard(x):
        x = x + 1
        if not torch.compiler.is_compiling():
            logger.info("sum %f", x.sum().item())
        return x * 2


class branches_on_a_list:
    breaks = {"GB0170"}

    def inputs():
        return torch.arange(3.0), torch.tensor(2)

    def before(x, token):
        if token in [1, 2]:
            x = x + 1
        return x * 2


class adds_up_a_scalar:
    breaks = {"GB0124"}

    def before(x):
        total = 0.0
        total += x.sum().item()
        return x * 2, total


class reads_a_scalar_with_gradients:
    """A number carries no gradient: the tensor in its place must not either."""

    breaks = {"GB0124"}
    grads = True
    inputs = leaf

    def before(x):
        return x * x.sum().item()

    def item_keep_tensor(x):
        return x * x.sum().detach()


class formats_a_scalar:
    breaks = {"GB0124", "GB0059"}

    def before(x):
        print(f"loss {x.sum().item():.4f}", x.mean().item())
        return x * 2

    @cure(setup=PRINT)
    def item_print(x):
        print(f"loss {x.sum():.4f}", f"{x.mean()}")
        return x * 2


class prints_a_scalar:
    breaks = {"GB0124", "GB0059"}

    def before(x):
        print("sum", x.sum().item())
        return x * 2

    @cure(setup=PRINT)
    def item_print(x):
        print("sum", f"{x.sum()}")
        return x * 2


class computes_with_math:
    breaks = {"GB0124"}

    def before(x):
        return x * math.sqrt(x.pow(2).sum().item())

    def item_math(x):
        return x * torch.sqrt(x.pow(2).sum().detach())


class takes_a_logarithm_that_may_raise:
    breaks = {"GB0124"}

    def before(x):
        return x * math.log(x.sum().item())


class passes_a_tensor_to_math:
    breaks = {"GB0033"}

    def before(x):
        return x * math.sqrt(x.norm())

    def item_math(x):
        return x * torch.sqrt(x.norm().detach())


class computes_with_a_captured_scalar:
    """The option of the other advice is on; what then cannot be known has no id."""

    breaks = {"none"}
    setup = SCALARS

    def before(x):
        return x * math.sqrt(x.sum())


class sizes_by_data:
    breaks = {"GB0124"}

    def before(x):
        return torch.zeros(int(x.max().item()) + 1)

    item_capture = option(SCALARS)


class cuts_off_the_padding:
    breaks = {"GB0124"}

    def inputs():
        return torch.arange(6.0).reshape(2, 3), torch.tensor([1, 2])

    def before(x, lengths):
        longest = lengths.max().item()
        x = x[:, :longest]
        mask = torch.arange(longest)[None] < lengths[:, None]
        return x.masked_fill(~mask, 0.0).sum(1)

    item_capture = option(SCALARS)


class indexes_by_data:
    breaks = {"GB0124"}

    def before(x):
        return x[x.argmax().item()]


class slices_by_data:
    breaks = {"GB0124"}

    def inputs():
        return torch.arange(5.0), torch.tensor(2)

    def before(x, n):
        return x[:n] * 2


class repeats_by_data:
    breaks = {"GB0124"}
    breaks_old = {"GB0059"}

    def inputs():
        return torch.arange(5.0), torch.tensor(2)

    def before(x, n):
        for _ in range(n):
            x = x + 1
        return x


class looks_up_by_tensor:
    breaks = {"GB0124"}
    breaks_old = {"GB0070"}

    def inputs():
        return torch.arange(5.0), torch.tensor(2)

    def before(x, n):
        table = [1, 2, 3]
        return x * table[n]


class computes_with_math_on_a_part_of_a_sum:
    breaks = {"GB0124"}

    def before(x):
        scale = 0.5 * (1 + math.cos(math.pi * x.sum().item() / 10))
        return x * scale

    def item_math(x):
        scale = 0.5 * (1 + torch.cos(math.pi * x.sum().detach() / 10))
        return x * scale


table = torch.linspace(0.1, 0.9, 10)


class indexes_with_a_tensor_without_dimensions:
    breaks = {"GB0219"}
    backend = "aot_eager"

    def inputs():
        return torch.ones(3), torch.tensor(4)

    def before(x, step):
        alpha = table[step]
        return x * alpha

    def index_with_dimension(x, step):
        alpha = table[step.view(1)][0]
        return x * alpha

    index_capture = option("torch._dynamo.config.capture_scalar_outputs = True", only="2.15")
