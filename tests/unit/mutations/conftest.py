import pytest

from tests.unit.mutations import mutation_builders


@pytest.fixture(scope="session")
def build():
    """Functions that make small logs and mutations by hand."""
    return mutation_builders
