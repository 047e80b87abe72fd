"""The hand-made reports of tests/gold, and a few helpers, for the renderer tests."""

import importlib.util
import io
from pathlib import Path

import pytest
from rich.console import Console

GOLD = Path(__file__).parents[2] / "gold" / "sample_report.py"


@pytest.fixture(scope="session")
def samples():
    spec = importlib.util.spec_from_file_location("dynadiag_sample_report", GOLD)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def show():
    """Print a report to a console of a given width and encoding; gives the text."""
    from dynadiag.render.terminal import print_report

    def shown(report, *, width=80, encoding="utf-8", **options):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding)
        console = Console(file=stream, width=width, **({"force_terminal": False} | options.pop("console", {})))
        print_report(report, console, base=Path("/home/me/proj"), **options)
        stream.flush()
        return raw.getvalue().decode(encoding)

    return shown
