"""`torch._dynamo.config.verbose` draws a line through the stack of a graph break (`log_graph_break`, torch 2.11 and 2.15)."""

import pytest

from dynadiag.trace.break_text import parse_break

HEAD = """Graph break in user code at /home/me/train.py:6
Graph Break Reason: Failed to trace builtin operator
  Explanation: x

User code traceback:
"""
CALLERS = """  File "/home/me/train.py", line 14, in <module>
    main()
  File "<string>", line 12, in main
"""
MARK = """
========== most recent `torch.compile` tracing attempt started here ==========

"""
TRACED = """  File "/home/me/train.py", line 9, in outer
    return inner(x + 1) + 1
  File "/home/me/train.py", line 6, in inner
    print("a")
"""
TAIL = """
NOTE: the most recent `torch.compile` tracing attempt might not be where you applied `torch.compile`! This is due to how graph breaks are

Traceback (most recent call last):
  File "/x/symbolic_convert.py", line 1, in wrapper
torch._dynamo.exc.Unsupported: Failed to trace builtin operator
"""


@pytest.mark.parametrize("callers", [CALLERS, ""])
@pytest.mark.parametrize("mark", [MARK, MARK.strip("\n") + "\n"])
def test_the_stack_goes_on_behind_the_line(callers, mark):
    text = parse_break(HEAD + callers + mark + TRACED + TAIL)
    expected = [14, 12, 9, 6] if callers else [9, 6]
    assert [place.line for place in text.stack] == expected
    assert (text.stack[-1].code, text.stack[-1].function) == ('print("a")', "inner")
    assert text.torch_frame == text.stack[-1]
    assert not callers or text.stack[1].code is None


def test_the_same_stack_without_the_line():
    text = parse_break(HEAD + CALLERS + TRACED + TAIL)
    assert [place.line for place in text.stack] == [14, 12, 9, 6]


def test_a_text_that_ends_at_the_line():
    assert [place.line for place in parse_break(HEAD + CALLERS + MARK.rstrip("\n")).stack] == [14, 12]
