"""The hand-made reports of tests/gold, and a few helpers, for the renderer tests."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.gold import sample_report


@pytest.fixture(scope="session")
def samples():
    return sample_report


@pytest.fixture
def show():
    """Print a report, or its summary, to a console of a given width and encoding; gives the text."""
    from dynadiag.render.terminal import print_report, print_summary

    def shown(report, *, width=80, encoding="utf-8", summary=False, **options):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding=encoding)
        console = Console(file=stream, width=width, **({"force_terminal": False} | options.pop("console", {})))
        (print_summary if summary else print_report)(report, console, base=Path("/home/me/proj"), **options)
        stream.flush()
        return raw.getvalue().decode(encoding)

    return shown
