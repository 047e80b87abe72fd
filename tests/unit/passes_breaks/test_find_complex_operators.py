"""Operators on complex numbers that the code of a graph only calls are told, and are not counted as compiled without a word."""

import json

import pytest

from dynadiag.passes.find_complex_operators import find_complex_operators
from tests.unit.mutations import mutation_builders as build

MUL = 'mul: "{0}[4][1]cpu" = torch.ops.aten.mul.Tensor(arg0_1, arg0_1)'
CODE = "def call(self, args):\n    buf0 = torch.ops.aten.mul.Tensor(arg0_1, arg0_1)\n    return (buf0, )\n"
KERNEL = "def call(self, args):\n    cpp_fused_mul_0(arg0_1, buf0)\n    return (buf0, )\n"


def findings(tmp_path, dtype, code):
    log = build.LogBuilder().start().metrics()
    log.post_grad(
        f'arg0_1: "{dtype}[4][1]cpu"',
        "# File: /home/me/train.py:7 in fn, code: return z * z",
        MUL.format(dtype),
        'view: "f32[4, 2][2, 1]cpu" = torch.ops.aten.view_as_real.default(mul)',
        "return (view,)",
    )
    log._write({"inductor_output_code": {"filename": "/tmp/x.py"}, **log.ids()}, code)
    return find_complex_operators(log.load(tmp_path)).findings


def test_an_operator_that_the_code_only_calls_is_told(tmp_path):
    (finding,) = findings(tmp_path, "c64", CODE)
    assert (finding.code, finding.where.line, finding.cost.value) == ("DF16", 7, 1)
    assert finding.title == "1 operator on complex numbers is not compiled" and "`aten.mul.Tensor`" in finding.why


@pytest.mark.parametrize(("dtype", "code"), [("f32", CODE), ("c64", KERNEL), ("c64", json.dumps({}))])
def test_real_numbers_and_what_has_a_kernel_are_not(tmp_path, dtype, code):
    assert findings(tmp_path, dtype, code) == ()
