import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def builders():
    """Functions that make small runs by hand."""
    spec = importlib.util.spec_from_file_location("recompile_builders", Path(__file__).with_name("builders.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
