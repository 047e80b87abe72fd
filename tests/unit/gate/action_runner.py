"""Runs the steps of a composite action as GitHub's runner does: conditions, inputs, environment, `bash -eo pipefail`, outputs."""

import os
import re
import subprocess
from pathlib import Path

import yaml

ACTION = Path(__file__).parents[3] / "action"
# https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax: `shell: bash`
_SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")


def run_action(folder, inputs, environment):
    """What the job sees: the outputs of the action, the steps that call other actions with their inputs, all that was printed, the summary.

    `folder` is the workspace; a step that fails makes the following ones wait for `always()`.
    """
    action = yaml.safe_load((ACTION / "action.yml").read_text())
    given = {name: inputs.get(name, one.get("default", "")) for name, one in action["inputs"].items()}
    temporary = folder / "runner-temp"
    temporary.mkdir()
    known, called, printed, failed = {}, [], "", False
    for number, step in enumerate(action["runs"]["steps"]):
        condition = str(step.get("if", "success()"))
        if not (_holds(condition, given, known) and (not failed or "always()" in condition)):
            continue
        if "uses" in step:
            called.append((step["uses"], {name: _filled(value, given, known) for name, value in step["with"].items()}))
            continue
        files = {name: temporary / f"{name}-{number}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        script = temporary / f"step-{number}.sh"
        script.write_text(_filled(step["run"], given, known))
        done = subprocess.run(
            [*_SHELL, str(script)],
            cwd=folder / _filled(step.get("working-directory", "."), given, known),
            env={
                **environment,
                **{name: str(path) for name, path in files.items()},
                **{name: _filled(value, given, known) for name, value in step.get("env", {}).items()},
                "RUNNER_TEMP": str(temporary),
                "GITHUB_ACTION_PATH": str(ACTION),
                "GITHUB_WORKSPACE": str(folder),
            },
            capture_output=True,
            text=True,
        )
        printed += done.stdout + done.stderr
        failed = failed or done.returncode != 0
        texts = {name: path.read_text() if path.exists() else "" for name, path in files.items()}
        if "id" in step:
            known[step["id"]] = dict(line.split("=", 1) for line in texts["GITHUB_OUTPUT"].splitlines())
            summary = texts["GITHUB_STEP_SUMMARY"]
    outputs = {name: _filled(one["value"], given, known) for name, one in action["outputs"].items()}
    return {"failed": failed, "outputs": outputs, "called": called, "printed": printed, "summary": summary}


def _value(expression, given, known):
    name = expression.strip()
    if name.startswith("inputs."):
        return given[name.removeprefix("inputs.")]
    step, output = re.fullmatch(r"steps\.([\w-]+)\.outputs\.([\w-]+)", name).groups()
    return known.get(step, {}).get(output, "")


def _filled(text, given, known):
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: _value(match[1], given, known), str(text))


def _holds(condition, given, known):
    """Terms joined by `&&`: a function of the state, or a value compared with a literal."""
    for term in condition.split("&&"):
        compared = re.fullmatch(r"\s*(\S+) (==|!=) '(.*)'\s*", term)
        if compared is None:
            assert term.strip() in ("always()", "success()"), term
        elif (_value(compared[1], given, known) == compared[3]) != (compared[2] == "=="):
            return False
    return True


def path_before(folder):
    """The search path with a folder first."""
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
