"""Numbers that the program needs as numbers: what to do with the read instead of keeping a tensor."""

import torch


def tensor_and_number():
    return (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 3, 2]))


SEEN = {7}


class returns_a_number:
    breaks = {"GB0124"}

    def before(x):
        return x * 2, x.sum().item()


class collects_numbers:
    breaks = {"GB0033"}
    inputs = tensor_and_number

    def before(x, ids):
        for i in set(ids.tolist()):
            x = x + i
        return x * 2


class asks_a_container:
    breaks = {"GB0124"}
    inputs = tensor_and_number

    def before(x, ids):
        y = x * 2
        if int(ids[0]) not in SEEN:
            y = y + 1
        return y
