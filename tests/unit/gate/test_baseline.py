"""The baseline file: written and read again, and refused in one line where it is another's, newer, or was edited into rubbish."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.errors import DynadiagError, OutputError, UnreadableInputError
from dynadiag.gate.baseline import Baseline, Entry, KnownProblems, read, write

MARK = "38053-6fb5d31f-2813f0-86e27a-cc92b3"
WHOLE = Baseline(
    programs={
        "train.py": KnownProblems(
            torch="2.15.0", entries=(Entry(fingerprint=MARK, code="GB0059", file="train.py", function="step", source="print(1)"),)
        ),
        "-m pkg.eval": KnownProblems(),
    }
)


def in_baseline(problems):
    return json.dumps({"dynadiag_baseline": 1, "programs": {"t.py": {"problems": problems}}})


def test_it_is_read_as_it_was_written(tmp_path):
    write(tmp_path / "b.json", WHOLE)
    assert read(tmp_path / "b.json") == WHOLE
    assert sum(MARK in line for line in (tmp_path / "b.json").read_text().splitlines()) == 1
    write(tmp_path / "b.json", Baseline())
    assert read(tmp_path / "b.json") == Baseline()
    assert read(tmp_path / "none.json") is None


def test_a_file_without_a_scheme_of_fingerprints_is_of_before_there_were_numbers(tmp_path):
    (tmp_path / "b.json").write_text(in_baseline([{"fingerprint": MARK, "code": "GB0059"}]))
    known = read(tmp_path / "b.json").of("t.py")
    assert known.scheme == 0
    write(tmp_path / "b.json", Baseline(programs={"t.py": known}))
    assert read(tmp_path / "b.json").of("t.py") == known


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON (line 1)"),
        ('{\n"a": 1,\n<<<<<<< HEAD\n}', "is not JSON (line 3)"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a dynadiag baseline"),
        ('{"schema_version": 1}', "is not a dynadiag baseline"),
        ('{"dynadiag_baseline": true, "programs": {}}', "is not a dynadiag baseline"),
        ('{"dynadiag_baseline": 2, "programs": {}}', "has version 2, this dynadiag reads version 1"),
        ('{"dynadiag_baseline": 1}', 'is damaged: "programs" is not an object'),
        ('{"dynadiag_baseline": 1, "programs": {"t.py": []}}', "is damaged: 't.py' has no list \"problems\""),
        ('{"dynadiag_baseline": 1, "programs": {"t.py": {"problems": [3]}}}', "problem 1 of 't.py' is not a valid entry"),
        (
            '{"dynadiag_baseline": 1, "programs": {"t.py": {"problems": [], "fingerprints": "1"}}}',
            "\"fingerprints\" of 't.py' is not a number",
        ),
        (in_baseline([{"fingerprint": "abc", "code": "X"}]), "problem 1 of 't.py' is not a valid entry"),
        (in_baseline([{"fingerprint": MARK, "code": "X"}, {"fingerprint": MARK}]), "problem 2 of 't.py' is not a valid entry"),
        (in_baseline([{"fingerprint": MARK, "code": "X"}] * 2), "has a fingerprint twice"),
    ],
)
def test_rubbish_is_one_line_and_stays_as_it_is(tmp_path, text, said):
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(UnreadableInputError) as error:
        read(path)
    assert said in error.value.message and "\n" not in error.value.message and error.value.exit_code == 2
    assert path.read_text() == text


KEYS = ["dynadiag_baseline", "programs", "problems", "fingerprint", "code", "torch"]
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner), max_leaves=12))
def test_any_json_is_read_or_refused(tmp_path_factory, document):
    path = tmp_path_factory.mktemp("any") / "b.json"
    path.write_text(json.dumps(document))
    try:
        assert isinstance(read(path), Baseline)
    except DynadiagError as error:
        assert "\n" not in error.message


def test_what_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        write(tmp_path / "folder", WHOLE)
    with pytest.raises(OutputError, match="cannot be written"):
        write(Path("/proc/none/b.json"), WHOLE)
