"""What is installed: the wheel's content, the pins, vendor builds of torch, and a use without torch."""

from __future__ import annotations

import configparser
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = ("newest", "oldest")


def wanted() -> list[Requirement]:
    project = PROJECT["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["models"], *PROJECT["dependency-groups"]["dev"]]
    return [Requirement(line) for line in listed]


def pins(name: str) -> list[tuple[Requirement, int]]:
    """Each pinned requirement with the number of its hashes."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    logical = re.sub(r"\\\n", " ", text).splitlines()
    lines = [line for line in logical if line.strip() and not line.lstrip().startswith("#")]
    return [(Requirement(line.split("--hash")[0].strip()), line.count("--hash=sha256:")) for line in lines]


@pytest.mark.parametrize("name", PINS)
def test_pins_name_no_address_and_are_all_hashed(name):
    assert "://" not in (ROOT / "requirements" / f"{name}.txt").read_text()
    assert [pin.name for pin, hashes in pins(name) if not hashes or not str(pin.specifier).startswith("==")] == []


@pytest.mark.parametrize("name", PINS)
def test_pins_satisfy_what_the_project_asks_for(name):
    versions: dict[str, set[str]] = {}
    for pin, _ in pins(name):
        versions.setdefault(canonicalize_name(pin.name), set()).update(spec.version for spec in pin.specifier)
    wrong = [
        str(need)
        for need in wanted()
        if not (found := versions.get(canonicalize_name(need.name)))
        or not all(need.specifier.contains(each, prereleases=True) for each in found)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "version", ["2.11.0a0+nv26.2", "2.11.0.dev20260101", "2.11.0", "2.11.0+cpu", "2.15.0+cu132", "2.16.0a0+gitabc", "3.0.0"]
)
def test_an_installed_torch_is_accepted_as_it_is(version):
    """Installers keep an installed version that satisfies the bound, pre-releases included (pip asks `contains(..., prereleases=True)`)."""
    (torch,) = [need for need in wanted() if need.name == "torch"]
    assert torch.specifier.contains(version, prereleases=True)


@pytest.mark.parametrize("version", ["0.26.0a0+nv26.2", "0.26.0", "0.29.2"])
def test_an_installed_torchvision_is_accepted_as_it_is(version):
    (torchvision,) = [need for need in wanted() if need.name == "torchvision"]
    assert torchvision.specifier.contains(version, prereleases=True)


def test_torch_has_no_upper_bound():
    (torch,) = [need for need in wanted() if need.name == "torch"]
    assert {spec.operator for spec in torch.specifier} == {">="}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source = tmp_path_factory.mktemp("source") / "tree"
    ignored = shutil.ignore_patterns(
        ".*", "__pycache__", "*.egg-info", "build", "dist", "dynadiag-runs", "tests", "docs", "benchmarks", "requirements"
    )
    shutil.copytree(ROOT, source, ignore=ignored)
    program = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, str(source)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(source / done.stdout.split()[-1])


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel):
    packages = {ROOT / "dynadiag": ROOT, ROOT / "cli/dynadiag_cli": ROOT / "cli"}
    expected = {
        str(path.relative_to(base))
        for folder, base in packages.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == expected
    assert "dynadiag/py.typed" in packed


def test_the_wheel_offers_the_command_and_the_extra(wheel):
    (entry,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    parser = configparser.ConfigParser()
    parser.read_string(wheel.read(entry).decode())
    assert dict(parser["console_scripts"]) == {"dynadiag": "dynadiag_cli.main:main"}
    (metadata,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    assert "Provides-Extra: models" in wheel.read(metadata).decode()


BREAK = """Graph break in user code at /home/ann/train.py:12
Graph Break Reason: Data-dependent branching
  Explanation: Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`). Dynamo does not support tracing dynamic control flow.
  Hint: Use `torch.cond` to express dynamic control flow.

  Developer debug context: attempted to jump with TensorVariable()

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html

User code traceback:
  File "/home/ann/train.py", line 12, in forward
    if x.sum() > 0:
"""


def small_log() -> str:
    """A log of one broken frame, as `TORCH_TRACE` writes it."""
    compile_id = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    stack = [{"line": 12, "name": "forward", "filename": 0, "loc": "if x.sum() > 0:"}]
    records = [
        ({"str": ["/home/ann/train.py", 0]}, None),
        ({"dynamo_start": {"stack": stack}, **compile_id}, None),
        ({"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **compile_id}, BREAK),
        ({"compilation_metrics": {"compile_id": "0/0", "co_name": "forward", "co_filename": "/home/ann/train.py"}, **compile_id}, None),
    ]
    out = io.StringIO()
    for index, (record, payload) in enumerate(records):
        if payload is not None:
            record = {**record, "has_payload": hashlib.md5(payload.encode()).hexdigest()}
        out.write(f"V1121 07:30:00.{index:06d} 4321 torch/_logging/structured.py:1] {json.dumps(record)}\n")
        if payload is not None:
            out.write("".join(f"\t{line}\n" for line in payload.splitlines()))
    return out.getvalue()


@pytest.fixture
def without_torch(tmp_path):
    """An environment in which `import torch` fails, as in a log-only install."""
    (tmp_path / "blocked/torch").mkdir(parents=True)
    (tmp_path / "blocked/torch/__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "blocked"), str(ROOT), str(ROOT / "cli")])}


def test_a_log_is_explained_without_torch(without_torch, tmp_path):
    (tmp_path / "run.log").write_text(small_log())
    command = [sys.executable, "-m", "dynadiag", "explain", "--format", "json", str(tmp_path / "run.log")]
    done = subprocess.run(command, capture_output=True, text=True, env=without_torch, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (site,) = json.loads(done.stdout)["graph_breaks"]
    assert site["gb_id"] == "GB0170"
    assert (site["own_frame"]["file"], site["own_frame"]["line"]) == ("/home/ann/train.py", 12)


def test_doctor_says_that_torch_is_missing(without_torch, tmp_path):
    done = subprocess.run([sys.executable, "-m", "dynadiag", "doctor"], capture_output=True, text=True, env=without_torch, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "missing: torch is not installed" in done.stdout
