# ruff: noqa: C416, I001, RET504, E731, UP031
"""Cases of advice: values read out of tensors, branches and loops on data, shapes that depend on data."""

import math

import torch
from advice_cases import cure, drives, option

SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
PRINT = "torch._dynamo.config.reorderable_logging_functions.add(print)"
LOSSES = []


def leaf():
    return (torch.tensor([1.0, 2.0, 3.0], requires_grad=True),)


class reads_a_scalar:
    breaks = {"GB0124"}

    def before(x):
        return x * x.sum().item()

    def item_keep_tensor(x):
        return x * x.sum()

    item_capture = option(SCALARS)


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

    item_capture = option(SCALARS)


class casts_to_float:
    breaks = {"GB0124"}

    def before(x):
        return x * float(x.sum())

    def item_keep_tensor(x):
        return x * x.sum()

    item_capture = option(SCALARS)


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

    def bool_where(x):
        return torch.where((x.sum() > 0), x * 2, x)


class lists_scalars:
    breaks = {"GB0124"}

    def before(x):
        y = [v.item() for v in x]
        return x * y[0]

    def item_keep_tensor(x):
        y = [v for v in x]
        return x * y[0]

    item_capture = option(SCALARS)


class collects_scalars:
    breaks = {"GB0124"}
    breaks_old = {"GB0124", "GB0007"}

    def before(x):
        LOSSES.append(x.sum().item())
        return x * 2

    def item_append(x):
        LOSSES.append(x.sum().detach())
        return x * 2

    item_capture = option(SCALARS)


class prints_a_scalar:
    breaks = {"GB0124", "GB0059"}

    def before(x):
        print("sum", x.sum().item())
        return x * 2

    @cure(setup=PRINT)
    def item_print(x):
        print("sum", x.sum())
        return x * 2


class computes_with_math:
    breaks = {"GB0124"}

    def before(x):
        return x * math.sqrt(x.sum().item())

    def item_math(x):
        return x * torch.sqrt(x.sum())

    item_capture = option(SCALARS)


class passes_a_tensor_to_math:
    breaks = {"GB0033"}

    def before(x):
        return x * math.sqrt(x.sum())

    def item_math(x):
        return x * torch.sqrt(x.sum())


class computes_with_a_captured_scalar:
    """The option of the other advice is on; what then cannot be known has no id."""

    breaks = {"none"}
    setup = SCALARS

    def before(x):
        return x * math.sqrt(x.sum())

    @cure(setup=SCALARS)
    def unbacked_check(x):
        return x * torch.sqrt(x.sum())


class sizes_by_data:
    breaks = {"GB0124"}

    def before(x):
        return torch.zeros(int(x.max().item()) + 1)

    item_capture = option(SCALARS)


class indexes_by_data:
    breaks = {"GB0124"}

    def before(x):
        return x[x.argmax().item()]

    def item_index_select(x):
        return x.index_select(0, x.argmax().reshape(1)).squeeze(0)


class slices_by_data:
    breaks = {"GB0124"}

    def inputs():
        return torch.arange(5.0), torch.tensor(2)

    def before(x, n):
        return x[:n] * 2

    item_capture = option(SCALARS)


class repeats_by_data:
    breaks = {"GB0124"}
    breaks_old = {"GB0059"}

    def inputs():
        return torch.arange(5.0), torch.tensor(2)

    def before(x, n):
        for _ in range(n):
            x = x + 1
        return x

    @drives
    def number_outside(compiled, x, n):
        @compiled
        def repeat(x, n):
            for _ in range(n):
                x = x + 1
            return x

        return repeat(x, int(n))


class looks_up_by_tensor:
    breaks = {"GB0124"}
    breaks_old = {"GB0070"}

    def inputs():
        return torch.arange(5.0), torch.tensor(2)

    def before(x, n):
        table = [1, 2, 3]
        return x * table[n]

    def list_to_tensor(x, n):
        table = [1, 2, 3]
        return x * torch.as_tensor(table)[n]

    item_capture = option(SCALARS, only="2.15")


class branches_on_data:
    breaks = {"GB0170"}

    def before(x):
        if x.sum() > 0:
            x = x + 1
        return x * 2

    def if_where(x):
        x = torch.where(x.sum() > 0, x + 1, x)
        return x * 2

    def if_cond(x):
        x = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x.clone(), (x,))
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

    @drives
    def while_body(compiled, x):
        @compiled
        def body(x):
            return x + 1

        while x.sum() < 10:
            x = body(x)
        return x

    def while_op(x):
        return torch._higher_order_ops.while_loop(lambda x: x.sum() < 10, lambda x: (x + 1,), (x,))[0]


class asserts_with_a_text_of_values:
    breaks = {"GB0170"}

    def before(x):
        x = x + 1
        assert x.sum() > 0, f"sum is {x.sum()}"
        return x * 2

    def assert_constant(x):
        x = x + 1
        assert x.sum() > 0, "sum is not positive"
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

    def any_tensor(x):
        return torch.where((x > 2).any(), x * 2, x)
