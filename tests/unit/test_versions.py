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


@pytest.mark.parametrize("verb", ["minify", "parity", "fix"])
def test_a_verb_that_compares_ends_with_3_before_anything_runs(verb, torch_2_6, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("raise SystemExit('the script ran')")
    done = CliRunner().invoke(app, [verb, "x.py"])
    assert isinstance(done.exception, TorchUnsupportedError) and done.exception.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.py"]


def test_a_torch_without_a_version_is_taken_and_none_is_told(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    versions.require("minify")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TorchUnsupportedError, match="^minify needs torch, and .* has none$"):
        versions.require("minify")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("3 9 2.6.0+cu124", "bench needs torch 2.9 or newer, this is 2.6.0+cu124"),
        ("3 10 2.9.1", "bench needs Python 3.11 or newer in the script's interpreter, {python} is 3.10"),
        ("3 12 2.9.1", None),
        ("3 12", None),
        ("3 12 none", "bench needs torch, and {python} has none"),
        ("rubbish", None),
        ("", None),
    ],
)
def test_another_interpreter_is_asked_before_anything_runs(tmp_path, said, why):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{said}'\n")
    python.chmod(0o755)
    if why is None:
        versions.require_in(str(python), "bench", oldest_python=(3, 11))
        return
    with pytest.raises(TorchUnsupportedError) as raised:
        versions.require_in(str(python), "bench", oldest_python=(3, 11))
    assert str(raised.value.message) == why.format(python=python)


@pytest.mark.parametrize("verb", ["parity", "bench"])
def test_verbs_that_compare_refuse_an_older_interpreter(tmp_path, verb):
    script, python = tmp_path / "x.py", tmp_path / "python"
    script.write_text("print('must not run')\n")
    python.write_text("#!/bin/sh\necho 3 9 2.6.0\n")
    python.chmod(0o755)
    done = CliRunner().invoke(app, [verb, "--python", str(python), str(script)])
    assert isinstance(done.exception, TorchUnsupportedError) and done.exception.message.startswith(f"{verb} needs torch 2.9 or newer")
    assert "must not run" not in done.output
