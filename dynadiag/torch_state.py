"""Which functions of torch set the state that compiled code is guarded on, by torch's name of it in a failed guard (2.11 and 2.15).

Only what a program sets now and then: modes such as `no_grad`, which come and go with a block, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_DETERMINISTIC = ("use_deterministic_algorithms", "set_deterministic_debug_mode")
SETTERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "num_threads": ("set_num_threads",),
        "default_dtype": ("set_default_dtype", "set_default_tensor_type"),
        "deterministic_algorithms": _DETERMINISTIC,
        "deterministic_algorithms_warn_only": _DETERMINISTIC,
        "allow_tf32": ("set_float32_matmul_precision",),
    }
)
