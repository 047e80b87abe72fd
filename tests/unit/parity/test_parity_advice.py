"""What is advised where a compiled call was seen to be wrong: commands that find it, and no operator that is not there."""

import pytest

from dynadiag.advice.parity import parity_advice
from dynadiag.model import codes


def texts(code, *, custom=False):
    return [advice.text for advice in parity_advice(code, "x", shared=False, undeclared=None, custom=custom)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(codes.WRONG_INPUT, "wrong_mutation"), (codes.WRONG_OUTPUT, "wrong_result"), (codes.WRONG_GRADIENT, "wrong_gradient")],
)
def test_minify_is_asked_for_the_kind_that_differs(code, kind):
    assert f"`dynadiag minify --kind {kind}`" in texts(code)[-1]


@pytest.mark.parametrize("code", [codes.OTHER_METADATA, codes.OTHER_ALIASES, codes.OVERWRITTEN_LATER])
def test_minify_is_not_advised_where_it_finds_nothing(code):
    assert not any("minify" in text for text in texts(code))


@pytest.mark.parametrize("code", [codes.OTHER_METADATA, codes.OTHER_ALIASES, codes.WRONG_INPUT])
def test_a_custom_operator_is_named_only_where_there_is_one(code):
    assert not any("custom operator" in text for text in texts(code))
    assert any("custom operator" in text for text in texts(code, custom=True))
