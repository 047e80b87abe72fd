"""The options that may end a difference, each with the cause that it proves where it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import TensorInput
from dynadiag.torch_compat.dynamo.compiling import config_module, config_path, has_option

Configs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What of a graph decides which options are tried."""

    half: bool
    gpu: bool
    inductor: bool


@dataclass(frozen=True, kw_only=True)
class Trial:
    """An option set to a value, and what is the cause where that ends the difference."""

    option: str
    value: Any
    cause: str

    @property
    def line(self) -> str:
        """The option as a line of a script."""
        return f"{config_path(self.option)} = {self.value!r}"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The trials that ended the difference together, each of them needed; `runs` is how many compilations were tried."""

    by: tuple[Trial, ...]
    tried: int


_FUSED = "Inductor keeps float32 between fused operators, where eager rounds each result to the dtype of the tensors"
_ORDER = "vector code: other mathematical functions, and another order of additions"
_SPLIT = "another order of additions: reductions are split over several kernels"
_TABLE: tuple[tuple[str, Any, str, Callable[[Traits], bool]], ...] = (
    ("inductor.emulate_precision_casts", True, _FUSED, lambda of: of.half),
    ("inductor.cpp.enable_floating_point_contract_flag", "off", "contracted multiply-adds in C++", lambda of: not of.gpu),
    ("inductor.cpp.enable_unsafe_math_opt_flag", False, "unsafe mathematics in C++", lambda of: not of.gpu),
    ("inductor.cpp.use_decompose_tanh", False, "tanh made of exp", lambda of: not of.gpu),
    ("inductor.use_fast_math", False, "fast mathematics", lambda of: of.gpu),
    ("inductor.eager_numerics.division_rounding", True, "an approximate division in Triton", lambda of: of.gpu),
    ("inductor.eager_numerics.disable_ftz", True, "denormal numbers flushed to zero", lambda of: of.gpu),
    ("inductor.eager_numerics.use_pytorch_libdevice", True, "Triton's own mathematical functions", lambda of: of.gpu),
    ("inductor.split_reductions", False, _SPLIT, lambda of: of.gpu),
    ("inductor.freezing", False, "weights folded before the first call", lambda of: True),
    ("inductor.max_autotune", False, "a kernel chosen by autotuning", lambda of: True),
    ("inductor.pattern_matcher", False, "operators replaced by Inductor's pattern matcher", lambda of: True),
    ("inductor.cpp.simdlen", 1, _ORDER, lambda of: not of.gpu),
    ("inductor.max_fusion_size", 1, "fusion of operators in one kernel", lambda of: True),
)


def traits_of(candidate: Candidate, backend: Any, autocast: object) -> Traits:
    """What decides for this graph."""
    halves = (torch.bfloat16, torch.float16)
    dtypes = [input_.dtype for input_ in candidate.inputs if isinstance(input_, TensorInput)]
    half = autocast is not None or any(dtype in halves for dtype in dtypes) or any(str(dtype) in candidate.text for dtype in halves)
    return Traits(half=half, gpu=candidate.accelerated, inductor=backend == "inductor")


def trials(traits: Traits, configs: Configs) -> list[Trial]:
    """Those that this torch has, that fit the graph, and that are not in force already."""
    return [*_trials(traits, dict(configs))] if traits.inductor else []


def _trials(traits: Traits, set_now: dict[str, Any]) -> Iterator[Trial]:
    for option, value, cause, fits in _TABLE:
        if not has_option(option) or not fits(traits):
            continue
        module, name = config_module(option)
        current = set_now.get(option, _read(module, name))
        if current != value:
            yield Trial(option=option, value=value, cause=cause)


def _read(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def end_by_options(tried: Sequence[Trial], ends: Callable[[Sequence[Trial]], bool]) -> Ended | None:
    """The first option that ends it alone; else all together, without those that are not needed."""
    count = 0
    for trial in tried:
        count += 1
        if ends((trial,)):
            return Ended(by=(trial,), tried=count)
    if len(tried) < 2:
        return None
    count += 1
    if not ends(tried):
        return None
    needed = list(tried)
    for trial in tried:
        rest = [other for other in needed if other is not trial]
        count += 1
        if rest and ends(rest):
            needed = rest
    return Ended(by=tuple(needed), tried=count)
