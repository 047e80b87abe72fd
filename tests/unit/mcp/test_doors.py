"""What a stranger's words in a call of `dynadiag mcp` must not open: our own options, other folders, other programs."""

import json
import sys

import pytest

from tests.unit.gate.test_check_command import record
from tests.unit.mcp.wire import serving

pytestmark = pytest.mark.any_torch
SHOWS_ARGUMENTS = "import json, sys\njson.dump(sys.argv[1:], open('seen.json', 'w'))\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project with a script, a run and a link that leads outside, and what lies outside."""
    top = tmp_path_factory.mktemp("mcp")
    project = top / "project"
    project.mkdir()
    (project / "train.py").write_text('import torch\n\ndef f(x):\n    x = x + 1\n    print("x")\n    return x\n')
    (project / "shows.py").write_text(SHOWS_ARGUMENTS)
    (project / "precious.txt").write_text("precious")
    record(project, project / "run")
    (top / "outside").mkdir()
    (top / "outside" / "evil.py").write_text("open('ran', 'w')\n")
    record(top / "outside", top / "outside" / "run")
    (project / "link").symlink_to(top / "outside")
    (project / "link.py").symlink_to(top / "outside" / "evil.py")
    return project


@pytest.fixture(scope="module")
def server(folder):
    pytest.importorskip("mcp")
    with serving(folder, "--python", sys.executable) as wire:
        yield wire


def files(folder):
    return {str(path): path.read_bytes() for path in folder.parent.rglob("*") if path.is_file() and "dynadiag-runs" not in path.parts}


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("check", ["-o", "precious.txt", "--format", "md"]),
        ("check", ["-oprecious.txt"]),
        ("check", ["--output=precious.txt"]),
        ("check", ["--update-baseline"]),
        ("check", ["--max-breaks", "9"]),
        ("explain", ["-o", "precious.txt"]),
        ("explain", ["--trace", "precious.txt"]),
        ("explain", ["--", "shows.py"]),
        ("fix", ["--write"]),
        ("fix", ["--unsafe"]),
        ("minify", ["--out", "elsewhere"]),
        ("minify", ["--resume"]),
        ("minify", ["another"]),
    ],
)
def test_a_recording_takes_no_words(folder, server, tool, words):
    for target in ("run", "run/", "./run", *(["run#g0"] if tool == "minify" else [])):
        check_refused(folder, server, tool, target, words)


def check_refused(folder, server, tool, target, words):
    before = files(folder)
    refused, text = server.call(tool, target=target, args=words)
    assert refused and "is a run or a log and takes no arguments" in text
    assert files(folder) == before


OUTSIDE = [
    "../outside/evil.py",
    "link.py",
    "link/evil.py",
    "run/../../outside/evil.py",
    "../outside/run",
    "link/run",
    "../outside/run#g0",
    "/etc/passwd",
    "/dev/stdin",
]


@pytest.mark.parametrize("tool", ["explain", "fix", "minify", "check"])
@pytest.mark.parametrize("target", OUTSIDE)
def test_a_target_outside_the_folder_is_refused(folder, server, tool, target):
    before = files(folder)
    refused, text = server.call(tool, target=target)
    assert refused and "outside the folder" in text
    assert files(folder) == before


def test_graph_reads_only_inside_the_folder(server):
    for run in ("../outside/run", "link/run", "/etc/passwd"):
        refused, text = server.call("graph", run=run, graph_id="g0")
        assert refused and "outside the folder" in text


@pytest.mark.parametrize(
    "words",
    [
        ["--out", "/elsewhere/x"],
        ["--out=/elsewhere/x"],
        ["-o/elsewhere/x"],
        ["out=../outside/x"],
        ["--out", "link/x"],
        ["--out", "~/x"],
        ["--config", '{"out": "/elsewhere/x"}'],
        ["file:///elsewhere/x"],
        ["a:../../x"],
        ["$HOME/x"],
    ],
)
def test_a_words_path_outside_the_folder_is_refused(folder, server, words):
    before = files(folder)
    refused, text = server.call("explain", target="shows.py", args=words)
    assert refused and "outside the folder" in text
    assert files(folder) == before


@pytest.mark.parametrize("target", ["", "-", "--help", "-mhttp.server", "--", "-otrain.py", "a\0b"])
def test_no_target_is_an_option(server, target):
    for tool, name in (("explain", "target"), ("fix", "target"), ("minify", "target"), ("check", "target"), ("graph", "run")):
        refused, text = server.call(tool, **{name: target}, **({"graph_id": "g0"} if tool == "graph" else {}))
        assert refused and ("is no script, run, log or code" in text or "no such" in text), text


def test_what_a_tool_does_not_know_is_refused(folder, server):
    before = files(folder)
    for tool, more in (
        ("fix", {"write": True}),
        ("check", {"update_baseline": True}),
        ("check", {"output": "precious.txt"}),
        ("minify", {"out": "/elsewhere"}),
        ("explain", {"o": "precious.txt"}),
    ):
        refused, text = server.call(tool, target="run", **more)
        assert refused and next(iter(more)) in text and "Extra inputs are not permitted" in text
    assert files(folder) == before


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("minify", {"kind": "--write"}),
        ("minify", {"timeout_s": -1}),
        ("minify", {"timeout_s": "nan"}),
        ("fix", {"time_limit_s": 1e300}),
        ("check", {"max_breaks": -1}),
        ("explain", {"timeout_s": 0}),
        ("explain", {"args": ["x"] * 5000}),
        ("explain", {"args": ["x" * 500_000]}),
        ("explain", {"args": ["a\0b"]}),
    ],
)
def test_values_out_of_bounds_are_refused(folder, server, tool, more):
    before = files(folder)
    assert server.call(tool, target="shows.py", **more)[0]
    assert files(folder) == before


def test_only_a_python_of_the_list_is_started(folder, server):
    program = folder / "python"
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    for python in ("./python", str(program), "/bin/sh", "python3", "--version", "/usr/bin/env"):
        refused, text = server.call("explain", target="shows.py", python=python)
        assert refused and "--python" in text
    assert not (folder / "ran").exists()
    program.unlink()


def test_a_scripts_words_reach_the_script_and_nothing_else(folder, server):
    words = ["-o", "precious.txt", "--write", "--update-baseline", "--", "-m", "run", "lr=1/2", "https://example.com/x", "*"]
    refused, text = server.call("explain", target="shows.py", args=words, python=sys.executable)
    assert json.loads((folder / "seen.json").read_text()) == words, text
    assert (folder / "precious.txt").read_text() == "precious"
    (folder / "seen.json").unlink()


def test_a_module_of_the_folder_does_not_take_the_place_of_ours(folder, server):
    for name in ("json.py", "dynadiag.py", "typer.py", "sitecustomize.py"):
        (folder / name).write_text("open('ran', 'w')\nraise SystemExit(7)\n")
    refused, text = server.call("rule", codes=["DM05"])
    for name in ("json.py", "dynadiag.py", "typer.py", "sitecustomize.py"):
        (folder / name).unlink()
    assert not refused and text.startswith("DM05"), text
    assert not (folder / "ran").exists()


def test_allow_path_opens_a_further_folder(folder):
    pytest.importorskip("mcp")
    with serving(folder, "--allow-path", str(folder.parent / "outside")) as wire:
        refused, text = wire.call("explain", target="../outside/run")
        assert not refused and "GB0059" in text
        refused, text = wire.call("explain", target="shows.py", args=["--out", "../elsewhere"])
        assert refused and "outside the folder" in text


@pytest.mark.parametrize(
    "facts", [{"command": ["python", "../outside/evil.py"]}, {"command": ["python", "t.py", "-o/elsewhere/x"]}, {"cwd": "/"}]
)
def test_fix_of_a_run_starts_nothing_outside_the_folder(folder, server, facts):
    record(folder, folder / "foreign", **facts)
    before = files(folder)
    refused, text = server.call("fix", target="foreign")
    assert refused and "outside the folder" in text
    assert files(folder) == before
