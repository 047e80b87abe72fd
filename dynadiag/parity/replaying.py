"""One scenario of one rebuilt graph: each call made uncompiled and compiled on equal inputs, and what differs."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.compare.aliasing import Change, snapshot
from dynadiag.compare.calls import Call, call
from dynadiag.compare.judge import PARITY, Noise, Runs, judge, sharing_differences
from dynadiag.compare.noise import noisy_runs, widen, wider
from dynadiag.errors import shorten
from dynadiag.fx.inputs import Filling, InputSpec, contiguous_stride, elements, make_inputs
from dynadiag.fx.rebuild import Rebuilt
from dynadiag.model.difference import Difference
from dynadiag.parity.scenarios import Arranged, Pair, Scenario
from dynadiag.torch_compat.dispatch.state import quiet, surroundings
from dynadiag.torch_compat.dynamo import compiling, replaying

_ASPECTS = {"value": "values", "alias": "aliasing"}


def to_json(difference: Difference) -> dict[str, Any]:
    """A difference as `parity.json` has it (docs/parity.schema.json)."""
    place = {"where": difference.where, "position": difference.index, "name": difference.name, "aspect": aspect_of(difference)}
    return {**place, **{name: getattr(difference, name) for name in ("eager", "compiled", "elements", "wrong_elements")}}


def aspect_of(difference: Difference) -> str:
    """The kind in the words of `parity.json`."""
    if difference.kind == "missing":
        return "missing_gradient" if difference.where == "gradient" else "values"
    return _ASPECTS.get(difference.kind, difference.kind)


def differences(eager: Call, compiled: Call, runs: Callable[[], Runs], *, values: bool, inputs: Sequence[Any] = ()) -> list[Difference]:
    """Everything that differs. `runs` gives more eager calls, in float64 and on inputs that are a bit off: only asked where values
    differ. `inputs` are those of the call, before it wrote any.

    `values` False compares all but values (random numbers, memory that nobody wrote).
    """
    before = [inputs[seen.index] if seen.where == "input" and seen.index < len(inputs) else None for seen in eager.seen]
    noise = Noise(runs=lambda _: runs(), before=before)
    no_values = frozenset() if values else frozenset(range(len(eager.seen)))
    judged = judge(eager.seen, [element.value for element in compiled.seen], noise, PARITY, no_values=no_values)
    found = [difference for item in judged for difference in item.differences]
    if len(eager.seen) != len(compiled.seen):
        counts = (f"{len(side.seen)} tensors" for side in (eager, compiled))
        return [replace(found[0], kind="layout", eager=next(counts), compiled=next(counts))]
    outputs = sum(entry.where == "output" for entry in eager.seen)
    shared = sharing_differences(eager.sharing, compiled.sharing, lambda at: f"output {at}" if at < outputs else f"input {at - outputs}")
    found += [replace(one, name=f"output {one.index} and {one.name}") for one in shared]
    # A gradient may lie in memory as it likes.
    return [one for one in found if not (one.kind == "stride" and one.where == "gradient")]


_PERTURBATIONS = 2


_NO_MEMORY = 0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a graph was compiled. `values` False compares everything but values; `gradients` also the gradients."""

    backend: str
    dynamic: bool | None = None
    options: Mapping[str, Any] | None = None
    configs: Sequence[tuple[str, Any]] = ()
    gradients: bool = False
    values: bool = True
    autocast: bool = False


@dataclass(frozen=True, kw_only=True)
class ReadyGraph:
    """A rebuilt graph with values that suit it; `writers` gives for the name of an input the nodes that write it."""

    rebuilt: Rebuilt
    filling: Filling
    writers: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def not_defined(self, scenario: Scenario) -> bool:
        """Whether one operator writes one input of the pair and takes the other too, or, for one tensor twice, writes both."""
        if scenario.pair is None or not {"overlap", "same"} & set(scenario.calls):
            return False
        nodes = list(self.rebuilt.graph_module.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        pair = [inputs[scenario.pair.first], inputs[scenario.pair.second]]
        writers = [self.writers.get(node.name, frozenset()) for node in pair]
        if "same" in scenario.calls:
            return bool(writers[0] & writers[1])
        return any(node.name in writers[0] | writers[1] and set(pair) <= set(node.all_input_nodes) for node in nodes)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What one scenario gave: differences by call, or why it could not be judged; `gradients_why_not` if only they could not.

    `shift` is how far apart overlapping inputs start.
    """

    differences: tuple[tuple[int, Difference], ...] = ()
    why_not: str | None = None
    shift: int = 0
    random: bool = False
    calls: int = 0
    gradients_why_not: str | None = None


@dataclass
class _Inputs:
    """Makes the inputs of a scenario's calls, the same every time."""

    subject: ReadyGraph
    scenario: Scenario
    shift: int
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [spec.name for spec in self.subject.rebuilt.inputs]

    def make(self, number: int) -> list[Any]:
        return arranged_inputs(
            self.subject.rebuilt.inputs,
            self.scenario.calls[number],
            self.scenario.pair,
            filling=self.subject.filling,
            seed=number,
            shift=self.shift,
        )


def replay(subject: ReadyGraph, scenario: Scenario, setting: Setting) -> Replayed:
    """Run the scenario under the first distance between overlapping inputs that the uncompiled graph takes."""
    outcome = _at_first_distance(subject, scenario, setting)
    if outcome.why_not is None or not setting.gradients:
        return outcome
    without = _at_first_distance(subject, scenario, replace(setting, gradients=False))
    return outcome if without.why_not is not None else replace(without, gradients_why_not=outcome.why_not)


def _at_first_distance(subject: ReadyGraph, scenario: Scenario, setting: Setting) -> Replayed:
    distances = shifts(subject.rebuilt.inputs, scenario.pair) if scenario.pair is not None else [0]
    first: Replayed | None = None
    for shift in distances:
        outcome = _replay(_Inputs(subject, scenario, shift), setting)
        if outcome.why_not is None and first is None and subject.not_defined(scenario):
            # Operators that define what they do with partly overlapping tensors refuse them; then a full overlap counts.
            return replace(outcome, differences=(), why_not="one operator takes both and writes to one: its result is undefined then")
        if outcome.why_not is None:
            return outcome
        first = first or outcome
    assert first is not None
    return first


def _replay(inputs: _Inputs, setting: Setting) -> Replayed:
    replaying.forget()
    replaying.let_dynamo_trace_again()
    rebuilt = inputs.subject.rebuilt
    autocast = ("cpu", torch.bfloat16) if setting.autocast else None
    with quiet(), surroundings(rebuilt.groups, grad=rebuilt.grad, autocast=autocast):
        try:
            eager = eager_calls(rebuilt.graph_module, inputs, setting)
        except Exception as error:  # noqa: BLE001 - the border around a graph from a log
            return Replayed(why_not=f"the uncompiled graph rejects such inputs: {_describe_error(error)}", shift=inputs.shift)
        configs = replaying.replay_configs(setting.configs, on_disk=inputs.scenario.on_disk)
        with compiling.loudly(), compiling.configured(configs):
            return _compared(inputs, eager, setting)


def eager_calls(module: GraphModule, inputs: _Inputs, setting: Setting) -> list[Call]:
    """The calls made uncompiled, one after the other on one copy of the module."""
    own = copy.deepcopy(module)
    return [call(own, own, inputs.make(number), inputs.names, gradients=setting.gradients) for number in range(len(inputs.scenario.calls))]


def _compared(inputs: _Inputs, eager: Sequence[Call], setting: Setting) -> Replayed:
    module = copy.deepcopy(inputs.subject.rebuilt.graph_module)
    options = dict(setting.options) if setting.options else None
    compiled = torch.compile(module, backend=setting.backend, dynamic=setting.dynamic, options=options)
    random = any(item.random for item in eager)
    found: list[tuple[int, Difference]] = []
    for number, expected in enumerate(eager):
        try:
            seen = call(compiled, module, inputs.make(number), inputs.names, gradients=setting.gradients)
        except Exception as error:  # noqa: BLE001 - the border around a graph from a log
            return _raised(error, number, found, inputs.shift)
        if replaying.graph_breaks():
            return Replayed(
                why_not="Dynamo breaks the rebuilt graph, although it did not break it when it was recorded", shift=inputs.shift
            )
        runs = functools.partial(_more_runs, inputs, number, setting)
        values = setting.values and not random
        found += [(number, difference) for difference in differences(expected, seen, runs, values=values, inputs=inputs.make(number))]
    return Replayed(differences=tuple(found), shift=inputs.shift, random=random, calls=len(eager))


def _raised(error: Exception, number: int, found: list[tuple[int, Difference]], shift: int) -> Replayed:
    """An error of the first call may be the replay's own; one of a later call, where the first worked, is a difference."""
    if number == 0:
        return Replayed(why_not=f"compiling the rebuilt graph again raises {_describe_error(error)}", shift=shift)
    what = Difference(where="call", index=number, name="the call", kind="raises", eager="no error", compiled=_describe_error(error))
    return Replayed(differences=(*found, (number, what)), shift=shift, calls=number + 1)


def _describe_error(error: Exception) -> str:
    error = getattr(error, "inner_exception", error)
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    # Dynamo's first line names the kind of error alone (torch 2.11 to 2.15).
    explained = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    return f"{type(error).__name__}: {shorten(': '.join(lines[:1] + explained[:1]), 200)}"


def _more_runs(inputs: _Inputs, number: int, setting: Setting) -> Runs:
    """Eager's calls up to `number` in float64, and with noisy sums on inputs that are a bit off; a run that fails is left out."""
    module = inputs.subject.rebuilt.graph_module

    def values(of: GraphModule, change: Change) -> list[Any]:
        seen = _anchor(of, inputs, number, setting, change)
        return [] if seen is None else [item.value for item in seen.seen]

    further, same, seen = noisy_runs(lambda _, change: values(copy.deepcopy(module), change), _PERTURBATIONS)
    exact = values(widen(copy.deepcopy(module)), wider)
    return Runs(
        exact=exact,
        further=[group for group in further if group],
        same=[members for members in same if members],
        coarsest=seen.half,
        tf32=seen.tf32,
    )


def _anchor(module: GraphModule, inputs: _Inputs, number: int, setting: Setting, change: Change) -> Call | None:
    seen = None
    try:
        for earlier in range(number + 1):
            seen = call(module, module, snapshot(inputs.make(earlier), change), inputs.names, gradients=setting.gradients)
    except Exception:  # noqa: BLE001 - the border around a graph from a log: it does not run so, and is no anchor
        return None
    return seen


def first_layer(subject: ReadyGraph, scenario: Scenario, setting: Setting, wanted: Difference) -> str:
    """The first backend, each adding one layer, under which the scenario shows the difference too."""
    layers = compiling.LAYERS
    for layer in layers[: layers.index(setting.backend)] if setting.backend in layers else ("eager", "aot_eager"):
        outcome = replay(subject, replace(scenario, on_disk=False), replace(setting, backend=layer, options=None))
        if any(_alike(difference, wanted) for _, difference in outcome.differences):
            return layer
    return setting.backend


def _alike(difference: Difference, other: Difference) -> bool:
    return (difference.where, difference.index, aspect_of(difference)) == (other.where, other.index, aspect_of(other))


def arranged_inputs(
    specs: Sequence[InputSpec], arranged: Arranged, pair: Pair | None, *, filling: Filling, seed: int, shift: int
) -> list[Any]:
    """Inputs to these specs, the same for the same arguments; `shift` elements lie between the starts of two that overlap."""
    if pair is None or arranged == "recorded":
        return make_inputs(specs, filling, seed=seed)
    own = [replace(spec, storage=None) if place in (pair.first, pair.second) else spec for place, spec in enumerate(specs)]
    inputs = make_inputs(own, filling, seed=seed)
    if arranged == "same":
        inputs[pair.second] = inputs[pair.first]
    elif arranged == "overlap":
        base = _base(specs, pair, filling, seed, shift)
        inputs[pair.first], inputs[pair.second] = _view(base, specs[pair.first], 0), _view(base, specs[pair.second], shift)
    elif shift >= 0:
        # Memory of their own, but laid out as the overlapping ones are: what a cache key can see of each is the same.
        tensor, other = _base(specs, pair, filling, seed, shift), _base(specs, pair, filling, seed + 1, shift)
        inputs[pair.first], inputs[pair.second] = _view(tensor, specs[pair.first], 0), _view(other, specs[pair.second], shift)
    return inputs


def shifts(specs: Sequence[InputSpec], pair: Pair) -> list[int]:
    """Distances in elements to try: half of the written input, then none where both have one layout (eager refuses some overlaps)."""
    input_spec, other = specs[pair.first], specs[pair.second]
    half = elements(input_spec) // 2
    equal = (input_spec.shape, _stride(input_spec)) == (other.shape, _stride(other))
    return list(dict.fromkeys([half, _NO_MEMORY] if equal else [half]))


def _base(specs: Sequence[InputSpec], pair: Pair, filling: Filling, seed: int, shift: int) -> torch.Tensor:
    input_spec, other = specs[pair.first], specs[pair.second]
    size = max(elements(input_spec), shift + elements(other))
    flat = InputSpec(name="base", kind="tensor", shape=(size,), stride=(1,), dtype=input_spec.dtype, device=input_spec.device)
    made: torch.Tensor = make_inputs([flat], filling, seed=seed + 1000)[0]
    return made


def _view(base: torch.Tensor, spec: InputSpec, offset: int) -> torch.Tensor:
    assert spec.shape is not None
    return base.as_strided(spec.shape, _stride(spec), offset)


def _stride(spec: InputSpec) -> tuple[int, ...]:
    assert spec.shape is not None
    return spec.stride if spec.stride is not None else contiguous_stride(spec.shape)
