import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def build():
    """Functions that make small logs and mutations by hand."""
    spec = importlib.util.spec_from_file_location("mutation_builders", Path(__file__).with_name("mutation_builders.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutation_builders"] = module
    spec.loader.exec_module(module)
    return module
