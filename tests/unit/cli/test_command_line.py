"""Where our options end and the script's begin."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dynadiag.errors import DynadiagError, UnreadableInputError, UsageError
from dynadiag.trace.sources import is_recording
from dynadiag_cli.command_line import MODE, TargetCommand
from dynadiag_cli.main import app as dynadiag

app = typer.Typer()


@app.command(cls=TargetCommand)
def verb(ctx: typer.Context, target: list[str], cost: bool = False, out: str = typer.Option("", "--out")):
    print([ctx.meta[MODE], target, cost, out])


@app.command()
def other():
    pass


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["train.py"], ["path", ["train.py"], False, ""]),
        (["--cost", "train.py", "--lr", "3", "--out", "x"], ["path", ["train.py", "--lr", "3", "--out", "x"], True, ""]),
        (["train.py", "-m", "mod"], ["path", ["train.py", "-m", "mod"], False, ""]),
        (["train.py", "--", "-m"], ["path", ["train.py", "--", "-m"], False, ""]),
        (["-m", "pkg.mod", "--cost", "-m", "x"], ["module", ["pkg.mod", "--cost", "-m", "x"], False, ""]),
        (["--out", "d", "-m", "pkg.mod"], ["module", ["pkg.mod"], False, "d"]),
        (["--out", "-m", "train.py"], ["path", ["train.py"], False, "-m"]),
        (["--", "torchrun", "--nproc", "2", "t.py"], ["command", ["torchrun", "--nproc", "2", "t.py"], False, ""]),
        (["--cost", "--", "torchrun", "-m", "x"], ["command", ["torchrun", "-m", "x"], True, ""]),
    ],
)
def test_our_options_end_at_the_target(line, expected):
    result = CliRunner().invoke(app, ["verb", *line])
    assert result.output.strip() == str(expected)


@pytest.mark.parametrize("graph", ["", "#g3"])
def test_options_behind_a_recording_are_ours(tmp_path: Path, graph: str):
    log = tmp_path / "trace.log"
    log.touch()
    result = CliRunner().invoke(app, ["verb", f"{log}{graph}", "--cost", "--out", "d"])
    assert result.output.strip() == str(["path", [f"{log}{graph}"], True, "d"])


@pytest.mark.parametrize("line", [[], ["-m"], ["--"], ["--nonsense", "train.py"]])
def test_a_command_line_without_a_target_is_a_usage_error(line):
    assert CliRunner().invoke(app, ["verb", *line]).exit_code == 2


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("train.py", "V1121 07:22:11.076000 3362 torch/x.py:1] {}\n", False),
        ("run.log", "", True),
        ("train", "import torch\n", False),
        ("trace", "junk\nV1121 07:22:11.076000 3362 torch/x.py:1] {}\n", True),
        ("trace2", "[rank0]:V1121 07:22:11.076000 3362 torch/x.py:1] {}\n", True),
    ],
)
def test_a_file_is_a_program_unless_it_looks_like_a_log(tmp_path: Path, name, content, expected):
    path = tmp_path / name
    path.write_text(content)
    assert is_recording(path) is expected


def test_a_folder_is_a_recording_unless_python_could_run_it(tmp_path: Path):
    assert is_recording(tmp_path)
    (tmp_path / "__main__.py").touch()
    assert not is_recording(tmp_path)


def test_a_missing_path_says_what_was_expected(tmp_path: Path):
    with pytest.raises(UnreadableInputError, match="no such file or folder"):
        is_recording(tmp_path / "gone.py")


def test_a_recording_cannot_be_compared_afterwards(tmp_path: Path):
    log = tmp_path / "trace.log"
    log.touch()
    result = CliRunner().invoke(dynadiag, ["explain", "--parity", str(log)])
    assert isinstance(result.exception, UsageError)
    assert "--parity compares while the script runs" in str(result.exception)


@pytest.mark.parametrize("device", ["/dev/zero#g0", "/dev/null#g0"])
def test_minify_refuses_a_device_before_it_makes_a_folder(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(dynadiag, ["minify", device])
    assert isinstance(result.exception, UsageError) and "neither a file nor a folder" in result.exception.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["inf", "nan", "1" + "0" * 400, "-1"])
@pytest.mark.parametrize(
    ("verb", "option"),
    [(verb, "--timeout") for verb in ("minify", "parity", "graph", "bench")]
    + [("parity", "--budget"), ("fix", "--time-limit"), ("bench", "--max-time"), ("bench", "--max-rounds"), ("minify", "--memory-limit")],
)
def test_no_limit_is_larger_than_what_the_system_can_count(verb, option, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("open('ran', 'w')\n")
    refused = CliRunner().invoke(dynadiag, [verb, f"{option}={value}", "train.py"])
    assert refused.exit_code == 2 and f"Invalid value for '{option}'" in refused.output
    assert not Path("ran").exists() and not Path("dynadiag-runs").exists()


@pytest.mark.parametrize("verb", ["explain", "parity", "minify", "fix"])
def test_an_empty_word_is_not_the_current_folder(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(dynadiag, [verb, ""]).exception
    assert isinstance(refused, UsageError) and "empty string" in str(refused)


@pytest.mark.parametrize(
    ("option", "what"),
    [(["--load", "missing.py"], "missing.py"), (["-o", "missing/out.txt"], "no folder missing"), (["-o", "."], "folder")],
)
def test_parity_refuses_before_the_program_runs(option, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("open('ran', 'w')\n")
    refused = CliRunner().invoke(dynadiag, ["parity", *option, "train.py"]).exception
    assert isinstance(refused, DynadiagError) and refused.exit_code == 2 and what in refused.message
    assert not Path("ran").exists()


def test_parity_that_is_told_to_end_replays_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(60)\n")
    done = CliRunner().invoke(dynadiag, ["parity", "--out", "run", "train.py"])
    assert done.exit_code == 128 + signal.SIGTERM
    assert "nothing was replayed" in done.stderr


@pytest.mark.parametrize("verb", sorted(str(command.name) for command in dynadiag.registered_commands))
def test_help_and_usage_errors_name_no_types_of_python(verb):
    text = CliRunner().invoke(dynadiag, [verb, "--help"]).output
    assert "list[" not in text and "<path>" not in text and "{" not in text.splitlines()[0]
    headings = re.findall(r"^(\w[\w ]*):$", text, flags=re.MULTILINE)
    assert [one for one in headings if one != "Arguments"][0] == "Options" and text.index("Usage:") < text.index("Examples:")
    assert re.search(r"x>=|<=x|\d\.0[];]|2000000", text) is None
    assert all(len(line) <= 80 for line in text.splitlines())
    assert all(f"\n{line}\n" in text and len(line) <= 78 for line in _examples(verb)), "a line to copy is folded"


def _examples(verb):
    command = next(one for one in dynadiag.registered_commands if one.name == verb)
    return [line for line in command.epilog.splitlines() if line.startswith("  dynadiag")]


def test_the_options_of_explain_stand_under_headings():
    text = CliRunner().invoke(dynadiag, ["explain", "--help"]).output
    parts = re.split(r"^(\w[\w ]*):$", text, flags=re.MULTILINE)
    groups = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert "--timeout S" in groups["Recording"] and "--cost" in groups["What is analysed"] and "--quiet" in groups["What is printed"]
    assert re.findall(r"^  (-\S+)", groups["Options"], re.MULTILINE) == ["--out", "--force", "-h,"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--format", "xx"), "'xx' is not one of 'text', 'json', 'md'."),
        (("--limit", "x"), "not a whole number."),
        (("--timeout", "x"), "not a number."),
        (("--limit", "-3"), "should be greater than or equal to 0"),
    ],
)
def test_a_wrong_value_is_said_in_words_for_people(option, said):
    found = CliRunner().invoke(dynadiag, ["explain", *option, "x.log"])
    assert found.exit_code == 2 and f"Invalid value for '{option[0]}'" in found.output.replace("--format' / '-f'", "--format'")
    assert "Value error" not in found.output and "Input should" not in found.output
    assert said in found.output or found.output.count("is not") == 1  # older Typer has words of its own


@pytest.mark.parametrize("line", [["rule"], ["explain", "--help"]])
def test_a_reader_that_has_read_enough_is_no_error(line):
    writer = [sys.executable, "-c", "from dynadiag_cli.main import main; main()", *line]
    child = subprocess.Popen(writer, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.close()
    assert (child.stderr.read(), child.wait()) == (b"", 0)
    child.stderr.close()


def test_a_current_folder_that_was_deleted_is_said(tmp_path):
    command = f"mkdir gone; cd gone; rmdir ../gone; {sys.executable} -m dynadiag check {tmp_path}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "dynadiag: error: the current folder was deleted\n")
