"""The way past Typer reads a command line as Typer does, or leaves it alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag_cli import main as command
from dynadiag_cli import quick, showing
from dynadiag_cli.app import app

LINES = [
    (["explain", "LOG"], {}),
    (["explain", "--full", "LOG"], {"full": True}),
    (["explain", "--format", "json", "-o", "report.json", "LOG"], {"format": "json", "output": "report.json"}),
    (["explain", "LOG", "--format=md", "--output=a=b"], {"format": "md", "output": "a=b"}),
    (["explain", "-o", "-", "LOG", "-f", "text", "--no-pictures"], {"output": "-", "format": "text", "renderer": None}),
]
NOT_OURS = [
    [],
    ["LOG"],
    ["explain"],
    ["graph", "LOG"],
    ["explain", "LOG", "LOG"],
    ["explain", "missing.log"],
    ["explain", "train.py"],
    ["explain", "--format", "xml", "LOG"],
    ["explain", "LOG", "--format"],
    ["explain", "LOG", "-o", "--no-pictures"],
    ["explain", "--format", "md", "-f", "json", "LOG"],
    ["explain", "--form", "md", "LOG"],
    ["explain", "-fmd", "LOG"],
    ["explain", "LOG", "--limit", "3"],
    ["explain", "LOG", "--full", "--full"],
    ["explain", "--", "LOG"],
    ["explain", "--help", "LOG"],
]
WORDS = ["LOG", "missing.log", "--format", "-f", "json", "md", "--format=json", "--format=", "-f=md", "-o", "out.txt", "--output=", "-",
         "--output", "--no-pictures", "--pictures", "--", "-m", "", "--show-free", "--limit", "3", "-fjson", "train.py"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quick")
    (folder / "trace.log").touch()
    (folder / "train.py").touch()
    return folder


def words_in(folder: Path, line: list[str]) -> list[str]:
    return [{"LOG": str(folder / "trace.log"), "train.py": str(folder / "train.py")}.get(word, word) for word in line]


@pytest.mark.parametrize(("line", "options"), LINES)
def test_plain_ways_to_read_a_recording_are_taken(folder, line, options):
    found = quick.reading(words_in(folder, line))
    assert found == quick.Reading(folder / "trace.log", options)


@pytest.mark.parametrize("line", NOT_OURS, ids=" ".join)
def test_everything_else_is_left_to_typer(folder, line):
    assert quick.reading(words_in(folder, line)) is None


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_typer_reads_what_is_taken_in_the_same_way(folder, line):
    words = words_in(folder, ["explain", *line])
    found = quick.reading(words)
    if found is not None:
        assert by_typer(words) == (found.path, showing.ShowOptions(**found.options))


@pytest.mark.parametrize("line", [line for line, _ in LINES], ids=" ".join)
def test_typer_reads_the_plain_ways_as_well(folder, line):
    words = words_in(folder, line)
    found = quick.reading(words)
    assert by_typer(words) == (found.path, showing.ShowOptions(**found.options))


def by_typer(words: list[str]) -> tuple[Path, showing.ShowOptions]:
    """What Typer's way hands to the part that reads and prints."""
    calls = []

    def explain_recording(path, *, out, force, options, page):
        assert (out, force, page) == (None, False, False)
        calls.append((path, options))
        return None, None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(showing, "explain_recording", explain_recording)
        with pytest.raises(SystemExit) as end:
            app([*words], prog_name="dynadiag")
    assert end.value.code == 0
    return calls[0]


def test_the_command_takes_the_quick_way_and_leaves_it_for_completion(folder, monkeypatch):
    calls = []
    monkeypatch.setattr(showing, "explain_recording", lambda path, **rest: (calls.append(path), None))
    monkeypatch.setattr(sys, "argv", ["dynadiag", "explain", str(folder / "trace.log")])
    with pytest.raises(SystemExit) as end:
        command.main()
    assert (end.value.code, calls) == (0, [folder / "trace.log"])
    for name, value in {"_DYNADIAG_COMPLETE": "complete_bash", "COMP_WORDS": "dynadiag ex", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)  # Typer asks for the words once another test has prepared its completion
    monkeypatch.setattr(quick, "reading", lambda words: pytest.fail("a completion was taken for a command"))
    with pytest.raises(SystemExit):
        command.main()


def test_the_modules_names_are_the_entry_point_and_the_application():
    assert command.app is app
    with pytest.raises(AttributeError, match="nonsense"):
        command.nonsense  # noqa: B018
