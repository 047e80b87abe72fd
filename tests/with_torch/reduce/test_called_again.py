"""Failures that a graph called once as it stands does not show: with dynamic sizes, in a later call, with inputs in one memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from dynadiag.errors import NothingFoundError
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.calling import CallsMade, reduce_calls
from dynadiag.reduce.graphs.candidate import Call, candidate_of
from dynadiag.reduce.graphs.inputs import make_values
from dynadiag.reduce.graphs.reduction import PASSES_ALONE, ReductionOptions, _is_meant
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.reproducer.graph_file import Header, reproducer
from dynadiag.torch_compat.dynamo.compiling import import_dynamo, warm_up


@pytest.fixture(scope="module", autouse=True)
def warm():
    """The children inherit what a compile imports."""
    warm_up("eager")


def graph(function, *inputs):
    return candidate_of(torch.fx.symbolic_trace(function), list(inputs))


def has(gm, target):
    return any(node.target is target for node in gm.graph.nodes)


def refuses_symbols(gm, inputs):
    if has(gm, torch.tanh) and any(isinstance(value, torch.SymInt) for value in inputs):
        raise ValueError("a size is a symbol")
    return gm.forward


def fails_at_the_third_call(gm, inputs):
    calls = []

    def call(*values):
        calls.append(1)
        if len(calls) == 3 and has(gm, torch.tanh):
            raise ValueError("the third call")
        return gm.forward(*values)

    return call


def overwrites_its_results(gm, inputs):
    kept = []

    def call(*values):
        results = gm.forward(*values)
        kept.extend(result.clone() for result in results if len(kept) < len(results))
        return [place.copy_(result) for place, result in zip(kept, results, strict=True)] if has(gm, torch.tanh) else results

    return call


def source_of(found):
    header = Header(failure=found.confirmed.failure, made_by="-", versions="-", story="-")
    backend = found.setting.backend.__name__
    source = reproducer(found.best, found.setting, header)
    names = {"__name__": "repro", backend: found.setting.backend}
    return source, lambda: exec(compile(source, "repro_min.py", "exec"), names)


def test_a_failure_of_symbolic_sizes_alone_is_found_with_dynamic_sizes():
    candidate = graph(lambda n, x: (torch.tanh(torch.sin(x)).reshape(n, 2) + 1,), 4, torch.ones(4, 2))
    setting = Setting(backend=refuses_symbols)
    found = reduce_calls(candidate, setting, ReductionOptions(said=("ValueError", "a size is a symbol")))
    assert found.setting.dynamic is True and found.best.nodes == 3
    source, run = source_of(found)
    assert "dynamic=True" in source
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="a size is a symbol"):
        run()


def test_a_failure_of_a_later_call_keeps_as_few_calls_as_show_it():
    candidate = graph(lambda x: (torch.tanh(torch.sin(x)) + 1,), torch.ones(4))
    found = reduce_calls(candidate, Setting(backend=fails_at_the_third_call), ReductionOptions(), CallsMade(later_call=7))
    assert found.setting.calls == 3 and found.best.nodes == 3
    source, run = source_of(found)
    assert "for call in range(3)" in source and "make_inputs(call)" in source
    with pytest.raises(ValueError, match="the third call"):
        run()


def test_results_that_a_later_call_overwrites_are_wrong():
    candidate = graph(lambda x: (torch.tanh(torch.sin(x)) + 1,), torch.ones(4))
    found = reduce_calls(
        candidate, Setting(backend=overwrites_its_results, check="forward", backward=True), ReductionOptions(kind="wrong_result")
    )
    assert (found.confirmed.failure.kind, found.setting.calls, found.best.nodes) == ("wrong_result", 2, 3)
    detail = found.confirmed.failure.detail
    assert detail.startswith("result 0: off by 3.8e-01 of its size") and detail.endswith("(call 1 of 2)")
    with pytest.raises(AssertionError, match="wrong result 0"):
        source_of(found)[1]()


def test_what_was_tried_in_vain_is_said():
    candidate = graph(lambda n, x: (torch.sin(x) + n,), 4, torch.ones(4))
    with pytest.raises(NothingFoundError, match="does not fail on its own .*; nor with dynamic sizes, called 2 times") as raised:
        reduce_calls(candidate, Setting(backend="eager"), ReductionOptions(), CallsMade(later_call=2))
    assert raised.value.slug == PASSES_ALONE


def test_inputs_in_one_memory_lie_in_one_memory_in_the_file():
    base = torch.arange(300.0)
    inputs = [base[10:130].view(2, 60), base[100:160], torch.ones(3), base[::2], torch.arange(6)[1:3]]
    candidate = graph(lambda a, b, c, d, e: (a, b, c, d, e), *inputs)
    header = Header(failure=Failure(kind="runtime_error", phase="call"), made_by="-", versions="-", story="-")
    names = {"__name__": "repro"}
    exec(compile(reproducer(candidate, Setting(backend="eager"), header), "repro_min.py", "exec"), names)
    made, expected = names["make_inputs"](), make_values(candidate.inputs)
    assert all(torch.equal(one, other) and one.stride() == other.stride() for one, other in zip(made, expected, strict=True))
    for values in (made, expected):
        places = [value.untyped_storage().data_ptr() for value in values]
        assert places[0] == places[1] == places[3] and len(set(places)) == 3
        assert values[1].data_ptr() - values[0].data_ptr() == 90 * 4


def keeps_the_first_size(gm, inputs):
    """Right for the size of its first call, then wrong for others."""
    sizes = []

    def call(*values):
        sizes.append(max(value.shape[0] for value in values if isinstance(value, torch.Tensor)))
        results = gm.forward(*values)
        return [result + 1 for result in results] if sizes[-1] != sizes[0] and has(gm, torch.tanh) else results

    return call


def compiled_for_disjoint(gm, inputs):
    seen = []

    def call(*values):
        places = [value.untyped_storage().data_ptr() for value in values if isinstance(value, torch.Tensor)]
        seen.append(len(set(places)) == len(places))
        if seen[0] and not seen[-1] and has(gm, torch.tanh):
            raise ValueError("compiled for disjoint inputs")
        return gm.forward(*values)

    return call


def refuses_gradients_after_none(gm, inputs, modes=[]):  # noqa: B006 - a state of the back end
    modes.append(torch.is_grad_enabled())
    if modes[0] is False and modes[-1] and has(gm, torch.tanh):
        raise ValueError("gradients after none")
    return gm.forward


def after(candidate, *earlier, grad=None):
    """The candidate with calls before its own."""
    calls = [Call(candidate_of(candidate.module, list(values)).inputs, grad=grad) for values in earlier]
    return replace(candidate, earlier=tuple(calls))


def net(x, y):
    return (torch.tanh(torch.sin(x) @ y) + 1,)


def test_a_failure_after_a_call_of_another_size_keeps_the_calls_that_lead_to_it():
    candidate = graph(net, torch.ones(6, 4), torch.ones(4, 4))
    sequence = after(candidate, *((torch.ones(size, 4), torch.ones(4, 4)) for size in (6, 6, 9, 9, 3)))
    setting = Setting(backend=keeps_the_first_size, check="forward")
    found = reduce_calls(candidate, setting, ReductionOptions(kind="wrong_result", simplify=False), CallsMade(sequence=sequence))
    # One size makes a graph with static sizes, the second the dynamic one, and the third is wrong in it.
    assert (found.best.nodes, len(found.best.calls), found.confirmed.failure.kind) == (3, 3, "wrong_result")
    source, run = source_of(found)
    assert "if call == 1:" in source and "for call in range(3)" in source
    with pytest.raises(AssertionError, match="wrong result 2"):
        run()


def test_a_failure_of_overlap_after_disjoint_inputs_keeps_one_disjoint_call():
    base = torch.arange(12.0)
    candidate = graph(lambda x, y: (torch.tanh(torch.sin(x)) + y,), base[:8], base[4:])
    sequence = after(candidate, *((torch.ones(8), torch.ones(8)) for _ in range(3)))
    found = reduce_calls(
        candidate, Setting(backend=compiled_for_disjoint), ReductionOptions(simplify=False), CallsMade(later_call=4, sequence=sequence)
    )
    assert len(found.best.calls) == 2 and has(found.best.module, torch.tanh)
    source, run = source_of(found)
    assert source.count("view_of(memory_0") == 2 and "nor" not in found.confirmed.failure.message
    with pytest.raises(ValueError, match="compiled for disjoint inputs"):
        run()


def test_a_failure_after_a_call_without_gradients_keeps_the_grad_mode_of_each():
    candidate = graph(net, torch.ones(2, 4), torch.ones(4, 4))
    sequence = after(candidate, (torch.ones(2, 4), torch.ones(4, 4)), grad=False)
    setting = Setting(backend=refuses_gradients_after_none, grad=True)
    found = reduce_calls(candidate, setting, ReductionOptions(), CallsMade(sequence=sequence))
    assert [call.grad for call in found.best.calls] == [False, None] and found.best.nodes == 3
    source, run = source_of(found)
    assert "enumerate((False, True))" in source
    refuses_gradients_after_none.__defaults__[0].clear()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="gradients after none"):
        run()


def test_inputs_of_several_dtypes_in_one_memory_on_another_device_share_it_there():
    """`meta` in place of a GPU: the text is run with it, and what `make_values` makes lies alike."""
    memory = torch.arange(96, dtype=torch.uint8)
    inputs = [memory[20:36].view(torch.float32), memory[24:40].view(torch.int64), memory[::2], torch.ones(2)]
    candidate = graph(lambda a, b, c, d: (a, b, c, d), *inputs)
    away = replace(candidate, inputs=tuple(replace(one, device="meta") for one in candidate.inputs))
    header = Header(failure=Failure(kind="runtime_error", phase="call"), made_by="-", versions="-", story="-")
    for one in (candidate, away):
        source = reproducer(one, Setting(backend="eager"), header)
        assert source.count("view_of(memory_0") == 3 and source.count(".to('meta')") == (2 if one is away else 0)
        names = {"__name__": "repro"}
        exec(compile(source.partition("\nmodel = Repro()")[0], "repro_min.py", "exec"), names)
        for made in (names["make_inputs"](), make_values(one.inputs)):
            assert [str(value.device) for value in made] == [recipe.device for recipe in one.inputs]
            places = [value.untyped_storage()._cdata for value in made]
            assert places[0] == places[1] == places[2] != places[3]
            starts = [value.storage_offset() * value.itemsize for value in made[:3]]
            assert starts[0] - starts[2] == 20 and starts[1] - starts[2] == 24
            assert [value.stride() for value in made] == [value.stride() for value in inputs]
            if one is candidate:
                assert all(torch.equal(value, expected) for value, expected in zip(made, inputs, strict=True))


def test_a_result_that_its_caller_may_not_write():
    """pytorch issue 90507: an in-place view makes the result of compiled code a view, which autograd lets nobody write."""
    # In a process of its own, as the verb's worker is one: torch's autograd refuses a fork of a process that has run a backward before.
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def reduce_a_write_into_a_result():
    import_dynamo(inductor=False, training=True)
    warm_up("aot_eager")
    weight = torch.ones(3, 4, requires_grad=True)
    candidate = graph(lambda x: (torch.tanh(torch.sin(x)).mul(2).transpose_(0, 1),), weight)
    setting = Setting(backend="aot_eager")
    printed = (
        "RuntimeError: Output 0 of CompiledFunction is a view and is being modified inplace. This view was created inside a custom ..."
    )
    found = reduce_calls(candidate, setting, ReductionOptions(), CallsMade(printed=printed))
    assert found.setting.writes, found.confirmed.failure
    assert found.best.nodes <= 5
    assert found.confirmed.failure.message.startswith("Output N of CompiledFunction is a view")
    source = reproducer(found.best, found.setting, Header(failure=found.confirmed.failure, made_by="", versions="", story=""))
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        exec(compile(source, "repro_min.py", "exec"), {"__name__": "__main__"})
    assert not _is_meant(found.confirmed.failure, ReductionOptions(printed="RuntimeError: another in-place write"))


if __name__ == "__main__":
    reduce_a_write_into_a_result()
