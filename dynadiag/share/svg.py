"""A drawing of ours without private details: its texts replaced, and all of it written again through the same wall."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from dynadiag.render import svg as wall
from dynadiag.share.redaction import Redactor

_LONGEST = 16 << 20


def redacted_svg(text: str, redactor: Redactor) -> str:
    """The drawing with redacted texts; what is none of ours becomes an empty picture that says so."""
    try:
        if len(text) > _LONGEST or "<!" in text:
            raise ValueError("no drawing of ours")
        root = ElementTree.fromstring(text)
        said = {"title": "", "desc": ""}
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
            element.text = redactor.text(element.text, "picture") if element.text else None
            element.tail = None
            if element.tag in said and not said[element.tag]:
                said[element.tag] = element.text or ""
        for element in [item for item in root if item.tag in ("title", "desc", "style")]:
            root.remove(element)
        for name in ("role", "xmlns"):
            root.attrib.pop(name, None)
        return wall.sealed(root, said["title"], said["desc"])
    except (ElementTree.ParseError, ValueError):
        return f'<svg xmlns="{wall.NAMESPACE}" width="10" height="10"><title>left out: not a drawing of dynadiag</title></svg>'
