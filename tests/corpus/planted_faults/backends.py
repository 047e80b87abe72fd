"""Back ends that compile any graph wrongly, each in one way; a few are right in another way than eager."""

from __future__ import annotations

import torch


def outputs(change):
    """A back end that changes what the graph gives."""
    return lambda module, _: lambda *inputs: change(*module(*inputs))


def inputs(change):
    """A back end that changes what the graph gets."""
    return lambda module, _: lambda *given: module(*change(*given))


def first_output(change):
    """A back end that changes the first of what the graph gives."""
    return outputs(lambda first, *rest: (change(first), *rest))


def later(change):
    """Wrong from the second call of a compilation on."""

    def backend(module, _):
        calls = []
        return lambda *given: (calls.append(1), change(*module(*given)) if len(calls) > 1 else module(*given))[1]

    return backend


def lose_mutations(graph, _inputs):
    return lambda *args: graph(*[value.clone() if isinstance(value, torch.Tensor) and not value.requires_grad else value for value in args])


def change_dtype(graph, _inputs):
    return lambda *args: tuple(value.half() if _floating(value) else value for value in graph(*args))


def _floating(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def stale_output(graph, _inputs):
    kept = []

    def run(*args):
        outputs = graph(*args)
        if not kept:
            kept.append([value.detach().clone() if isinstance(value, torch.Tensor) else value for value in outputs])
        return tuple(kept[0])

    return run


def drop_gradient(graph, _inputs):
    def run(*args):
        last = max((at for at, value in enumerate(args) if isinstance(value, torch.Tensor) and value.requires_grad), default=None)
        return graph(*[value.detach() if at == last else value for at, value in enumerate(args)])

    return run


def slightly_off(graph, _inputs):
    return lambda *args: tuple(value * 1.001 if _floating(value) else value for value in graph(*args))


def half_precision_inside(graph, _inputs):
    return lambda *args: graph(*[_rounded(value) if _floating(value) else value for value in args])


def _rounded(value):
    return value + (value.detach().bfloat16().float() - value.detach())


def one_nan(graph, _inputs):
    def run(*args):
        outputs = []
        for value in graph(*args):
            if _floating(value) and value.numel() > 1:
                hole = torch.zeros_like(value)
                hole.view(-1)[0] = float("nan")
                value = value + hole
            outputs.append(value)
        return tuple(outputs)

    return run


def wrong_shape(graph, _inputs):
    return lambda *args: tuple(value[None] if _floating(value) else value for value in graph(*args))


def one_element_off(graph, _inputs):
    def run(*args):
        outputs = graph(*args)
        for value in outputs:
            if _floating(value) and value.numel() > 1:
                with torch.no_grad():
                    value.view(-1)[-1] += 1.0
        return outputs

    return run


def off_by_one_index(graph, _inputs):
    def run(*args):
        return tuple(value + 1 if isinstance(value, torch.Tensor) and not value.is_floating_point() else value for value in graph(*args))

    return run


def gradient_twice(graph, _inputs):
    return lambda *args: tuple(Twice.apply(value) if _floating(value) else value for value in graph(*args))


class Twice(torch.autograd.Function):
    """The identity, with a gradient that is twice too large."""

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def doubled(graph, _inputs):
    return lambda *args: tuple(value * 2 if _floating(value) else value for value in graph(*args))


def dropped(graph, _inputs):
    return lambda *args: tuple(value * 0 + 0 if _floating(value) else value for value in graph(*args))


def no_dropout(graph, _inputs):
    for node in graph.graph.nodes:
        if node.target is torch.nn.functional.dropout:
            node.replace_all_uses_with(node.args[0])
    graph.recompile()
    return graph


def second_call_wrong(graph, _inputs):
    calls = []

    def run(*args):
        calls.append(1)
        return tuple(value * 1.01 if _floating(value) and len(calls) == 2 else value for value in graph(*args))

    return run


def half_the_step(graph, _inputs):
    """What an optimizer adds with its learning rate is halved."""
    for node in graph.graph.nodes:
        if node.kwargs.get("alpha", 0) < 0:
            node.kwargs = {**node.kwargs, "alpha": node.kwargs["alpha"] / 2}
    graph.recompile()
    return graph


def other_rounding(graph, _inputs):
    """Sums that are off by 2e-6, as another order of summing may leave them."""

    def run(*args):
        return graph(*[value - 2e-6 if _floating(value) and value.shape == (16,) else value for value in args])

    return run


def other_strides(graph, _inputs):
    return lambda *args: tuple(value.t().contiguous().t() if _floating(value) and value.dim() == 2 else value for value in graph(*args))


def output_is_the_input(graph, _inputs):
    return lambda *args: (next(value for value in args if _floating(value)), *graph(*args)[1:])


def other_infinities(graph, _inputs):
    return lambda *args: tuple(torch.where(value.isinf(), -value, value) if _floating(value) else value for value in graph(*args))


def nan_for_infinity(graph, _inputs):
    return lambda *args: tuple(torch.where(value.isinf(), torch.nan, value) if _floating(value) else value for value in graph(*args))


def parameters_of_the_first_call(graph, _inputs):
    kept = []

    def run(*args):
        if not kept:
            kept.append([value.detach().clone() if isinstance(value, torch.nn.Parameter) else None for value in args])
        return graph(*[value if old is None else value + (old - value.detach()) for value, old in zip(args, kept[0], strict=True)])

    return run


def backward_of_ones(graph, _inputs):
    return lambda *args: tuple(_Ones.apply(value) if _floating(value) and value.requires_grad else value for value in graph(*args))


class _Ones(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.ones_like(gradient)


def one_by_one(graph, _inputs):
    """As right as C++ that adds up 2,048 numbers one after the other, where eager adds pairs."""
    return _with_running_means(graph, 0.0)


def means_a_little_off(graph, _inputs):
    return _with_running_means(graph, 1e-5)


def means_off(graph, _inputs):
    return _with_running_means(graph, 1e-4)


def _with_running_means(graph, off):
    def batch_norm(x, mean, *rest, **options):
        before = mean.clone()
        result = torch.nn.functional.batch_norm(x, mean, *rest, **options)
        values = x.detach().transpose(0, 1).flatten(1)
        total = values[:, 0].clone()
        for at in range(1, values.shape[1]):
            total += values[:, at]
        mean.data.copy_(0.9 * before + 0.1 * (total / values.shape[1] + off))
        return result

    for node in graph.graph.find_nodes(op="call_function", target=torch.nn.functional.batch_norm):
        node.target = batch_norm
    graph.recompile()
    return graph


def one_tensor(module, examples):
    """Wrong where Dynamo gives it one input for both."""
    return (lambda *given: [one + 1 for one in module(*given)]) if len(examples) == 1 else module


def separate(module, _):
    """As if inputs never overlapped: each is worked on in a copy, which is then written back."""

    def run(x, y):
        copies = [x.clone(), y.clone()]
        made = module(*copies)
        x.copy_(copies[0])
        return made

    return run


def together(module, examples):
    """As if inputs that overlapped at first always did."""
    shift = examples[1].storage_offset() - examples[0].storage_offset()
    shared = examples[0].untyped_storage().data_ptr() == examples[1].untyped_storage().data_ptr()

    def run(x, y):
        if not shared:
            return module(x, y)
        base = torch.zeros(4 + abs(shift))
        base[:4], base[abs(shift) :] = x, y
        made = module(base[:4], base[abs(shift) :])
        x.copy_(base[:4])
        return made

    return run
