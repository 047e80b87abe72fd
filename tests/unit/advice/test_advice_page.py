"""The page in docs says what the tables say."""

from pathlib import Path

from dynadiag.advice.catalogue import page


def test_the_page_is_up_to_date():
    assert (Path(__file__).parents[3] / "docs" / "advice.md").read_text() == page()
