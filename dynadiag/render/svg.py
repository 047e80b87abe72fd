"""The wall around our SVG: only our own elements, attributes and classes pass; no scripts, no links, no outside references."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from dynadiag.render import palette
from dynadiag.render.sanitise import REPLACEMENT, without_unseen, xml_text

FONTS = "Arial,Helvetica,sans-serif"
NAMESPACE = "http://www.w3.org/2000/svg"
_ELEMENTS = frozenset({"svg", "g", "rect", "path", "polygon", "line", "text", "title"})
_ATTRIBUTES = frozenset(["width", "height", "viewBox", "class", "points", "d", "x", "y", "x1", "x2", "y1", "y2", "rx", "text-anchor"])


def sealed(root: ElementTree.Element, title: str, description: str) -> str:
    """The SVG text of a drawing of ours, with title, description and the palette's style sheet; nothing else is let through.

    Raises `ValueError` for an element, an attribute or a class that is not on our lists: no text from a log can become one, and an error
    of ours shall not make one.
    """
    used: set[str] = set()
    for element in root.iter():
        names = element.get("class", "").split()
        if element.tag not in _ELEMENTS or not _ATTRIBUTES.issuperset(element.attrib) or not palette.CLASSES.keys() >= set(names):
            raise ValueError(f"a drawing may not contain {element.tag} {sorted(element.attrib.items())}"[:200])
        used.update(names)
    style, described, titled = (ElementTree.Element(name) for name in ("style", "desc", "title"))
    style.text, described.text, titled.text = palette.style(used), xml_text(description), xml_text(title)
    root[:0] = [titled, described, style]
    root.set("role", "img")
    root.set("xmlns", NAMESPACE)
    return without_unseen(ElementTree.tostring(root, encoding="unicode"), REPLACEMENT) + "\n"
