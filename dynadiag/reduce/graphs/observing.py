"""One candidate run twice in this process: without the compiler, then with it. What happened is told as it happens.

Runs in a child: the graph may kill the process, so each step is told before it begins.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.compare.aliasing import Change, snapshot
from dynadiag.compare.calls import gradients_of_loss
from dynadiag.compare.judge import Runs
from dynadiag.compare.noise import noisy_runs
from dynadiag.compare.rounding import DISCRETE
from dynadiag.reduce.core.failure import Failure, environment_trouble, from_exception, out_of_memory, ran_out_of_memory
from dynadiag.reduce.graphs import running
from dynadiag.reduce.graphs.candidate import Call, Candidate, own_copy
from dynadiag.reduce.graphs.inputs import make_values
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.torch_compat.causes import chain_of
from dynadiag.torch_compat.dispatch.live_call import RandomState
from dynadiag.torch_compat.dispatch.state import surroundings as around_a_call
from dynadiag.torch_compat.dynamo import compiling
from dynadiag.torch_compat.inductor.inner import inner_compiled, inner_options
from dynadiag.torch_compat.pytree import tree_leaves

Tell = Callable[[dict[str, Any]], None]


def observe(candidate: Candidate, setting: Setting, tell: Tell, *, spend: bool = False) -> None:
    """Tell `{"step": ...}` before each step and at the end one of `{"invalid": why}`, `{"failure": ...}`, `{"passed": true}`.

    With `spend` the last call may take the memory of the inputs and need not copy it: for a child, which ends then.
    """
    with surroundings(setting), limited_memory(setting.memory_limit_mib, on_gpu="cuda" in candidate.text):
        tell({"step": "control"})
        try:
            drawn: list[Drawn] = []
            eager = _control(candidate, setting, drawn)
            # In float64 other numbers would be drawn.
            exact = None if any(item.any for item in drawn) else _exact(candidate, setting)
        except Exception as error:  # noqa: BLE001 - the border around a candidate
            tell({"invalid": f"without the compiler: {type(error).__name__}: {error}"[:500]})
            return
        tell(_subject(candidate, setting, Expected(eager, exact, drawn), tell, spend))


_PERTURBED = 3
OTHER_NUMBERS = "it draws different random numbers from the uncompiled run, so their results cannot be compared"


@dataclass(frozen=True)
class Drawn:
    """The random generators behind a call: `any` where it drew numbers, `states` to compare."""

    any: bool
    states: tuple[bytes, ...]


@dataclass(frozen=True)
class Expected:
    """What the uncompiled run gave, in float64 too where that can be had, and the random numbers that it drew in each call."""

    eager: list[Any]
    exact: list[Any] | None
    drawn: list[Drawn]


def _control(candidate: Candidate, setting: Setting, drawn: list[Drawn]) -> list[Any]:
    results = [value for call in _run_calls(candidate, setting, own_copy(candidate.module), drawn=drawn) for value in call]
    if setting.check == "raises":
        return results  # nothing is compared: they may be on the meta device, or not comparable
    again = run_once(candidate, setting, own_copy(candidate.module))
    if running.wrong(again, results, None) is not None:
        raise ArithmeticError("two uncompiled runs differ: the graph is random")
    return results


def _exact(candidate: Candidate, setting: Setting) -> list[Any] | None:
    """The results in float64, None where the graph does not run in it or they are not compared."""
    if setting.check == "raises" or len(calls_of(candidate, setting)) > 1:
        return None
    try:
        wide = running.in_float64(candidate)
        return run_once(wide, replace(setting, autocast=None), wide.module)
    except Exception:  # noqa: BLE001 - the border around a candidate: a graph may insist on a dtype
        return None


def _more_runs(candidate: Candidate, setting: Setting) -> Runs:
    """The results of uncompiled runs with noisy sums on inputs that are a bit off; a run that fails is left out."""
    further, same, seen = noisy_runs(lambda _, change: run_once(candidate, setting, own_copy(candidate.module), change=change), _PERTURBED)
    return Runs(further=further, same=same, coarsest=seen.half, tf32=seen.tf32)


def _subject(candidate: Candidate, setting: Setting, expected: Expected, tell: Tell, spend: bool) -> dict[str, Any]:
    phase, began = "trace", time.monotonic()
    # What is compared later makes the inputs again, and a limit holds for a run with inputs of its own.
    spend = spend and setting.check == "raises" and setting.memory_limit_mib is None and len(calls_of(candidate, setting)) == 1
    drawn: list[Drawn] = []

    def enter(name: str) -> None:
        nonlocal phase
        phase = name
        tell({"step": name, "at_s": time.monotonic() - began})

    try:
        with compiling.configured(configs_of(candidate, setting)), compiling.loudly(), compiling.phases(enter):
            function = compiled(own_copy(candidate.module), setting, enter)
            calls = _run_calls(candidate, setting, function, enter, drawn, spend=spend)
    except Exception as error:  # noqa: BLE001 - the border around a candidate
        if ran_out_of_memory(error) and _memory_is_meant(error, setting):
            return {"failure": out_of_memory(error, phase).to_json()}
        trouble = environment_trouble(error)
        return {"invalid": trouble, "environment": True} if trouble else {"failure": _raised(error, phase, setting).to_json()}
    results = [value for call in calls for value in call]
    counts = [len(call) for call in calls]
    meant = _behind_results(candidate, counts) if setting.check in ("gradient", "mutation") else ()
    found = None
    if setting.check != "raises":
        found = running.wrong(
            results,
            expected.eager,
            expected.exact,
            first=meant,
            runs=lambda: _more_runs(candidate, setting),
            before=_before(candidate, setting, counts),
        )
    if found is not None and drawn != expected.drawn:
        return {"invalid": OTHER_NUMBERS}
    return {"passed": True} if found is None else {"failure": _wrong(found, setting, candidate, counts).to_json()}


def _raised(error: BaseException, phase: str, setting: Setting) -> Failure:
    """The failure; of a write into a result the first sentence, since autograd's others say how many results there are (2.11 to 2.15)."""
    failure = from_exception(error, phase)
    return replace(failure, message=failure.message.split(". ")[0]) if setting.writes else failure


def configs_of(candidate: Candidate, setting: Setting) -> tuple[tuple[str, Any], ...]:
    """The options around the compiled run. Where results are compared, inductor draws random numbers as eager does: else every dropout
    would be wrong (with it 20 random functions, with and without backward, gave eager's values and left its generator on 2.15).
    """
    if setting.check == "raises":
        return candidate.configs
    return (*((name, value) for name, value in candidate.configs if name != SAME_RANDOM[0]), SAME_RANDOM)


SAME_RANDOM = ("inductor.fallback_random", True)


def _before(candidate: Candidate, setting: Setting, counts: Sequence[int]) -> list[Any]:
    """Where inputs are compared as the calls left them, what they were before; None beside every other value."""
    if setting.check != "mutation":
        return []
    found: list[Any] = []
    for number, (call, count) in enumerate(zip(calls_of(candidate, setting), counts, strict=True)):
        values = make_values(call.inputs, seed=number)
        found += [*[None] * (count - len(values)), *values]
    return found


def _behind_results(candidate: Candidate, counts: Sequence[int]) -> list[int]:
    """The positions of what stands behind the results of each call: gradients, or the inputs as the call left them."""
    own = _result_count(candidate)
    return [at for end, count in zip(accumulate(counts), counts, strict=True) for at in range(end - count + own, end)]


def _memory_is_meant(error: BaseException, setting: Setting) -> bool:
    """Under a limit that the uncompiled run kept, or on a GPU, whose memory the uncompiled run had too; else it is an environment error."""
    return setting.memory_limit_mib is not None or any(type(item).__name__ == "OutOfMemoryError" for item in chain_of(error))


def _wrong(found: running.WrongResult, setting: Setting, candidate: Candidate, counts: Sequence[int]) -> Failure:
    """A gradient is wrong when it stands behind the results of its call. `counts` are how many values each call gave."""
    kind, position, call = found.kind, found.position or 0, 0
    while call < len(counts) - 1 and position >= counts[call]:
        position -= counts[call]
        call += 1
    is_gradient = setting.check == "gradient" and position >= _result_count(candidate)
    if is_gradient and kind == "wrong_result":
        kind = "wrong_gradient"
    text = found.what
    if found.position is not None:
        of_call = f" (call {call + 1} of {len(counts)})" if len(counts) > 1 else ""
        text = f"result {position}: {found.what}{of_call}"
        if setting.check == "mutation" and position >= (count := _result_count(candidate)):
            kind, text = "wrong_mutation", f"input {position - count}: {found.what}{of_call}, as the call left it"
    # A graph with wrong numbers is not reduced to one with wrong booleans: they may be another bug, or rounding.
    message = DISCRETE if DISCRETE in text else ""
    return Failure(kind=kind, phase="backward" if is_gradient else "call", message=message, detail=text)


def _result_count(candidate: Candidate) -> int:
    return len(running.flat(candidate.module(*make_values(candidate.inputs))))


def run_once(
    candidate: Candidate,
    setting: Setting,
    function: Callable[..., Any],
    enter: Callable[[str], None] | None = None,
    change: Change | None = None,
) -> list[Any]:
    """The results of all calls, each on fresh inputs; after a backward also the gradients of the inputs.

    They are kept, not copied: a later call may overwrite what an earlier one gave. `change` makes other inputs.
    """
    return [value for results in _run_calls(candidate, setting, function, enter, change=change) for value in results]


def _run_calls(
    candidate: Candidate,
    setting: Setting,
    function: Callable[..., Any],
    enter: Callable[[str], None] | None = None,
    drawn: list[Drawn] | None = None,
    change: Change | None = None,
    spend: bool = False,
) -> list[list[Any]]:
    """The results of each call; what it drew is added to `drawn` where results are compared."""
    results = []
    for number, call in enumerate(calls_of(candidate, setting)):
        with contextlib.nullcontext() if call.grad is None else torch.set_grad_enabled(call.grad):
            results.append(_one_call(candidate, call, setting, function, enter, number, change, spend))
        if drawn is not None and setting.check != "raises":
            after = RandomState().as_bytes()
            torch.manual_seed(0)
            drawn.append(Drawn(after != RandomState().as_bytes(), after))
    return results


def calls_of(candidate: Candidate, setting: Setting) -> tuple[Call, ...]:
    """The calls to make: those of the candidate, or the same call as often as the setting says."""
    return candidate.calls if candidate.earlier else candidate.calls * setting.calls


def _one_call(
    candidate: Candidate,
    call: Call,
    setting: Setting,
    function: Callable[..., Any],
    enter: Callable[[str], None] | None,
    number: int,
    change: Change | None,
    spend: bool,
) -> list[Any]:
    values = make_values(call.inputs, seed=number, spend=spend)
    if change is not None:
        values = snapshot(values, change)
    torch.manual_seed(0)
    results = function(*values)
    _synchronise(candidate)
    for result in filter(_may_be_written, tree_leaves(results)) if setting.writes else ():
        result.mul_(2)
    flat = running.flat(results)
    if setting.backward:
        if enter is not None:
            enter("backward")
        wanted = [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]
        found = gradients_of_loss(results, wanted)
        if found:
            flat += found
            _synchronise(candidate)
    if setting.check == "mutation":
        flat += [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in values]
    return flat


def _may_be_written(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.requires_grad and not result.is_leaf


def _synchronise(candidate: Candidate) -> None:
    """Wait for the GPU, which tells of its errors only then."""
    if candidate.accelerated and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def compiled(module: GraphModule, setting: Setting, enter: Callable[[str], None] = lambda phase: None) -> Callable[..., Any]:
    """The module compiled as the user compiled it; what was compiled before is forgotten."""
    compiling.reset()
    if setting.inner:
        return inner_compiled(module, inner_options(setting.mode, setting.options), enter)
    arguments: dict[str, Any] = {"backend": setting.backend, "dynamic": setting.dynamic}
    if setting.mode is not None:
        arguments["mode"] = setting.mode
    if setting.options:
        arguments["options"] = dict(setting.options)
    made: Callable[..., Any] = torch.compile(module, **arguments)
    return made


@contextlib.contextmanager
def limited_memory(limit_mib: int | None, *, on_gpu: bool = False) -> Iterator[None]:
    """So many MiB besides what the process has already: of the GPU's memory, or of address space (RLIMIT_AS; Linux). None is no limit.

    CUDA reserves address space by the terabyte, so there RLIMIT_AS would end every run.
    """
    if limit_mib is None:
        yield
        return
    if on_gpu:
        torch.cuda.empty_cache()
        limit = torch.cuda.memory_reserved() + (limit_mib << 20)
        torch.cuda.set_per_process_memory_fraction(min(limit / torch.cuda.get_device_properties().total_memory, 1.0))
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    has_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has_bytes + (limit_mib << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def surroundings(setting: Setting) -> Iterator[None]:
    """Grad mode, autocast, default dtype and the like as they were when the graph was captured."""
    before = torch.get_default_dtype(), torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    torch.set_default_dtype(getattr(torch, setting.default_dtype))
    torch.set_float32_matmul_precision(setting.matmul_precision)
    torch.use_deterministic_algorithms(setting.deterministic)
    autocast = None if setting.autocast is None else (setting.autocast[0], getattr(torch, setting.autocast[1]))
    try:
        with around_a_call(setting.groups, grad=setting.grad, inference=setting.inference, autocast=autocast):
            yield
    finally:
        torch.set_default_dtype(before[0])
        torch.set_float32_matmul_precision(before[1])
        torch.use_deterministic_algorithms(before[2])
