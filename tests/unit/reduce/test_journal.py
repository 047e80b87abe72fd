"""The journal survives being killed at any byte, and refuses what is not its own."""

from __future__ import annotations

import pytest

from dynadiag.errors import OutputError, UnreadableInputError
from dynadiag.reduce.core.journal import Journal
from dynadiag.reduce.core.verdict import Verdict, as_verdict


def written(path):
    journal = Journal(path, subject="s")
    journal.put("a", Verdict.INTERESTING)
    journal.put("b", Verdict.DIFFERENT, "another failure")
    journal.put("c", Verdict.BORING)
    journal.close()
    return path.read_bytes()


def test_a_journal_cut_at_any_byte_keeps_all_whole_lines(tmp_path):
    path = tmp_path / "journal"
    whole = written(path)
    ends = [position + 1 for position, byte in enumerate(whole) if byte == 10]
    for length in range(ends[0], len(whole) + 1):
        path.write_bytes(whole[:length])
        journal = Journal(path, subject="s", resume=True)
        assert journal.recovered == sum(end <= length for end in ends) - 1
        journal.put("d", Verdict.TIMEOUT)
        journal.close()
        again = Journal(path, subject="s", resume=True)
        assert again.get("d") == (Verdict.TIMEOUT, "")
        again.close()


def test_without_resume_it_begins_anew(tmp_path):
    written(tmp_path / "journal")
    journal = Journal(tmp_path / "journal", subject="s")
    assert journal.get("a") is None
    journal.close()


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\n", b"[1]\n", b"[" * 100_000 + b"\n", b'{"journal": 1, "subject": "other"}\n', b'{"journal": 1, "subj']
)
def test_a_journal_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "journal").write_bytes(content)
    if not content:
        Journal(tmp_path / "journal", subject="s", resume=True).close()
        return
    with pytest.raises(UnreadableInputError, match="is not the journal"):
        Journal(tmp_path / "journal", subject="s", resume=True)
    assert (tmp_path / "journal").read_bytes() == content


def test_what_is_nested_too_deep_ends_what_is_known(tmp_path):
    path = tmp_path / "journal"
    written(path)
    path.write_bytes(path.read_bytes() + b'{"key": ' + b"[" * 100_000 + b"\n")
    journal = Journal(path, subject="s", resume=True)
    assert journal.recovered == 3
    journal.close()


def test_unknown_verdicts_are_asked_again(tmp_path):
    path = tmp_path / "journal"
    written(path)
    path.write_bytes(path.read_bytes() + b'{"key": "z", "verdict": "splendid"}\n')
    journal = Journal(path, subject="s", resume=True)
    assert journal.get("z") is None and journal.recovered == 3
    journal.close()


@pytest.mark.parametrize(
    ("answer", "verdict"), [(True, Verdict.INTERESTING), (0, Verdict.BORING), (None, Verdict.BORING), (Verdict.TIMEOUT, Verdict.TIMEOUT)]
)
def test_an_oracle_may_answer_with_a_bool(answer, verdict):
    assert as_verdict(answer) is verdict


def test_an_oracle_that_answers_with_text_is_no_oracle():
    with pytest.raises(TypeError, match="the oracle returned 'boring': expected a bool or a dynadiag.Verdict"):
        as_verdict("boring")


@pytest.mark.parametrize("resume", [False, True])
def test_a_link_in_place_of_the_journal_is_refused_and_not_followed(tmp_path, resume):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "journal").symlink_to(tmp_path / "precious")
    with pytest.raises(OutputError, match="cannot write the journal .*: it is a link, which is not followed"):
        Journal(tmp_path / "journal", subject="s", resume=resume)
    assert (tmp_path / "precious").read_text() == "precious"
