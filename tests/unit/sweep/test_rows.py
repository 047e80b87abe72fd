"""The journal of a sweep: every whole row is read again, whatever happened to the file."""

from __future__ import annotations

import json
import resource
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.errors import UnreadableInputError
from dynadiag.sweep.rows import JOURNAL, append, merged, read
from tests.unit.sweep.sweep_builders import finding, row_of

ROWS = [row_of(f"k{number}", findings=(finding(),) * number, reason="ü\n\u2028") for number in range(3)]


def test_rows_are_read_as_they_were_written(tmp_path):
    for row in ROWS:
        append(tmp_path, row)
    assert read(tmp_path) == ROWS


def test_a_later_row_of_a_key_replaces_the_earlier(tmp_path):
    append(tmp_path, row_of("a", status="failed"))
    append(tmp_path, row_of("b"))
    append(tmp_path, row_of("a"))
    assert [(row.key, row.status) for row in read(tmp_path)] == [("b", "done"), ("a", "done")]


@given(cut=st.integers(0, 2000))
def test_what_was_cut_off_costs_the_last_row_and_no_other(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("cut")
    for row in ROWS:
        append(folder, row)
    whole = (folder / JOURNAL).read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    cut = min(cut, len(whole))
    (folder / JOURNAL).write_bytes(whole[:cut])
    left = sum(end <= cut for end in ends)
    assert read(folder) == ROWS[:left]
    append(folder, row_of("new"))  # the half line is gone, not joined with the new one
    assert read(folder) == [*ROWS[:left], row_of("new")]


@given(st.binary(max_size=300))
def test_rubbish_is_no_row(tmp_path_factory, rubbish):
    folder = tmp_path_factory.mktemp("rubbish")
    append(folder, ROWS[0])
    with (folder / JOURNAL).open("ab") as stream:
        stream.write(rubbish + b"\n")
    append(folder, ROWS[1])
    assert read(folder) == ROWS[:2]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from(["key", "status", "reason", "settings", "graphs", "wall_s", "findings"]), value=_JSON)
def test_a_row_has_only_values_of_its_types(tmp_path_factory, name, value):
    folder = tmp_path_factory.mktemp("types")
    append(folder, ROWS[1])
    line = json.loads((folder / JOURNAL).read_bytes())
    (folder / JOURNAL).write_text(json.dumps({**line, name: value}) + "\n")
    for row in read(folder):
        assert isinstance(row.key, str)
        assert isinstance(row.status, str)
        assert row.graphs is None or type(row.graphs) is int
        assert all(isinstance(one.code, str) and isinstance(one.title, str) for one in row.findings)


def test_a_full_disk_keeps_the_rows_before(tmp_path):
    append(tmp_path, ROWS[0])
    before = (tmp_path / JOURNAL).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            append(tmp_path, ROWS[2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert (tmp_path / JOURNAL).read_bytes() == before


def test_shards_are_merged_each_key_once(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    append(tmp_path / "one", row_of("a"))
    append(tmp_path / "one", row_of("b", status="crashed"))
    append(tmp_path / "two", row_of("a", status="timeout"))
    append(tmp_path / "two", row_of("b"))
    append(tmp_path / "two", row_of("c"))
    assert {row.key: row.status for row in merged([tmp_path / "one", tmp_path / "two"])} == {"a": "done", "b": "done", "c": "done"}


def test_a_folder_without_rows_is_no_sweep(tmp_path):
    with pytest.raises(UnreadableInputError, match="is no sweep"):
        read(tmp_path)
