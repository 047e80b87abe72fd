"""One profiled call, after all timing: what was launched, and whether compiled code really ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

from dynadiag.torch_compat.trace.profile_events import LOOKUP, region_of

_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Per call: kernels on the device and the share of the time they keep it busy (None without CUDA), compiled regions entered, look-ups.

    `lookup_us` is the CPU time of Dynamo's look-ups and guards in one call, under the profiler.
    """

    kernels: float | None
    busy_s: float | None
    regions: float
    lookups: float
    lookup_us: float


def probe(call: Callable[[], Any], *, cuda: bool) -> Probe:
    """Profile three calls. The profiler slows the calls down, so no time here is a result; counts and device times are."""
    steps = probe_steps(cuda=cuda)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            probed: Probe = end.value
            return probed
        call()


def probe_steps(*, cuda: bool) -> Generator[None, None, Probe]:
    """Profile three steps that somebody else makes, one at each `yield`."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU]
    if cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(_CALLS):
            yield
        if cuda:
            torch.cuda.synchronize()
    events = list(profiler.events() or ())
    on_device = [event for event in events if _is_on(event, "CUDA") and not getattr(event, "is_user_annotation", False)]
    kernels = [event for event in on_device if not event.name.startswith(("Memcpy", "Memset"))]
    lookups = [event for event in events if event.name == LOOKUP]
    return Probe(
        kernels=len(kernels) / _CALLS if cuda else None,
        busy_s=_covered_us(on_device) / 1e6 / _CALLS if cuda else None,
        regions=len(_regions(events)) / _CALLS,
        lookups=len(lookups) / _CALLS,
        lookup_us=sum(event.cpu_time_total for event in lookups) / _CALLS,
    )


def regions_entered(call: Callable[[], Any]) -> dict[str, float]:
    """How often one call enters each compiled region, by compile id."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(_CALLS):
            call()
    return {region: count / _CALLS for region, count in Counter(_regions(profiler.events() or ())).items()}


def _regions(events: Iterable[Any]) -> list[str]:
    """The compiled region of each event on the host that is the entry of one."""
    found = (region_of(event.name) for event in events if _is_on(event, "CPU"))
    return [region for region in found if region is not None]


def _is_on(event: Any, device: str) -> bool:
    return str(event.device_type).endswith(f".{device}")


def _covered_us(events: list[Any]) -> float:
    """Microseconds in which at least one of the events runs."""
    covered, end = 0.0, float("-inf")
    for start, stop in sorted((event.time_range.start, event.time_range.end) for event in events):
        covered += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return covered
