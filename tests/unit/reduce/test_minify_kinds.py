"""What `dynadiag minify --kind` refuses: one clear line and exit status 2, before anything is run or written."""

from __future__ import annotations

import sys

import pytest

from dynadiag_cli.main import main


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kind", "graph_break"], "--kind graph_break cannot be reduced: a graph break lies between graphs"),
        (["--kind", "graph_break", "--match", "GB0170"], "--kind graph_break cannot be reduced"),
        (["--kind", "recompile"], "--kind recompile cannot be reduced"),
        (["--kind", "cudagraph_skip"], "shows only on a GPU"),
        (["--memory-limit", "100"], "--memory-limit belongs to --kind oom"),
        (["--kind", "nan", "--memory-limit", "100"], "--memory-limit belongs to --kind oom"),
    ],
)
def test_what_cannot_be_reduced_is_refused_in_one_line(options, said, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("open('ran', 'w')")
    monkeypatch.setattr(sys, "argv", ["dynadiag", "minify", *options, "script.py"])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2 and said in error and "Traceback" not in error and len(error.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
