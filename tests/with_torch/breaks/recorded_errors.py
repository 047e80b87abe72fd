"""Breaks and errors that reach the program without `fullgraph=True`, and a frame that is skipped while logging is off."""

import logging
import sys

import torch


@torch.library.custom_op("dynadiag_test::no_fake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def forbidden(x):
    with torch._dynamo.error_on_graph_break(True):
        print("never")  # raises: forbidden
    return x + 1


def in_branch(x):
    print("never")  # raises: in_branch
    return x + 1


def with_cond(x):
    return torch.cond(x.sum() > 0, in_branch, lambda y: y - 1, (x,))


def with_no_fake(x):
    y = x + 1
    return no_fake(y) + 1  # raises: no_fake


def silent(x):
    for _ in range(2):
        x = x + 1
        torch._dynamo.graph_break()  # skips: silent
    return x


def refused(x):  # raises: refused
    y = x.cos() + 1
    torch._dynamo.graph_break()  # breaks: refused
    return y.sin()


def picky(graph, inputs):
    raise NotImplementedError("no kernel for cos")


def run(function, backend="eager"):
    try:
        torch.compile(function, backend=backend)(torch.ones(3))
    except Exception as error:
        print("raised", function.__name__, type(error).__name__, file=sys.stderr)


def main():
    for function in (forbidden, with_cond, with_no_fake):
        run(function)
    run(refused, picky)
    logging.disable(logging.CRITICAL)
    run(silent)


if __name__ == "__main__":
    main()
