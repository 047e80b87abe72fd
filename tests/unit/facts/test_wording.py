"""Short texts for places."""

import pytest

from dynadiag.facts.wording import excerpt, short_place
from dynadiag.model.location import Location


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/home/me/train.py", "train.py:3"),
        ("/site-packages/libx/__init__.py", "libx/__init__.py:3"),
        (r"C:\work\tool\__main__.py", "tool/__main__.py:3"),
        ("__init__.py", "__init__.py:3"),
        ("/__init__.py", "__init__.py:3"),
    ],
)
def test_a_file_that_every_package_has_is_named_with_its_package(file, said):
    assert short_place(Location(file, 3)) == said


def test_a_long_text_ends_behind_a_whole_word():
    said = "To prevent overwriting, clone the tensor outside of torch.compile()"
    assert excerpt(said, len(said)) == excerpt(f"  {said}\n", 200) == said
    assert excerpt(said, 30) == "To prevent overwriting, ..."
    cure = "You can fix this by cloning it."
    assert (
        excerpt(f"The output is a view of a tensor that was modified in place. {cure}", 70)
        == f"The output is a view of a tensor ... {cure}"
    )
    assert excerpt("x" * 50, 20) == f"{'x' * 16} ..."
