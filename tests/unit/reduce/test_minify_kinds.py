"""What `dynadiag minify --kind` refuses: one clear line and exit status 2, before anything is run or written."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from dynadiag.record import directory
from dynadiag.reduce import minification
from dynadiag.reduce.minification import Minified
from dynadiag_cli.main import main
from dynadiag_cli.minify_output import print_path, report, say


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kind", "graph_break", "-m", "json.tool"], "--kind graph_break needs a script, not -m MODULE: a graph break is between"),
        (["--kind", "recompile", "run#g1"], "--kind recompile needs a script, not a recording: a recompile needs two calls"),
        (["--kind", "cudagraph_skip", "run#g1"], "decided for a whole call, so the script itself is reduced"),
        (["--kind", "fallback", "missing.py"], "no such script: missing.py"),
        (["--memory-limit", "100", "script.py"], "--memory-limit only works with --kind oom"),
        (
            ["--match", "a(", "script.py"],
            "--match 'a(' is not a valid regular expression: missing ), unterminated subpattern at position 1",
        ),
        (["--backend", "aot_eager", "script.py"], "--backend only works with a recorded graph (RUN or RUN#ID)"),
        (["--kind", "nan", "--memory-limit", "100", "script.py"], "--memory-limit only works with --kind oom"),
        (["--python", "no-such-python", "script.py"], "--python: no-such-python cannot be started: there is no such interpreter"),
    ],
)
def test_what_cannot_be_reduced_is_refused_in_one_line(options, said, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("open('ran', 'w')")
    monkeypatch.setattr(sys, "argv", ["dynadiag", "minify", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2 and said in error and "Traceback" not in error and len(error.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


@pytest.mark.parametrize("spelling", [["--python", "PYTHON"], ["--python=PYTHON"]])
def test_another_interpreter_gets_the_whole_command(spelling, monkeypatch, tmp_path):
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\nexit 0\n")
    other.chmod(0o755)
    became = []

    def become(path, words):
        became.append((path, words))
        raise SystemExit

    monkeypatch.setattr(os, "execv", become)
    words = [word.replace("PYTHON", str(other)) for word in spelling]
    monkeypatch.setattr(sys, "argv", ["dynadiag", "minify", *words, "-q", "train.py", "--python", "its own"])
    with pytest.raises(SystemExit):
        main()
    assert became == [(str(other), [str(other), "-m", "dynadiag", "minify", "-q", "train.py", "--python", "its own"])]


def test_a_repro_of_torch_is_read_and_run_only_when_asked(monkeypatch, tmp_path):
    repro = tmp_path / "repro.py"
    repro.write_text("from torch._dynamo.repro.after_dynamo import run_repro\ndef load_args(reader): pass\n")
    given = []
    monkeypatch.chdir(tmp_path)

    def taken(path, graph, *rest):
        given.append((path, graph))
        raise SystemExit

    def run(self):
        given.append(None)
        raise SystemExit

    monkeypatch.setattr(minification, "_taken", taken)
    monkeypatch.setattr(minification._Minification, "minify_target", run)
    for words in ([], ["--as-script"]):
        monkeypatch.setattr(sys, "argv", ["dynadiag", "minify", "--force", "--out", "made", *words, "repro.py", "run"])
        with pytest.raises(SystemExit):
            main()
    assert given == [(Path("repro.py"), None), None]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "made", "no\x1b[31m [red]such\n.py"], "dynadiag: error: no such script: no [red]such .py"),
        (["--out", "made", "data.csv"], "data.csv is not a Python script: line 1"),
        (["--out", "made", ""], "the target is an empty string"),
    ],
)
def test_nothing_is_made_for_a_script_that_is_none(words, said, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("a;b c;d")
    monkeypatch.setattr(sys, "argv", ["dynadiag", "minify", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2 and said in error and len(error.splitlines()) == 1 and "\x1b" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_what_is_said_does_nothing_to_the_terminal(capsys):
    say("writing to a  b\x1b]0;title\x07\nnext\u202e [red]line[/red]")
    assert capsys.readouterr().err == "dynadiag: writing to a  b next [red]line[/red]\n"


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ({"exceptions": ["x.Outer", "y.z.Inner"], "message": ""}, "Inner"),
        ({"exceptions": ["y.Inner"], "message": "the\nwords"}, "Inner: the words"),
        ({"exceptions": [], "message": "GB0170 a\ncontext"}, "GB0170 a context"),
    ],
)
def test_a_reduced_script_is_named_by_its_failure(signature, said, tmp_path, capsys):
    result = {
        "kind": "compile_error",
        "signature": signature,
        "size_before": {"statements": 4},
        "size_after": {"statements": 2},
        "queries": {"cut": 1},
        "left_out": [],
        "not_inlined": [],
        "flaky": None,
        "complete": True,
        "reproducer": "repro_min.py",
        "proven": {"runs": 3, "reproduced": 3},
        "almost": None,
    }
    done = Minified(result=result, directory=tmp_path, unit="statements")
    report(done)
    assert done.exit_code == 0
    assert capsys.readouterr().err.splitlines()[0] == f"dynadiag: compile_error: {said}"


def test_a_path_that_is_no_utf8_is_printed_as_it_is(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    print_path(Path(os.fsdecode(b"out\xff/repro_min.py")))
    print_path(Path("out/repro_min.py"))
    sys.stdout.flush()
    assert raw.getvalue() == b"out\xff/repro_min.py\nout/repro_min.py\n"


@pytest.mark.parametrize("words", [["LOG#g99"], ["LOG#nosuch"], ["LOG#"], ["gone#g3"], ["--out", "made", "LOG#g99"]])
def test_a_graph_that_is_not_there_leaves_no_folder_and_replaces_none(words, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    log = 'V0101 00:00:00.000000 1 torch/_logging/structured.py:28] {"str": ["a.py", 0]}\n'
    log += 'V0101 00:00:00.000000 1 a.py:1] {"dynamo_start": {"stack": []}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}\n'
    (tmp_path / "LOG").write_text(log)
    if "made" in words:
        directory.write_marker(directory.chosen_directory(tmp_path / "made", force=False), {"dynadiag": "1", "command": None})
        (tmp_path / "made" / "repro_min.py").write_text("kept")
        words = ["--force", *words]
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["dynadiag", "minify", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2 and len(error.strip().splitlines()) == 1 and "error: " in error, error
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before
