"""Finished SVG: what a back end drew, reduced to shapes and text, with our tool tips, no scripts, no links and no outside references."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from dynadiag.render import palette
from dynadiag.render.sanitise import REPLACEMENT, without_unseen, xml_text
from dynadiag.render.sketch import Sketch

FONTS = "Arial,Helvetica,sans-serif"
NAMESPACE = "http://www.w3.org/2000/svg"
_SHAPES = frozenset({"svg", "g", "polygon", "polyline", "path", "ellipse", "text", "rect", "line"})
_ATTRIBUTES = frozenset(
    {"width", "height", "viewBox", "class", "transform", "fill", "stroke", "stroke-width", "stroke-dasharray", "fill-opacity", "role"}
    | {"stroke-opacity", "points", "d", "cx", "cy", "rx", "ry", "x", "y", "text-anchor", "font-family", "font-size", "font-weight"}
)
_SEALED = frozenset({"svg", "g", "rect", "path", "polygon", "line", "text", "title"})
_SEALED_ATTRIBUTES = frozenset(
    {"width", "height", "viewBox", "class", "points", "d", "x", "y", "x1", "x2", "y1", "y2", "rx", "text-anchor"}
)
_NODE_NAME = re.compile(r"n(\d+)\Z")


def finish(drawn: bytes, sketch: Sketch) -> str:
    """The SVG text of a drawn sketch; raises `ValueError` when `drawn` is not SVG.

    Only shapes, groups and text with their geometry and colours are kept, and Graphviz's own titles (box numbers) become our tool tips.
    """
    try:
        root = ElementTree.fromstring(drawn)
    except ElementTree.ParseError as error:
        raise ValueError(f"the drawing is not well-formed SVG: {error}") from None
    if _local(root.tag) != "svg":
        raise ValueError("the drawing is not SVG")
    (clean,) = _kept(root, sketch)
    clean.set("role", "img")
    clean.insert(0, _title(" ".join(sketch.title)))
    clean.set("xmlns", NAMESPACE)
    return without_unseen(ElementTree.tostring(clean, encoding="unicode"), REPLACEMENT) + "\n"


def _local(tag: object) -> str:
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _kept(element: ElementTree.Element, sketch: Sketch) -> Iterator[ElementTree.Element]:
    """The element cleaned, or its cleaned children when the element itself is not one of ours."""
    name = _local(element.tag)
    if name == "title" or not name:
        return
    children = [kept for child in element for kept in _kept(child, sketch)]
    if name not in _SHAPES:
        yield from children
        return
    copy = ElementTree.Element(name, {key: value for key, value in element.attrib.items() if key in _ATTRIBUTES})
    if "font-family" in copy.attrib:
        copy.set("font-family", FONTS)
    if name == "text":
        copy.text = "".join(element.itertext())
        children = []
    tip = _tip(element, sketch) if name == "g" else ""
    copy.extend([*([_title(tip)] if tip else []), *children])
    yield copy


def _tip(group: ElementTree.Element, sketch: Sketch) -> str:
    """The tool tip of a box's group, found by the title that Graphviz gave it."""
    name = next((child.text or "" for child in group if _local(child.tag) == "title"), "")
    node = _NODE_NAME.match(name)
    number = int(node[1]) if node else len(sketch.boxes)
    return sketch.boxes[number].tip if number < len(sketch.boxes) else ""


def _title(text: str) -> ElementTree.Element:
    element = ElementTree.Element("title")
    element.text = xml_text(text)
    return element


def sealed(root: ElementTree.Element, title: str, description: str) -> str:
    """The SVG text of a drawing of ours, with title, description and the palette's style sheet; nothing else is let through.

    Raises `ValueError` for an element, an attribute or a class that is not on our lists: no text from a log can become one, and an error
    of ours shall not make one.
    """
    used: set[str] = set()
    for element in root.iter():
        names = element.get("class", "").split()
        if element.tag not in _SEALED or not _SEALED_ATTRIBUTES.issuperset(element.attrib) or not palette.CLASSES.keys() >= set(names):
            raise ValueError(f"a drawing may not contain {element.tag} {sorted(element.attrib.items())}"[:200])
        used.update(names)
    style, described = ElementTree.Element("style"), ElementTree.Element("desc")
    style.text, described.text = palette.style(used), xml_text(description)
    root[:0] = [_title(title), described, style]
    root.set("role", "img")
    root.set("xmlns", NAMESPACE)
    return without_unseen(ElementTree.tostring(root, encoding="unicode"), REPLACEMENT) + "\n"
