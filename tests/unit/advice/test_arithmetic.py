"""Whether a line lets a tensor take the place of a number."""

import pytest

from dynadiag.advice.arithmetic import used_in_arithmetic
from dynadiag.advice.source import parse_line


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("y = x * scale", True),
        ("return (x + 1) * scale + bias", True),
        ("y = (x * scale).sum()", True),
        ("x *= scale", True),
        ("scale += 1", False),
        ("y = 2 * scale", False),  # of numbers alone: what it is used for is not seen
        ("y = x * math.sqrt(scale)", False),
        ("plane = torch.full_like(x, scale / 12)", False),
        ("if scale > 0:", False),
        ("y = x[:scale]", False),
        ("y = x // scale", False),
        ("y = dropout(x, scale)", False),
        ("y = x * other", False),
        ("", False),
    ],
)
def test_only_arithmetic_with_something_else_than_numbers(code, expected):
    assert used_in_arithmetic(parse_line(code), "scale") is expected
