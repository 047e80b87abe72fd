"""The pytest plugin: a mark and a fixture that fail a test when what it compiles breaks its graph, recompiles or differs from eager.

Nothing of dynadiag or torch is imported until a test asks for it, so that other test runs pay for this file alone.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dynadiag.pytest_plugin.watching import Watch

_MARK = "dynadiag"
_HELP = (
    "dynadiag(max_breaks=None, max_recompiles=None, max_fallbacks=None, min_graphs=1, no_mutation_copy=False, parity=False): "
    "fail the test when what it compiles exceeds these limits; with parity its first calls are also compared with eager"
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", _HELP)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record a test that has the mark, and judge the recording when the test itself passed."""
    mark = item.get_closest_marker(_MARK)
    if mark is None:
        return (yield)
    from dynadiag.pytest_plugin.watching import Watch, limits_of

    limits = limits_of(mark.args, mark.kwargs)
    _leave_out_the_trace(item.config)
    with Watch(parity=limits.parity) as watch:
        result = yield
    # A test of a unittest class that failed does not raise here; pytest keeps its failure (`_pytest/unittest.py`, 8 and 9).
    if not vars(item).get("_excinfo"):
        watch.check(limits)
    return result


@pytest.fixture
def dynadiag(request: pytest.FixtureRequest) -> Generator[Watch]:
    """What `torch.compile` did in this test so far: `assert_no_graph_breaks()`, `assert_no_recompiles(after=2)`, `assert_compiled()`.

    `assert_same_results(fn, *args)` makes one call and compares it with eager; `report()` is the whole diagnosis.
    """
    from dynadiag.pytest_plugin.watching import Watch, limits_of

    mark = request.node.get_closest_marker(_MARK)
    _leave_out_the_trace(request.config)
    with Watch(parity=mark is not None and limits_of(mark.args, mark.kwargs).parity) as watch:
        yield watch


def _leave_out_the_trace(config: pytest.Config) -> None:
    """Keep the records that we ask torch for out of what pytest shows as a test's log: it also captures loggers that do not propagate."""
    logging_plugin = config.pluginmanager.get_plugin("logging-plugin")
    for name in ("caplog_handler", "report_handler", "log_cli_handler", "log_file_handler"):
        handler = getattr(logging_plugin, name, None)
        if handler is not None:
            handler.addFilter(_is_no_trace)


def _is_no_trace(record: Any) -> bool:
    return bool(record.name != "torch.__trace")
