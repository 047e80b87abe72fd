"""What the source of a compiled function says about a number: only where its value is surely not needed may it be a symbol."""

import pytest

from dynadiag.advice.function_source import parse_function


def function(*body, head="def step(self, x, scale, n):"):
    return parse_function("\n".join(["@torch.compile(", "    backend='eager',", ")", head, *(f"    {one}" for one in body)]))


@pytest.mark.parametrize(
    ("name", "body", "would_do"),
    [
        ("scale", ["return x * scale"], True),
        ("scale", ["return (x * scale).sum()"], True),
        ("scale", ["y = -scale * x", "return torch.relu(y + 1)"], True),
        ("scale", ["y = scale / n", "return x + y * x"], True),
        ("scale", ["x *= scale", "return x"], True),
        ("self.scale", ["return x * self.scale"], True),
        ("scale", ["y = scale", "return x * y"], True),
        ("scale", ["y = min(1.0, scale / n)", "return x * y"], True),
        ("scale", ["y = max(scale / n, 0.1)", "return x * y"], True),
        ("scale", ["y = min(x.mean(), scale / n)", "return x * y"], False),
        ("scale", ["y = min((1.0, scale / n), key=abs)", "return x * y"], False),
        ("scale", ["y = min(3, scale)", "return x[:y]"], False),
        ("scale", ["y = scale / n", "if y > 1:", "    return x", "return x * y"], False),
        ("scale", ["if scale > 1:", "    x = -x", "return x * scale"], False),
        ("scale", ["return x * math.cos(scale)"], False),
        ("scale", ["return torch.full((3,), scale / 1000)"], False),
        ("scale", ["return torch.full((3,), scale / n)"], False),
        ("scale", ["return F.dropout(x, scale)"], False),
        ("n", ["return x[:n] * n"], False),
        ("n", ["for i in range(n):", "    x = x * n", "return x"], False),
        ("scale", ["return x * scale, scale"], False),
        ("scale", ["self.last = scale", "return x * scale"], False),
        ("scale", ["return x * scale, helper(scale)"], False),
        ("scale", ["return helper(x * scale)"], False),
        ("scale", ["print(f'{scale}')", "return x * scale"], False),
        ("self.scale", ["return helper(self) * self.scale"], False),
        ("cfg.scale", ["return self.pool(x, cfg) * cfg.scale"], False),
        ("cfg.scale", ["return x * cfg.scale"], True),
        ("cfg.scale", ["return self.norm(x) * cfg.scale"], True),
        ("self.scale", ["return self.norm(x) * self.scale"], False),  # `norm` may be a method that reads it
        ("scale", ["return x"], False),
        ("scale", ["return 2 * scale"], False),
    ],
)
def test_a_symbol_would_do_only_where_the_whole_function_shows_it(name, body, would_do):
    assert function(*body).symbol_would_do(name) is would_do


def test_a_method_ends_where_the_next_one_begins():
    text = "def step(self, x):\n    return x * self.scale\n\n@property\ndef rate(self):\n    return int(self.scale)\n"
    assert parse_function(text).symbol_would_do("self.scale")


@pytest.mark.parametrize(
    "text", [None, "", "lambda x: x", "x = 1", "class A:\n    pass", "def f(:\n  pass", "def f():\n" + "    f()\n" * 5_000]
)
def test_what_is_no_function_is_not_read(text):
    assert parse_function(text) is None


@pytest.mark.parametrize(
    ("body", "joined"),
    [
        (["return torch.stack(xs).sum(0)"], "torch.stack(xs)"),
        (["out = 0", "for one in xs:", "    out = out + one", "return out"], None),
        (["return torch.stack(xs[::-1])"], None),
        (["return torch.stack(xs, 1)"], None),
        (["return torch.cat(xs) / len(xs)"], None),
    ],
)
def test_a_list_is_joined_outside_only_where_nothing_else_is_done_with_it(body, joined):
    assert function(*body, head="def step(xs):").joined("xs") == joined


def test_a_function_that_was_cut_off_is_not_taken_for_whole():
    lines = ["def step(x, scale):", *["    x = x * scale"] * 118]
    assert parse_function("\n".join(lines)).symbol_would_do("scale")
    assert parse_function("\n".join([*lines, "    x = x + 1", "    x = x + 2"])) is None
    assert parse_function("\n".join([*lines, "    x = x + 1", "def other():"])) is not None
