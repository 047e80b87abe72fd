"""How good `dynadiag fix` is: how many findings of a corpus it cures, and that it accepts none of the traps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.reduce.core.isolation import START_WITHOUT_GC

ROOT = Path(__file__).parents[3]
CORPUS = ROOT / "tests/corpus/fix"
LEAST_CURED = 0.8
pytestmark = [pytest.mark.slow, pytest.mark.any_torch]


def run(kind: str, folder: Path) -> dict[str, dict]:
    out = folder / "out.json"
    files = sorted(map(str, (CORPUS / kind).glob("*.py")))
    (folder / "runs").mkdir()
    command = [sys.executable, "-c", START_WITHOUT_GC, "tests.quality.fix.run_corpus", str(out), str(folder / "runs"), *files]
    subprocess.run(command, check=True, cwd=ROOT)
    found = json.loads(out.read_text())
    assert [f"{name}: {one['error']}" for name, one in found.items() if "error" in one] == []
    return found


# One test a corpus: with several, each worker would run the corpus for its own.
def test_most_findings_are_cured_and_what_is_proven_is_true_without_us(tmp_path):
    """The patched file beside the original, run in eager on three seeds."""
    cures = run("cures", tmp_path)
    wanted = {file.stem: int(re.match(r"# (\d+) to cure", file.read_text())[1]) for file in (CORPUS / "cures").glob("*.py")}
    cured = sum(min(cures[name]["summary"]["cured"], count) for name, count in wanted.items())
    left = {name: one["findings"] for name, one in cures.items() if one["summary"]["cured"] < wanted[name]}
    assert cured >= LEAST_CURED * sum(wanted.values()), json.dumps(left, indent=1)
    assert [name for name, one in cures.items() if not one["same"]] == []
    assert [name for name, one in cures.items() if one["patch"] and not one["applies"]] == []
    for name, one in cures.items():
        if one["after"] is not None:
            counted = [sum(one[when][what] for what in ("graph_break_events", "recompiles", "fallbacks")) for when in ("after", "before")]
            assert counted[0] < counted[1], name


def test_no_trap_is_accepted(tmp_path):
    """A patch of a trap has to be another one than the wrong rewrite, and right; most wrong rewrites are found by the proof alone."""
    traps = run("traps", tmp_path)
    assert {name: one["patch_text"] for name, one in traps.items() if one["patch"] and not one["same"]} == {}
    named = {name: one for name, one in traps.items() if one["natural"] is not None}
    assert [name for name, one in named.items() if one["wrong"] in one["advised"]] == []  # nor advised by explain
    assert len(named) > 25
    assert [name for name, one in named.items() if one["natural"] == "PROVEN" and one["legal"] is None] == []
    judged = [one["natural"] for one in named.values()]
    assert sum(one != "PROVEN" for one in judged) >= 0.85 * len(judged)
    assert [one for one in judged if "does not show" in one] == []


def test_what_cannot_be_proven_says_so(tmp_path):
    for name, one in run("others", tmp_path).items():
        says = (CORPUS / "others" / f"{name}.py").read_text().splitlines()[0].removeprefix("# says: ")
        assert says in one["not_proven"] and one["patch"] is None, (name, one["not_proven"])
        tried = [finding for finding in one["findings"] if not finding["why_left"].startswith("nothing is advised")]
        assert tried and [finding for finding in tried if says not in finding["why_left"]] == [], name
