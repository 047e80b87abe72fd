"""What every test starts from: the same environment on a developer's machine as under CI."""

import os

import pytest
from hypothesis import settings

# torch reads CI itself: with it an alias that a custom operator does not declare is an error at run time, without it a warning
# (torch/_functorch/config.py, error_on_custom_op_aliasing, seen on 2.11 and 2.15). Hypothesis reads it too and has taken its profile
# "ci" by the time this runs, so we ask for that profile by name.
os.environ.pop("CI", None)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def environment_as_before():
    """What a test leaves in the environment is gone after it: an emitted test turned inductor's caches off for all later ones."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)
