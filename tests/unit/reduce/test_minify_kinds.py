"""What `dynadiag minify --kind` refuses: one clear line and exit status 2, before anything is run or written."""

from __future__ import annotations

import sys

import pytest

from dynadiag_cli.main import main


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kind", "graph_break", "-m", "json.tool"], "--kind graph_break needs a script, not -m MODULE: a graph break lies between"),
        (["--kind", "recompile", "run#g1"], "--kind recompile needs a script, not a recording: a recompile needs two calls"),
        (["--kind", "cudagraph_skip", "run#g1"], "decided over a whole call, so the script itself is reduced"),
        (["--kind", "fallback", "missing.py"], "no such script: missing.py"),
        (["--memory-limit", "100", "script.py"], "--memory-limit belongs to --kind oom"),
        (["--kind", "nan", "--memory-limit", "100", "script.py"], "--memory-limit belongs to --kind oom"),
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
