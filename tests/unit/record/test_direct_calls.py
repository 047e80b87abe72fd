"""Whether code only calls the attribute that it takes, from its instructions, by this Python's own compiler."""

import sys

import pytest

from dynadiag.torch_compat.trace.eager_methods import direct_call


class Taken:
    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        frame = sys._getframe(1)
        self.calls.append(direct_call(frame.f_code, frame.f_lasti))
        return lambda *values, **named: values


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("value.loss()", True),
        ("value.loss(x, [x], y=x)[0]", True),
        ("value.loss(*x)", True),
        ("value.loss(**named)", False),
        ("value.loss(x, f(x))", False),
        ("value.loss(x + 1)", False),
        ("value.loss(x.real)", False),
        ("value.loss(*f(x), **named)", False),
        ("sum(len(value.loss(one)) for one in [x])", True),
        ("value.loss(x if x else f(x))", False),
        ("kept := value.loss", None),
        ("list(map(value.loss, [x]))", None),
        ("f(*[value.loss])", None),
        ("(value.loss or f)(x)", None),
        ("(value.loss, x)", None),
        ("value.loss.__name__", None),
        ("getattr(value, 'loss')(x)", None),
    ],
)
def test_an_attribute_that_is_only_called_is_told_from_one_that_is_kept_or_passed_on(text, plain):
    value = Taken()
    exec(f"def run(value, x, f, named):\n return ({text})", names := {})
    names["run"](value, (1,) if "*x" in text else 1, lambda one: [one], {})
    assert [None if one is None else one.plain for one in value.calls] == [plain]
