import pytest

from tests.unit.passes_recompiles import builders as small_runs


@pytest.fixture(scope="session")
def builders():
    """Functions that make small runs by hand."""
    return small_runs
