"""Each cure: the recompiles before it, those left after it, the same results, and dynadiag naming it for torch's own reasons.

Most are not advised: they end the recompile here, where the program is known, and nothing that is recorded shows that they would elsewhere.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.advice.recompiles import limit_advice
from dynadiag.model.run import CompileCall
from dynadiag.passes.find_recompiles import find_recompiles
from tests.unit.passes_recompiles import builders

HERE = Path(__file__).parent

# (recompiles before, recompiles after); the limit's cure lets all eleven variants be compiled.
LEFT = {
    "mark-dynamic": (1, 0),
    "closure-as-tensor": (1, 0),
    "compile-dynamic": (1, 0),
    "drop-dynamic-false": (3, 1),
    "parameter-shapes": (3, 1),
    "number-as-tensor": (1, 0),
    "math-outside": (3, 0),
    "global-as-tensor": (2, 0),
    "flag-where": (1, 0),
    "split-by-value": (1, 0),
    "unspec-int-on-module": (4, 1),
    "hoist-function": (2, 0),
    "closure-value-as-argument": (2, 0),
    "one-backend-object": (2, 0),
    "count-outside": (3, 0),
    "compile-parent": (3, 0),
    "same-requires-grad": (1, 0),
    "same-grad-mode": (1, 0),
    "same-autocast": (1, 0),
    "state-before-compile": (1, 0),
    "same-function-mode": (1, 0),
    "same-inference-mode": (1, 0),
    "one-dtype": (1, 0),
    "one-device": (1, 0),
    "contiguous": (1, 0),
    "one-rank": (1, 0),
    "stack-list": (2, 0),
    "pass-items": (3, 0),
    "float-in-buffer": (4, 0),
    "append-outside": (3, 0),
    "fill-before": (1, 0),
    "drop-last": (1, 0),
    "same-arguments": (1, 0),
    "fixed-keys": (1, 0),
    "one-key-order": (1, 0),
    "always-a-tensor": (1, 0),
    "initialise-attribute": (1, 0),
    "one-type": (1, 0),
    "set-attribute-always": (1, 0),
    "no-aliased-arguments": (1, 0),
    "mark-before-first-call": (1, 0),
    "avoid-size-one": (1, 0),
    "branch-outside": (1, 0),
    "no-duck-shape": (1, 0),
    "attribute-as-tensor": (1, 0),
    "lr-as-tensor": (1, 0),
    "constant-momentum": (3, 0),
    "offset-clone": (1, 0),
    "keep-object-alive": (2, 0),
    "bounded-versions": (1, 1),
    "raise-limit": (8, 10),
}
# The reasons alone do not tell these: the log must also hold the calls of torch.compile.
CALLS = {
    "drop-dynamic-false": (CompileCall(process=0, location=None, target="fn", backend="eager", options={"dynamic": False}),),
}
# Advised by the reasons, the calls of `torch.compile` and the source of the function alone.
ADVISED = (
    "drop-dynamic-false",
    "lr-as-tensor",
    "mark-before-first-call",
    "no-duck-shape",
    "one-backend-object",
    "parameter-shapes",
    "unspec-int-on-module",
)
# Advised where the line of the call is recorded too (`test_recorded_recompiles.py`).
BY_THE_CALL = {"append-outside", "constant-momentum", "count-outside", "mark-dynamic", "math-outside", "pass-items", "stack-list"}


@pytest.fixture(scope="module")
def outcome():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, HERE / "cures_program.py"], capture_output=True, text=True, env=environment, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def with_sources(run, sources):
    """The run with its functions where they are, and their text as a recording has it."""
    known = {name: place for name, place in sources.items() if place[2]}
    placed = [
        builders.replace(frame, file=known[frame.name][0], line=known[frame.name][1]) if frame.name in known else frame
        for frame in run.frames
    ]
    return builders.replace(run, frames=tuple(placed), blocks={(file, line): text for file, line, text in known.values()})


def test_every_row_is_tested(outcome):
    assert set(outcome) == set(LEFT)


@pytest.mark.parametrize("slug", LEFT)
def test_recompiles_end_and_results_stay(outcome, slug):
    row = outcome[slug]
    assert row["before"]["error"] is None and row["after"]["error"] is None
    assert (len(row["before"]["recompiles"]), len(row["after"]["recompiles"])) == LEFT[slug]
    assert row["equal"]


def found_in(row, slug):
    run = with_sources(builders.recorded(row["before"]["recompiles"], row["before"]["names"]), row["before"]["sources"])
    run = builders.with_groups(run, 0) if slug == "lr-as-tensor" else run
    return find_recompiles(builders.replace(run, compile_calls=CALLS.get(slug, ())))


@pytest.mark.parametrize("slug", ADVISED)
def test_the_cure_is_named_for_torchs_own_reasons(outcome, slug):
    found = found_in(outcome[slug], slug)
    assert not found.notes
    # torch 2.11 does not name the back ends in its reason, so that they are one function made anew is not known.
    unnamed = slug == "one-backend-object" and "Cached backend" not in outcome[slug]["before"]["recompiles"][0][0]
    assert {advice.slug for recompile in found.recompiles for advice in recompile.advice} == (set() if unnamed else {slug})
    assert found.findings and found.findings[0].code != "DR99"


@pytest.mark.parametrize("slug", [slug for slug in LEFT if slug not in ADVISED])
def test_what_is_not_established_is_not_advised(outcome, slug):
    found = found_in(outcome[slug], slug)
    advised = {advice.slug for recompile in found.recompiles for advice in recompile.advice}
    assert advised <= ({slug} & BY_THE_CALL)
    assert all(finding.fix or finding.why.endswith((".", "!")) for finding in found.findings)


def test_the_limit_cure_is_named(outcome):
    assert len(outcome["raise-limit"]["before"]["recompiles"]) == 8
    run = builders.recorded(outcome["raise-limit"]["before"]["recompiles"], outcome["raise-limit"]["before"]["names"])
    assert [advice.slug for advice in limit_advice(0, 8, 12, run)] == ["raise-limit"]


def test_no_reason_of_torch_is_unknown_to_the_parser(outcome):
    for row in outcome.values():
        for side in (row["before"], row["after"]):
            for recompile in find_recompiles(builders.recorded(side["recompiles"], side["names"])).recompiles:
                assert {change.kind for change in recompile.changed}.isdisjoint({"unknown", "unexpected"}), recompile.reasons
