"""The page in docs says what the tables say."""

import functools
import re
from pathlib import Path

import pytest

from dynadiag.advice.catalogue import described, page
from tests.documented_fixes import kinds

ROOT = Path(__file__).parents[3]
slugs = functools.cache(described)
TABLES = sorted((*(ROOT / "dynadiag/advice").glob("*.py"), *(ROOT / "dynadiag/changes").glob("*.py")))


def test_the_page_is_up_to_date():
    assert (ROOT / "docs" / "advice.md").read_text() == page()


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_every_slug_of_a_table_is_on_the_page(table):
    written = set(re.findall(r'"([a-z]+[0-9]*(?:-[a-z0-9]+)+)"', table.read_text())) - {
        "data-dependent",
        "not-applicable",
        "re-recording",
        "site-packages",
        "utf-8",
    }
    assert written <= set(slugs()) | {slug for named, _ in kinds() for slug in named}


@pytest.mark.parametrize(
    ("slug", "words"),
    [
        ("ddp-compile-inside", "`model = DDP(torch.compile(net))`"),
        ("graph-break-remove", "it requests the break"),
        ("mark-dynamic", "so the first version is dynamic already"),
        ("lr-as-tensor", "Where the optimizer is created"),
    ],
)
def test_a_slug_has_its_own_words(slug, words):
    assert words in slugs()[slug]
