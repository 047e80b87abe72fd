"""The command: what it writes, what it says, and with which exit status."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import duckdb
import jsonschema
import pytest
from typer.testing import CliRunner

from dynadiag.errors import OutputError
from dynadiag.sweep import query as library
from dynadiag.sweep.rows import append
from dynadiag.sweep.session import SweepState
from dynadiag.sweep.show import progress_of
from dynadiag_cli.app import app
from tests.unit.sweep.sweep_builders import finding, row_of, write_matrix

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "sweep.schema.json").read_text())
HOSTILE = "<script>alert(1)</script>\x1b[31m'; DROP TABLE rows; --"


def sweep(*words, status):
    found = CliRunner().invoke(app, ["sweep", *map(str, words)])
    assert found.exit_code == status, found.output + repr(found.exception)
    return found.stdout


@pytest.fixture
def swept(tmp_path):
    folder = tmp_path / "swept"
    folder.mkdir()
    append(folder, row_of("a", subject=HOSTILE, graphs=2, break_sites=1, recompiles=0, findings=(finding(title=HOSTILE),), compile_s=1.5))
    append(folder, row_of("b", status="failed", reason=HOSTILE))
    return folder


def test_a_sweep_writes_rows_table_and_page(tmp_path):
    matrix = write_matrix(tmp_path, ["fine", "raise", "skip"])
    said = sweep("--out", tmp_path / "out", matrix, status=1)
    assert "FAILED: 3 tasks: " in said
    assert "ValueError: no such luck" in said
    assert "Skipped\n  subject    because\n  p.py skip  it needs a download" in said
    assert {one.name for one in (tmp_path / "out").iterdir()} == {
        "dynadiag-sweep.json",
        "rows.jsonl",
        "rows.parquet",
        "report.html",
        "tasks",
    }
    sweep("--out", tmp_path / "out", "--fail-on", "never", matrix, status=0)
    given = json.loads(sweep("--out", tmp_path / "out", "--format", "json", matrix, status=1))
    jsonschema.validate(given, SCHEMA)
    assert given["counts"] == {"done": 1, "failed": 1, "skipped": 1}
    page = (tmp_path / "out" / "report.html").read_text()
    keys = [row["key"] for row in given["rows"]]
    assert all(f'href="tasks/{key}/output.txt"' in page for key in keys)


def test_progress_counts_tasks_and_tells_reductions_apart():
    tasks = tuple(SimpleNamespace(key=key) for key in "abcd")
    rows = tuple(row_of(key, status="failed") for key in "abcd")
    state = SweepState(folder=Path("x"), tasks=tasks, rows=rows[:3], before=0)
    assert progress_of(state, 61.0) == "3 of 4 tasks, 3 failed, about 61 s left"
    reduced = replace(state, rows=(*rows, row_of("m", verb="minify", status="failed")))
    assert progress_of(replace(state, rows=rows), 0.0) == "4 of 4 tasks, 4 failed"
    assert progress_of(reduced, 200.0) == "4 of 4 tasks, 4 failed, 1 reduced, about 3 min left"


def test_a_full_disk_is_one_line_and_keeps_the_rows(tmp_path, monkeypatch):
    matrix, out = write_matrix(tmp_path, ["fine", "skip"]), tmp_path / "out"

    def full(folder, row):
        if row.subject.endswith("skip"):
            raise OSError(errno.ENOSPC, "No space left on device")
        append(folder, row)

    monkeypatch.setattr("dynadiag.sweep.rows.append", full)
    found = CliRunner().invoke(app, ["sweep", "--out", str(out), str(matrix)])
    assert isinstance(found.exception, OutputError) and found.stdout == ""
    assert "1 task left no row (p.py skip (default, run): No space left on device); the rows so far are in" in str(found.exception)
    monkeypatch.undo()
    assert "1 of them done before" in sweep("--out", out, matrix, status=0)


def test_what_regressed_since_the_night_before_is_a_view(tmp_path):
    nights = ((1, "done", 0), (2, "done", 3), (3, "done", 4)), ((1, "done", 3), (2, "done", 3)), ((1, "skipped", None), (2, "failed", None))
    for number, rows in enumerate(nights):
        for night, status, breaks in rows:
            given = {"status": status, "break_sites": breaks, "torch": f"2.{night}", "started_at": f"2026-11-0{night}"}
            append(tmp_path, row_of(f"k{number}{night}", subject=f"s{number}", **given))
    found = json.loads(sweep("query", tmp_path, "regressed", "--format", "json", status=0))
    at = [found["columns"].index(name) for name in ("subject", "old_torch", "torch", "old_status", "status", "old_breaks", "break_sites")]
    assert [[row[one] for one in at] for row in found["rows"]] == [
        ["s0", "2.2", "2.3", "done", "done", 3, 4],
        ["s2", "2.1", "2.2", "skipped", "failed", None, None],
    ]


def test_a_query_is_sql_or_a_view(swept):
    given = json.loads(
        sweep("query", swept, "select subject, break_sites + 1 as more from rows order by key", "--format", "json", status=0)
    )
    jsonschema.validate(given, SCHEMA)
    assert given["columns"] == ["subject", "more"]
    assert given["rows"][0] == [HOSTILE, 2]
    for view in library.VIEWS:
        assert "\x1b" not in sweep("query", swept, view, status=0)
    assert "GB0059" in sweep("query", swept, "codes", status=0)
    append(swept, row_of("c", findings=(finding(file="/a/venv/lib/python3.12/site-packages/transformers/cache.py"),)))
    assert "transformers/cache.py" in sweep("query", swept, "places", status=0)
    assert "site-packages" not in sweep("query", swept, "places", status=0)


def test_the_most_expensive_findings_come_first_and_measured_ones_before_counted_ones(tmp_path):
    found = [(3.0, "recompiles"), (0.4, "ms per call"), (12.5, "ms per call"), (None, None)]
    append(tmp_path, row_of(findings=tuple(finding(cost=cost, unit=unit) for cost, unit in found)))
    given = json.loads(sweep("query", tmp_path, "select cost, unit from costs", "--format", "json", status=0))
    assert given["rows"] == [[12.5, "ms per call"], [0.4, "ms per call"], [3.0, "recompiles"]]


@pytest.mark.parametrize(
    "sql", ["select * from read_text('/etc/passwd')", "copy rows to '/tmp/x.csv'", "attach '/tmp/x.db'", "selec 1", "no_view"]
)
def test_a_query_reaches_no_file_and_its_error_is_one_line(swept, sql):
    found = subprocess.run(
        [sys.executable, "-m", "dynadiag", "sweep", "query", swept, sql], capture_output=True, text=True, check=False, env=_environment()
    )
    assert found.returncode == 2
    assert found.stderr.startswith("dynadiag: error: the query failed")
    assert found.stderr.count("\n") == 1


def _environment():
    root = Path(__file__).parents[3]
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'cli'}"}


def test_a_number_is_never_cut(swept, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    said = sweep("query", swept, "select 1234567.891 as n, repeat('x', 60) as a, repeat('y', 500) as b, 3 as m", status=0)
    assert "1.23457e+06" not in said
    assert "1234567.891" in said
    assert said.splitlines()[1].endswith("  3")


def test_the_parquet_file_has_each_row_once(swept):
    path = library.write_parquet([row_of("a", findings=(finding(),)), row_of("b")], swept)
    found = duckdb.sql(f"select key, findings[1].code from '{path}' order by key").fetchall()
    assert found == [("a", "GB0059"), ("b", None)]


def test_diff_gives_1_for_a_regression(swept, tmp_path):
    better = tmp_path / "better"
    better.mkdir()
    append(better, row_of("a", subject=HOSTILE, graphs=1, break_sites=0))
    append(better, row_of("b"))
    assert "Better: 2 subjects: 1 task that ended in another way, 1 finding gone" in sweep("diff", swept, better, status=0)
    given = json.loads(sweep("diff", better, swept, "--format", "json", status=1))
    jsonschema.validate(given, SCHEMA)
    assert given["worse"] is True
    assert [one["kind"] for one in given["changes"]] == ["finding", "status"]


def test_diff_of_one_folder_compares_with_what_ran_before(tmp_path):
    append(tmp_path, row_of("a", subject="m", torch="2.11.0"))
    append(tmp_path, row_of("b", subject="only once"))
    found = CliRunner().invoke(app, ["sweep", "diff", str(tmp_path)])
    assert "ran with two versions" in found.exception.message
    append(tmp_path, row_of("c", subject="m", torch="2.13.0", findings=(finding(),)))
    append(tmp_path, row_of("d", subject="m", torch="2.15.0", status="failed", reason="E"))
    given = json.loads(sweep("diff", tmp_path, "--format", "json", status=1))
    assert [(one["subject"], one["old"], one["new"]) for one in given["changes"]] == [("m", "done", "failed: E")]
    assert given["torch"] == [["2.13.0"], ["2.15.0"]]
    assert given["only_new"] == ["only once explain default"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.toml"], "none.toml: No such file or directory (a matrix in TOML, or one of"),
        (["a.toml", "b.toml"], "takes one matrix or suite, but got 2 words"),
        (["a.toml", "--limit", "3"], "--limit is for a suite"),
        (["a.toml", "--shard", "3/2"], "--shard takes I/N"),
        (["diff"], "compares two sweeps, or one with what ran in its folder before, but got 0 words"),
        (["query"], "takes the folders of sweeps"),
    ],
)
def test_bad_usage_is_one_line(words, said):
    found = CliRunner().invoke(app, ["sweep", *words])
    assert said in getattr(found.exception, "message", "") or said in found.output


def test_failures_are_reduced_on_request_only(tmp_path, monkeypatch):
    matrix, asked = write_matrix(tmp_path, ["fine"]), []

    def only_asked(matrix, folder, options, told):
        asked.append(options.minify)
        raise OutputError("nothing is run here")

    monkeypatch.setattr("dynadiag.sweep.session.sweep", only_asked)
    for words in ([], ["--minify", "failures"]):
        CliRunner().invoke(app, ["sweep", "--out", str(tmp_path / "out"), *words, str(matrix)])
    assert asked == [False, True]
