"""Variables of the environment that a failure needs are found by leaving them out, and are set in the file before torch is imported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.reduce.reproducer import proving
from dynadiag.reduce.reproducer.proving import MOST_RUNS, Proof, needed, proven_with_variables, variables_of_the_user, with_variables

ALL = {f"VARIABLE_{number}": str(number) for number in range(40)}


@given(st.sets(st.sampled_from(sorted(ALL)), min_size=1, max_size=2))
def test_what_is_needed_is_found(wanted):
    asked = []

    def fails(variables):
        asked.append(variables)
        return wanted <= set(variables)

    found = needed(ALL, "", fails)
    assert wanted <= set(found) and len(asked) <= MOST_RUNS
    assert len(found) <= 8 and (len(wanted) > 1 or set(found) == wanted)


def test_what_the_source_names_is_tried_first():
    asked = []

    def fails(variables):
        asked.append(sorted(variables))
        return "VARIABLE_7" in variables

    assert needed(ALL, 'os.environ.get("VARIABLE_7")', fails) == {"VARIABLE_7": "7"}
    assert asked == [["VARIABLE_7"], []]


def test_what_torch_reads_is_tried_next():
    asked = []

    def fails(variables):
        asked.append(sorted(variables))
        return "TORCHDYNAMO_X" in variables

    assert needed({**ALL, "TORCHDYNAMO_X": "1"}, "", fails) == {"TORCHDYNAMO_X": "1"}
    assert asked == [["TORCHDYNAMO_X"], []]


def test_what_one_file_needed_is_not_looked_for_again(monkeypatch):
    monkeypatch.setattr(proving, "_found", {})
    monkeypatch.setattr(proving, "variables_of_the_user", lambda: ALL)
    runs = []

    def fails(source, variables):
        runs.append(source)
        return "VARIABLE_7" in variables or "VARIABLE_7" in source

    def prove(source):
        return Proof(runs=3, reproduced=3 * fails(source, {}))

    first, proof, found = proven_with_variables("one", prove, fails)
    assert proof.holds and found == {"VARIABLE_7": "7"} and len(runs) > 5
    runs.clear()
    second, proof, found = proven_with_variables("two", prove, fails)
    assert proof.holds and found == {"VARIABLE_7": "7"} and runs == ["two", second]
    assert proven_with_variables("VARIABLE_7", prove, fails) == ("VARIABLE_7", Proof(runs=3, reproduced=3), {})


def test_a_failure_that_does_not_come_with_all_of_them_needs_another_thing():
    assert needed(ALL, "", lambda variables: False) is None


def test_secrets_and_paths_are_no_candidates():
    environment = {"HOME": "/h", "LC_ALL": "C", "MY_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "y", "DYNADIAG_OUT": "z", "FAST_TANH": "1"}
    environment |= {"DATABASE": "postgres://me:hunter2@host/db", "HUB": "hf_abcdefghijklmnopqrstuvwxyz"}
    assert variables_of_the_user(environment | {"TORCH_LOGS": "+dynamo"}) == {"FAST_TANH": "1"}


@pytest.mark.parametrize(
    "source",
    [
        '"""A failure.\n\nMore.\n"""\n\nimport torch\nassert os.environ["A"] == "b\'"\n',
        '"""A failure."""\nimport torch\nassert os.environ["A"] == "b\'"\n',
        '# a: b\n# c\n\nfrom __future__ import annotations\n\nassert os.environ["A"] == "b\'"\n',
        'assert os.environ["A"] == "b\'"\n',
    ],
)
def test_the_file_sets_them_first(source, monkeypatch):
    monkeypatch.setenv("A", "")
    text = with_variables(source, {"A": "b'"})
    first = text.index("os.environ['A'] = ")
    assert first < text.index("assert") and ("import torch" not in text or first < text.index("import torch"))
    exec(compile(text.replace("import torch\n", ""), "file", "exec", dont_inherit=True), {})
    assert with_variables(source, {}) == source
