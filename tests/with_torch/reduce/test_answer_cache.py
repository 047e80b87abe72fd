"""After `--resume`, what was seen of the original and of the layers is not run again."""

from __future__ import annotations

import torch

from dynadiag.children.answer_cache import AnswerCache, remembering
from dynadiag.children.forked import ChildReport
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs import judge
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.guilty_part import find_guilty_layer
from dynadiag.reduce.graphs.reduction import ReductionOptions, confirm
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.scripts import oracle
from dynadiag.reduce.scripts.oracle import Conditions, see
from dynadiag.reduce.scripts.program import parsed

FAILURE = Failure(kind="runtime_error", phase="call", exceptions=("ValueError",), message="bad", frames=("a.py:f",), detail="all")


def test_confirmations_layers_and_programs_are_seen_once(tmp_path, monkeypatch):
    forks = []

    def run_forked(work, *, timeout_s):
        forks.append(timeout_s)
        messages = ({"step": "call"}, {"failure": FAILURE.to_json()})
        return ChildReport(messages=messages, exit_status=0, signal=None, timed_out=False, output="", wall_s=1.0, cpu_s=0.5)

    for module in (judge, oracle):
        monkeypatch.setattr(module, "run_forked", run_forked)
    candidate = candidate_of(torch.fx.symbolic_trace(lambda x: (x + 1,)), [torch.ones(2)])
    setting = Setting(backend="inductor", options={"max_autotune": True})
    found = []
    for resume in (False, True):
        known = AnswerCache(tmp_path / "known.jsonl", environment={}, resume=resume)
        with remembering(known):
            confirmed = confirm(candidate, setting, ReductionOptions(timeout_s=100))
            guilty = find_guilty_layer(candidate, setting, FAILURE, timeout_s=100)
            seen = see(parsed("print(1)", "s"), Conditions(recorded=False, timeout_s=5))
        found.append((confirmed, guilty, seen))
    assert found[0] == found[1] and len(forks) == 3 + 1 + 1
    confirmed, guilty, seen = found[1]
    assert confirmed.failure == FAILURE and (confirmed.failed, confirmed.of, confirmed.cpu_s) == (3, 3, 1.5)
    assert guilty.layer == "dynamo" and seen.ended == FAILURE and seen.lines == frozenset()
    with remembering(AnswerCache(tmp_path / "known.jsonl", environment={}, resume=True)):
        confirm(candidate, Setting(backend="inductor"), ReductionOptions(timeout_s=100))
    assert len(forks) == 8, "another setting is another question"
