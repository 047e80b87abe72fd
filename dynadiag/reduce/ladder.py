"""Which layer is guilty: the candidate compiled with backends that each add one layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dynadiag.reduce.candidate import Candidate
from dynadiag.reduce.failure import Failure
from dynadiag.reduce.judge import Observation, observe_isolated
from dynadiag.reduce.setting import Setting, backend_name
from dynadiag.torch_compat.reduce_compile import LAYERS

_NAMES = {"eager": "dynamo", "aot_eager": "aotautograd", "aot_eager_decomp_partition": "decompositions", "inductor": "inductor"}


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """`layer` is guilty: the first that shows the failure. `steps` says for each backend "passes", "fails" or what else happened."""

    layer: str
    steps: Mapping[str, str] = field(default_factory=dict)


def climb(candidate: Candidate, setting: Setting, failure: Failure, *, timeout_s: float) -> Ladder:
    """Try each layer up to the backend of the setting; a backend of another kind is guilty itself when the layers pass."""
    own = backend_name(setting.backend)
    layers = LAYERS[: LAYERS.index(own)] if own in LAYERS else ("eager", "aot_eager")
    steps: dict[str, str] = {}
    for layer in layers:
        # Modes and options belong to the backend that the user chose.
        one = replace(setting, backend=layer, mode=None, options={}, backend_source=None)
        steps[layer] = _step(observe_isolated(candidate, one, timeout_s=timeout_s), failure)
        if steps[layer] == "fails":
            return Ladder(layer=_NAMES[layer], steps=steps)
    steps[own] = "fails"
    return Ladder(layer=_NAMES.get(own, own), steps=steps)


def _step(seen: Observation, failure: Failure) -> str:
    if seen.invalid is not None:
        return f"not run: {seen.invalid}"
    if seen.failure is None:
        return "passes"
    same = (seen.failure.kind, seen.failure.exceptions[-1:], seen.failure.message) == (
        failure.kind,
        failure.exceptions[-1:],
        failure.message,
    )
    return "fails" if same else f"another failure: {seen.failure.title()}"
