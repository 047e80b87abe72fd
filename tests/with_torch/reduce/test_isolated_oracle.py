"""The isolated oracle: every kind of failure is reduced to one operator, and nothing else is ever taken for it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import torch
from torch._dynamo import guards

from dynadiag.children import forked
from dynadiag.children.forked import run_forked
from dynadiag.errors import DynadiagError, NothingFoundError
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.judge import IsolatedOracle, observe_isolated
from dynadiag.reduce.graphs.reduction import ReductionOptions, confirm, reduce_graph
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.torch_compat.dynamo.compiling import warm_up
from tests.corpus.planted_faults import operators as faults

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up("eager")


def reduced(backend, *, requires_grad=False, timeout_s=600.0, kind=None, simplify=True, **setting):
    gm, inputs = faults.planted(requires_grad)
    made = Setting(backend=backend, **setting)
    return reduce_graph(candidate_of(gm, inputs), made, ReductionOptions(timeout_s=timeout_s, kind=kind, simplify=simplify))


def calls(candidate):
    return [node.target for node in candidate.module.graph.nodes if node.op.startswith("call")]


# The faults of torch's own back ends, where it has them; on the oldest torch one of each kind. Planted ones that are told as these are
# in the tests below.
@pytest.mark.parametrize(
    ("backend", "kind", "phase", "setting"),
    [
        pytest.param("relu_compile_error_TESTING_ONLY", "compile_error", "compile", {}, marks=pytest.mark.oldest),
        pytest.param("relu_runtime_error_TESTING_ONLY", "runtime_error", "call", {}, marks=pytest.mark.oldest),
        (faults.crashes_at_compile, "crash", "compile", {}),
        pytest.param(faults.aborts_at_call, "crash", "call", {}, marks=pytest.mark.oldest),
        (faults.exits, "crash", "call", {}),
        pytest.param("relu_accuracy_error_TESTING_ONLY", "wrong_result", "call", {"check": "forward"}, marks=pytest.mark.oldest),
        pytest.param(faults.makes_nan, "nan", "call", {"check": "forward"}, marks=pytest.mark.oldest),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_kind_of_failure_ends_at_the_one_operator(backend, kind, phase, setting):
    found = reduced(backend, simplify=kind == "compile_error", **setting)
    assert (found.confirmed.failure.kind, found.confirmed.failure.phase) == (kind, phase)
    assert (found.confirmed.failed, found.confirmed.of) == (3, 3)
    assert calls(found.best) == [torch.relu] and found.best.nodes == 3 and found.complete
    assert found.queries["cut"] <= 10 and not found.broken_passes
    if kind == "compile_error":
        assert found.best.inputs[0].data is None and max(found.best.inputs[0].shape, default=0) <= 4


def test_one_wrong_element_of_many_is_a_failure_and_rounding_is_none():
    gm = torch.fx.symbolic_trace(lambda x, w: (torch.relu(torch.tanh(x @ w)) * 2 + x,))
    generator = torch.Generator().manual_seed(3)
    candidate = candidate_of(gm, [torch.randn(64, 64, generator=generator), torch.randn(64, 64, generator=generator) / 8])
    wrong, right = (
        observe_isolated(candidate, Setting(backend=backend, check="forward"), timeout_s=600.0)
        for backend in (faults.one_element_wrong, faults.another_rounding)
    )
    assert wrong.failure is not None and wrong.failure.kind == "wrong_result"
    assert wrong.failure.detail.startswith("result 0: off by 5.1e-05 of its size, eager by 1.")
    assert (right.failure, right.invalid) == (None, None)


def test_a_child_checks_guards_but_does_not_time_them(monkeypatch):
    """torch flushes the CPU's caches before it times them, which took longer than to compile a small function."""
    timed = object()
    monkeypatch.setattr(guards, "profile_guard_manager", timed)

    def work(tell):
        checked = []
        replaced = guards.profile_guard_manager
        tell({"latency": replaced(types.SimpleNamespace(check=checked.append), {"x": 1}, 1), "checked": checked})
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        tell({"compiled": True})

    report = run_forked(work, timeout_s=600)
    assert report.messages == ({"latency": 0.0, "checked": [{"x": 1}]}, {"compiled": True}), report.output
    assert guards.profile_guard_manager is timed


def test_a_child_of_a_process_that_used_threads_ends():
    large = torch.randn(512, 512)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert bool((large @ large).exp().isnan().any()) is False
        gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x @ x),))
        found = observe_isolated(candidate_of(gm, [large]), Setting(backend="eager", check="forward"), timeout_s=60.0)
    finally:
        torch.set_num_threads(before)
    assert (found.failure, found.invalid) == (None, None)


def test_what_the_parent_left_to_be_collected_is_not_collected_in_a_child():
    """A process group of another test was, and its end waited for threads that a fork does not have."""
    ended = []

    class Left:
        def __init__(self):
            self.itself = self

        def __del__(self):
            ended.append(os.getpid())

    def work(tell):
        gc.collect()
        tell({"ended": len(ended)})

    gc.disable()
    try:
        Left()
        assert run_forked(work, timeout_s=60).messages == ({"ended": 0},)
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def with_gradients():
    """In a process of its own, as the verb's worker is one: torch's autograd refuses a fork of a process that has run a backward before."""
    command = [sys.executable, "-m", "tests.with_torch.reduce.test_isolated_oracle"]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-3:]


@pytest.mark.slow
def test_a_wrong_gradient_needs_a_backward(with_gradients):
    assert with_gradients[:2] == ["wrong_gradient backward relu True", "wrong_gradient backward"]


def print_a_wrong_gradient():
    warm_up("eager")
    found = reduced(faults.wrong_gradient, requires_grad=True, check="gradient", backward=True, simplify=False)
    failure, (call,) = found.confirmed.failure, calls(found.best)
    print(failure.kind, failure.phase, call.__name__, found.best.inputs[0].requires_grad)
    gm, inputs = faults.planted(True)
    setting = Setting(backend=faults.wrong_result_and_gradient, check="gradient", backward=True)
    failure = observe_isolated(candidate_of(gm, inputs), setting, timeout_s=600).failure
    print(failure.kind, failure.phase)


def test_a_lost_mutation_ends_at_the_operator_that_writes():
    def f(x, cache):
        y = torch.tanh(x) * 2
        cache.add_(torch.sin(y))
        return torch.cos(y) + cache.sum()

    candidate = candidate_of(torch.fx.symbolic_trace(f), [torch.ones(2, 3), torch.zeros(2, 3)])
    found = reduce_graph(
        candidate, Setting(backend=faults.loses_mutations, check="mutation"), ReductionOptions(kind="wrong_mutation", simplify=False)
    )
    failure = found.confirmed.failure
    assert (failure.kind, failure.phase) == ("wrong_mutation", "call") and failure.detail.startswith("input 1: off by 1.0e+00 of its size")
    assert calls(found.best) == ["add_"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS")
def test_memory_that_runs_out_under_a_limit_is_a_failure_and_else_the_machines_fault():
    gm, inputs = faults.planted()
    candidate = candidate_of(gm, inputs)
    found = reduce_graph(
        candidate, Setting(backend=faults.takes_memory, memory_limit_mib=1024), ReductionOptions(kind="oom", simplify=False)
    )
    assert (found.confirmed.failure.kind, found.confirmed.failure.phase) == ("oom", "call") and calls(found.best) == [torch.relu]

    def fails_to_allocate(gm, inputs):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: Error code 12 (Cannot allocate memory)"
        )

    with pytest.raises(NothingFoundError, match="environment error, not a compiler failure"):
        confirm(candidate, Setting(backend=fails_to_allocate), ReductionOptions())


@pytest.fixture
def over_once_there(monkeypatch, tmp_path):
    """A file: once a child has made it the time of that child is over, however long it took to come so far."""
    mark, listen = tmp_path / "there", forked.listen

    def until_it_is_there(children, *, until):
        while not mark.exists():
            if listen(children, until=time.monotonic() + 0.05):
                return True
        if listen(children, until=0.0):
            return True
        mark.unlink()
        return False

    monkeypatch.setattr(forked, "listen", until_it_is_there)
    return mark


def test_a_hang_is_a_failure_only_when_it_is_looked_for(over_once_there):
    def hangs_at_compile(gm, inputs):
        over_once_there.write_text("")
        return faults.hangs_at_compile(gm, inputs)

    gm, inputs = faults.planted()
    failure = confirm(candidate_of(gm, inputs), Setting(backend=hangs_at_compile), ReductionOptions(timeout_s=600)).failure
    assert (failure.kind, failure.phase) == ("hang", "compile")


def test_noise_is_not_wrong():
    gm, inputs = faults.planted()
    with pytest.raises(NothingFoundError, match="does not fail on its own .0 of 3 runs"):
        confirm(candidate_of(gm, inputs), Setting(backend=faults.slightly_wrong, check="forward"), ReductionOptions())


class Noisy(torch.nn.Module):
    def forward(self, x, w):
        x = torch.nn.functional.dropout(x, 0.5, True) + torch.rand_like(x)
        return torch.relu(torch.nn.functional.dropout(x @ w, 0.3, True))


def noisy():
    torch.manual_seed(3)
    return candidate_of(torch.fx.symbolic_trace(Noisy()), [torch.randn(4, 5), torch.randn(5, 6).requires_grad_()])


def like_inductor(gm, inputs):
    drawn_first = 0 if torch._inductor.config.fallback_random else 3
    return lambda *args: (torch.rand(drawn_first), gm.forward(*args))[1]


def test_random_numbers_that_differ_under_inductor_by_design_are_not_wrong():
    with pytest.raises(NothingFoundError, match="does not fail on its own .0 of 3 runs"):
        confirm(noisy(), Setting(backend=like_inductor, check="forward"), ReductionOptions())


def test_gradients_of_random_numbers_that_differ_by_design_are_not_wrong(with_gradients):
    assert "does not fail on its own (0 of 3 runs" in with_gradients[-1]


def test_a_backend_that_draws_other_numbers_cannot_be_compared():
    def draws_first(gm, inputs):
        return lambda *args: (torch.rand(3), gm.forward(*args))[1]

    with pytest.raises(NothingFoundError, match="no failure can be established: it draws different random numbers"):
        confirm(noisy(), Setting(backend=draws_first, check="forward"), ReductionOptions())


def test_a_wrong_operator_beside_random_ones_is_found():
    assert confirm(noisy(), Setting(backend=faults.wrong, check="forward"), ReductionOptions()).failure.kind == "wrong_result"


def test_another_bug_met_on_the_way_is_kept_apart():
    found = reduced(faults.two_bugs, simplify=False)
    assert calls(found.best) == [torch.relu]
    assert all("cannot compile" not in text for text in found.other_failures)


def test_a_machine_that_breaks_on_the_way_is_never_the_bug():
    found = reduced(faults.no_compiler_for_small_graphs, simplify=False)
    assert torch.relu in calls(found.best)
    assert found.confirmed.failure.message.startswith("cannot compile")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ImportError("no triton"), "a package cannot be imported"), (OSError(28, "No space left on device"), "the disk is full")],
)
def test_a_broken_machine_at_the_start_is_named(error, reason):
    def breaks(gm, inputs):
        raise error

    gm, inputs = faults.planted()
    with pytest.raises(NothingFoundError, match=f"environment error, not a compiler failure: {reason}"):
        confirm(candidate_of(gm, inputs), Setting(backend=breaks), ReductionOptions())


def test_a_graph_that_fails_without_the_compiler_is_no_compiler_bug():
    gm = torch.fx.symbolic_trace(lambda x, w: torch.relu(x @ w))
    with pytest.raises(NothingFoundError, match="the captured graph does not run: without the compiler: RuntimeError"):
        confirm(candidate_of(gm, [torch.randn(2, 3), torch.randn(2, 3)]), Setting(backend=faults.raises_at_compile), ReductionOptions())


def test_kind_and_match_choose_the_failure():
    gm, inputs = faults.planted()
    candidate, setting = candidate_of(gm, inputs), Setting(backend=faults.raises_at_compile)
    assert confirm(candidate, setting, ReductionOptions(match="cannot.compile")).failure.kind == "compile_error"
    for options in (ReductionOptions(match="no such text"), ReductionOptions(kind="crash")):
        with pytest.raises(NothingFoundError, match="but not with the failure requested"):
            confirm(candidate, setting, options)


def test_a_flaky_failure_is_given_enough_chances(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dynadiag.reduce.core.reduction.repeats_for", lambda failed, of: 2 if failed < of else 1
    )  # it fails at least every other time
    count = tmp_path / "count"

    def every_other_time(gm, inputs):
        with count.open("a") as file:
            file.write("x")
        if len(count.read_text()) % 2:
            return faults.raises_at_compile(gm, inputs)
        return gm.forward

    gm, inputs = faults.planted()
    found = reduce_graph(candidate_of(gm, inputs), Setting(backend=every_other_time), ReductionOptions(simplify=False))
    assert (found.confirmed.failed, found.confirmed.of) == (5, 10)
    assert calls(found.best) == [torch.relu]


def test_a_child_cannot_harm_the_parent(tmp_path):
    def work(tell):
        tell({"step": "control"})
        print("noise")
        torch.set_default_dtype(torch.float64)
        raise SystemExit(3)

    report = run_forked(work, timeout_s=600)
    assert torch.get_default_dtype() == torch.float32 and report.exit_status == 1 and "SystemExit" in report.messages[-1]["broken"]
    assert "noise" in report.output and not report.timed_out


def test_no_process_is_left_behind(over_once_there, tmp_path):
    ends, held = os.pipe()  # whoever still runs of them holds the other end

    def work(tell):
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(6000)"], pass_fds=[held])
        over_once_there.write_text("")
        time.sleep(6000)

    assert run_forked(work, timeout_s=600).timed_out
    os.close(held)
    assert os.read(ends, 1) == b"", "this waits until the last one has ended"
    os.close(ends)


def test_values_that_find_no_room_on_the_disk_are_one_line():
    import resource

    oracle = IsolatedOracle(Setting(backend="eager"), Failure(kind="crash", phase="call"), timeout_s=600.0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(DynadiagError, match="the graph's values could not be stored: no room to write them"):
            oracle.values(candidate_of(torch.fx.symbolic_trace(lambda x: (x + 1,)), [torch.ones(100)]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_values_of_several_dtypes_in_one_memory_are_kept_in_one_memory():
    oracle = IsolatedOracle(Setting(backend="eager"), Failure(kind="crash", phase="call"), timeout_s=600.0)
    graph = torch.fx.symbolic_trace(lambda x: (torch.view_as_real(x), x.conj().imag, torch.view_as_complex(torch.view_as_real(x)), x.sin()))
    x = torch.randn(3, 4, dtype=torch.complex64)
    values = oracle.values(candidate_of(graph, [x]))
    for node, expected in zip(list(graph.graph.nodes)[-1].args[0], graph(x), strict=True):
        assert torch.equal(values[node.name], expected) and values[node.name].dtype == expected.dtype
    places = {name: value.untyped_storage().data_ptr() for name, value in values.items() if isinstance(value, torch.Tensor)}
    assert places["view_as_real"] == places["view_as_complex"] != places["sin"]


def test_two_observations_agree():
    gm, inputs = faults.planted()
    one, two = (observe_isolated(candidate_of(gm, inputs), Setting(backend=faults.raises_at_call), timeout_s=600).failure for _ in range(2))
    assert one.same_as(two) and "ValueError: bad call with 2 values" in one.detail


def test_values_hold_neither_the_inputs_nor_all_memory_behind_a_small_view(monkeypatch):
    monkeypatch.setattr("dynadiag.reduce.graphs.judge.LARGE_BYTES", 1000)
    candidate = candidate_of(torch.fx.symbolic_trace(lambda table: (table[3] + 1, table[:30])), [torch.arange(4000.0).reshape(40, 100)])
    values = IsolatedOracle(Setting(backend="eager"), Failure(kind="crash", phase="call"), timeout_s=600.0).values(candidate)
    row = values["getitem"]
    assert row[0] == 300 and row.untyped_storage().nbytes() == 400
    assert values["getitem_1"].shape == (30, 100)
    assert "table" not in values


def print_gradients_that_differ_by_design():
    try:
        confirm(noisy(), Setting(backend=like_inductor, check="gradient", backward=True), ReductionOptions())
    except NothingFoundError as error:
        print(error.message)


if __name__ == "__main__":
    print_a_wrong_gradient()
    print_gradients_that_differ_by_design()
