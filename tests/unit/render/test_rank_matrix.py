"""The picture of ranks by frames: small however many ranks and groups there are, and nothing from a log gets through as markup."""

from xml.etree import ElementTree

from dynadiag.model.digest import RankComparison, RankGroup
from dynadiag.render.rank_matrix import rank_matrix

SVG = "{http://www.w3.org/2000/svg}"


def comparison(groups, frames, ranks=4096):
    numbers = [range(at, ranks, len(groups)) for at in range(len(groups))]
    made = tuple(
        RankGroup(mark=name, ranks=tuple(members), representative=members[0], events=3)
        for name, members in zip(groups, numbers, strict=True)
    )
    return RankComparison(groups=made, ranks=ranks, frames=frames)


def test_equal_ranks_have_no_picture():
    assert rank_matrix(comparison("a", {"f (a.py:1)": (1,)})) is None


def test_each_cell_says_how_a_group_differs_from_the_largest():
    drawn = rank_matrix(comparison("abc", {"f (a.py:1)": (1, 2, 0), "g (a.py:9)": (1, 1, 1)}, ranks=9))
    cells = [one for one in ElementTree.fromstring(drawn).iter(f"{SVG}g") if one.find(f"{SVG}rect") is not None]
    assert [one.find(f"{SVG}rect").get("class")[3:] for one in cells] == ["compiled", "compiled", "broken", "compiled", "gone", "compiled"]
    assert "f (a.py:1): something else" in cells[2].find(f"{SVG}title").text


def test_a_resume_function_has_the_name_that_people_gave_it():
    drawn = rank_matrix(comparison("ab", {"Net.torch_dynamo_resume_in_forward_at_13 (a.py:13)": (1, 2)}, ranks=4))
    assert "1 Net.forward, resumed at line 13 (a.py:13)" in drawn and "torch_dynamo_resume" not in drawn


def test_thousands_of_ranks_in_many_groups_and_frames_fit():
    frames = {f"<b>&f{number}\x1b (a.py:{number})": (1, *(number % 3 for _ in range(63))) for number in range(300)}
    found = comparison([str(number) for number in range(64)], frames)
    drawn = rank_matrix(found)
    root = ElementTree.fromstring(drawn)
    assert root.get("width") == "860" and float(root.get("height")) < 1700
    rects = [one for one in root.iter(f"{SVG}rect") if one.get("class") != "dd-bg"]
    assert all(float(one.get("x")) + float(one.get("width")) <= 860 for one in rects) and len(rects) < 2500
    assert "<b>" not in drawn and "prefers-color-scheme" in drawn and drawn == rank_matrix(found)
