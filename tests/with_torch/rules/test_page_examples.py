"""The examples on the pages of codes, run as they stand there: the code is found before and not after, and the results are equal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag import report
from dynadiag.passes.fallback_entries import CODES
from dynadiag.trace import load

PAGES = Path(__file__).parents[3] / "dynadiag/rules/pages"
FALLBACKS = ("DF01", "DF04", "DF06", "DF07", "DF08", "DF09", "DF10", "DF12", "DF13", "DF14", "DF15")
EXAMPLES = ("DB02", *FALLBACKS, *(f"DR{number:02}" for number in range(1, 14)))


pytestmark = pytest.mark.any_torch  # the pages are written for the newest


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    command = [sys.executable, Path(__file__).with_name("page_examples.py"), PAGES, folder]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(json.loads(done.stdout)) == set(EXAMPLES)
    return folder


def codes(folder):
    """Those of findings and of fallbacks: a fallback with a known cause is told in the finding of its cause."""
    seen = report.build(load(folder))
    return {one.code for one in seen.findings} | {CODES[one.kind] for one in seen.fallbacks}


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_has_the_code_before_and_no_finding_after(recorded, code):
    assert code in codes(recorded / f"{code}-before")
    assert codes(recorded / f"{code}-after") == set()
