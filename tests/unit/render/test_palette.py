import re

import pytest

from dynadiag.render import palette

FILLS = [name for name in palette.COLOURS if name.endswith("_fill")] + [
    "ground", "panel", "inner", "matrix", "attention", "normalisation", "pointwise", "reduction", "view", "write", "collective",
    "dependent", "input",
]  # fmt: skip


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", [0, 1])
@pytest.mark.parametrize("fill", FILLS)
def test_text_is_readable_on_every_fill(fill, ground):
    for ink in ("ink", "dim"):
        assert contrast(palette.COLOURS[ink][ground], palette.COLOURS[fill][ground]) >= 4.5, ink


@pytest.mark.parametrize("ground", [0, 1])
def test_marks_are_readable_on_the_ground_and_under_their_text(ground):
    for mark in ("accent", "link", "compiled", "broken", "eager"):
        for behind in ("ground", "panel"):
            assert contrast(palette.COLOURS[mark][ground], palette.COLOURS[behind][ground]) >= 4.5, (mark, behind)
    assert contrast(palette.COLOURS["on_mark"][ground], palette.COLOURS["broken"][ground]) >= 4.5


@pytest.mark.parametrize("ground", [0, 1])
@pytest.mark.parametrize("behind", ["ground", "panel", "broken_fill", "compiled_fill"])
def test_code_is_readable_in_every_row_of_a_ladder(behind, ground):
    for token in ("keyword", "link", "dim", "accent", "number"):
        assert contrast(palette.COLOURS[token][ground], palette.COLOURS[behind][ground]) >= 4.5, token


def test_a_style_sheet_has_the_used_classes_only_and_both_grounds():
    text = palette.style(["dd-bg", "dd-o", "no such class"])
    light, dark = text.split("@media (prefers-color-scheme:dark)")
    assert re.findall(r"\.([\w-]+)\{", light) == re.findall(r"\.([\w-]+)\{", dark) == ["dd-bg", "dd-o"]
    assert "fill:#ffffff" in light and "fill:#0d1117" in dark
    assert not re.search(r"url|@import|expression|<", palette.style(palette.CLASSES))


def test_a_page_gets_every_colour_twice():
    assert palette.custom_properties().count("--dd-") == 2 * len(palette.COLOURS)
