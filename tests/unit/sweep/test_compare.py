"""Two sweeps compared: by task, by how it ended, and by fingerprints."""

from __future__ import annotations

import pytest

from dynadiag.errors import NothingFoundError
from dynadiag.sweep.compare import compare
from tests.unit.sweep.sweep_builders import finding, row_of

OTHER = "11111-6fb5d31f-2813f0-86e27a-cc92b3"


def told(changes):
    return [(one.subject, one.what, one.kind, one.finding and one.finding.code) for one in changes]


def test_findings_come_and_go_by_their_fingerprints():
    old = [row_of("a", findings=(finding(),)), row_of("b", findings=(finding("GB0001"),)), row_of("c")]
    new = [row_of("a", findings=(finding(),)), row_of("b"), row_of("c", findings=(finding("GB0170"),))]
    found = compare(old, new)
    assert told(found.changes) == [("b.py", "better", "finding", "GB0001"), ("c.py", "worse", "finding", "GB0170")]
    assert (found.pairs, found.unchanged, len(found.regressions)) == (3, 1, 1)


def test_another_torch_may_give_a_break_another_id():
    old = row_of("a", torch="2.11.0", findings=(finding(),))
    new = row_of("a", torch="2.15.0", findings=(finding("GB0200", fingerprint=OTHER),))
    assert compare([old], [new]).changes == ()
    assert len(compare([old], [row_of("a", torch="2.11.0", findings=(finding("GB0200", fingerprint=OTHER),))]).changes) == 2


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("done", "crashed", "worse"),
        ("done", "skipped", "worse"),
        ("timeout", "done", "better"),
        ("failed", "timeout", "worse"),
        ("skipped", "done", "better"),
    ],
)
def test_a_task_that_ends_in_another_way_is_a_change(old, new, what):
    found = compare([row_of("a", status=old, findings=(finding(),))], [row_of("a", status=new)])
    assert told(found.changes) == [("a.py", what, "status", None)]


def test_two_arms_of_one_sweep_are_two_torch_versions():
    rows = [row_of("a", subject="m", arm="old", torch="2.11.0"), row_of("b", subject="m", arm="new", findings=(finding(),))]
    found = compare(rows, rows, ("old", "new"))
    assert told(found.changes) == [("m", "worse", "finding", "GB0059")]
    assert found.torch == (("2.11.0",), ("2.15.0",))


def test_notes_are_no_regression_and_damaged_fingerprints_no_crash():
    old = [row_of("a", findings=(finding(fingerprint=None), finding(fingerprint="x")))]
    new = [row_of("a", findings=(finding(fingerprint="x"), finding(severity="note"), finding(fingerprint=None)))]
    assert compare(old, new).changes == ()


def test_nothing_in_common_is_said():
    with pytest.raises(NothingFoundError, match="--arms"):
        compare([row_of("a")], [row_of("b")])
