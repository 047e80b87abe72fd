"""A program started twice by the verb: warm where nothing differs, and the cause where something does; matrix products need no compiler."""

import json
import os
import subprocess
import sys

import pytest
import torch

import dynadiag

PROGRAM = """
import torch

@torch.compile
def mix(x, left, right):
    for name in {NAMES}:
        x = x @ left if name == "a" else right @ x if name == "b" else x @ x
    return x

with torch.no_grad():
    mix(torch.ones(4, 4), torch.ones(4, 4), torch.eye(4))
print("the program's own line")
"""


def started(folder, names, *options):
    """What the verb says of two starts of the program, as JSON."""
    (folder / "mix.py").write_text(PROGRAM.replace("{NAMES}", names))
    command = [sys.executable, "-m", "dynadiag", "start", *options, "--format", "json", "-o", "start.json", "mix.py"]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.count("the program's own line") >= 2, done.stderr
    return done.returncode, json.loads((folder / "start.json").read_text())


@pytest.mark.slow
def test_a_program_that_follows_a_set_is_cold_and_the_set_is_named_and_sorted(tmp_path):
    status, found = started(tmp_path, '{"a", "b", "c"}', "--cure")
    (compilation,) = found["compilations"]
    assert (status, found["missed"]) == (1, 1)
    (cause,) = {one["kind"]: one for one in compilation["causes"]}.values()
    assert cause["kind"] == "hash_order" and "PYTHONHASHSEED" in cause["what"]
    assert cause["place"]["file"].endswith("mix.py") and "x @ left" in cause["place"]["source"]
    cured = found["cured"]
    assert (cured["missed"], cured["why_not"], [one["cured"] for one in cured["changes"]]) == (0, None, [True])
    assert '+    for name in sorted({"a", "b", "c"}):' in (tmp_path / cured["patch"]).read_text().splitlines()
    assert "sorted" not in (tmp_path / "mix.py").read_text()


@pytest.mark.any_torch  # what the caches of both versions are keyed by is asked above
def test_the_same_program_with_a_list_is_warm(tmp_path):
    status, found = started(tmp_path, '["a", "b", "c"]')
    assert (status, found["missed"], [one["causes"] for one in found["compilations"]]) == (0, 0, [[]])
    assert {answer["result"] for answer in found["compilations"][0]["answers"]} == {"hit"}


@pytest.mark.any_torch
def test_a_call_that_the_caches_do_not_give_fails_the_assertion_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def power(x):
        return x @ x @ x

    with pytest.raises(AssertionError, match=r"(?s)2 cache look-ups were no hits:.*test_start_twice.py:\d+ \(power\): aotautograd miss"):
        dynadiag.assert_warm_start(power, torch.ones(3, 3))
    assert {event.result for event in dynadiag.assert_warm_start(power, torch.ones(3, 3)).run.caches} == {"hit"}
