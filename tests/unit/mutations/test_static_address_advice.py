"""Whose name stands in `mark_static_address(...)`: the user's, also where only a library's wrapper names the tensor."""

import pytest

from dynadiag.advice.mutations import mutation_advice
from dynadiag.model.run import CompileKey, Frame, Location, Run, RunInfo

TRITON = "/opt/venv/lib/python3.12/site-packages/triton/runtime/jit.py"
ARGS = "L['args'][1]"


def advised(build, code, source=ARGS, file=TRITON):
    frame = Frame(
        id="f0",
        key=CompileKey(0, 0, 0, 0),
        attempts=1,
        name="<lambda>",
        file=file,
        line=3,
        outcome="compiled",
        callers=(Location("/home/me/kernels.py", 33, "residual_add_", code),),
    )
    run = Run(info=RunInfo(), frames=(frame,))
    site = {"file": file, "line": 3, "code": "self.run(*args)", "function": "<lambda>", "op": "triton", "own": False, "library": None}
    return mutation_advice(build.mutation(input=source, sites=(site,)), run)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("scaled_add[(triton.cdiv(n, 1024),)](x, r, n, scale, BLOCK=1024)", "r"),
        ("kernel[grid](self.x, self.state)", "self.state"),
        ("mylib.add_(x, state)", "state"),
    ],
)
def test_the_users_own_name_is_marked(build, code, name):
    (advice,) = advised(build, code)
    assert (advice.slug, advice.after) == ("static-address", f"torch._dynamo.mark_static_address({name})")


@pytest.mark.parametrize("code", ["kernel[grid](*tensors)", "kernel[grid](x, y[0])", "kernel[grid](x)", "f(g(x, y), h(y, x))", None, "x ="])
def test_a_librarys_name_is_not_shown_as_the_users(build, code):
    (advice,) = advised(build, code)
    assert advice.after is None and "args" not in advice.text


def test_a_librarys_own_variable_has_no_name_outside(build):
    (advice,) = advised(build, "lib.step(x, y)", source="L['buf']")
    assert advice.after is None and "buf" not in advice.text


def test_the_users_own_code_keeps_its_names(build):
    advice = advised(build, "step(x, y)", source="L['state']", file="/home/me/kernels.py")
    assert advice[0].after == "torch._dynamo.mark_static_address(state)"
