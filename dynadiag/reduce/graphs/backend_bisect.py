"""Which layer is guilty: the candidate compiled with backends that each add one layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.judge import Observation, observe_isolated
from dynadiag.reduce.graphs.pass_bisect import Guilt
from dynadiag.reduce.graphs.setting import Setting, backend_name
from dynadiag.torch_compat.dynamo.compiling import LAYERS

_NAMES = {"eager": "dynamo", "aot_eager": "aotautograd", "aot_eager_decomp_partition": "decompositions", "inductor": "inductor"}
_FAMILIES = {"runtime_error": "compile_error", "wrong_gradient": "wrong_result"}
"""Kinds that differ only in the phase: a backward that cannot be compiled is a compile error when it is compiled alone."""


@dataclass(frozen=True, kw_only=True)
class GuiltyLayer:
    """`layer` is guilty: the first that shows the failure. `steps` says for each backend "passes", "fails" or what else happened.

    `guilt` is the part of the compiler, None when it was not looked for.
    """

    layer: str
    steps: Mapping[str, str] = field(default_factory=dict)
    guilt: Guilt | None = None


def find_guilty_layer(candidate: Candidate, setting: Setting, failure: Failure, *, timeout_s: float, repeats: int = 1) -> GuiltyLayer:
    """Try each layer up to the backend of the setting; a backend of another kind is guilty itself when the layers pass.

    A flaky failure is given `repeats` chances to show itself in each layer.
    """
    own = backend_name(setting.backend)
    layers = LAYERS[: LAYERS.index(own)] if own in LAYERS else ("eager", "aot_eager")
    steps: dict[str, str] = {}
    for layer in layers:
        # Modes and options belong to the backend that the user chose.
        item = replace(setting, backend=layer, mode=None, options={}, backend_source=None, inner=False)
        for _ in range(repeats):
            steps[layer] = _step(observe_isolated(candidate, item, timeout_s=timeout_s), failure)
            if steps[layer] != "passes":
                break
        if steps[layer] == "fails":
            return GuiltyLayer(layer=_NAMES[layer], steps=steps)
    steps[own] = "fails"
    return GuiltyLayer(layer=_NAMES.get(own, own), steps=steps)


def _step(seen: Observation, failure: Failure) -> str:
    if seen.invalid is not None:
        return f"not run: {seen.invalid}"
    if seen.failure is None:
        return "passes"
    return "fails" if same_cause(seen.failure, failure) else f"another failure: {seen.failure.title()}"


def same_cause(failure: Failure, other: Failure) -> bool:
    """Whether two failures have one cause, though another backend or graph came to it on another way and perhaps in another phase."""
    return _cause(failure) == _cause(other)


def _cause(failure: Failure) -> tuple[object, ...]:
    # Where it was raised differs between backends; it decides only where there is no message.
    place = () if failure.message else failure.frames[-1:]
    return (_FAMILIES.get(failure.kind, failure.kind), failure.exceptions[-1:], failure.message, place)
