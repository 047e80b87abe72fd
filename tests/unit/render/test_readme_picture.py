"""The picture of the README is safe to show and says what was cut."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

_SPEC = importlib.util.spec_from_file_location("make_picture", Path(__file__).resolve().parents[3] / "docs/make_picture.py")
make_picture = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(make_picture)


def test_the_terminal_picture_needs_no_web_fonts_and_says_what_was_cut(samples):
    text = make_picture.terminal_svg(samples.hostile_report(), lines=20, title="<b>" + samples.HOSTILE)
    ElementTree.fromstring(text)
    assert text.count("http") == 1 + text.count("http://evil.example")
    assert "@font-face" not in text
    assert "url(http" not in text
    assert "<script>" not in text
    assert "more&#160;lines" in text
    assert "rgb" in text or "#" in text
