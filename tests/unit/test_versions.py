"""Which torch is too old for what, and that it is said in one line with exit status 3."""

from importlib import metadata

import pytest
from typer.testing import CliRunner

from dynadiag.errors import TorchUnsupportedError
from dynadiag.torch_compat import versions
from dynadiag_cli.main import app


@pytest.mark.parametrize(
    ("torch", "why"),
    [
        ("2.8.0+cu128", "parity needs torch 2.9 or newer, this is 2.8.0+cu128"),
        ("2.9.0a0+nv25.9", None),
        ("2.15.0", None),
        ("3.0", None),
        ("weird", None),
        (None, None),
    ],
)
def test_a_version_is_compared_by_its_first_two_numbers(torch, why):
    assert versions.too_old("parity", torch) == why


@pytest.fixture
def torch_2_6(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "2.6.0+cu124")


def test_what_needs_more_says_so(torch_2_6):
    with pytest.raises(TorchUnsupportedError, match=r"^bench needs torch 2\.9 or newer, this is 2\.6\.0\+cu124$"):
        versions.require("bench")


def test_minify_ends_with_3_before_anything_runs(torch_2_6, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("raise SystemExit('the script ran')")
    done = CliRunner().invoke(app, ["minify", "x.py"])
    assert isinstance(done.exception, TorchUnsupportedError) and done.exception.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.py"]


def test_nothing_is_said_where_there_is_no_torch(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    versions.require("minify")
