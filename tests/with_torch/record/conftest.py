"""Running a script twice, plainly and recorded, and reading what was written with a reader of its own."""

import json
import os
import subprocess
import sys
import textwrap
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from dynadiag.record import RecordOptions, RecordResult, Target, record
from tests.recorded_here import recorded_here


@dataclass(frozen=True)
class Recorded:
    """One record of a log."""

    log: str
    header: dict
    payload: str

    @property
    def artifact(self):
        return self.header.get("artifact", {}).get("name")

    @property
    def content(self):
        return json.loads(self.payload)


@dataclass(frozen=True)
class Outcome:
    """How a recorded script ended, what it printed, and every record of every log."""

    result: RecordResult | None
    out: str
    err: str
    records: list

    def named(self, name):
        return [record for record in self.records if record.artifact == name]

    def problems(self, kind):
        return [record for record in self.named("dynadiag_problem") if record.content["kind"] == kind]

    @property
    def breaks(self):
        return [record.payload for record in self.named("dynamo_graph_break_reason")]


def read_logs(directory):
    return [record for log in sorted(Path(directory).glob("*.log")) for record in _read_log(log)]


def _read_log(log):
    header, lines = None, []
    for line in log.read_text("utf-8").split("\n"):
        if line.startswith("\t"):
            lines.append(line[1:])
            continue
        if header is not None:
            yield Recorded(log.name, header, "\n".join(lines))
        lines = []
        header = json.loads(line.split("] ", 1)[1]) if line else None
    if header is not None:
        yield Recorded(log.name, header, "\n".join(lines))


@pytest.fixture(scope="session")
def without_dynadiag(tmp_path_factory):
    """An interpreter that has this torch and no dynadiag: a bare venv with a .pth file to this environment's packages."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    import sysconfig

    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = str(folder / "bin" / "python")
    assert subprocess.run([python, "-c", "import dynadiag"], capture_output=True, cwd=folder).returncode == 1
    return python


@pytest.fixture
def run_recorded(tmp_path, capfd, monkeypatch):
    """Write a script, record it, and give its outcome."""

    def run(source, *arguments, environment=None, target=None, **options):
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(source))
        for name, value in (environment or {}).items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        options.setdefault("out", tmp_path / "run")
        result = record(target or Target("script", (str(script), *arguments)), RecordOptions(**options))
        out, err = capfd.readouterr()
        return Outcome(result, out, err, read_logs(result.directory) if result.directory else [])

    return run


@pytest.fixture
def run_here(tmp_path):
    """Record a script in this process, and give every record of its logs."""

    def run(source, out):
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(source))
        recorded_here(script, out)
        return Outcome(None, "", "", read_logs(out))

    return run


@pytest.fixture
def run_plain(tmp_path):
    """Run the same script without us."""

    def run(source, *arguments, python=sys.executable):
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(source))
        return subprocess.run([python, str(script), *arguments], capture_output=True, text=True, env=os.environ)

    return run
