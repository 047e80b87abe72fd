"""What the plugin costs a test run that does not use it: no import but its own."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST = """
import sys
def test_nothing_is_loaded():
    ours = sorted(name for name in sys.modules if name.split(".")[0] == "dynadiag")
    assert ours == ["dynadiag", "dynadiag.pytest_plugin"], ours
    assert not {"torch", "numpy", "rich", "jinja2"} & set(sys.modules)
"""


def test_a_run_that_does_not_use_it_loads_the_plugin_alone(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "dynadiag.pytest_plugin", "--strict-markers", "-c", os.devnull, "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout


def test_pytest_finds_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"dynadiag": "dynadiag.pytest_plugin"}
