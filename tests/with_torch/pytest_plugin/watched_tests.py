"""Run by `test_plugin.py` under pytest with the plugin: some of these fail, and must."""

import sys
import unittest

import pytest
import torch


def breaks(x):
    y = x * 2
    print("loss", y.sum())
    return y + 1


def plain(x):
    return x.sin() + 1


def shifted(graph, inputs):
    """A back end whose results are wrong."""
    return lambda *args: tuple(one + 1 for one in graph(*args))


def run(fn, *sizes, **options):
    compiled = torch.compile(fn, **{"backend": "eager", **options})
    return [compiled(torch.ones(size)) for size in sizes]


def test_unmarked_imports_nothing_of_ours():
    assert not [name for name in sys.modules if name.startswith(("dynadiag.record", "dynadiag.report", "dynadiag.api", "dynadiag.gate"))]


@pytest.mark.dynadiag(max_breaks=0, max_recompiles=0)
def test_clean():
    run(plain, 3, 3)


@pytest.mark.dynadiag(max_breaks=0)
def test_break():
    run(breaks, 3)


@pytest.mark.dynadiag(max_breaks=1)
def test_break_within_the_limit():
    run(breaks, 3)


@pytest.mark.dynadiag(max_recompiles=0)
def test_recompile():
    run(plain, 3, 4, dynamic=False)


@pytest.mark.dynadiag
def test_nothing():
    pass


@pytest.mark.dynadiag(max_break=0)
def test_wrong_argument():
    pass


@pytest.mark.dynadiag(max_breaks=0)
def test_own_failure_comes_first():
    run(breaks, 3)
    assert 1 + 1 == 3


@pytest.mark.dynadiag(parity=True)
def test_parity():
    run(plain, 3, backend="eager")


@pytest.mark.dynadiag(parity=True)
def test_parity_wrong():
    run(plain, 3, backend=shifted)


class Case(unittest.TestCase):
    @pytest.mark.dynadiag(max_breaks=0)
    def test_break(self):
        run(breaks, 3)

    @pytest.mark.dynadiag(max_breaks=0)
    def test_own_failure(self):
        run(breaks, 3)
        self.assertEqual(1 + 1, 3)


def test_fixture_clean(dynadiag):
    run(plain, 3, 3)
    dynadiag.assert_no_graph_breaks()
    dynadiag.assert_no_recompiles()
    dynadiag.assert_compiled()
    assert dynadiag.report().summary.graphs == 1


def test_fixture_break(dynadiag):
    run(breaks, 3)
    dynadiag.assert_no_graph_breaks()


def test_fixture_recompiles_while_warming_up(dynadiag):
    run(plain, 3, 4, 4, dynamic=False)
    dynadiag.assert_no_recompiles(after=2)


def test_fixture_recompiles_later(dynadiag):
    run(plain, 3, 3, 4, dynamic=False)
    dynadiag.assert_no_recompiles(after=2)


def test_fixture_eager(dynadiag):
    @torch.compiler.disable
    def left_out(x):
        return x

    run(lambda x: left_out(x * 2), 3)
    dynadiag.assert_compiled()


def test_fixture_nothing(dynadiag):
    dynadiag.assert_no_graph_breaks()


def test_fixture_same_results(dynadiag):
    x = torch.ones(3)
    assert torch.equal(dynadiag.assert_same_results(torch.compile(plain, backend="eager"), x), plain(x))
    run(plain, 3)
    dynadiag.assert_no_graph_breaks()


def test_fixture_other_results(dynadiag):
    dynadiag.assert_same_results(torch.compile(plain, backend=shifted), torch.ones(3))
