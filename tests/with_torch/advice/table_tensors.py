# ruff: noqa: C416, I001, RET504, E731, UP031
"""Cases of advice: copies, changes in place, and special kinds of tensors and modules."""

import copy
import dataclasses

import torch


def weight():
    return torch.tensor([1.0, 2.0, 3.0]), torch.ones(3, requires_grad=True)


class copies_deeply:
    breaks = {"GB4198"}
    breaks_old = {"GB0179"}

    def before(x):
        y = copy.deepcopy(x)
        return y * 2

    def copy_clone(x):
        y = x.clone()
        return y * 2


class copies:
    breaks = {"GB0208"}
    breaks_old = {"GB0007"}

    def before(x):
        y = copy.copy(x)
        return y * 2


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: int = 2


class turns_a_dataclass_into_a_dict:
    breaks = {"GB4198"}
    breaks_old = {"GB0179"}

    def before(x):
        d = dataclasses.asdict(Pair(x))
        return d["a"] * d["b"]


class assigns_data:
    breaks = {"GB0056"}

    def before(x):
        y = torch.ones(3)
        y.data = x
        return y * 2


class resizes:
    breaks = {"GB0126"}

    def before(x):
        y = x.clone()
        y.resize_(2)
        return y * 2


class draws_in_place:
    breaks = {"GB0107"}
    shapes_only = True

    def before(x):
        y = torch.empty(3, dtype=torch.long)
        y.random_(0, 5)
        return x + y


class takes_a_sparse_tensor:
    breaks = {"GB0015"}

    def inputs():
        return torch.eye(3).to_sparse(), torch.ones(3, 3)

    def before(s, x):
        y = torch.sparse.mm(s, x)
        return y * 2


class nests_tensors:
    breaks = {"GB0090", "GB0016"}

    def before(x):
        n = torch.nested.nested_tensor([x, x])
        return (n * 2).values()


class runs_a_script:
    breaks = {"GB4695"}
    breaks_old = {"GB0357"}

    def inputs():
        torch.manual_seed(0)
        module = torch.nn.Linear(3, 3)
        return module, torch.jit.script(module), torch.ones(3)

    def before(module, scripted, x):
        return scripted(x)


class packs_a_sequence:
    breaks = {"GB0007"}

    def inputs():
        return torch.ones(2, 1, 3), torch.tensor([2])

    def before(x, lengths):
        p = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
        return p.data * 2


class shares_memory:
    breaks = {"GB4197"}
    breaks_old = {"GB0117"}

    def before(x):
        x.share_memory_()
        return x * 2


class makes_an_optimizer:
    breaks = {"GB0008"}
    inputs = weight

    def before(x, w):
        opt = torch.optim.SGD([w], lr=0.1)
        opt.zero_grad()
        return x * w


class detects_anomalies:
    breaks = {"GB0008"}
    breaks_old = {"GB0008", "GB0142"}

    def before(x):
        with torch.autograd.set_detect_anomaly(True):
            x = x + 1
        return x


class turns_an_input_in_place:
    breaks = {"GB0148"}

    def inputs():
        return (torch.ones(2, 3),)

    def before(x):
        y = x * 2
        x.t_()
        return x @ y


class copies_a_module:
    breaks = {"GB4198"}
    breaks_old = {"GB0179"}

    def inputs():
        return torch.nn.Linear(2, 2), torch.ones(2, 2)

    def before(net, x):
        y = net(x)
        other = copy.deepcopy(net)
        return y + other.weight
