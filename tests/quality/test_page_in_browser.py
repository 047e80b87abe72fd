"""The page in a real browser: nothing is wider than the window, no error on the console, nothing that axe-core objects to."""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dynadiag.render.html import report_page
from tests.unit.render.page_samples import rich_report
from tests.unit.render.test_every_string import HOSTILE, filled

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
AXE = (Path(__file__).with_name("axe") / "axe.min.js").read_text("utf-8")
PROBE = """
document.querySelectorAll("details").forEach((one) => (one.open = true));
axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "best-practice"] }).then((found) => {
  const root = document.documentElement;
  root.dataset.wide = root.scrollWidth - innerWidth;
  root.dataset.axe = JSON.stringify(found.violations.map((one) => [one.id, one.nodes[0].html]));
});
"""
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --hide-scrollbars --enable-logging=stderr --virtual-time-budget=20000 --dump-dom"
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH: the page was not looked at in a browser")


def with_scripts(page, *scripts):
    """The page with further scripts that its policy allows."""
    (policy,) = re.findall(r'content="(default-src[^"]*)"', page)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    more = html.escape(html.unescape(policy).replace("script-src", f"script-src {hashes}"))
    return page.replace(policy, more).replace("</body>", "".join(f"<script>{one}</script>" for one in scripts) + "</body>")


@pytest.mark.parametrize(("width", "scheme", "hostile"), [(500, "light", False), (860, "dark", True), (1400, "light", False)])
def test_the_page(tmp_path, width, scheme, hostile):
    report = rich_report(tmp_path)
    report = filled(report, HOSTILE[0] + "W" * 400, but=("id", "evidence", "severity", "outcome", "kind", "log")) if hostile else report
    file = tmp_path / "report.html"
    file.write_text(with_scripts(report_page.render(report), AXE, PROBE), "utf-8")
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    command = [CHROMIUM, *QUIET.split(), *dark, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    (wide,) = re.findall(r'data-wide="([^"]*)"', shown.stdout)
    (violations,) = re.findall(r'data-axe="([^"]*)"', shown.stdout)
    assert json.loads(html.unescape(violations)) == []
    assert int(wide) <= 0
    assert [line for line in shown.stderr.splitlines() if "CONSOLE" in line] == []
