"""Why CUDA graphs were skipped is told in a graph's first call, behind all compiling: it is recorded, and reduced for."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

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


class _Node:
    """A recorded CUDA graph that accepts no inputs of a later call."""

    def __init__(self, function, number):
        self.wrapped_function, self.id, self.children = SimpleNamespace(id=function), SimpleNamespace(id=number), {}

    def check_invariants(self, inputs):
        return SimpleNamespace(name="StaticInputIdxMismatch"), lambda: "static input data pointer changed"


def _manager_of_torch(monkeypatch):
    """Torch's own manager of CUDA graphs as it warms up, skips and records (`_run`), without a GPU: what would run on one is left out."""
    trees = importlib.import_module("torch._inductor.cudagraph_trees")
    owner = trees.CUDAGraphTreeManager
    manager = owner.__new__(owner)
    counted = iter(range(1000))
    state = SimpleNamespace(roots={}, ids_to_funcs={}, compile_id=None, written=set())
    vars(manager).update(roots=state.roots, ids_to_funcs=state.ids_to_funcs, compile_id=SimpleNamespace(frame_id=0, frame_compile_id=0))

    def add_function(self, model, inputs, static_input_idxs, compile_id):
        function = trees.FunctionID(next(counted))
        self.ids_to_funcs[function] = SimpleNamespace(model=model)
        if model in state.written:
            self._update_non_cudagraph_managed_mutation(function, inputs)
        return function

    def record_function(self, new_inputs, function_id):
        self.roots.setdefault(function_id, []).append(_Node(function_id, next(counted)))

    def _update_non_cudagraph_managed_mutation(self, function, inputs):
        trees.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to mutated inputs (1 instances)")

    monkeypatch.setattr(owner, "add_function", add_function)
    monkeypatch.setattr(owner, "record_function", record_function)
    monkeypatch.setattr(owner, "_update_non_cudagraph_managed_mutation", _update_non_cudagraph_managed_mutation)
    return manager, state.written


def test_only_what_torch_records_is_told_as_a_recording(tmp_path, monkeypatch):
    torch._dynamo.reset()  # its frames are numbered from 0
    manager, written = _manager_of_torch(monkeypatch)
    once, twice, skipped = "sizes met once", "sizes met twice", "a written input"
    written.add(skipped)
    with dynadiag.observe(tmp_path / "run"):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        for size in (8, 9, 10):
            manager.add_function(once, [size, object()], (), manager.compile_id)
            manager.add_function(skipped, [size], (), manager.compile_id)
            function = manager.add_function(twice, [size], (), manager.compile_id)
            manager.record_function([size], function)
        manager.record_function([size], function)
    run = load(tmp_path / "run")
    told = {kind: [one for one in run.problems if one.kind == kind] for kind in {one.kind for one in run.problems}}
    assert [one.text for one in told["cudagraph_recorded"]] == ["recorded"]
    assert [one.text for one in told["cudagraph_rerecord"]] == [
        "recorded 2 times: another size: 9, before 8",
        "recorded 3 times: another size: 10, before 8, 9",
        "recorded 4 times: static input data pointer changed",
    ]
    assert [one.text for one in told["cudagraph_sizes"]].count("met 3 sizes: 10, before 8, 9, 10") == 3
    (compiled,) = run.frames
    assert {one.frame for group in told.values() for one in group} == {compiled.id}, "a skip in a first call names its graph"
    assert len(told["cudagraph_skip"]) == 3
