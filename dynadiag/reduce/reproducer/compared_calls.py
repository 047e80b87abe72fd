"""The part of a reproducer that calls each compiled function in eager too, in a copy of the process, and compares: with torch alone."""

BEFORE = '''import math
import os
import pickle
import types

import torch

wrong_calls = []


class Compared:
    """A compiled function or module; each call is made in eager too, in a copy of the process."""

    def __init__(self, original, compiled):
        vars(self).update(original=original, compiled=compiled)

    def __call__(self, *args, **kwargs):
        reading, writing = os.pipe()
        copy = os.fork()
        if copy == 0:
            try:
                with os.fdopen(writing, "wb") as stream:
                    pickle.dump(outcome(self.original, args, kwargs)[2], stream)
            finally:
                os._exit(0)
        os.close(writing)
        result, error, compiled = outcome(self.compiled, args, kwargs)
        with os.fdopen(reading, "rb") as stream:
            eager = pickle.load(stream)
        os.waitpid(copy, 0)
        if not alike(eager, compiled):
            wrong_calls.append(f"{eager} in eager, {compiled} compiled")
        if error is not None:
            raise error
        return result

    def __get__(self, owner, kind=None):
        return self if owner is None else types.MethodType(self, owner)

    def __getattr__(self, name):
        return getattr(self.compiled, name)

    def __setattr__(self, name, value):
        setattr(self.compiled, name, value)


def outcome(function, args, kwargs):
    """The result, the exception, and as plain data what the call gave and how it left its arguments."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        return None, error, f"raised {type(error).__name__}"
    return result, None, described((result, args, kwargs))


def described(value):
    if isinstance(value, torch.Tensor):
        wide = torch.complex128 if value.is_complex() else torch.float64
        numbers = value.detach().to(wide).flatten().tolist()
        return [str(value.dtype), tuple(value.shape), "grad" if value.requires_grad else "", str(value.grad_fn is None), numbers]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(described, value)]
    if isinstance(value, dict):
        return ["dict", *(described(item) for pair in value.items() for item in pair)]
    return value if isinstance(value, (bool, int, float, str)) else type(value).__name__


def alike(one, other):
    """Whether both are the same but for rounding."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-2, abs_tol=1e-4) or (one != one and other != other)
    return one == other


compile_alone = torch.compile


def compile_compared(model=None, **options):
    if model is None:
        return lambda function: compile_compared(function, **options)
    return Compared(model, compile_alone(model, **options))


torch.compile = compile_compared'''
AFTER = """assert not wrong_calls, f"wrong call: {wrong_calls[0][:500]}\""""
