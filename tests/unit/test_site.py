"""The documentation as a site: it builds without a warning, has a page for each code and verb, and every link in it leads somewhere."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from dynadiag.model.codes import TABLE
from dynadiag_cli.app import app

pytest.importorskip("material")
ROOT = Path(__file__).parents[2]


class Anchors(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        self.links += [found[name] for name in ("href", "src") if found.get(name)]


def test_the_site_is_whole(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0 and "WARNING" not in built.stderr, built.stderr[-3000:]
    pages = {path: Anchors(path.read_text("utf-8")) for path in (tmp_path / "site").rglob("*.html")}
    names = {path.relative_to(tmp_path / "site").as_posix() for path in pages}
    assert {f"codes/{code}.html" for code in TABLE} | {f"reference/{verb.name}.html" for verb in app.registered_commands} <= names
    assert {"tutorial.html", "overview.html", "reference/python.html", "reference/json.html", "codes/GB0170.html"} <= names
    before = (tmp_path / "site/codes/GB0124.html").read_text("utf-8")
    assert "Before and after" in before and "item-keep-tensor" in before
    broken = [
        (path.name, link) for path, page in pages.items() if path.name != "404.html" for link in page.links if not leads(path, link, pages)
    ]
    assert broken == []


def leads(path, link, pages):
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return parts.scheme in ("https", "data", "mailto")
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return False
    return not parts.fragment or target not in pages or parts.fragment in pages[target].ids
