"""Which exceptions of a whole script are reduced: those that only the compiled program raises."""

from __future__ import annotations

import textwrap

import pytest
import torch._dynamo  # noqa: F401 - the children have it then

from dynadiag.errors import NothingFoundError
from dynadiag.reduce.core.reduction import Options
from dynadiag.reduce.reproducer.script_outcome import Header, prove, reproducer
from dynadiag.reduce.scripts.program import parsed
from dynadiag.reduce.scripts.reduction import confirm

MARKED = """
import torch

x = torch.randn(4)
torch._dynamo.mark_dynamic(x, 0)
print(torch.compile(lambda x: x + torch.ones(4), backend="eager")(x))
"""

ASSERTING = """
import torch

def wrong(gm, inputs):
    return lambda *values: [value + 1 for value in gm.forward(*values)]

x = torch.ones(2)
assert torch.compile(torch.sin, backend=wrong)(x).sum() == torch.sin(x).sum(), "compiled differs"
"""

WORDLESS = """
import torch

def refuses(gm, inputs):
    raise AssertionError

torch.compile(torch.sin, backend=refuses)(torch.ones(2))
"""


def program(text):
    return parsed(textwrap.dedent(text), "script.py")


def test_sizes_that_dynamo_refuses_to_keep_dynamic_are_a_compile_error_that_its_file_shows():
    found = confirm(program(MARKED), Options(timeout_s=600))
    failure = found.failure
    assert (failure.kind, failure.phase) == ("compile_error", "trace") and failure.exceptions[-1].endswith(".ConstraintViolationError")
    proof = prove(reproducer(found.program, failure, Header(versions="", story="")), failure, timeout_s=600, runs=1)
    assert proof.holds, proof.output


def test_an_assertion_that_fails_only_when_compiled_is_an_exception():
    found = confirm(program(ASSERTING), Options(timeout_s=600, said=("AssertionError", "compiled differs")))
    assert (found.failure.kind, found.failure.phase, found.failed, found.of) == ("runtime_error", "call", 3, 3)


@pytest.mark.parametrize(
    ("text", "said", "message"),
    [
        ("raise ValueError('always')", None, "the script also fails without the compiler .ValueError: always."),
        (
            MARKED,
            ("ValueError", "another"),
            "the script fails in an empty directory, but not with the failure requested: ConstraintViolationError",
        ),
        ("print(1)", None, "nothing to reduce: the script shows no failure"),
    ],
)
def test_what_is_not_the_compilers_failure_is_said_in_one_line(text, said, message):
    with pytest.raises(NothingFoundError, match=message) as raised:
        confirm(program(text), Options(timeout_s=600, said=said))
    assert raised.value.exit_code == 1


def test_an_exception_without_words_that_is_not_meant_is_said_in_one_line():
    with pytest.raises(NothingFoundError, match="none of the 1 of kind compile_error .* matches 'other': AssertionError"):
        confirm(program(WORDLESS), Options(timeout_s=600, kind="compile_error", match="other"))
