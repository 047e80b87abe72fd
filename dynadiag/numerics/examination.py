"""One captured graph with its real inputs: compared with eager, and where it differs located, explained and ended. Runs in a child."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from dynadiag.numerics.aten_graphs import AtenGraph, aten_graphs, input_name, line_of, module_of
from dynadiag.numerics.distance import all_same_bits, finite_pair, relative, same_bits
from dynadiag.numerics.locating import NO_CACHES, Configs, Located, locate, operator_name, rejudged, run_compiled
from dynadiag.numerics.operators import Judgement
from dynadiag.numerics.options import Ended, end_by_options, traits_of, trials
from dynadiag.numerics.reference import Reference, reference_of
from dynadiag.reduce.graphs.candidate import Candidate, own_copy
from dynadiag.reduce.graphs.inputs import TensorInput
from dynadiag.reduce.graphs.observing import SAME_RANDOM, compiled, run_once, surroundings
from dynadiag.reduce.graphs.running import eager_values, flat
from dynadiag.reduce.graphs.setting import Setting, backend_name
from dynadiag.torch_compat.dispatch.live_call import RandomState
from dynadiag.torch_compat.dynamo.compiling import LAYERS, configured, loudly
from dynadiag.torch_compat.inductor.kernels import eager_kernels, is_decomposed

Entry = dict[str, Any]
_KERNEL_LINES = 400


def examine(candidate: Candidate, setting: Setting, later: Sequence[tuple[int, Candidate]] = ()) -> Entry:
    """What is said of one graph, as plain data. Raises what eager or the compiler raises.

    With the inputs of `later` calls, by their number, the first call whose results are different is examined, else the first whose
    results are not equal to the bit.
    """
    wanted = any(isinstance(input_, TensorInput) and input_.requires_grad for input_ in candidate.inputs)
    setting = replace(setting, check="mutation", backward=setting.grad and wanted)
    with surroundings(setting):
        if not later:
            return _examined(candidate, setting)
        calls = ((1, candidate), *later)
        outcomes = _outcomes(calls, setting)
        worst = next((outcome for outcome in ("different", "rounding") if outcome in outcomes), outcomes[0])
        call, chosen = calls[outcomes.index(worst)]
        told = [{"call": number, "outcome": outcome} for (number, _), outcome in zip(calls, outcomes, strict=True)]
        return {**_examined(chosen, setting), "call": call, "calls": told}


def _outcomes(calls: Sequence[tuple[int, Candidate]], setting: Setting) -> list[str]:
    """What each call gives by the rule of all verbs, the graph compiled once: equal, rounding, different, or random."""
    (_, first), *_ = calls
    found = []
    with configured((*_same_random(first.configs), NO_CACHES)), loudly():
        function = compiled(own_copy(first.module), setting)
        for _, candidate in calls:
            reference = reference_of(candidate, setting)
            again = run_once(candidate, setting, own_copy(candidate.module))
            same = all_same_bits(again, reference.eager)
            found.append(reference.outcome(run_once(candidate, setting, function)) if same else "random")
    return found


def _examined(candidate: Candidate, setting: Setting) -> Entry:
    began = _cpu_s()
    torch.manual_seed(0)
    before = RandomState().as_bytes()
    again = run_once(candidate, setting, own_copy(candidate.module))
    random = RandomState().as_bytes() != before
    reference = reference_of(candidate, setting)
    entry: Entry = {"backend": backend_name(setting.backend), "nodes": candidate.nodes, "random": random, "status": "equal"}
    if not all_same_bits(again, reference.eager):
        return {**entry, "status": "skipped", "why_not": _why_eager_differs(candidate)}
    compiled = run_compiled(candidate, setting, candidate.configs)
    entry["compared_cpu_s"] = round(_cpu_s() - began, 2)
    configs = candidate.configs
    if random and not all_same_bits(compiled, reference.eager):
        configs = _same_random(configs)
        compiled = run_compiled(candidate, setting, configs)
        entry["other_random_numbers"] = True
    entry["outputs"] = _outputs(reference, compiled)
    outcome = reference.outcome(compiled)
    if outcome != "equal":
        entry |= _explained(reference, configs, outcome)
    return {**entry, "cpu_s": round(_cpu_s() - began, 2)}


def _same_random(configs: Configs) -> Configs:
    """With eager's random numbers in compiled code."""
    return (*((name, value) for name, value in configs if name != SAME_RANDOM[0]), SAME_RANDOM)


def _explained(reference: Reference, configs: Configs, outcome: str) -> Entry:
    located, trouble = _located(reference, configs)
    faulty = next((found for found in located if found.fault is not None or found.ended_at is not None), None)
    cleared = bool(located) and trouble is None and all(found.reproduced and not found.unjudged for found in located)
    status = "fault" if faulty is not None or (outcome == "different" and not cleared) else "rounding"
    shown = faulty or next((found for found in located if found.first is not None), None)
    entry: Entry = {
        "status": status,
        "outcome": outcome,
        "layers": _layers(reference, configs),
        "operator": None if shown is None else _operator(shown),
        "growth": None if shown is None or shown.growth is None else _growth(shown),
        "operators": [line for found in located for line in _operators(found)],
    }
    if shown is None:
        entry["why_not_located"] = trouble or "its ATen graphs, each compiled alone, give what eager gives"
    return {**entry, **_ended(reference, configs, located, faulty)}


def _located(reference: Reference, configs: Configs) -> tuple[list[Located], str | None]:
    """What was found in each ATen graph that is not equal to the bit; and why the others could not be asked."""
    found: list[Located] = []
    try:
        for graph in aten_graphs(reference.candidate, reference.setting):
            located = locate(graph, configs)
            found += [] if located is None else [located]
    except Exception as error:  # noqa: BLE001 - the border around a candidate: the compiler runs here
        return found, f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    return found, None


def _layers(reference: Reference, configs: Configs) -> list[dict[str, str]]:
    """What each layer of the compiler that the back end builds on gives."""
    if reference.setting.backend not in LAYERS:
        return []
    below = LAYERS[1 : LAYERS.index(reference.setting.backend)]
    plain = replace(reference.setting, mode=None, options={})
    return [
        {"layer": layer, "outcome": reference.outcome(run_compiled(reference.candidate, replace(plain, backend=layer), configs))}
        for layer in below
    ]


def _ended(reference: Reference, configs: Configs, located: Sequence[Located], faulty: Located | None) -> Entry:
    """The options that end it, or eager's kernels for the operators that leave eager; each run."""
    candidate, setting = reference.candidate, reference.setting
    tried = trials(traits_of(candidate, setting.backend, setting.autocast), configs)
    guilty = faulty.fault if faulty is not None else None

    def ends(pairs: Configs, around: AbstractContextManager[Any] | None = None) -> bool:
        try:
            results = run_compiled(candidate, setting, (*configs, *pairs), around)
        except Exception:  # noqa: BLE001 - the border around a candidate: the compiler may not take the option
            return False
        if guilty is None:
            return all_same_bits(results, reference.eager)
        return reference.outcome(results) != "different"

    def cured(pairs: Configs, kernels: Sequence[Any] = ()) -> bool:
        """Of a fault that stays within the tolerance of all results, the operator itself is judged again."""
        if not ends(pairs, eager_kernels(kernels) if kernels else None):
            return False
        if guilty is None or faulty is None:
            return True
        again = rejudged(faulty, guilty.node, (*configs, *pairs), lambda: eager_kernels(kernels))
        return again is not None and again.fault is None

    found: Ended | None = end_by_options(tried, lambda some: cured(tuple((item.option, item.value) for item in some)))
    entry: Entry = {"options_tried": [trial.line for trial in tried], "ended_by": [], "eager_kernels": []}
    if found is not None:
        return {**entry, "ended_by": [{"line": trial.line, "cause": trial.cause} for trial in found.by]}
    if setting.backend != "inductor":
        return entry
    leaving = [guilty] if guilty is not None else [judged for graph in located for judged in graph.judgements if not judged.equal]
    operators = list(dict.fromkeys(judged.node.target for judged in leaving))
    if operators and cured((), operators):
        entry["eager_kernels"] = [{"operator": str(item), "decomposed": is_decomposed(item)} for item in operators]
    return entry


def _outputs(reference: Reference, compiled: Sequence[Any]) -> list[Entry]:
    """Each value that is not equal to the bit: how far eager and compiled lie from each other and from float64."""
    found = []
    names = _names(reference)
    for at, (name, eager, value) in enumerate(zip(names, reference.eager, compiled, strict=False)):
        if same_bits(eager, value):
            continue
        exact = reference.exact[at] if at < len(reference.exact) else None
        both = finite_pair(value, eager)
        found.append(
            {
                "name": name,
                "dtype": str(getattr(eager, "dtype", type(eager).__name__)).removeprefix("torch."),
                "elements": eager.numel() if isinstance(eager, torch.Tensor) else 1,
                "largest": None if both is None else float((both[0] - both[1]).abs().max()),
                "from_eager": relative(value, eager),
                "compiled_from_float64": relative(value, exact),
                "eager_from_float64": relative(eager, exact),
            }
        )
    return found


def _operator(located: Located) -> Entry | None:
    judged = located.fault or (None if located.ended_at is not None else located.first)
    node = judged.node if judged is not None else located.ended_at
    if node is None:
        return None
    kernel = located.kernel_of(node)
    return {
        **_place(located.graph, node),
        "fault": judged.fault if judged is not None else "the difference ends when its value is stored",
        "error": judged.error if judged is not None else None,
        "rounding": judged.rounding if judged is not None else None,
        "fusion": list(located.fusion),
        "kernel": None
        if kernel is None
        else {"name": kernel.name, "language": kernel.language, "text": "\n".join(kernel.text.splitlines()[:_KERNEL_LINES])},
    }


def _place(graph: AtenGraph, node: Node) -> Entry:
    origin = graph.origins.get(node.name)
    return {"node": node.name, "operator": operator_name(node), "graph": graph.kind, "module": module_of(origin), "line": line_of(origin)}


def _growth(located: Located) -> Entry:
    growth = located.growth
    assert growth is not None
    return {**_place(located.graph, growth.node), "before": growth.before, "after": growth.after, "cancels": growth.cancels}


def _operators(located: Located) -> list[Entry]:
    return [_row(located, judged) for judged in located.judgements]


def _row(located: Located, judged: Judgement) -> Entry:
    from_eager, compiled, eager = located.distances.get(judged.node.name, (None, None, None))
    return {
        **_place(located.graph, judged.node),
        "equal": judged.equal,
        "error": judged.error,
        "rounding": judged.rounding,
        "fault": judged.fault,
        "from_eager": from_eager,
        "compiled_from_float64": compiled,
        "eager_from_float64": eager,
    }


def _names(reference: Reference) -> list[str]:
    """Outputs, then gradients, then inputs as the call left them."""
    candidate = reference.candidate
    inputs = [input_name(node) for node in candidate.module.graph.nodes if node.op == "placeholder"]
    needing = [
        name
        for name, input_ in zip(inputs, candidate.inputs, strict=True)
        if reference.setting.backward and isinstance(input_, TensorInput) and input_.requires_grad
    ]
    (end,) = (node for node in candidate.module.graph.nodes if node.op == "output")
    outputs = len(flat(end.args[0]))
    gradients = len(reference.eager) - outputs - len(inputs)
    return [
        *(f"output {at}" for at in range(outputs)),
        *(f"the gradient of {name}" for name in needing[:gradients]),
        *(f"input {name} after the call" for name in inputs),
    ]


def _why_eager_differs(candidate: Candidate) -> str:
    """Which operator gives other values in a second run of eager, with its line."""
    first, second = (eager_values(candidate, grad=False) for _ in range(2))
    for node in candidate.module.graph.nodes:
        if node.name in first and not all_same_bits(flat(first[node.name]), flat(second[node.name])):
            line = line_of(node)
            where = f" ({line['file']}:{line['line']})" if line is not None else ""
            return f"eager itself gives other values in a second run: first at {node.name}{where}"
    return "eager itself gives other values in a second run"


def _cpu_s() -> float:
    return sum(os.times()[:4])
