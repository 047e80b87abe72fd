"""What the user's line decides of a break in a library: the library's own conditions, from its recorded source."""

import dataclasses
import textwrap

import pytest

from dynadiag.advice.graph_breaks import advised
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, CompileCall, CompileKey, Frame, Process, Run, RunInfo, SourceFunction

LIB = "/env/lib/python3.12/site-packages/lib/core.py"


def advice(code, *functions, environment=(), gb_id="GB0124"):
    """The advice for a break at the row with `# HERE` of the last of these functions of a library; the others lead there by `# ON`."""
    own, sources, stack = Location("/home/me/train.py", 3, "f", code), [], []
    for number, text in enumerate(functions):
        text, first = textwrap.dedent(text).strip("\n"), 100 * (number + 1)
        row = next(at for at, one in enumerate(text.split("\n")) if "# HERE" in one or "# ON" in one)
        name = text.split("(")[0].removeprefix("def ")
        sources.append(SourceFunction(LIB, first, name, text, environment))
        stack.append(Location(LIB, first + row, name, text.split("\n")[row].strip()))
    run = Run(
        info=RunInfo(),
        compile_calls=(CompileCall(process=0, location=None, target="f", backend="eager"),),
        processes=(Process(index=0, log="a.log", option_names={"dynamo": frozenset(), "compiler": frozenset(("is_compiling",))}),),
        frames=(Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="f", file="/home/me/train.py", line=1, outcome="broke"),),
        site_prefixes=("/env/lib/python3.12",),
        library_functions=tuple(sources),
    )
    seen = {"stack": (own, *stack), "torch_frame": stack[-1], "context": "", "explanation": "", "hints": ()}
    event = BreakEvent(frame="f0", attempt=0, gb_id=gb_id, gb_type="?", **seen)
    assert advised(event, dataclasses.replace(run, library_functions=()))[0] == () or "log" in code
    return [(one.slug, one.text, one.after) for one in advised(event, run)[0]]


POOL = """
def pool(x, index, size=None, check=True):
    if size is None:
        size = int(index.max())  # HERE
    return x[:size]
"""
ONE_LINE = """
def pool(x, index, size=None):
    size = int(index.max()) if size is None else size  # HERE
    return x
"""
EARLY = """
def pool(x, index, size=None):
    if size is not None:
        return size
    return int(index.max())  # HERE
"""


@pytest.mark.parametrize("text", [POOL, ONE_LINE, EARLY])
def test_an_argument_that_the_library_works_out_is_to_be_passed(text):
    ((slug, said, after),) = advice("y = lib.pool(x, i)", text)
    assert (slug, after) == ("library-argument", None)
    assert said.startswith("Pass `size=` in this call: the library works it out only where it is not given (`size is")
    assert "core.py:10" in said


@pytest.mark.parametrize(
    "code", ["y = lib.pool(x, i, size=n)", "y = lib.pool(x, i, n)", "y = lib.pool(x, i, **named)", "y = lib.pool(*all)"]
)
def test_an_argument_that_the_program_passes_is_its_own_matter(code):
    assert advice(code, POOL) == []


def test_an_argument_is_followed_through_functions_and_decorators_of_the_library():
    outer = "def mean(x, index, count=None):\n    return pool(x, index, size=count)  # ON"
    wrapper = "def wrapper(*args, **kwargs):\n    return func(*args, **kwargs)  # ON"
    for steps in ((outer, POOL), (wrapper, outer, POOL), (outer, wrapper, POOL)):
        ((_, said, _),) = advice("y = mean(x, i)", *steps)
        assert said.startswith("Pass `count=` in this call")
    fixed = "def mean(x, index):\n    return pool(x, index)  # ON"
    assert advice("y = mean(x, i)", fixed, POOL) == []
    assert advice("y = mean(x, i)", "def mean(x, index):\n    return pool(x, index, size=None)  # ON", POOL) == []


def test_a_constant_that_the_call_passes_is_turned_round():
    checks = """
    def __init__(self, loc, validate=None):
        if validate is not None:
            self._validate = validate
        if self._validate:
            for one in self.constraints:
                if one.depends(loc):  # HERE
                    continue
    """
    ((slug, said, after),) = advice("d = Normal(a, validate=True)", checks)
    assert (slug, after) == ("library-argument", "d = Normal(a, validate=False)")
    assert "(`self._validate` at core.py:103)" in said
    assert advice("d = Normal(a, validate=flag)", checks) == []
    assert advice("d = Normal(a, validate=False)", checks) == []


def test_what_a_call_passes_as_a_tensor_is_never_to_be_left_out():
    masked = "def attend(x, mask=None):\n    if mask is not None:\n        return x if mask.all() else x * 2  # HERE\n    return x"
    assert advice("y = attend(x, mask=m)", masked) == []
    assert advice("y = attend(x, mask=m, mode=1)", masked.replace("mask is not None", "x.is_cuda")) == []


@pytest.mark.parametrize(
    ("condition", "value"),
    [("if config.lib_disable:\n        return x", "1"), ('if os.environ.get("LIB_DISABLE"):\n        return x', "1")],
)
def test_a_variable_of_the_environment_is_named(condition, value):
    text = f"def checked(x):\n    {condition}\n    return x.item()  # HERE"
    ((slug, said, _),) = advice("y = checked(x)", text, environment=(("lib_disable", "LIB_DISABLE"),))
    assert slug == "library-environment"
    assert said.startswith(f"Set `LIB_DISABLE={value}` in the environment of the program")


def test_an_attribute_that_decides_is_named_and_the_training_mode_is_not():
    text = """
    def loss(self, x):
        kind = getattr(self, "loss_type", None)
        if kind is None or kind not in KINDS:
            warn(x)  # HERE
        return x
    """
    ((slug, said, _),) = advice("y = model.loss(x)", text)
    assert slug == "library-attribute"
    assert said.startswith("Give the library's object one of the values that it knows for `loss_type`")
    assert advice("y = model.loss(x)", "def loss(self, x):\n    if self.training:\n        x.item()  # HERE\n    return x") == []
    assert (
        advice("y = model.loss(x)", 'def loss(self, kind="sum"):\n    if kind in ("sum", "mean"):\n        x.item()  # HERE\n    return x')
        == []
    )


@pytest.mark.parametrize(("code", "told"), [('logger.info("rows {}", n)', 1), ("y = logger.info(n)", 0), ("store.update(n)", 0)])
def test_a_logger_of_any_package_can_be_left_out_of_compiled_code(code, told):
    found = advice(code, "def info(self, text):\n    sys._getframe()  # HERE", gb_id="GB0007")
    after = f"if not torch.compiler.is_compiling():\n    {code}"
    assert [(slug, new) for slug, _, new in found] == [("logger-guard", after)] * told


@pytest.mark.parametrize("text", ["def f(:  # HERE", "x = 1  # HERE", "class A:\n    pass  # HERE", ""])
def test_source_of_another_shape_gives_nothing(text):
    assert advice("y = lib.pool(x, i)", text or "def pool(x):\n    return x  # HERE") == []
