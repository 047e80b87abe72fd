"""A file of the user's that changed since the recording is found, and nothing is claimed of what cannot be compared."""

import pytest

from dynadiag.model.run import Run, RunInfo, SourceFunction
from dynadiag.record.changed_sources import changed_sources

SOURCE = "import torch\n\nclass A:\n\tdef forward(self, x):\n\t\ttext = '''a\nb'''\n\t\treturn x\n"
RECORDED = "def forward(self, x):\n\ttext = '''a\nb'''\n\treturn x"


def run_of(*functions):
    return Run(info=RunInfo(), functions=functions)


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "a.py"
    file.write_text(SOURCE)
    return file


def test_an_equal_file_did_not_change(file):
    assert changed_sources(run_of(SourceFunction(str(file), 4, "A.forward", RECORDED))) == ()
    file.write_bytes(SOURCE.replace("\n", "\r\n").encode())
    assert changed_sources(run_of(SourceFunction(str(file), 4, "A.forward", RECORDED))) == ()


@pytest.mark.parametrize("text", [SOURCE.replace("return x", "return y"), "\n" + SOURCE, SOURCE[:40], ""])
def test_another_text_or_another_line_is_a_change(file, text):
    file.write_text(text)
    assert changed_sources(run_of(SourceFunction(str(file), 4, "A.forward", RECORDED))) == (str(file),)


def test_a_text_that_the_recorder_cut_may_end_anywhere(file):
    lines = "def f():\n" + "".join(f"    x = {number}\n" for number in range(3000))
    file.write_text(lines)
    assert changed_sources(run_of(SourceFunction(str(file), 1, "f", lines[:30_000]))) == ()


def test_a_file_that_is_gone_is_told_unless_its_folder_is_too(file, tmp_path):
    file.unlink()
    gone = [SourceFunction(str(path), 4, "A.forward", RECORDED) for path in (file, tmp_path / "ipykernel_7" / "1.py")]
    assert changed_sources(run_of(*gone)) == (str(file),)


def test_what_cannot_be_read_is_not_told(file, tmp_path):
    (tmp_path / "link.py").symlink_to(file)
    named = ["/dev/stdin", str(tmp_path / "link.py"), str(tmp_path), "a.py", "<string>", "/a\0b"]
    assert changed_sources(run_of(*(SourceFunction(name, 4, "f", "def f(): pass") for name in named))) == ()
