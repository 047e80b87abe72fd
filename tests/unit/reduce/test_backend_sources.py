"""The source of a backend of a script: what it names comes along, nothing else does, and it runs alone."""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap

import pytest

from dynadiag.torch_compat.dynamo.backend import _source_of
from dynadiag.torch_compat.dynamo.backend_source import MADE, names_of, source_of

SCRIPT = """
{future}
import argparse
import dataclasses
import functools
import os.path
from typing import Callable, List, Optional
from own_helpers import LIMIT, count

PASSES: List[Callable] = []
TABLE = {{print: "print"}}
TABLE[len] = "len"
unrelated = object()


def register_backend(function=None, **options):
    return function or (lambda one: one)


def register(function):
    PASSES.append(function)
    return function


@dataclasses.dataclass
class Config:
    depth: int = 3
    name: Optional[str] = None


config = Config()
parser = argparse.ArgumentParser()
args = parser.parse_args([])
args.flag = True
model = object()


@register
def refuse(graph: "Graph", model=None) -> List[int]:
    args = TABLE.get(graph.model, config.depth)  # a comment
    return [args, count(graph), LIMIT]


@register_backend(name="my_vendor")
def vendor(graph, inputs: List[object], options: Optional[dict] = None) -> Callable:
    return [one(graph) for one in PASSES]


@register_backend
def by_flag(graph, inputs):
    return args.flag, os.path.sep


partial = functools.partial(vendor, options={{}})
short = lambda graph, inputs: by_flag(graph, inputs)


class Backend:
    def __init__(self, number):
        self.model = number

    def __call__(self, graph, inputs):
        return self.model


instance = Backend(4)


def made():
    def inner(graph, inputs):
        return count(graph)

    return inner


def closed(number):
    return lambda graph, inputs: number


def logged(function: Callable) -> Callable:
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return ["logged", function(*args, **kwargs)]

    return wrapper


@register_backend(name="decorated")
@logged
def decorated(graph, inputs: List[object]) -> Callable:
    return count(graph)


from_factory = closed(config.depth)
"""
HELPERS = "LIMIT = 2\n\n\ndef count(graph):\n    return LIMIT + graph.args\n"


class Graph:
    model, args = len, 5


@pytest.fixture(params=["", "from __future__ import annotations"], ids=["annotations", "late annotations"])
def script(request, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_helpers.py").write_text(HELPERS)
    (tmp_path / "own_script.py").write_text(SCRIPT.format(future=request.param))
    yield importlib.import_module("own_script")
    for name in ("own_script", "own_helpers"):
        del sys.modules[name]


def alone(backend):
    name, source = source_of(backend)
    assert "own_helpers" not in source and "unrelated" not in source and "model = object" not in source and "register_backend" not in source
    return names_of(source, "alone")[name](Graph, [])


@pytest.mark.parametrize(
    ("name", "gives"),
    [
        ("vendor", [["len", 7, 2]]),
        ("partial", [["len", 7, 2]]),
        ("by_flag", (True, "/")),
        ("short", (True, "/")),
        ("instance", 4),
        ("decorated", ["logged", 7]),
        ("from_factory", 3),
    ],
)
def test_a_backend_of_any_shape_runs_alone(script, name, gives):
    backend = getattr(script, name)
    assert alone(backend) == gives
    if name == "by_flag":
        assert "Config" not in source_of(backend)[1] and "argparse.Namespace(flag=True)" in source_of(backend)[1]


def test_a_function_inside_of_another_one_runs_alone(script):
    assert alone(script.made()) == 7


def test_an_aot_backend_that_was_made_where_it_is_used_is_spelled_anew(script):
    AotAutograd = type("AotAutograd", (), {})
    backend = AotAutograd()
    backend.kwargs = {"fw_compiler": script.vendor, "bw_compiler": script.by_flag, "ignore_shape_env": False}
    name, source = source_of(backend)
    assert name == MADE and source.count("def vendor") == source.count("def by_flag") == 1
    assert source.endswith(f"{MADE} = aot_autograd(fw_compiler=vendor, bw_compiler=by_flag, ignore_shape_env=False)")


def test_the_text_of_a_copied_function_can_be_asked_for(script):
    """As Triton does of its kernels."""
    name, source = source_of(script.by_flag)
    assert inspect.getsource(names_of(source, "asked")[name]).startswith("def by_flag(graph, inputs):")


def test_what_cannot_be_copied_is_said(script):
    assert source_of(textwrap.dedent) == ("dedent", "from textwrap import dedent")
    for backend in (script.closed(3), script.Backend(3)):
        with pytest.raises(ValueError, match="not a top-level name|variables of a function around it"):
            source_of(backend)


def test_variables_around_a_function_count_only_where_no_name_leads_to_it(script):
    assert _source_of(script.decorated)[2] is None and "def logged" in _source_of(script.decorated)[1]
    name, source, why = _source_of(script.closed(3))
    assert source is None and "it uses variables of a function around it" in why
