"""A run directory from a stranger is read without following links, waiting for pipes, or writing anything outside of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.report import build_with_replay
from dynadiag.trace import load
from dynadiag.trace.sources import find_sources

LOG = "dedicated_log_torch_trace_1.log"
ROOT = Path(__file__).parents[3]
# Fails on whatever acts outside of the folder named first; what Python itself opens to import is read only.
WATCHED = """
import os, sys
allowed = os.path.realpath(sys.argv[1])
def hook(event, args):
    # The layout of pictures is a child of ours, which gets sizes and no words.
    if event == "subprocess.Popen" and list(args[1][1:4]) == ["-P", "-m", "dynadiag.graphs.graphviz_worker"]:
        return
    if event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "ctypes.dlopen"):
        raise SystemExit(f"acted: {event} {args!r}")
    if event == "open" and isinstance(args[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(args[0]))
        follows = not (isinstance(args[2], int) and args[2] & os.O_NOFOLLOW)
        if follows and (path.startswith(("/etc/shadow", "/etc/passwd")) or "/private/" in path):
            raise SystemExit(f"read: {path}")
        writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        inside = path.startswith(allowed) or not os.path.isabs(os.fsdecode(args[0]))
        if writes and not inside and path != os.devnull and "__pycache__" not in path:
            raise SystemExit(f"wrote: {path}")
sys.addaudithook(hook)
sys.argv = ["dynadiag", *sys.argv[2:]]
from dynadiag_cli.main import main
main()
"""


@pytest.fixture
def folder(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "file").write_text("precious")
    (tmp_path / "private" / LOG).write_text("V1121 07:22:11.076000 3362 torch/a.py:1] {}\n")
    text = Path(tmp_path / "private" / "file")
    hostile = {"format": 1, "dynadiag": "1", "exit_status": 1, "signal": "@me <script>", "cwd": str(tmp_path / "private"), "command": ["x"]}
    (run / "dynadiag-run.json").write_text(json.dumps(hostile))
    graph = json.dumps({"dynamo_output_graph": {}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": "0"})
    stack = [{"line": 1, "name": "f", "filename": 0, "loc": None}]
    start = json.dumps({"dynamo_start": {"stack": stack}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0})
    names = json.dumps({"str": [str(text), 0]})
    head = "V1121 07:22:11.076000 3362 torch/_dynamo/x.py:1] "
    body = 'class GraphModule(torch.nn.Module):\n\t    def forward(self, x: "f32[4][1]cpu"):\n\t        return (x,)'
    (run / LOG).write_text(f"{head}{names}\n{head}{start}\n{head}{graph}\n\t{body}\n")
    yield run
    assert text.read_text() == "precious" and sorted(item.name for item in text.parent.iterdir()) == [LOG, "file"]


@pytest.mark.parametrize("name", ["linked.log", "dedicated_log_torch_trace_2.log"])
def test_linked_logs_are_left_alone(folder, name):
    (folder / name).symlink_to(folder.parent / "private" / LOG)
    assert [log.name for log in find_sources(folder).logs] == [LOG]


@pytest.mark.parametrize("name", ["dynadiag-run.json", "parity.json", LOG])
@pytest.mark.parametrize("kind", ["pipe", "link", "device", "folder"])
def test_what_is_no_file_is_said_and_not_waited_for(folder, name, kind):
    (folder / name).unlink(missing_ok=True)
    make = {
        "pipe": lambda path: os.mkfifo(path),
        "link": lambda path: path.symlink_to("/etc/passwd"),
        "device": lambda path: path.symlink_to("/dev/zero"),
        "folder": lambda path: path.mkdir(),
    }
    make[kind](folder / name)
    report = build_with_replay(load(folder), folder)
    if name != LOG:
        assert any(name in note for note in report.notes) and len(report.run.graphs) == 1


def explained(folder, *arguments):
    command = [sys.executable, "-c", WATCHED, str(folder), *arguments]
    path = os.pathsep.join((str(ROOT), str(ROOT / "cli")))
    return subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120)


def test_explain_follows_no_link_out_of_the_folder_and_shows_no_file_that_a_log_names(folder):
    outside = folder.parent / "private"
    for name in (".report.md.part", ".report.json.part", ".parity.json.part", "dynadiag-run.json.tmp", "report.md", "report.json"):
        (folder / name).symlink_to(outside / "file")
    (folder / "graphs").symlink_to(outside)
    done = explained(folder, "explain", "--renderer", "svg", str(folder))
    assert done.returncode == 0 and "it is a link, which is not followed" in done.stderr, done.stderr
    shown = done.stdout + (folder / "report.md").read_text() + (folder / "report.json").read_text()
    assert "precious" not in shown and not (folder / "report.md").is_symlink()


def test_a_report_names_neither_mentions_nor_markup_of_the_marker(folder):
    assert explained(folder, "explain", "--no-pictures", str(folder)).returncode == 0
    text = (folder / "report.md").read_text()
    assert "<script" not in text.replace("\\<", "") and "@me" not in text
