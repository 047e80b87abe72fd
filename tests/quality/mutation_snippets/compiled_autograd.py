# compiled autograd: the second backward adds to the gradients of the first
# SEVERITY: S5_no_cudagraph
# INPUT: L['p'].grad by `f(*a).backward()`
import torch


def fn(p, x):
    return (p * x).sum()


def make():
    return (torch.nn.Parameter(torch.ones(4)), torch.ones(4))


def step(f, a):
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
        f(*a).backward()


CALLS = 2
