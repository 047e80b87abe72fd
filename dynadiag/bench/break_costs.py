"""What each graph break, guard set, copy-back and CUDA-graph skip of an arm costs per call, from samples that its process took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynadiag.bench.arms import AGAIN, COMPILED
from dynadiag.bench.outcome import ArmResult, BenchResult
from dynadiag.bench.process import ArmFailedError
from dynadiag.bench.round_loop import BenchOptions, Progress, Runner
from dynadiag.bench.statistics import median_interval

ABLATION = (
    "ablation: the call's graphs with and without this place joined, with the pause that the call makes here; the mean of two orders: with "
    "only the places before it broken, and with only those behind it; as a share of the call beside it in the same round, times the call's "
    "median in the timed rounds"
)
TIMED_GUARDS = "the guard set evaluated 200 times on the real locals when it was made, times its evaluations per call"
TIMED_COPY = "a copy of this tensor timed by itself"
_NO_SKIP_PRICE = "nothing shows how long the call would take if CUDA graphs were not skipped"
_MOST_S = 20.0


def find_prices(result: BenchResult, runners: Sequence[Runner], options: BenchOptions, progress: Progress) -> None:
    """Fill `result.prices`: one entry for each compiled arm that was timed."""
    result.prices = []
    for runner in runners:
        if runner.spec.kind != COMPILED or runner.spec.name == AGAIN or runner.row.status != "ok":
            continue
        progress(f"{runner.spec.name}: pricing its graph breaks", None)
        try:
            raw = runner.ask("prices", options, max_s=min(options.budget.max_s, _MOST_S))
        except ArmFailedError as error:
            raw = {"why_not": error.message}
        result.prices.append(prices_from(runner.row, raw))


def prices_from(row: ArmResult, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of one arm. `total` is what all its breaks cost together (the call less its graphs joined to one), measured apart from the
    prices; what these leave of it is `unexplained`, and is given to none of them. Both are null where the joined graphs compute less than
    the call.
    """
    prices: dict[str, Any] = {"arm": row.name, "why_not": raw["why_not"], "graph_calls": raw.get("graph_calls"), "breaks": []}
    prices |= {"timed_ms": row.median_ms, "step": None, "total": None, "sum": None, "unexplained": None}
    prices["rounds"] = len(raw.get("step_ms", ()))
    prices["guards"] = [_guard(item) for item in raw.get("guards", ())]
    prices["copy_backs"] = [
        {"name": element["name"], "bytes": element["bytes"], **_figure(element["samples_ms"]), "how": TIMED_COPY}
        for element in raw.get("copy_backs", ())
    ]
    prices["cudagraph_skips"] = [_skip(row, reason) for reason in row.cudagraph_skip_reasons]
    if raw.get("step_ms"):
        _fill_breaks(prices, raw)
    why = prices["why_not"] or ("no place has a price" if prices["breaks"] else "no graph break in this call")
    prices["unknown"] = {name: why for name in ("graph_calls", "step", "sum") if prices.get(name) is None}
    why = raw.get("total_why_not") or why
    prices["unknown"] |= {name: why for name in ("total", "unexplained") if prices[name] is None}
    return prices


def _fill_breaks(prices: dict[str, Any], raw: Mapping[str, Any]) -> None:
    scale = _to_timed_rounds(prices["timed_ms"], raw["step_ms"])
    differences = []
    for number, place in enumerate(raw["places"], 1):
        samples = [] if place["why_not"] else _times(place["price_samples_ms"], scale)
        why_not = place["why_not"] or _beyond_the_call(samples, prices["timed_ms"])
        known = {key: place[key] for key in ("where", "reason", "is_break", "times", "pause_ms")}
        figure: dict[str, Any] = {"ms": None, "ci95_ms": None}
        if not why_not:
            differences.append(samples)
            figure = _figure(samples)
        unknown = dict.fromkeys(("ms", "ci95_ms"), why_not) if why_not else {}
        prices["breaks"].append({"id": f"p{number}", **known, **figure, "how": ABLATION, "unknown": unknown})
    total = _times([number - other for number, other in zip(raw["step_ms"], raw["unbroken_ms"], strict=True)], scale)
    prices["step"] = _figure(raw["step_ms"])
    known_ms = sum(place["ms"] for place in prices["breaks"] if place["ms"] is not None)
    prices["sum"] = _around(known_ms, [sum(found) for found in zip(*differences, strict=True)]) if differences else None
    if raw.get("total_why_not"):
        return
    prices["total"] = _figure(total)
    left = [whole - sum(found) for whole, *found in zip(total, *differences, strict=True)]
    prices["unexplained"] = _around(prices["total"]["ms"] - known_ms, left)


def _beyond_the_call(samples: Sequence[float], timed_ms: float | None) -> str:
    """Why a price is none: on a machine full of other work it came out many times as long as the call, in both directions."""
    price = _figure(samples)["ms"]
    if timed_ms is None or abs(price) <= timed_ms:
        return ""
    return f"it came out as {price:.3f} ms, more than the call takes: other programs are using this machine"


def _to_timed_rounds(timed_ms: float | None, step_ms: Sequence[float]) -> list[float]:
    """What a round's samples are multiplied by, so that its call takes what it takes in the timed rounds.

    The host may be slower while prices are measured (an H200's host, torch 2.11: one call took 1.97 ms in the timed rounds and 2.53 ms
    there), and prices with it.
    """
    return [1.0 if timed_ms is None or not step else timed_ms / step for step in step_ms]


def _times(samples: Sequence[float], scale: Sequence[float]) -> list[float]:
    return [number * factor for number, factor in zip(samples, scale, strict=True)]


def _around(estimate: float, samples: Sequence[float]) -> dict[str, Any]:
    """`estimate`, so that the rows add up, with the interval of `samples`: the median of sums is not the sum of medians."""
    interval = median_interval(samples)
    return {"ms": estimate, "ci95_ms": [min(interval.low, estimate), max(interval.high, estimate)]}


def _figure(samples: Sequence[float]) -> dict[str, Any]:
    interval = median_interval(samples)
    return {"ms": interval.estimate, "ci95_ms": [interval.low, interval.high]}


def _guard(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A guard set of the code behind a break is part of that break's price, since it would go with the break."""
    us = mapping["us"]
    unknown = {"ms": "this guard set was not made while it could be timed"} if us is None else {}
    known = {
        "id": mapping["id"],
        "function": mapping["function"],
        "calls": mapping["calls"],
        "ms": None if us is None else us * mapping["calls"] / 1e3,
    }
    return {**known, "in_a_break": mapping["function"].startswith("torch_dynamo_resume_in_"), "how": TIMED_GUARDS, "unknown": unknown}


def _skip(row: ArmResult, reason: str) -> dict[str, Any]:
    idle = None if row.busy_share is None or row.median_ms is None else max(0.0, (1 - row.busy_share) * row.median_ms)
    unknown = {"ms": _NO_SKIP_PRICE} | ({"at_most_ms": "the device's waiting time was not measured"} if idle is None else {})
    return {"reason": reason, "ms": None, "at_most_ms": idle, "how": "at most the time that the device waits", "unknown": unknown}


def price_lines(prices: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a price, most expensive first, what stays unexplained, and why there are none."""
    lines: list[str] = []
    for price in prices:
        if price["why_not"]:
            lines.append(f"{price['arm']}: no prices: {price['why_not']}")
            continue
        lines += [f"{price['arm']}: {text}" for text in _lines(price)]
    return lines


def _lines(mapping: Mapping[str, Any]) -> list[str]:
    lines = []
    if mapping["step"] is None:
        lines.append("no graph break in this call")
    else:
        lines.append(f"all graph breaks together: {_together(mapping)}")
        for place in sorted(mapping["breaks"], key=lambda item: -(item["ms"] or 0.0)):
            times = f", {place['times']} times per call" if place["times"] > 1 else ""
            price = f"no price: {place['unknown']['ms']}" if place["ms"] is None else _words(place)
            lines.append(f"break at {place['where']} ({place['reason'][:80]}{times}): {price}")
        if mapping["unexplained"] is not None:
            lines.append(f"unexplained: {_words(mapping['unexplained'])}")
    for guard in mapping["guards"]:
        inside = ", part of its break's price" if guard["in_a_break"] else ""
        price = f"no price: {guard['unknown']['ms']}" if guard["ms"] is None else f"{guard['ms']:.4f} ms"
        lines.append(f"guards of {guard['function'] or guard['id']}: {price}{inside}")
    lines += [f"copied back: {copy['name']} ({copy['bytes']} bytes): {_words(copy)}" for copy in mapping["copy_backs"]]
    for skip in mapping["cudagraph_skips"]:
        most = "" if skip["at_most_ms"] is None else f", at most {skip['at_most_ms']:.3f} ms"
        lines.append(f"CUDA graphs skipped ({skip['reason'][:80]}): no price{most}: {skip['unknown']['ms']}")
    return lines


def _together(mapping: Mapping[str, Any]) -> str:
    if mapping["total"] is None:
        return f"not known: {mapping['unknown']['total']}"
    whole = mapping["timed_ms"] or mapping["step"]["ms"]
    share = mapping["total"]["ms"] / whole if whole else 0.0
    return f"{_words(mapping['total'])}, {share:.0%} of the call, measured by joining its graphs to one"


def _words(figure: Mapping[str, Any]) -> str:
    return f"{figure['ms']:.3f} ms [{figure['ci95_ms'][0]:.3f}, {figure['ci95_ms'][1]:.3f}]"
