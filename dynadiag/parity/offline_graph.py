"""All scenarios of one graph, in processes of their own: a crash, a hang or a poisoned process ends one scenario, never another graph."""

from __future__ import annotations

import functools
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import GraphModule, Node

from dynadiag.children.forked import ChildReport, Tell, run_forked
from dynadiag.fx.mutation_records import InputMutation
from dynadiag.parity.replaying import Replayed, aspect_of, first_layer, replay, to_json
from dynadiag.parity.scenarios import Scenario
from dynadiag.parity.subject import Ready
from dynadiag.scratch import make_scratch
from dynadiag.torch_compat.dynamo import replaying
from dynadiag.torch_compat.pytree import tree_leaves

Told = dict[int, dict[str, Any]]


_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.*)\n\s*(?P<code>.*)')
Line = dict[str, Any]


def try_graph(ready: Ready, *, until: float, timeout_s: float) -> dict[str, Any]:
    """What came of each scenario of the plan, as plain data; `until` is the end of the time (`time.monotonic`), for all of them."""
    plain = {number: item for number, item in enumerate(ready.plan.scenarios) if not item.on_disk}
    told = _in_children(ready, plain, until, timeout_s)
    for number, scenario in enumerate(ready.plan.scenarios):
        if scenario.on_disk:
            told[number] = _with_disk_cache(ready, scenario, until, timeout_s)
    return {
        "tried": [_tried(ready, element, told[number]) for number, element in enumerate(ready.plan.scenarios)],
        "differences": _without_repeats(ready, told),
    }


def _in_children(ready: Ready, scenarios: Mapping[int, Scenario], until: float, timeout_s: float) -> Told:
    """One child for all, and another for the rest each time one does not come back."""
    told: Told = {}
    left = dict(scenarios)
    while left:
        seconds = min(timeout_s * len(left), until - time.monotonic())
        if seconds <= 0:
            return told | {number: _not_judged("the time limit was reached before this scenario") for number in left}
        report = run_forked(functools.partial(_try_all, ready, dict(left)), timeout_s=seconds)
        for message in report.messages:
            if "scenario" in message:
                told[message["scenario"]] = message
                left.pop(message["scenario"], None)
        if left:
            number = next(iter(left))
            del left[number]
            told[number] = _not_judged(_end(report))
    return told


def _try_all(ready: Ready, scenarios: Mapping[int, Scenario], tell: Tell) -> None:
    for number, scenario in scenarios.items():
        outcome = replay(ready.subject, scenario, ready.setting)
        tell({"scenario": number, **_told(ready, scenario, outcome)})


def _told(ready: Ready, scenario: Scenario, outcome: Replayed) -> dict[str, Any]:
    layers: dict[tuple[str, str], str] = {}
    entries = []
    for call, difference in outcome.differences:
        key = (difference.where, aspect_of(difference))
        if key not in layers:
            layers[key] = first_layer(ready.subject, scenario, ready.setting, difference)
        entries.append({"call": call, "layer": layers[key], **to_json(difference)})
    return {**_facts(outcome), "differences": entries}


def _facts(outcome: Replayed) -> dict[str, Any]:
    return {
        "why_not": outcome.why_not,
        "random": outcome.random,
        "shift": outcome.shift,
        "gradients_why_not": outcome.gradients_why_not,
    }


def _not_judged(why: str) -> dict[str, Any]:
    return {**_facts(Replayed(why_not=why)), "differences": []}


def _end(report: ChildReport) -> str:
    if report.timed_out:
        return "it did not finish within its time limit"
    if report.signal is not None:
        return f"the process was ended by {report.signal}"
    broken = next((message["broken"] for message in report.messages if "broken" in message), None)
    last = str(broken).strip().splitlines()[-1][:200] if broken else f"exit status {report.exit_status}"
    return f"the process ended early: {last}"


def _with_disk_cache(ready: Ready, scenario: Scenario, until: float, timeout_s: float) -> dict[str, Any]:
    """The first call in one process, the second in another that finds the first one's compiled graph on disk."""
    folder = str(make_scratch("cache"))
    try:
        messages: list[dict[str, Any]] = []
        for arranged in scenario.calls:
            seconds = min(timeout_s, until - time.monotonic())
            if seconds <= 0:
                return _not_judged("the time limit was reached before this scenario")
            item = replace(scenario, calls=(arranged,))
            report = run_forked(functools.partial(_try_cached, ready, item, folder), timeout_s=seconds)
            answers = [message for message in report.messages if "hits" in message]
            if not answers:
                return _not_judged(_end(report))
            messages += answers
        return _judged_cache(messages)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _try_cached(ready: Ready, scenario: Scenario, folder: str, tell: Tell) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    outcome = replay(ready.subject, scenario, ready.setting)
    hits = replaying.cache_hits()
    if hits and outcome.differences:
        fresh = replay(ready.subject, replace(scenario, on_disk=False), ready.setting)
        known = {_what(to_json(difference)) for _, difference in fresh.differences}
        outcome = replace(
            outcome, differences=tuple((call, item) for call, item in outcome.differences if _what(to_json(item)) not in known)
        )
    entries = [{"call": call, "layer": "the on-disk cache", **to_json(element)} for call, element in outcome.differences]
    tell({"hits": hits, **_facts(outcome), "differences": entries})


def _judged_cache(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first, second = messages
    if first["why_not"] or second["why_not"]:
        return _not_judged(first["why_not"] or second["why_not"])
    if not second["hits"]:
        return _not_judged("the second process did not find the compiled graph in the cache")
    return {**second, "differences": [{**item, "call": 1} for item in second["differences"]]}


def _what(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return entry["where"], entry["position"], entry["aspect"]


def _without_repeats(ready: Ready, told: Told) -> list[dict[str, Any]]:
    """All differences, but what the recorded inputs show already is not said again of other calls."""
    basic = {_what(entry) for number, answer in told.items() if _is_basic(ready, number) for entry in answer["differences"]}
    found = []
    for number, answer in sorted(told.items()):
        seen: set[tuple[Any, ...]] = set()
        for entry in answer["differences"]:
            if _what(entry) in seen or (not _is_basic(ready, number) and _what(entry) in basic):
                continue
            seen.add(_what(entry))
            found.append({"scenario": number, **entry, **_locate(ready, ready.plan.scenarios[number], entry)})
    return found


def _is_basic(ready: Ready, number: int) -> bool:
    return ready.plan.scenarios[number].kind == "second_call"


def _locate(ready: Ready, scenario: Scenario, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The source of the tensor and the user line: of the write where an input of the pair is written, else of what made the output."""
    specs = ready.subject.rebuilt.inputs
    source = specs[entry["position"]].source if entry["where"] in ("input", "gradient") else None
    written = _written(ready, scenario, entry)
    line = input_line(written) if written is not None else None
    if line is None and entry["where"] == "output":
        line = output_line(ready.subject.rebuilt.graph_module, entry["position"])
    return {"source": source, "line": line}


def _written(ready: Ready, scenario: Scenario, entry: Mapping[str, Any]) -> InputMutation | None:
    names = {spec.name for spec in ready.subject.rebuilt.inputs}
    if scenario.pair is not None:
        names = {ready.subject.rebuilt.inputs[scenario.pair.first].name}
    elif entry["where"] == "input":
        names = {entry["name"]}
    elif entry["where"] != "call":
        return None
    return next((mutation for mutation in ready.mutations if mutation.name in names), None)


def _tried(ready: Ready, scenario: Scenario, answer: Mapping[str, Any]) -> dict[str, Any]:
    outcome = "not_judged" if answer["why_not"] else "differs" if answer["differences"] else "equal"
    pair = scenario.pair
    specs = ready.subject.rebuilt.inputs
    names = [specs[at].source or specs[at].name for at in (pair.first, pair.second)] if pair is not None else []
    return {
        "kind": scenario.kind,
        "calls": list(scenario.calls),
        "pair": names,
        "shift": answer["shift"],
        "outcome": outcome,
        "why_not": answer["why_not"],
        "gradients_why_not": answer["gradients_why_not"],
        "values_compared": ready.setting.values and not answer["random"],
    }


def input_line(mutation: InputMutation) -> Line | None:
    """The line of the last op that writes the input."""
    for site in reversed(mutation.sites):
        if site.stack:
            file, line, function, code = site.stack[-1]
            return {"file": file, "line": line, "function": function, "code": code.strip()}
    return None


def output_line(module: GraphModule, position: int) -> Line | None:
    """The line of the op that makes the how-many-th output."""
    (end,) = (node for node in module.graph.nodes if node.op == "output")
    leaves = tree_leaves(end.args[0])
    made = leaves[position] if position < len(leaves) else None
    trace = made.meta.get("stack_trace") if isinstance(made, Node) else None
    found = list(_FRAME.finditer(trace)) if isinstance(trace, str) else []
    if not found:
        return None
    frame = found[-1]
    return {"file": frame["file"], "line": int(frame["line"]), "function": frame["function"].strip(), "code": frame["code"].strip()}
