"""A line that writes in place is rewritten only where the name in front gets the value that was written."""

import ast

import pytest

from dynadiag.advice.mutations import mutation_advice, out_of_place
from dynadiag.model.report import Mutation
from dynadiag.model.run import Run, RunInfo
from dynadiag.source.line import parse_line
from dynadiag.source.writes import writes_hidden

FILE = "/home/me/train.py"


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("x.mul_(2)", "x = x.mul(2)"),
        ("x.mul_(2).add_(1)", "x = x.mul(2).add(1)"),
        ("self.cache.add_(x)", "self.cache = self.cache.add(x)"),
        ("x += 1", "x = x + 1"),
        ("torch.as_strided_(x, (2, 2), (1, 2))", "x = torch.as_strided(x, (2, 2), (1, 2))"),
        ("torch.relu_(self.cache)", "self.cache = torch.relu(self.cache)"),
        ("F.relu_(x)", "x = F.relu(x)"),
        ("nn.functional.relu_(x)", "x = nn.functional.relu(x)"),
        ("torch.nn.functional.elu_(input=x)", "x = torch.nn.functional.elu(input=x)"),
        ("torch.Tensor.add_(x, 1)", "x = torch.Tensor.add(x, 1)"),
        ("torch.sigmoid_(x).mul_(2)", "x = torch.sigmoid(x).mul(2)"),
        ("torch.add(x, 1, out=y)", "y = torch.add(x, 1)"),
        ("torch.mm(a, b, out=self.buffer)", "self.buffer = torch.mm(a, b)"),
    ],
)
def test_the_tensor_that_is_written_gets_the_value(code, wanted):
    assert out_of_place(parse_line(code)) == wanted


@pytest.mark.parametrize(
    ("code", "hidden"),
    [
        ("p.data.mul_(2)", True),
        ("p.data *= 2", True),
        ("p.data[0] = 1", True),
        ("p.detach().view(-1)[0].zero_()", True),
        ("torch.relu_(p.data)", True),
        ("torch.add(x, 1, out=p.data)", True),
        ("p.add_(x.data)", False),
        ("p[0] = x.detach()", False),
        ("self.data.cache.add_(1)", False),
        ('print("p.data", p.add_(1))', False),
        ("p.add_(1)  # not p.data", False),
    ],
)
def test_a_write_is_hidden_from_autograd_only_where_its_target_is(code, hidden):
    assert writes_hidden(parse_line(code)) is hidden


@pytest.mark.parametrize(
    "code",
    [
        "torch.nn.init.normal_(x)",
        "init.constant_(x, 2.0)",
        "torch.relu_(x[0])",
        "torch.relu_(*xs)",
        "torch.ops.aten.relu_(x)",
        "torch.ops.aten.add_.Tensor(x, y)",
        "torch._foreach_add_(xs, 1)",
        "x.t().mul_(2)",
        "x.T.mul_(2)",
        "x.real.add_(1)",
        "x.T += 1",
        "x.data.add_(1)",
        "x.fill_diagonal_(1)",
        "x.bernoulli_(0.5)",
        "torch.utils.swap_tensors(a, b)",
        "torch.max(x, 0, out=(a, b))",
        "x[0].add_(1)",
    ],
)
def test_what_would_be_another_tensor_is_left_alone(code):
    assert out_of_place(parse_line(code)) is None


def test_no_rewrite_assigns_a_name_of_a_module():
    owners = ("torch", "F", "nn.functional", "torch.nn.functional", "torch.nn.init", "torch.Tensor", "nn.init", "torch.ops.aten")
    for owner in owners:
        for call in ("relu_(x)", "add_(x, 1)", "as_strided_(x, (1,), (1,))", "normal_(x)", "relu_(x.t())", "relu_(f(x))"):
            after = out_of_place(parse_line(f"{owner}.{call}"))
            assert after is None or ast.unparse(ast.parse(after).body[0].targets[0]) == "x", after


@pytest.mark.parametrize(
    ("body", "advised"),
    [
        (("y = x.exp()", ">>> y.add_(1)", "return y"), True),
        (("y = x.exp()", ">>> y += 1", "return y"), True),
        ((">>> x.add_(1)", "return x"), False),  # the caller reads the tensor that it passed
        (("y = x.exp()", "self.last = y", ">>> y.add_(1)", "return y"), False),
        (("y = x[0]", ">>> y.add_(1)", "return x"), False),
    ],
)
def test_a_refused_write_goes_out_of_place_only_where_nothing_else_has_the_tensor(body, advised):
    """Followed in a function that shifts its argument, the caller no longer saw the shift: another loss."""
    row = next(number for number, one in enumerate(body) if one.startswith(">>> "))
    text = "\n".join(["def shift(x):", *(f"    {one.removeprefix('>>> ')}" for one in body)])
    site = {"file": FILE, "line": 11 + row, "code": body[row][4:], "function": "shift", "own": True}
    refused = Mutation(
        id="m0", fingerprint="a", code="DM23", frame="f0", input="L['x']", kind="data", bytes_touched=None, bytes_written_back=None,
        no_grad=None, static=None, aliases=(), sites=(site,), effects=({"kind": "error", "basis": "observed", "detail": "refused"},),
    )  # fmt: skip
    found = mutation_advice(refused, Run(info=RunInfo(), blocks={(FILE, 10): text}))
    assert [one.slug for one in found] == (["keep-the-old-value"] if advised else [])
