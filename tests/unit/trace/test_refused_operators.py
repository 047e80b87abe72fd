"""A graph that the back end refused is a break at the line of the operator that the back end names."""

import pytest

from dynadiag import report as reports
from dynadiag import trace

REASON = """Graph break in user code at /home/me/train.py:8
Graph Break Reason: Failed to handle graph break gracefully. Skipping the function and falling back to eager. Graph break encountered:

Backend compiler exception
  Explanation: Backend compiler `aot_eager` failed with aten._local_scalar_dense.default. Adding a graph break.
  Hint: Set `fullgraph=False` to allow this backend fallback to run eagerly.

  Developer debug context: Backend: aot_eager
    Exception:aten._local_scalar_dense.default

    {said}

    Use tlparse to see full graph.
    Traceback:
      File "/home/me/train.py", line 11, in step
        return alpha * x


 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0219.html

User code traceback:
  File "/home/me/train.py", line 15, in <module>
    step(x, k)

Traceback (most recent call last):
"""
NODE = """While executing %alpha : [num_users=1] = call_function[target=operator.getitem](args = (%g_table_, %l_step_), kwargs = {{}})
    {title}
      File "/home/me/train.py", line 10, in step
        alpha = {code}
                ~~~~~^^^^^^"""


@pytest.fixture
def read(new_log, tmp_path):
    def run(said):
        log = new_log(7).artifact("dynadiag_environment", {"pid": 7, "argv": ["train.py"], "torch": "2.15.0"}).intern("/home/me/train.py")
        log.start(0, name="step", line=8).artifact("dynamo_graph_break_reason", REASON.format(said=said), frame=0)
        return reports.build(trace.load(log.metrics(0, fail_type="Unsupported").write(tmp_path)))

    return run


@pytest.mark.parametrize("title", ["Original traceback:", "Found from : "])
def test_the_line_of_the_operator_is_the_place(read, title):
    (site,) = read(NODE.format(title=title, code="table[step]")).graph_breaks
    assert (site.own_frame.line, site.torch_frame.line, [place.line for place in site.stack]) == (10, 10, [15, 10])
    assert [one.slug for one in site.advice] == ["index-with-dimension", "index-capture"]
    assert site.advice[0].after == "alpha = table[step.view(1)][0]"


@pytest.mark.parametrize("code", ["table[step].add_(1)", "table[step] + table[other]"])
def test_a_line_that_writes_or_indexes_twice_is_not_rewritten(read, code):
    (site,) = read(NODE.format(title="Original traceback:", code=code)).graph_breaks
    assert [one.slug for one in site.advice] == ["index-capture"]


def test_without_an_operator_the_place_is_as_recorded(read):
    (site,) = read("no such device").graph_breaks
    assert (site.own_frame.line, site.advice) == (8, ())
    assert site.unadvised.startswith("no line of yours breaks the graph")
