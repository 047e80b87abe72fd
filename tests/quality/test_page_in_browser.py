"""The page in a real browser: nothing is wider than the window, no error on the console, nothing that axe-core objects to."""

import base64
import dataclasses
import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dynadiag.bench.show import document_of as bench_document
from dynadiag.model.run import CompileMetrics
from dynadiag.parity.showing import document_of as parity_document
from dynadiag.render.html import report_page, result_page
from tests.unit.render.page_samples import rich_report
from tests.unit.render.test_every_string import HOSTILE, bench_result, bug_document, filled, parity_result

CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
AXE = (Path(__file__).with_name("axe") / "axe.min.js").read_text("utf-8")
WIDTHS = (390, 860, 1400)
PROBE = """
document.querySelectorAll("details").forEach((one) => (one.open = true));
axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "best-practice"] }).then((found) => {
  const wide = document.documentElement.scrollWidth - innerWidth;
  const violations = found.violations.map((one) => [one.id, one.nodes[0].html]);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  parent.postMessage({ name: window.name, width: innerWidth, wide, dark, violations }, "*");
});
"""
TOLD = "const told = []; onmessage = (event) => { told.push(event.data); document.documentElement.dataset.told = JSON.stringify(told); };"
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


def assert_shown(pages, tmp_path, scheme):
    """Each page in a frame of each width: a window of Chromium's is at least 500 pixels wide."""
    frames = []
    for name, page in pages.items():
        (tmp_path / f"{name}.html").write_text(with_scripts(page, AXE, PROBE), "utf-8")
        frames += [f'<iframe src="{name}.html" name="{name}" style="width:{width}px;height:900px;border:0"></iframe>' for width in WIDTHS]
    file = tmp_path / "frames.html"
    file.write_text(f'<meta name="color-scheme" content="light dark"><script>{TOLD}</script>{"".join(frames)}', "utf-8")
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    command = [CHROMIUM, *QUIET.split(), *dark, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1500,900", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    (told,) = re.findall(r'data-told="([^"]*)"', shown.stdout)
    found = json.loads(html.unescape(told))
    assert sorted((one["name"], one["width"]) for one in found) == sorted((name, width) for name in pages for width in WIDTHS)
    assert [one for one in found if one["violations"] or one["wide"] > 0 or one["dark"] != (scheme == "dark")] == []
    assert [line for line in shown.stderr.splitlines() if "CONSOLE" in line] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page(tmp_path, scheme):
    report = rich_report(tmp_path)
    hostile = filled(report, HOSTILE[0] + "W" * 400, but=("id", "evidence", "severity", "outcome", "kind", "log"))
    assert_shown({"plain": report_page.render(report), "hostile": report_page.render(hostile)}, tmp_path, scheme)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_result(tmp_path, scheme):
    text = HOSTILE[0] + "W" * 400
    documents = {
        "bench": bench_document(bench_result(text), text),
        "minify": bug_document(text),
        "parity": parity_document(parity_result(text), text),
    }
    assert_shown({verb: result_page.render(told) for verb, told in documents.items()}, tmp_path, scheme)


def test_on_paper_all_is_open_but_what_is_long_also_without_scripts(tmp_path):
    report = rich_report(tmp_path)
    measured = CompileMetrics(**{one.name: 1234 for one in dataclasses.fields(CompileMetrics)} | {"fail_type": "RecompileLimitExceeded"})
    run = dataclasses.replace(report.run, frames=tuple(dataclasses.replace(one, metrics=measured) for one in report.run.frames))
    page = report_page.render(dataclasses.replace(report, run=run))
    page = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL).replace("@media print", "@media all")
    probe = """
    const shows = (one) => [...one.children].some((inner) => inner.tagName !== "SUMMARY" && inner.checkVisibility());
    const closed = [...document.querySelectorAll("details:not([open])")];
    const [short, long] = [closed.filter((one) => !one.matches(".long")), closed.filter((one) => one.matches(".long"))];
    const wide = document.documentElement.scrollWidth - innerWidth;
    const counts = [short.length, short.filter(shows).length, long.length, long.filter(shows).length];
    document.documentElement.dataset.open = [...counts, wide].join(" ");
    """
    (policy,) = re.findall(r'content="(default-src[^"]*)"', page)
    file = tmp_path / "paper.html"
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)[0]
    allowed = policy.replace("style-src", f"style-src 'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'")
    file.write_text(with_scripts(page.replace(policy, allowed), probe), "utf-8")
    command = [CHROMIUM, *QUIET.split(), f"--user-data-dir={tmp_path / 'profile'}", "--window-size=794,900", file.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    (counts,) = re.findall(r'data-open="([^"]*)"', shown.stdout)
    short, shown_short, long, shown_long, wide = map(int, counts.split())
    assert short == shown_short > 2 and long > 2 and shown_long == 0 and wide <= 0
