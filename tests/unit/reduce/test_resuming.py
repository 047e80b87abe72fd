"""A folder of a stranger is not run when a reduction is resumed."""

import json

import pytest

from dynadiag.errors import UnreadableInputError
from dynadiag.record import ownership
from dynadiag.reduce.sources.recording import captures_to_resume, is_script_job, seals_of

BACKEND = "def mine(gm, inputs):\n    return gm.forward\n"


@pytest.fixture
def earlier(tmp_path, monkeypatch):
    """An interrupted reduction whose backend is a function of the user's script, sealed by this user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "out" / "capture"
    folder.mkdir(parents=True)
    stored(tmp_path, {"backend_source": BACKEND})
    (tmp_path / "out" / "job.json").write_text(json.dumps({"captures": [str(folder)], "seals": seals_of([folder])}))
    return tmp_path


def stored(base, state):
    (base / "out" / "capture" / "setting.json").write_text(json.dumps(state))


def test_a_backend_that_this_user_captured_goes_on(earlier):
    assert captures_to_resume(earlier / "out") == [earlier / "out" / "capture"]


FUNCTIONS = {
    "configs": [["inductor.max_fusion_size", 1], ["inductor.joint_custom_pre_pass", {"dynadiag_function": "f", "source": "def f(): 1"}]]
}


@pytest.mark.parametrize("state", [{"backend_source": BACKEND}, FUNCTIONS], ids=["backend", "option"])
@pytest.mark.parametrize("how", ["changed", "no seal", "no key", "another key", "another folder"])
def test_a_function_that_may_be_a_strangers_is_refused(earlier, monkeypatch, how, state):
    stored(earlier, state)
    out, folder = earlier / "out", earlier / "out" / "capture"
    if how == "changed":
        monkeypatch.setattr(ownership.time, "time_ns", lambda: (folder / "setting.json").stat().st_ctime_ns - 10**10)
    if how == "no key":
        monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    seals = seals_of([earlier if how == "another folder" else folder])
    sealed = {"seals": {str(folder): seal for seal in seals.values()}} if how != "no seal" else {}
    (out / "job.json").write_text(json.dumps({"captures": [str(folder)], **sealed}))
    if how == "another key":
        monkeypatch.setenv("XDG_STATE_HOME", str(earlier / "other"))
        ownership.seal(out)
    with pytest.raises(UnreadableInputError, match="start again without --resume"):
        captures_to_resume(out)


@pytest.mark.parametrize(
    "job", ["", "[]", "[" * 100_000, '{"captures": ["/etc"]}', '{"captures": 3}', '{"captures": [null]}', '{"captures": ["../elsewhere"]}']
)
def test_a_damaged_or_foreign_job_is_one_line(earlier, job):
    (earlier / "out" / "job.json").write_text(job)
    with pytest.raises(UnreadableInputError):
        captures_to_resume(earlier / "out")


@pytest.mark.parametrize("name", ["job.json", "capture/setting.json", "capture/inputs.pt"])
def test_a_file_that_is_a_link_is_refused(earlier, name):
    file = earlier / "out" / name
    file.touch()
    file.rename(earlier / "elsewhere")
    file.symlink_to(earlier / "elsewhere")
    with pytest.raises(UnreadableInputError):
        captures_to_resume(earlier / "out")


def test_a_job_that_cannot_be_read_is_no_scripts(earlier):
    (earlier / "out" / "job.json").write_text("[" * 100_000)
    assert not is_script_job(earlier / "out")


def test_a_setting_nested_too_deep_is_one_line(earlier):
    (earlier / "out" / "capture" / "setting.json").write_text("[" * 100_000)
    with pytest.raises(UnreadableInputError, match="nested too deep"):
        captures_to_resume(earlier / "out")


def test_a_graph_of_torchs_own_backends_needs_no_script(earlier):
    (earlier / "out" / "capture" / "setting.json").write_text("{}")
    assert len(captures_to_resume(earlier / "out")) == 1
