# ruff: noqa: C416, I001, RET504, E731, UP031
"""Cases of advice: autograd, optimizers, hooks, random state, modules and special tensors."""

import torch
from advice_cases import drives, option
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

IN_PLACE = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)


def model_and_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1), torch.ones(2, 3)


def weight():
    return torch.tensor([1.0, 2.0, 3.0]), torch.ones(3, requires_grad=True)


class whole_train_step:
    """AdamW computes with a tensor for its step count when compiled (`capturable`), so the last digits differ."""

    breaks = {"GB0008", "GB0123", "GB0025"}
    inputs = model_and_optimizer
    tolerance = 1e-4

    def before(model, opt, x):
        opt.zero_grad()
        loss = model(x).sum()
        loss.backward()
        opt.step()
        return loss.detach(), [p.detach().clone() for p in model.parameters()]

    @drives
    def compile_model_apart(compiled, model, opt, x):
        if IN_PLACE:
            model.compile()
        else:
            compiled_model = torch.compile(model)
        assert "0.weight" in model.state_dict() and len(model[0].weight)  # not with `model = torch.compile(model)`: two programs ended
        opt.zero_grad()
        loss = (model if IN_PLACE else compiled_model)(x).sum()
        loss.backward()
        opt.step()
        return loss.detach(), [p.detach().clone() for p in model.parameters()]


class compiles_the_optimizers_step_alone:
    """As we advise. torch breaks once there by itself, and we say that this is well."""

    breaks = {"GB0025"}
    inputs = model_and_optimizer
    tolerance = 1e-4

    @drives
    def before(compiled, model, opt, x):
        step = compiled(opt.step)
        model(x).sum().backward()
        step()
        return [p.detach().clone() for p in model.parameters()]


class backward_inside:
    breaks = {"GB0123"}
    inputs = weight

    def before(x, w):
        loss = (x * w).sum()
        loss.backward()
        return loss.detach(), w.grad


class autograd_backward_inside:
    breaks = {"GB0007"}
    inputs = weight

    def before(x, w):
        loss = (x * w).sum()
        torch.autograd.backward(loss)
        return loss.detach(), w.grad


class gradient_inside:
    breaks = {"GB9186"}
    inputs = weight

    def before(x, w):
        loss = (x * w * w).sum()
        grad = torch.autograd.grad(loss, w)[0]
        return grad * 2

    trace_grad = option("torch._dynamo.config.trace_autograd_ops = True")


class gradient_penalty:
    breaks = {"GB9186"}
    inputs = weight

    def before(x, w):
        loss = (x * w * w).sum()
        grad = torch.autograd.grad(loss, w, create_graph=True)[0]
        return (grad * grad).sum() + loss

    trace_grad = option("torch._dynamo.config.trace_autograd_ops = True")


class gradient_of_a_gradient:
    breaks = {"GB9186"}
    inputs = weight

    def before(x, w):
        loss = (x * w * w).sum()
        grad = torch.autograd.grad(loss, w, create_graph=True)[0]
        return (grad * 2).detach()

    trace_grad = option("torch._dynamo.config.trace_autograd_ops = True")


class scheduler_inside:
    breaks = {"GB0008"}

    def inputs():
        model, opt, x = model_and_optimizer()
        opt.step()
        return x, torch.optim.lr_scheduler.StepLR(opt, 1)

    def before(x, scheduler):
        scheduler.step()
        return x * 2


class sets_requires_grad:
    breaks = {"GB8985"}
    breaks_old = {"GB0125"}

    def before(x):
        y = x + 1
        y.requires_grad_()
        return y * 2


class sets_requires_grad_of_input:
    breaks = {"GB0125"}

    def before(x):
        x.requires_grad_()
        return x * 2


class assigns_requires_grad:
    breaks = {"GB8985"}
    breaks_old = {"GB0206"}

    def before(x):
        y = x + 1
        y.requires_grad = True
        return y * 2


class makes_a_leaf:
    breaks = {"GB0225"}

    def before(x):
        z = torch.zeros(3, requires_grad=True)
        return z + x


class makes_a_parameter:
    breaks = {"GB0264"}

    def before(x):
        p = torch.nn.Parameter(torch.ones(3))
        return x * p


class retains_grad:
    breaks = {"GB0108"}
    inputs = weight

    def before(x, w):
        y = x * w
        y.retain_grad()
        return y * 2


class asks_grad_fn:
    breaks = {"GB0104"}
    inputs = weight

    def before(x, w):
        y = x * w
        return y * 2 if y.grad_fn is not None else y


class registers_a_hook:
    breaks = {"GB0467", "GB0013"}
    breaks_old = {"GB0059", "GB0013"}

    def inputs():
        torch.manual_seed(0)
        return torch.nn.Linear(3, 3), torch.ones(3)

    def before(module, x):
        handle = module.register_forward_hook(lambda module, args, output: output * 2)
        y = module(x)
        handle.remove()
        return y


class Hooked(torch.nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        if y.requires_grad:
            y.register_hook(lambda grad: None)
        return y


class has_a_backward_hook:
    breaks = {"GB0083"}

    def inputs():
        torch.manual_seed(0)
        module = Hooked(3, 3)
        torch.manual_seed(0)
        plain = torch.nn.Linear(3, 3)
        plain.register_full_backward_hook(lambda module, grad_input, grad_output: None)
        return plain, module, torch.ones(3)

    def before(plain, module, x):
        return plain(x)


class seeds:
    breaks = {"GB0007"}

    def before(x):
        torch.manual_seed(3)
        return x * 2


class saves_random_state:
    breaks = {"GB0007"}
    shapes_only = True

    def before(x):
        state = torch.get_rng_state()
        y = x + torch.rand(3)
        torch.set_rng_state(state)
        return y


class uses_a_generator:
    breaks = {"GB0055"}

    def inputs():
        return torch.ones(3), torch.Generator().manual_seed(1)

    def before(x, generator):
        noise = torch.rand(3, generator=generator)
        return x + noise


class makes_a_generator:
    breaks = {"GB0363", "GB7650", "GB0055"}
    breaks_old = {"GB0007", "GB0156", "GB0055"}

    def before(x):
        generator = torch.Generator()
        generator.manual_seed(1)
        return x + torch.rand(3, generator=generator)


class runs_an_lstm:
    breaks = {"GB0148"}
    breaks_old = {"GB0014"}

    def inputs():
        torch.manual_seed(0)
        return torch.nn.LSTM(3, 3), torch.ones(2, 1, 3)

    def before(lstm, x):
        return lstm(x + 1)[0] * 2

    rnn_allow = option("torch._dynamo.config.allow_rnn = True")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class DoubledAside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def halves(g):
    g.mul_(0.5)


class a_hook_writes_the_gradient:
    breaks = {"GB0041"}
    breaks_old = set()
    grads = True

    def inputs():
        return (torch.tensor([1.0, 2.0, 3.0], requires_grad=True),)

    def before(x):
        y = x * 2
        y.register_hook(halves)
        return y * y


class marks_dirty:
    breaks = {"GB2019", "GB0092"}
    breaks_old = set()

    def before(x):
        return Doubled.apply(x.clone())


LSTM = torch.nn.LSTM(3, 3, batch_first=True)


class packs_sequences:
    breaks = {"GB0007"}

    def inputs():
        return torch.ones(2, 4, 3), torch.tensor([4, 2])

    def before(x, lengths):
        x = x * 2
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        states, _ = LSTM(packed)
        states, _ = pad_packed_sequence(states, batch_first=True)
        return states * 2
