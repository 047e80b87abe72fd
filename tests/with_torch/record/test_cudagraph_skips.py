"""Why CUDA graphs were skipped is told in a graph's first call, behind all compiling: it is recorded, and reduced for."""

from __future__ import annotations

import torch

import dynadiag
from dynadiag.passes.find_mutations import find_mutations
from dynadiag.reduce.scripts.recorded_failures import failures_in
from dynadiag.torch_compat.dynamo.counters import clear_compile_facts, compile_facts
from dynadiag.trace import load


def test_a_skip_that_is_told_in_the_first_call_is_recorded_with_the_line_of_the_write(tmp_path):
    def written(x, cache):
        cache.add_(x)
        return cache * 2

    clear_compile_facts()
    with dynadiag.observe(tmp_path / "run"):
        torch.compile(written, backend="aot_eager")(torch.ones(4), torch.zeros(4))
        tells = __import__("torch._inductor.cudagraph_utils", fromlist=["x"])
        line = written.__code__.co_firstlineno + 1
        reason = f'skipping cudagraphs due to mutated inputs (1 instances). Found from : \n   File "{__file__}", line {line}, in written'
        tells.log_cudagraph_skip_and_bump_counter(reason)
        tells.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to cpu device (x)")
    tells.log_cudagraph_skip_and_bump_counter("told after the recording")
    run = load(tmp_path / "run")
    assert [one.text for one in run.problems if one.kind == "cudagraph_skip"] == [reason, "skipping cudagraphs due to cpu device (x)"]
    (found,) = failures_in(tmp_path / "run", "cudagraph_skip")
    assert found.detail == reason and found.message == "skipping cudagraphs due to mutated inputs (N instances)"
    effects = [effect for one in find_mutations(run).mutations for effect in one.effects if effect["kind"] == "cudagraph_skip"]
    assert [effect["basis"] for effect in effects] == ["observed"], effects
    facts = compile_facts()
    assert reason in facts["cudagraph_skip_reasons"] and facts["cudagraph_skips"] == 3
    clear_compile_facts()
    assert compile_facts()["cudagraph_skip_reasons"] == []
