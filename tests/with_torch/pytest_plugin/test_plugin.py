"""The pytest plugin in a run of its own, under xdist: which tests fail, and that they name the line and the change."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documented import blocks

# What pytest collects, marks and prints.
pytestmark = pytest.mark.any_torch
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FAILED = {
    "test_break": r"GB0059 .*\n.*print\(\"loss\", y\.sum\(\)\)\n.*fix: ",
    "test_recompile": r"max-recompiles 1 recompile, at most 0 allowed",
    "test_nothing": r"nothing was compiled, so there is nothing to check",
    "test_wrong_argument": r"does not take 'max_break'; it takes: max_breaks, max_recompiles",
    "test_own_failure_comes_first": r"assert \(?1 \+ 1\)? == 3",
    "test_parity_wrong": r"DM\d\d .*",
    "Case.test_break": r"GB0059 .*\n.*print\(\"loss\", y\.sum\(\)\)",
    "Case.test_own_failure": r"AssertionError: 2 != 3",
    "test_fixture_break": r"1 graph break\n\n.*watched_tests\.py:12: GB0059 .*\n.*print\(\"loss\", y\.sum\(\)\)\n.*fix: ",
    "test_fixture_recompiles_later": r"1 recompile after 2 calls\n\n.*watched_tests\.py:\d+: recompile in call 3: `.*` changed from 3 to 4",
    "test_fixture_eager": r"disabled .*left_out is disabled by torch.compiler.disable",
    "test_fixture_nothing": r"nothing was compiled so far in this test",
    "test_fixture_other_results": r"compiled results differ from eager\n\n.*DM\d\d ",
}
PASSED = {
    "test_unmarked_imports_nothing_of_ours",
    "test_clean",
    "test_break_within_the_limit",
    "test_parity",
    "test_fixture_clean",
    "test_fixture_recompiles_while_warming_up",
    "test_fixture_same_results",
    "test_forward",
    "test_forward_is_one_graph",
    "test_steps",
}


# The tests of README.md and docs/pytest.md, with what they take for granted.
DOCUMENTED = """import functools, types
import pytest, torch as real
from torch.nn import ReLU as Model
torch = types.SimpleNamespace(compile=functools.partial(real.compile, backend="eager"))
batch = real.ones(3)
batches = [batch, batch, batch]
train_step = lambda x: x * 2
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    documented = tmp_path_factory.mktemp("documented") / "documented_tests.py"
    documented.write_text("\n".join([DOCUMENTED, *blocks("README.md", "python")[1:], *blocks("docs/pytest.md", "python")]))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "400",
    }
    plugins = ["-p", "dynadiag.pytest_plugin", "-p", "xdist", "-n", "1", "-p", "no:cacheprovider"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "--strict-markers",
        "-c",
        os.devnull,
        *plugins,
        str(HERE / "watched_tests.py"),
        str(documented),
    ]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE).stdout


def test_those_pass_that_should(output):
    lines = re.findall(r"^(PASSED|FAILED|ERROR) \S*?::((?:Case::)?\w+)", output, re.MULTILINE)
    results = {name.replace("::", "."): what for what, name in lines}
    assert {name for name, what in results.items() if what == "PASSED"} == PASSED, output[-4000:]
    assert {name for name, what in results.items() if what == "FAILED"} == set(FAILED)


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_says_what_to_do(output, name):
    (section,) = re.findall(rf"^_+ {re.escape(name)} _+$(.*?)(?=^_+ [\w.]+ _+$|^=+ )", output, re.MULTILINE | re.DOTALL)
    assert re.search(FAILED[name], section), section


def test_what_we_ask_torch_for_is_not_shown_as_the_log_of_a_test(output):
    assert "torch.__trace" not in output and "__main__.py:1: max-" not in output
