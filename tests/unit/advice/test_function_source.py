"""What the source of a compiled function says about a number: only where its value is surely not needed may it be a symbol."""

import pytest

from dynadiag.source.function import parse_function


def function(*body, head="def step(self, x, scale, n):"):
    return parse_function("\n".join(["@torch.compile(", "    backend='eager',", ")", head, *(f"    {one}" for one in body)]))


@pytest.mark.parametrize(
    ("name", "body", "sides"),
    [
        ("scale", ["return x * scale"], 1),
        ("scale", ["return (x * scale).sum()"], 1),
        ("scale", ["y = -scale * x", "return torch.relu(y + 1)"], 1),
        ("scale", ["y = scale / n", "return x + y * x"], 1),
        ("scale", ["x *= scale", "return x"], 1),
        ("self.scale", ["return x * self.scale"], 1),
        ("scale", ["y = scale", "return x * y"], 1),
        ("scale", ["y = min(1.0, scale / n)", "return x * y"], 1),
        ("scale", ["y = max(scale / n, 0.1)", "return x * y"], 1),
        ("scale", ["y = min(x.mean(), scale / n)", "return x * y"], None),
        ("scale", ["y = min((1.0, scale / n), key=abs)", "return x * y"], None),
        ("scale", ["y = min(3, scale)", "return x[:y]"], None),
        ("scale", ["y = scale / n", "if y > 1:", "    return x", "return x * y"], 2),
        ("scale", ["if scale > 1:", "    x = -x", "return x * scale"], 2),
        ("self.n", ["self.n += 1", "return x - (n if self.n <= self.warm else self.mu)"], 2),
        ("self.n", ["self.n += 1", "if self.n % 5 == 0 and self.log:", "    x = -x", "return x * (1 - 0.9**self.n)"], 2),
        ("self.n", ["if self.n < 3:", "    return x", "if self.n < 7:", "    return -x", "return x"], 4),
        ("self.n", ["return x if self.n else -x"], 2),
        ("self.n", ["if self.n <= self.warm:", "    self.warm += 1", "return x"], None),  # another bound in each call
        ("self.n", ["if self.n in self.steps:", "    x = -x", "return x"], None),
        ("self.n", ["self.flag = self.n > 3", "return x"], None),
        ("self.p", ["self.queue[:, self.p : self.p + n] = x", "self.p = (self.p + n) % self.k", "return x"], 1),
        ("self.p", ["self.p += 1", "return x[:, : self.p]"], None),  # another version from where it passes the size
        ("self.p", ["self.queue[:, self.p] = x", "return x"], None),
        ("self.p", ["return self.rows[self.p : self.p + 2]"], None),  # may be a list
        ("self.n", ["return x * (self.n // 3)"], 1),
        ("self.n", ["return self.blocks[self.n % 3](x)"], None),
        ("scale", ["return x * math.cos(scale)"], None),
        ("scale", ["return torch.full((3,), scale / 1000)"], None),
        ("scale", ["return torch.full((3,), scale / n)"], None),
        ("scale", ["return F.dropout(x, scale)"], None),
        ("n", ["return x[:n] * n"], None),
        ("n", ["for i in range(n):", "    x = x * n", "return x"], None),
        ("scale", ["return x * scale, scale"], None),
        ("scale", ["self.last = scale", "return x * scale"], None),
        ("scale", ["return x * scale, helper(scale)"], None),
        ("scale", ["return helper(x * scale)"], None),
        ("scale", ["print(f'{scale}')", "return x * scale"], None),
        ("self.scale", ["return helper(self) * self.scale"], None),
        ("cfg.scale", ["return self.pool(x, cfg) * cfg.scale"], None),
        ("cfg.scale", ["return x * cfg.scale"], 1),
        ("cfg.scale", ["return self.norm(x) * cfg.scale"], 1),
        ("self.scale", ["return self.norm(x) * self.scale"], None),  # `norm` may be a method that reads it
        ("scale", ["return x"], None),
        ("scale", ["return 2 * scale"], None),
    ],
)
def test_how_many_versions_a_symbol_needs_is_said_only_where_the_whole_function_shows_it(name, body, sides):
    assert function(*body).sides(name) == sides


def test_a_method_ends_where_the_next_one_begins():
    text = "def step(self, x):\n    return x * self.scale\n\n@property\ndef rate(self):\n    return int(self.scale)\n"
    assert parse_function(text).sides("self.scale") == 1


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
    assert parse_function("\n".join(lines)).sides("scale") == 1
    assert parse_function("\n".join([*lines, "    x = x + 1", "    x = x + 2"])) is None
    assert parse_function("\n".join([*lines, "    x = x + 1", "def other():"])) is not None
