"""The page driven in a real browser as a reader does it, by keyboard and pointer, with its scripts on and off."""

import itertools
import json
import os
import subprocess
import threading
import time

import pytest

from dynadiag.render.html import report_page
from tests.quality.test_page_in_browser import CHROMIUM
from tests.unit.render.page_samples import of_two_ranks, rich_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH: the page was not driven in a browser")
QUIET = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync --remote-debugging-pipe"
KEYS = {"Tab": 9, "Enter": 13, "ArrowRight": 39}


class Browser:
    """One page of Chromium's, spoken to over a pipe (the DevTools protocol: JSON messages that end with a zero byte)."""

    def __init__(self, folder):
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        self._out, self._in = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")

        def as_three_and_four():
            spare = os.dup(theirs_out)
            os.dup2(theirs_in, 3)
            os.dup2(spare, 4)
            for number in (3, 4):  # a pipe that had this number already is still closed on exec
                os.set_inheritable(number, True)

        command = [CHROMIUM, *QUIET.split(), f"--user-data-dir={folder / 'profile'}"]
        self.process = subprocess.Popen(
            command, preexec_fn=as_three_and_four, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._limit = threading.Timer(240, self.process.kill)  # what waits for an answer then fails
        self._limit.start()
        self._numbers, self._session = itertools.count(1), None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])

    def ask(self, method, **values):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": values} | ({"sessionId": self._session} if self._session else {})
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        return self._until(lambda told: told.get("id") == number)["result"]

    def _until(self, wanted):
        told = bytearray()
        while byte := self._in.read(1):
            if byte != b"\0":
                told += byte
            elif wanted(found := json.loads(told)):
                return found
            else:
                told.clear()
        raise AssertionError("Chromium ended")

    def open(self, address):
        for url in ("about:blank", address):
            self.ask("Page.navigate", url=url)
            while self.value("document.readyState + ' ' + location.href") != f"complete {url}":
                time.sleep(0.05)

    def value(self, script):
        result = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key):
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text)

    def end(self):
        self._limit.cancel()
        self.process.kill()
        self.process.wait()
        self._out.close()
        self._in.close()


@pytest.fixture
def browser(tmp_path):
    found = Browser(tmp_path)
    yield found
    found.end()


@pytest.fixture
def address(tmp_path):
    file = tmp_path / "report.html"
    file.write_text(report_page.render(of_two_ranks(rich_report(tmp_path))), "utf-8")
    return file.as_uri()


SHOWN = "[...document.querySelectorAll('{}')].filter((one) => one.checkVisibility()).length"


def assert_read_by_keyboard(browser, address):
    """The first stop skips the menu, a summary opens with Enter, a filter hides the other articles, a link goes to its target."""
    browser.press("Tab")
    assert browser.value("document.activeElement.className") == "skip"
    browser.press("Enter")
    assert browser.value("location.hash") == "#main"
    browser.value("document.querySelector('details.graph > summary').focus()")
    browser.press("Enter")
    assert browser.value("document.querySelector('details.graph').open")
    mine, library = (browser.value(SHOWN.format(f"article.{name}")) for name in ("mine", "library"))
    assert mine and library
    browser.value("document.getElementById('only-all').focus()")
    browser.press("ArrowRight")
    assert [browser.value(SHOWN.format(f"article.{name}")) for name in ("mine", "library")] == [mine, 0]
    browser.press("ArrowRight")
    assert [browser.value(SHOWN.format(f"article.{name}")) for name in ("mine", "library")] == [0, library]
    browser.value("document.getElementById('only-all').click()")
    ranked = browser.value(SHOWN.format("article.ranked"))
    browser.value("document.getElementById('rank-0').click()")
    assert 0 < browser.value(SHOWN.format("article.ranked")) < ranked
    browser.open(f"{address}#b1")
    top = browser.value("document.querySelector('article:target').getBoundingClientRect().top")
    assert browser.value("document.querySelector('article:target').id") == "b1" and 0 <= top < browser.value("innerHeight")


def test_with_scripts(browser, address):
    browser.open(address)
    assert_read_by_keyboard(browser, address)
    wanted = browser.value("document.querySelectorAll('[data-copy]').length")
    assert browser.value("document.querySelectorAll('[data-copy] > button').length") == wanted > 1
    browser.value(
        "globalThis.copied = []; Object.defineProperty(navigator, 'clipboard', "
        "{ value: { writeText: async (text) => void copied.push(text) }, configurable: true })"
    )
    added = browser.value(
        "const some = [...document.querySelectorAll('[data-copy]')].find((one) => one.querySelector('[data-copied]'));"
        "some.querySelector('button').focus();"
        "[...some.querySelectorAll('[data-copied]')].map((one) => one.textContent).join('\\n')"
    )
    browser.press("Enter")
    assert browser.value("copied") == [added] and added and not added.startswith("+")
    assert browser.value("document.activeElement.textContent") == "Copied"
    browser.value(
        "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async () => { throw new Error('no') } }, configurable: true })"
    )
    browser.press("Enter")
    assert browser.value("document.activeElement.textContent").startswith("Selected")
    assert added in browser.value("getSelection().toString()").replace("+ ", "")
    graph = browser.value("document.querySelector('details.graph').id")
    browser.open(f"{address}#{graph}")
    assert browser.value(f"document.getElementById('{graph}').open")


def test_without_scripts(browser, address):
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(address)
    assert_read_by_keyboard(browser, address)
    assert browser.value("document.querySelectorAll('button').length") == 0
