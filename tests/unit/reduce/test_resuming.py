"""A folder of a stranger is not run when a reduction is resumed."""

import contextlib
import json

import pytest

from dynadiag.errors import UnreadableInputError
from dynadiag.record import ownership
from dynadiag.reduce.sources.resuming import captures_to_resume, is_script_job, seals_of

BACKEND = "def mine(gm, inputs):\n    return gm.forward\n"


@pytest.fixture
def earlier(tmp_path):
    """An interrupted reduction whose backend is a function of train.py."""
    (tmp_path / "train.py").write_text(f"import torch\n\n{BACKEND}\ntorch.compile(print, backend=mine)\n")
    folder = tmp_path / "out" / "capture"
    folder.mkdir(parents=True)
    (folder / "setting.json").write_text(json.dumps({"backend_source": BACKEND}))
    (tmp_path / "out" / "job.json").write_text(json.dumps({"captures": [str(folder)]}))
    return tmp_path


def test_the_scripts_own_backend_goes_on(earlier):
    assert captures_to_resume(earlier / "out", earlier / "train.py") == [earlier / "out" / "capture"]


def test_a_backend_that_is_not_in_the_script_is_refused(earlier):
    stored = json.dumps({"backend_source": BACKEND.replace("return", "__import__('os').system('true'); return")})
    (earlier / "out" / "capture" / "setting.json").write_text(stored)
    with pytest.raises(UnreadableInputError, match="start again without --resume"):
        captures_to_resume(earlier / "out", earlier / "train.py")


@pytest.mark.parametrize("changed", [False, True])
def test_a_backend_that_was_rewritten_when_it_was_captured_goes_on(earlier, monkeypatch, changed):
    """Without annotations and decorators, with spelled values, or from a module beside the script it is no text of the script."""
    monkeypatch.setenv("XDG_STATE_HOME", str(earlier / "state"))
    folder = earlier / "out" / "capture"
    (folder / "setting.json").write_text(json.dumps({"backend_source": f"LIMIT = 3\n{BACKEND}"}))
    if changed:
        monkeypatch.setattr(ownership.time, "time_ns", lambda: (folder / "setting.json").stat().st_ctime_ns - 10**10)
    (earlier / "out" / "job.json").write_text(json.dumps({"captures": [str(folder)], "seals": seals_of([folder])}))
    with pytest.raises(UnreadableInputError, match="start again without --resume") if changed else contextlib.nullcontext():
        assert captures_to_resume(earlier / "out", earlier / "train.py") == [folder]


def test_a_function_that_is_an_option_is_held_to_the_same(earlier):
    stored = {
        "configs": [["inductor.max_fusion_size", 1], ["inductor.joint_custom_pre_pass", {"dynadiag_function": "f", "source": "def f(): 1"}]]
    }
    (earlier / "out" / "capture" / "setting.json").write_text(json.dumps(stored))
    with pytest.raises(UnreadableInputError, match="start again without --resume"):
        captures_to_resume(earlier / "out", earlier / "train.py")
    (earlier / "train.py").write_text("def f(): 1\n")
    assert len(captures_to_resume(earlier / "out", earlier / "train.py")) == 1


@pytest.mark.parametrize(
    "job", ["", "[]", "[" * 100_000, '{"captures": ["/etc"]}', '{"captures": 3}', '{"captures": [null]}', '{"captures": ["../elsewhere"]}']
)
def test_a_damaged_or_foreign_job_is_one_line(earlier, job):
    (earlier / "out" / "job.json").write_text(job)
    with pytest.raises(UnreadableInputError):
        captures_to_resume(earlier / "out", earlier / "train.py")


@pytest.mark.parametrize("name", ["job.json", "capture/setting.json", "capture/inputs.pt"])
def test_a_file_that_is_a_link_is_refused(earlier, name):
    file = earlier / "out" / name
    file.touch()
    file.rename(earlier / "elsewhere")
    file.symlink_to(earlier / "elsewhere")
    with pytest.raises(UnreadableInputError):
        captures_to_resume(earlier / "out", earlier / "train.py")


def test_a_job_that_cannot_be_read_is_no_scripts(earlier):
    (earlier / "out" / "job.json").write_text("[" * 100_000)
    assert not is_script_job(earlier / "out")


def test_a_setting_nested_too_deep_is_one_line(earlier):
    (earlier / "out" / "capture" / "setting.json").write_text("[" * 100_000)
    with pytest.raises(UnreadableInputError, match="nested too deep"):
        captures_to_resume(earlier / "out", earlier / "train.py")


def test_a_graph_of_torchs_own_backends_needs_no_script(earlier):
    (earlier / "out" / "capture" / "setting.json").write_text("{}")
    assert len(captures_to_resume(earlier / "out", earlier / "gone.py")) == 1
