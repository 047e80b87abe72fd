"""How good `dynadiag fix` is: how many findings of a corpus it cures, and that it accepts none of the traps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.children.forked import START_WITHOUT_GC

ROOT = Path(__file__).parents[3]
CORPUS = ROOT / "tests/corpus/fix"
LEAST_CURED = 0.8
pytestmark = [pytest.mark.slow, pytest.mark.any_torch]


@pytest.fixture(scope="module")
def found(request, tmp_path_factory) -> dict[str, dict[str, dict]]:
    """What came of each program, by kind and name: of one for each cause and kind of edit, with --whole-corpus of all. In one process."""
    folder = tmp_path_factory.mktemp("corpus")
    pattern = "**/*.py" if request.config.getoption("--whole-corpus") else "*.py"
    files = {kind: sorted((CORPUS / kind).glob(pattern)) for kind in ("cures", "traps", "others")}
    out = folder / "out.json"
    (folder / "runs").mkdir()
    command = [sys.executable, "-c", START_WITHOUT_GC, "tests.quality.fix.run_corpus", str(out), str(folder / "runs")]
    subprocess.run([*command, *(str(file) for ones in files.values() for file in ones)], check=True, cwd=ROOT)
    told = json.loads(out.read_text())
    assert [f"{name}: {one['error']}" for name, one in told.items() if "error" in one] == []
    return {kind: {file.stem: told[file.stem] | {"source": file.read_text()} for file in ones} for kind, ones in files.items()}


def test_most_findings_are_cured_and_what_is_proven_is_true_without_us(found):
    """The patched file beside the original, run in eager on three seeds."""
    cures = found["cures"]
    wanted = {name: int(re.match(r"# (\d+) to cure", one["source"])[1]) for name, one in cures.items()}
    cured = sum(min(cures[name]["summary"]["cured"], count) for name, count in wanted.items())
    left = {name: one["findings"] for name, one in cures.items() if one["summary"]["cured"] < wanted[name]}
    print(f"{cured} of {sum(wanted.values())} causes cured, {sum(bool(one['patch']) for one in cures.values())} patches")
    assert cured >= LEAST_CURED * sum(wanted.values()), json.dumps(left, indent=1)
    assert [name for name, one in cures.items() if not one["same"]] == []
    assert [name for name, one in cures.items() if one["patch"] and not one["applies"]] == []
    for name, one in cures.items():
        if one["after"] is not None:
            counted = [sum(one[when][what] for what in ("graph_break_events", "recompiles", "fallbacks")) for when in ("after", "before")]
            assert counted[0] < counted[1], name


def test_no_trap_is_accepted(found):
    """A patch of a trap has to be another one than the wrong rewrite, and right; most wrong rewrites are found by the proof alone."""
    traps = found["traps"]
    assert {name: one["patch_text"] for name, one in traps.items() if one["patch"] and not one["same"]} == {}
    named = {name: one for name, one in traps.items() if one["natural"] is not None}
    accepted = [name for name, one in named.items() if one["natural"] == "PROVEN" and one["legal"] is None]
    print(f"{len(traps)} traps, {len(accepted)} accepted")
    assert [name for name, one in named.items() if one["wrong"] in one["advised"]] == []  # nor advised by explain
    assert len(named) > 0.75 * len(traps)
    assert accepted == []
    judged = [one["natural"] for one in named.values()]
    assert sum(one != "PROVEN" for one in judged) >= 0.85 * len(judged)
    assert [one for one in judged if "does not show" in one] == []


def test_what_cannot_be_proven_says_so(found):
    for name, one in found["others"].items():
        says = one["source"].splitlines()[0].removeprefix("# says: ")
        assert says in one["not_proven"] and one["patch"] is None, (name, one["not_proven"])
        tried = [finding for finding in one["findings"] if not finding["why_left"].startswith("nothing is advised")]
        assert tried and [finding for finding in tried if says not in finding["why_left"]] == [], name
