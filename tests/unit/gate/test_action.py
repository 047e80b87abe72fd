"""The GitHub Action and the pre-commit hook: what they call exists, and the action's script does what its outputs say."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.gate.action_runner import path_before, run_action

ROOT = Path(__file__).parents[3]
# Stands for dynadiag: writes its words, and as the real one a page and a report.
FAKE = """#!/usr/bin/env bash
printf '%s|' "$@" >>"$CALLS"; echo >>"$CALLS"
out=; report=
while [ $# -gt 0 ]; do
    case $1 in --out) out=$2; shift ;; --output) report=$2; shift ;; esac
    shift
done
[ -n "$out" ] && [ -z "${NOTHING-}" ] && mkdir -p "$out" && touch "$out/report.html"
[ "$report" = - ] && echo "said" || touch "$report"
exit "${STATUS-0}"
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "dynadiag").write_text(FAKE)
    (tmp_path / "dynadiag").chmod(0o755)

    def run(**variables):
        files = {name: str(tmp_path / name) for name in ("CALLS", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "RUNNER_TEMP": str(tmp_path), **files, **variables}
        done = subprocess.run(["bash", str(ROOT / "action/check.sh")], env=environment, capture_output=True, text=True)
        read = {name: Path(path).read_text() if Path(path).exists() else "" for name, path in files.items()}
        outputs = dict(line.split("=", 1) for line in read["GITHUB_OUTPUT"].splitlines())
        return done, outputs, read["CALLS"].splitlines(), read["GITHUB_STEP_SUMMARY"]

    return run


def test_the_program_runs_once_and_its_recording_is_read_twice(job):
    done, outputs, calls, summary = job(
        DYNADIAG_TARGET="my train.py\n--name\n a b \n$(touch x)\n", DYNADIAG_OPTIONS="--max-breaks=0\n\n", STATUS="1"
    )
    assert done.returncode == 1 and outputs["exit-status"] == "1" and summary == "said\n"
    assert Path(outputs["report"]).name == "report.html" and Path(outputs["sarif"]).exists()
    run = str(Path(outputs["report"]).parent)
    assert calls == [
        f"check|--max-breaks=0|--format|github|--output|-|--out|{run}|my train.py|--name|a b|$(touch x)|",
        f"check|--quiet|--max-breaks=0|--format|md|--output|-|{run}|",
        f"check|--quiet|--max-breaks=0|--format|sarif|--output|{run}/check.sarif|{run}|",
    ]


def test_where_nothing_was_recorded_nothing_is_uploaded(job):
    done, outputs, calls, summary = job(DYNADIAG_TARGET="train.py", NOTHING="1", STATUS="2")
    assert (done.returncode, outputs, len(calls), summary) == (2, {"exit-status": "2"}, 1, "")


HOSTILE = "train.py\n$(touch pasted)\n`touch pasted`\n\"; touch pasted; #\n${{ secrets.X }}\n'; touch pasted; '"


def test_the_steps_run_as_on_github_and_no_input_is_executed(tmp_path):
    tools, work = tmp_path / "tools", tmp_path / "work"
    tools.mkdir()
    (work / "sub").mkdir(parents=True)
    for name, text in (("dynadiag", FAKE), ("python", '#!/usr/bin/env bash\nprintf "%s|" "$@" >>"$CALLS"; echo >>"$CALLS"\n')):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PATH": path_before(tools), "CALLS": str(tmp_path / "calls"), "STATUS": "1"}
    inputs = {"target": HOSTILE, "options": HOSTILE.replace("train.py", "--max-breaks=0"), "working-directory": "sub"}
    told = run_action(work, inputs, environment)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0].startswith("-m|pip|install|") and len(calls) == 4
    words = HOSTILE.split("\n")
    assert "|".join(words) + "|" in calls[1] and "|".join(["--max-breaks=0", *words[1:]]) + "|--format|github|" in calls[1]
    assert list(work.rglob("pasted")) == [] and told["failed"] and told["outputs"]["exit-status"] == "1"
    assert told["called"] == [("actions/upload-artifact@v6", {"name": "dynadiag-report", "path": told["outputs"]["report"]})]
    for one in ({"install": "false"}, {"artifact": ""}):
        (tmp_path / "calls").unlink()
        (again := tmp_path / next(iter(one))).mkdir()
        told = run_action(again, {"target": "train.py", **one}, environment)
        assert ("pip" in (tmp_path / "calls").read_text()) == ("install" not in one) and bool(told["called"]) == ("artifact" not in one)


def test_no_input_is_pasted_into_a_script():
    action = yaml.safe_load((ROOT / "action/action.yml").read_text())
    for step in action["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
    (check,) = [step for step in action["runs"]["steps"] if step.get("id") == "check"]
    assert check["env"] == {"DYNADIAG_TARGET": "${{ inputs.target }}", "DYNADIAG_OPTIONS": "${{ inputs.options }}"}
    assert {value["value"] for value in action["outputs"].values()} == {
        f"${{{{ steps.check.outputs.{name} }}}}" for name in action["outputs"]
    }


def test_the_hook_runs_the_verb():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["entry"], hook["pass_filenames"], hook["language"]) == ("dynadiag check", False, "system")
