"""Which packages the atlas has, without reading what it says of them: the recorder asks for their versions, in the user's process."""

from __future__ import annotations

import functools
import re
from pathlib import Path

FOLDER = Path(__file__).parent
_DISTRIBUTION = re.compile(r'^library = "([\w.-]{1,100})"$', re.MULTILINE)


@functools.cache
def package_names() -> tuple[str, ...]:
    """The packages of the atlas, as they are imported."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def distribution_of(package: str) -> str:
    """The name of a package of the atlas on the package index."""
    found = _DISTRIBUTION.search((FOLDER / f"{package}.toml").read_text("utf-8"))
    return package if found is None else found[1]
