"""What a stranger's words in a call of `dynadiag mcp` must not open: our own options, other folders, other programs."""

import contextlib
import json
import os
import sys
import time

import pytest

from dynadiag.errors import UsageError
from dynadiag_cli.mcp_confinement import Confinement
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


@pytest.mark.parametrize("tool", ["explain", "fix", "minify", "check", "start", "numerics"])
@pytest.mark.parametrize("target", OUTSIDE)
def test_a_target_outside_the_folder_is_refused(folder, server, tool, target):
    before = files(folder)
    refused, text = server.call(tool, target=target)
    assert refused and "outside the folder" in text
    assert files(folder) == before


@pytest.mark.parametrize("newer", [*OUTSIDE, "--out", "train.py"])
def test_the_second_recording_of_start_is_one_in_the_folder(folder, server, newer):
    before = files(folder)
    refused, _ = server.call("start", target="run", newer=newer)
    assert refused and files(folder) == before


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
        ["@/elsewhere/x"],
        ["@../out/x"],
        ["--cfg=@link/x"],
        ["-x@/elsewhere/x"],
        ["key=@../x"],
        ["+/elsewhere/x"],
        ["\\/elsewhere/x"],
        ["file:%2Felsewhere%2Fx"],
        ["l*k/x"],
        ["?ink/x"],
        ["--data=./[l]ink/*.txt"],
        ["https://example.com/a,/elsewhere/x"],
        ["s3::/elsewhere/x"],
        ["simplecache::s3://b/x::/elsewhere/x"],
        ["%252e%252e/outside/x"],
    ],
)
def test_a_words_path_outside_the_folder_is_refused(folder, server, words):
    before = files(folder)
    refused, text = server.call("explain", target="shows.py", args=words)
    assert refused and "outside the folder" in text
    assert files(folder) == before


@pytest.mark.parametrize("word", ["http://../../out/x", "s3://b/../../../x", "--data=https://h/%2e%2e/x"])
def test_an_address_that_may_be_a_path_is_refused(server, word):
    refused, text = server.call("explain", target="shows.py", args=[word])
    assert refused and "may be taken for a path" in text


@pytest.mark.parametrize("target", ["", "-", "--help", "-mhttp.server", "--", "-otrain.py", "a\0b"])
def test_no_target_is_an_option(server, target):
    for tool, name in (("explain", "target"), ("fix", "target"), ("minify", "target"), ("check", "target"), ("graph", "run")):
        refused, text = server.call(tool, **{name: target}, **({"graph_id": "g0"} if tool == "graph" else {}))
        assert refused and ("is no script, run, log or code" in text or "no such" in text), text


def test_what_is_refused_is_said_on_one_line_without_control_characters(server):
    for target in ("x\ny.py", "\x1b[31mx.py", "run\n", "a" * 300):
        refused, text = server.call("explain", target=target)
        assert refused and text.isprintable(), text


def test_a_pipe_is_no_program(folder, server):
    for name in ("pipe.py", "pipe.log"):
        os.mkfifo(folder / name)
        refused, text = server.call("explain", target=name)
        (folder / name).unlink()
        assert refused and "is neither a file nor a folder" in text


def test_a_pattern_that_would_take_long_to_match_is_refused_and_no_other_call_waits(folder, server):
    for number in range(60):
        (folder / "many" / str(number)).mkdir(parents=True)
    pattern = "many/" + "/".join(["*", ".."] * 300) + "/x"
    begun = time.monotonic()
    numbers = [server.start_call("explain", {"target": "shows.py", "args": [pattern]}) for _ in range(2)]
    answers = [server.answer(number)["result"] for number in numbers]
    assert all(answer["isError"] and "name fewer" in answer["content"][0]["text"] for answer in answers)
    assert time.monotonic() - begun < 120


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
        assert refused and next(iter(more)) in text and "there is no argument" in text and "\n" not in text
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
    refused, text = server.call(tool, target="shows.py", **more)
    assert refused and "\n" not in text and "pydantic" not in text
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
    words = ["-o", "precious.txt", "--write", "--update-baseline", "--", "-m", "run", "lr=1/2", "https://example.com/x", "*", "env://"]
    words += ["s3a://bucket/x", "hdfs://n/x", "user@host", "50%", "@train.py", "data/*.txt"]
    refused, text = server.call("explain", target="shows.py", args=words, python=sys.executable)
    assert json.loads((folder / "seen.json").read_text()) == words, text
    assert (folder / "precious.txt").read_text() == "precious"
    (folder / "seen.json").unlink()


def test_the_python_is_named_as_the_server_was_given_it(folder):
    pytest.importorskip("mcp")
    home = folder.parent / "environment" / "bin"
    home.mkdir(parents=True)
    (home / "python").symlink_to(sys.executable)
    with serving(folder, "--python", "../environment/bin/python", cwd=folder) as wire:
        for name in ("../environment/bin/python", str(home / "python")):
            assert "is no interpreter" not in wire.call("explain", target="nowhere.py", python=name)[1]
        assert "is no interpreter" in wire.call("explain", target="nowhere.py", python=sys.executable)[1]


def test_a_link_that_is_changed_after_the_check_leads_nowhere_else(folder):
    (folder / "inside").symlink_to("run")
    confinement = Confinement.of(folder, (), ())
    with contextlib.chdir(folder):
        assert confinement.checked_target("inside") == ("run", False)
        assert confinement.checked_target("inside#g0", with_graph=True) == ("run#g0", False)
        assert confinement.checked_target("./train.py") == ("train.py", True)
        (folder / "-option.py").write_text("")
        assert confinement.checked_target("./-option.py") == (str(folder.resolve() / "-option.py"), True)
    for name in ("inside", "-option.py"):
        (folder / name).unlink()


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


@pytest.mark.parametrize(
    "command",
    [
        ["./starts", "-m", "torch.distributed.run", "train.py"],
        ["./torchrun", "train.py"],
        ["sh", "-m", "torch.distributed.launch", "train.py"],
        ["./starts", "train.py"],
        [sys.executable, "-m", "torch.distributed.run", "--no-python", "./starts", "train.py"],
        [sys.executable, "-m", "torch.distributed.run", "--no_py", "./starts", "train.py"],
    ],
)
def test_fix_of_a_run_starts_no_program_but_a_python_of_the_server(folder, server, command):
    for name in ("starts", "torchrun"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
        (folder / name).chmod(0o755)
    record(folder, folder / "foreign", command=command)
    before = files(folder)
    refused, text = server.call("fix", target="foreign")
    assert refused and "was recorded with" in text and "name the script instead" in text and "\n" not in text
    assert files(folder) == before


def test_fix_of_a_run_starts_no_module_from_elsewhere(folder, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(folder.parent / "outside"))
    record(folder, folder / "foreign", command=[sys.executable, "-m", "evil"])
    with pytest.raises(UsageError, match="outside the folder"):
        Confinement.of(folder, (), ()).check_script_of_run(str(folder / "foreign"))
    (folder / "own_module.py").write_text("")
    record(folder, folder / "own", command=[sys.executable, "-m", "own_module"])
    Confinement.of(folder, (), ()).check_script_of_run(str(folder / "own"))


def test_fix_of_a_run_starts_the_python_of_the_server(folder):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    for command in ([sys.executable, "train.py"], [*launcher, "train.py"], [*launcher, "train.py", "--no-cuda"]):
        record(folder, folder / "own", command=command)
        Confinement.of(folder, (), ()).check_script_of_run(str(folder / "own"))


PATCH = "--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-open('ran', 'w')\n+open('ran', 'a')\n"


def test_prove_is_offered_only_where_edits_are_allowed(folder, server):
    refused, text = server.call("prove", target="train.py", patch=PATCH.format(name="train.py"))
    assert refused and "prove" in text


def test_prove_takes_patches_of_files_in_the_folder_alone(folder):
    pytest.importorskip("mcp")
    before = files(folder)
    with serving(folder, "--allow-edits") as wire:
        for name, words in (
            ("link.py", "outside the folder"),
            ("link/evil.py", "outside the folder"),
            ("../outside/evil.py", "outside"),
            ("precious.txt", "Python files"),
        ):
            refused, text = wire.call("prove", target="train.py", patch=PATCH.format(name=name))
            assert refused and words in text and "\n" not in text, (name, text)
        for target, patch, words in (
            ("run", PATCH.format(name="train.py"), "prove takes the script"),
            ("train.py", "no patch", "no unified diff"),
            ("train.py", PATCH.format(name="train.py"), "does not apply"),
        ):
            refused, text = wire.call("prove", target=target, patch=patch)
            assert refused and words in text and "\n" not in text, (target, text)
    assert files(folder) == before
