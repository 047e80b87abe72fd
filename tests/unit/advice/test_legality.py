"""What may be computed although the program would not have: pure, without errors, and where gradients flow without NaN."""

from __future__ import annotations

import ast

import pytest

from dynadiag.changes.legality import _is_guard, why_not_computed, why_not_kept, why_not_selected


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    "text", ["y + 1", "torch.sin(x) * 2", "F.relu(y)", "x.abs().sum()", "y[:, None] @ w", "-y", "torch.where(c, a, b)"]
)
def test_what_only_computes_may_be_computed(text):
    assert why_not_computed(expression(text), gradients=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "note(y)", "self.change(y)", "y // n", "y % n", "next(it)", "y.add_(1)", "torch.rand_like(y)", "torch.dropout(y, 0.5, True)",
        "y[0]", "y[i]", "F.dropout(y)", "[a for a in b]", "(z := y)", "torch.add(y, 1, out=z)", "f'{y}'", "random.random()",
        "y.bernoulli()",
        "lambda: y", "torch.linalg.inv(y)", "self.layer(y)", "math.sqrt(2)", "y << n",
    ],
)  # fmt: skip
def test_what_may_do_more_or_raise_is_not_computed(text):
    assert why_not_computed(expression(text), gradients=False) is not None


@pytest.mark.parametrize("text", ["x.norm()", "torch.max(x)", "x.prod()", "F.normalize(x)", "x.size(0)"])
def test_what_has_a_finite_gradient_everywhere_is_computed_where_one_flows(text):
    assert why_not_computed(expression(text), gradients=True) is None


@pytest.mark.parametrize("text", ["x / n", "x.sqrt()", "torch.log(x)", "x ** p", "x.std()", "torch.exp(x)"])
def test_what_can_have_a_nan_gradient_is_only_computed_where_none_flows(text):
    assert why_not_computed(expression(text), gradients=False) is None
    assert "NaN" in (why_not_computed(expression(text), gradients=True) or "")


def test_a_condition_that_is_computed_as_a_whole_is_looked_at_too():
    assert why_not_selected("y = torch.where(torch.logical_and(n > 0, (6 // n) > 3), y + 1, y)", gradients=False) is not None
    assert why_not_selected("taken = f(x) > 0\ny = torch.where(taken, y + 1, y)", gradients=False) is not None
    assert why_not_selected("taken = x.sum() > 0\ny = torch.where(taken, y + 1, y)", gradients=False) is None


@pytest.mark.parametrize("use", ["1.0 / s", "x // s", "x % s", "2 ** s", "s ** 2"])
def test_a_number_that_python_divides_by_stays_a_number(use):
    function = ast.parse(f"def f(x):\n    s = x.sum().item()\n    return {use}\n").body[0]
    assert why_not_kept(function, range(2, 3)) is not None


@pytest.mark.parametrize(("bound", "guards"), [("math.inf", True), ('float("-inf")', True), ("info", False), ("infer(y)", False)])
def test_only_infinity_makes_a_condition_one_about_values_that_are_not_finite(bound, guards):
    found = [_is_guard(node) for node in ast.walk(expression(f"x < {bound}"))]
    assert any(found) is guards


def test_a_number_that_is_only_multiplied_may_become_a_tensor():
    function = ast.parse("def f(x):\n    s = x.sum().item()\n    return x * s + s / 2\n").body[0]
    assert why_not_kept(function, range(2, 3)) is None
