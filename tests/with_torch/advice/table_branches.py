# ruff: noqa: C416, E701, E702, I001, RET504, E731, SIM300, UP031
"""Cases of advice: branches, loops and assertions on data."""

import logging
import random

import torch

SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
PRINT = "torch._dynamo.config.reorderable_logging_functions.add(print)"
LOSSES = []
logger = logging.getLogger("cases")


def leaf():
    return (torch.tensor([1.0, 2.0, 3.0], requires_grad=True),)


class branches_on_data:
    breaks = {"GB0170"}

    def before(x):
        if x.sum() > 0:
            x = x + 1
        return x * 2

    def if_where(x):
        x = torch.where(x.sum() > 0, x + 1, x)
        return x * 2


class branches_to_divide:
    """No gradient flows: the division that is not chosen can be by zero."""

    breaks = {"GB0170"}

    def before(x):
        n = x.norm()
        if n > 1.0:
            x = x / n
        return x * 2

    def if_where(x):
        n = x.norm()
        x = torch.where(n > 1.0, x / n, x)
        return x * 2


class branches_to_divide_what_is_trained:
    breaks = {"GB0170"}
    inputs = leaf

    def before(x):
        n = x.norm()
        if n > 1.0:
            x = x / n
        return x * 2


class branches_to_call:
    breaks = {"GB0170"}

    def before(x):
        if x.sum() > 0:
            x = torch.sin(x)
        return x * 2

    def if_where(x):
        x = torch.where(x.sum() > 0, torch.sin(x), x)
        return x * 2


class branches_on_one_line:
    breaks = {"GB0170"}

    def before(x):
        y = x * 2
        if x.max() > 2.5:
            y = y + 1
        return y

    def if_where(x):
        y = x * 2
        y = torch.where(x.max() > 2.5, y + 1, y)
        return y


class branches_on_a_count_on_one_line:
    breaks = {"GB0170"}

    def before(x):
        y, z = x * 2, x
        if (x > 2).sum():
            y += x - 1
            z = -x  # two tensors
        return y, z


class branches_between_limits:
    breaks = {"GB0170"}

    def before(x):
        y = x * 2 if 0 < x.sum() < 10 else x
        return y + 1

    def if_where(x):
        y = torch.where(torch.logical_and(0 < x.sum(), x.sum() < 10), x * 2, x)
        return y + 1


class raises_on_one_line:
    breaks = {"GB0170"}

    def before(x):
        if x.isnan().any():
            raise ValueError("nan")
        return x * 2

    def if_check(x):
        torch._assert_async(torch.logical_not(x.isnan().any()), "nan")
        return x * 2


class branches_also_on_a_flag:
    breaks = {"GB0170"}

    def inputs():
        return torch.tensor([1.0, 2.0, 3.0]), True

    def before(x, flag):
        if flag and x.sum() > 0:
            x = x + 1
        return x * 2


class branches_to_print:
    breaks = {"GB0170"}

    def before(x):
        y = x * 2
        if y.sum() > 100:
            print("large")
        return y

    def branch_guard(x):
        y = x * 2
        if not torch.compiler.is_compiling() and y.sum() > 100:
            print("large")
        return y


class leaves_a_layer_out_at_random:
    breaks = {"GB0170"}
    breaks_old = {"GB0213"}

    def inputs():
        return torch.ones(3), True

    def before(x, training):
        if training and random.uniform(0, 1) < 0.0:
            return x
        return x * 2


class branches_with_gradients:
    breaks = {"GB0170"}
    grads = True
    inputs = leaf

    def before(x):
        y = x * 2
        if not (x > 0).all() and x.sum() > 0:
            y = y + 1
        return y * x

    def if_where(x):
        y = x * 2
        y = torch.where(torch.logical_and(torch.logical_not((x > 0).all()), x.sum() > 0), y + 1, y)
        return y * x


class branches_on_an_item:
    breaks = {"GB0124"}

    def before(x):
        if x.sum().item() > 0:
            x = x + 1
        return x * 2

    def if_where(x):
        x = torch.where(x.sum() > 0, x + 1, x)
        return x * 2


class chooses_on_data:
    breaks = {"GB0170"}

    def before(x):
        y = x + 1 if x.sum() > 0 else x - 1
        return y * 2

    def if_where(x):
        y = torch.where(x.sum() > 0, x + 1, x - 1)
        return y * 2


class raises_on_nan:
    breaks = {"GB0170"}

    def before(x):
        if torch.isnan(x).any():
            raise ValueError("nan")
        return x * 2

    def if_check(x):
        torch._assert_async(torch.logical_not(torch.isnan(x).any()), "nan")
        return x * 2


class loops_on_data:
    breaks = {"GB0170"}

    def before(x):
        while x.sum() < 10:
            x = x + 1
        return x


class asserts_with_a_text_of_values:
    breaks = {"GB0170"}

    def before(x):
        x = x + 1
        assert x.sum() > 0, f"sum is {x.sum()}"
        return x * 2

    def assert_constant(x):
        x = x + 1
        assert x.sum() > 0, "assertion failed"
        return x * 2


class asserts_a_negation:
    breaks = {"GB0170"}

    def before(x):
        assert not torch.isnan(x).any(), "nan"
        return x * 2

    def assert_constant(x):
        assert torch.logical_not(torch.isnan(x).any()), "nan"
        return x * 2


class asks_any:
    breaks = {"GB0170", "GB8335"}

    def before(x):
        return x * 2 if any(v > 2 for v in x) else x


class raises_on_two_lines:
    breaks = {"GB0170"}

    def before(x):
        if x.isnan().any():
            raise ValueError("nan")
        return x * 2

    def if_check(x):
        torch._assert_async(torch.logical_not(x.isnan().any()), "nan")
        return x * 2


class raises_with_a_computed_message:
    breaks = {"GB0170"}

    def before(x):
        if x.isnan().any():
            raise ValueError(f"nan in {x.shape}")
        return x * 2


class returns_one_of_two:
    breaks = {"GB0170"}

    def before(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    def if_return_where(x):
        return torch.where(x.sum() > 0, x + 1, x - 1)


class returns_early:
    breaks = {"GB0170"}

    def before(x):
        if x.sum() > 100:
            return x, None
        y = x * 2
        return y, y


class returns_one_of_two_by_a_number:
    breaks = {"GB0170"}

    def inputs():
        return torch.tensor([1.0, 2.0, 3.0]), 2

    def before(x, n):
        if x.sum() > n:
            return x + 1
        return x - 1

    def if_return_where(x, n):
        return torch.where(x.sum() > n, x + 1, x - 1)


class scales_what_is_new_by_an_item:
    """What comes behind may write into it: nobody else has that tensor."""

    breaks = {"GB0124"}

    def before(x):
        h = torch.relu(x)
        if h.abs().mean().item() > 0.1:
            h = h * 2
        return h

    def if_where(x):
        h = torch.relu(x)
        h = torch.where(h.abs().mean() > 0.1, h * 2, h)
        return h


class sets_on_both_sides:
    breaks = {"GB0170"}

    def before(x):
        if x.mean() > 0:
            y = x * 2
        else:
            y = x / 2
        return y

    def if_where(x):
        y = torch.where(x.mean() > 0, x * 2, x / 2)
        return y


class sets_what_the_condition_reads:
    breaks = {"GB0170"}

    def before(x):
        y = x
        if x.sum() > 3:
            x = x - 3
            y = x * 2
        return y + 1

    def if_where(x):
        y = x
        taken = x.sum() > 3
        x_if_true = x - 3
        y_if_true = x_if_true * 2
        y = torch.where(taken, y_if_true, y)
        return y + 1


class returns_what_it_was_given:
    """The caller may write into it."""

    breaks = {"GB0170"}

    def before(x):
        if x.sum() > 3:
            x = x - 3
        return x


class leaves_a_loop:
    breaks = {"GB0170"}

    def before(x):
        for _ in range(4):
            x = x * 2
            if x.max() > 10:
                break
        return x


class raises_in_a_loop_that_it_leaves:
    """A check for the first line would leave the second, and the function eager."""

    breaks = {"GB0170"}

    def before(x):
        for _ in range(4):
            x = x * 2
            if x.isnan().any():
                raise ValueError("nan")
            if x.max() > 10:
                break
        return x


class skips_in_a_loop:
    breaks = {"GB0170"}

    def before(x):
        out = torch.zeros(3)
        for limit in (0.0, 2.0, 5.0):
            mask = (x > limit).float()
            if mask.sum() == 0:
                continue
            out = out + mask * x
        return out


class branches_to_write:
    breaks = {"GB0170"}

    def before(x):
        y = x.clone()
        if x.sum() > 0:
            y.add_(1)
        return y


class reads_a_number_that_decides_the_next_line:
    breaks = {"GB0124"}

    def before(x):
        count = (x > 1).sum().item()
        if count > 1:
            x = x + count
        return x
