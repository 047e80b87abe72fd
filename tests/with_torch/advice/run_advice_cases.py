"""Child process: runs a table of cases under the recorder and writes what happened as JSON. Arguments: table, run directory, answer."""

import contextlib
import importlib
import inspect
import io
import itertools
import json
import logging
import random
import sys
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import numpy
import torch
from advice_cases import Cure, cures_of, one_tensor

import dynadiag
from dynadiag.torch_compat.dynamo.guard_timing import check_guards_untimed

CONFIG = torch._dynamo.config
PATCHED = {
    "reorderable_logging_functions": set,
    "ignore_logging_functions": set,
    "capture_scalar_outputs": bool,
    "capture_dynamic_output_shape_ops": bool,
    "trace_autograd_ops": bool,
    "allow_rnn": bool,
    "trace_numpy": lambda: True,
}


def leaves(value):
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key])]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


class Kept:
    """Keeps an exception, without a `try` that the advice would see around every case."""

    def __init__(self, kind):
        self.kind, self.error = kind, None

    def __enter__(self):
        return self

    def __exit__(self, _, error, trace):
        self.error = error
        return isinstance(error, self.kind)


def run(case, function, compiled, drives):
    """The result of one run from a fresh start; also the gradients of the inputs if the case asks for them."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    arguments = getattr(case, "inputs", one_tensor)()
    if isinstance(function, Cure):
        function, drives = function.function, True
    with Kept(ValueError) as kept:  # the case that raises
        result = function(compiled, *arguments) if drives else compiled(function)(*arguments)
    found = leaves(result if kept.error is None else str(kept.error))
    if getattr(case, "grads", False):
        total = sum(leaf.sum() for leaf in found if isinstance(leaf, torch.Tensor) and leaf.requires_grad)
        total.backward()
        found += [argument.grad for argument in arguments if isinstance(argument, torch.Tensor) and argument.requires_grad]
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in found]


def difference(case, one, other):
    """Why two results are not the same, or None."""
    if len(one) != len(other):
        return f"{len(one)} results became {len(other)}"
    for a, b in zip(one, other, strict=True):
        if isinstance(a, (torch.Tensor, int, float)) and isinstance(b, (torch.Tensor, int, float)):
            a, b = torch.as_tensor(a), torch.as_tensor(b)
            if a.shape != b.shape or not (
                getattr(case, "shapes_only", False)
                or torch.allclose(a.double(), b.double(), rtol=getattr(case, "tolerance", 1e-6), atol=1e-6)
            ):
                return f"{a} became {b}"
        elif type(a) is not type(b) or (not isinstance(a, torch.nn.Module) and a != b and not getattr(case, "shapes_only", False)):
            return f"{a!r} became {b!r}"
    return None


def attempt(case, how: Cure, reference, epochs=itertools.count(1)):
    """One compiled run with the setup of a cure: its reset epoch in the recorded run, and what went wrong or None."""
    torch._dynamo.reset()
    return {"epoch": next(epochs), "error": _attempt(case, how, reference)}


def _attempt(case, how: Cure, reference):
    function = how.function or case.before

    def compiled(f, compile=torch.compile):
        return compile(f, backend=getattr(case, "backend", "eager"))

    def in_place(module):
        module._compiled_call_impl = compiled(module._call_impl)  # what `nn.Module.compile` does, with the back end of the case

    options = CONFIG.patch(**{name: kind() for name, kind in PATCHED.items() if hasattr(CONFIG, name)})
    with options, mock.patch.object(torch.nn.Module, "compile", in_place), mock.patch.object(torch, "compile", compiled):
        exec(how.setup, {"torch": torch, "logging": logging, "warnings": warnings})
        with Kept(Exception) as kept:
            return difference(case, reference, run(case, function, compiled, how.drives))
        return f"{type(kept.error).__name__}: {str(kept.error)[:500]}"


def examine(case):
    reference = run(case, case.before, lambda f: f, False)
    broken = attempt(case, Cure(setup=getattr(case, "setup", "")), reference)
    cures = {slug: attempt(case, how, reference) | described(case, how) for slug, how in cures_of(case).items()}
    return broken | {
        "name": case.__name__,
        "breaks": sorted(case.breaks),
        "breaks_old": sorted(getattr(case, "breaks_old", case.breaks)),
        "cures": cures,
    }


def described(case, how):
    function = how.function or case.before
    source = inspect.getsource(function.function if isinstance(function, Cure) else function)
    return {"source": source, "setup": how.setup, "remains": sorted(how.remains), "only": how.only, "drives": how.drives}


def cases_in(table):
    module = importlib.import_module(Path(table).stem)
    return [value for value in vars(module).values() if isinstance(value, type) and hasattr(value, "before")]


def corpus_cases(path):
    """The functions of a corpus file as cases without cures, called as the file says."""
    sys.path.append(str(Path(path).parent))
    module = importlib.import_module(Path(path).stem)
    for name in module.TRUTH:
        members = {"before": staticmethod(vars(module)[name]), "inputs": staticmethod(lambda: (torch.ones(3),)), "breaks": set()}
        yield type(name, (), members)


def main(directory, answer, corpus, *tables):
    with dynadiag.observe(directory):
        answers = {Path(table).stem: [examine(case) for case in cases_in(table)] for table in tables}
        matrix = [examine(case) for case in corpus_cases(corpus)] if Path(corpus).exists() else []
    Path(answer).write_text(json.dumps({"torch": torch.__version__, "tables": answers, "matrix": matrix}))


if __name__ == "__main__":
    logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    check_guards_untimed()
    with contextlib.redirect_stdout(io.StringIO()):
        main(*sys.argv[1:])
