"""`%load_ext dynadiag` in a real Jupyter kernel, and a notebook that nbclient runs."""

import base64
import json
import queue
import re
import subprocess
import sys

import pytest

from dynadiag import trace
from tests.documented import blocks, commands

jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")
BREAKS = """import torch

@torch.compile(backend="eager")
def f(x):
    x = x + 1
    print("in f")
    return x * 2

print("value", f(torch.ones(2)).sum().item())"""


class Kernel:
    """A kernel, and what it answers to a cell."""

    def __init__(self, manager, client):
        self.manager, self.client = manager, client

    def run(self, code):
        """Status, printed text, and the data of displays and of the result."""
        asked = self.client.execute(code)
        shown, printed = [], ""
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != asked:
                continue
            if kind == "stream":
                printed += content["text"]
            elif kind in ("display_data", "execute_result", "update_display_data"):
                shown.append(content["data"])
            elif kind == "error":
                printed += "".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                break
        while True:
            try:
                reply = self.client.get_shell_msg(timeout=60)
            except queue.Empty:
                raise AssertionError("no reply") from None
            if reply["parent_header"].get("msg_id") == asked:
                return reply["content"]["status"], re.sub(r"\x1b\[[\d;]*m", "", printed), shown


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3", cwd=str(folder))
    yield Kernel(manager, client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.any_torch
def test_a_cell_is_recorded_and_its_report_shown(kernel):
    load, cell = blocks("docs/notebook.md", "python")
    assert kernel.run(load)[0] == "ok"
    kernel.run(
        "import functools, torch\ntorch.compile = functools.partial(torch.compile, backend='eager')\nmodel, x = torch.relu, torch.ones(2)"
    )
    status, _, shown = kernel.run(cell)
    assert status == "ok" and "1 graph" in shown[-1]["text/html"]
    status, printed, shown = kernel.run(f"%%dynadiag --out first\n{BREAKS}")
    assert status == "ok" and "in f\nvalue 8.0\n" in printed and "dynadiag: recorded in first" in printed
    html = shown[-1]["text/html"]
    assert "GB0059" in html and "<script" not in html
    drawing = base64.b64decode(re.search(r"base64,([A-Za-z0-9+/=]+)", html)[1]).decode()
    assert drawing.startswith("<svg") and "print(" in drawing
    assert any("recording" in data.get("text/html", "") for data in shown)
    # The report is the cell's result, and plain data.
    assert "1 site" in kernel.run("print(_.summary.graph_break_sites, 'site')")[1]

    status, printed, shown = kernel.run("%%dynadiag --out second\nf(torch.ones(2))")
    assert status == "ok" and "nothing new was compiled in this cell" in printed

    status, printed, shown = kernel.run(f"%%dynadiag --out third --reset\n{BREAKS}\nraise ValueError('mine')")
    assert status == "error" and printed.count("ValueError: mine") == 1 and "GB0059" in shown[-1]["text/html"]

    status, printed, _ = kernel.run("%%dynadiag --wrong\nprint('ran')")
    assert (
        status == "error" and "unrecognized arguments: --wrong" in printed and "the cell was not run" in printed and "ran\n" not in printed
    )

    status, printed, shown = kernel.run("import dynadiag\ndynadiag.load('first')")
    assert status == "ok" and "GB0059" in shown[-1]["text/html"]


@pytest.mark.any_torch
def test_a_whole_notebook_runs_with_nbclient(tmp_path):
    pytest.importorskip("nbclient")
    cells = [{"cell_type": "code", "id": "a", "metadata": {}, "source": BREAKS, "outputs": [], "execution_count": None}]
    (tmp_path / "analysis.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    explain, check = [words for page, words in commands() if page == "docs/notebook.md"]

    def run(words):
        return subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True)

    ran = run(explain)
    assert ran.returncode == 0, ran.stderr
    assert [one.gb_id for one in trace.load(tmp_path / "dynadiag-runs/latest").breaks] == ["GB0059"]
    failed = run([*check[:-1], "--update-baseline", "dynadiag-runs/latest"])
    assert failed.returncode == 0 and '"analysis.ipynb": {' in (tmp_path / "dynadiag-baseline.json").read_text(), failed.stderr
