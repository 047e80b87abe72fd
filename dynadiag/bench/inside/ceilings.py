"""What this device can do at most, measured: bytes copied and products computed a second, on random data."""

from __future__ import annotations

from typing import Any

_COPY_BYTES = 1 << 30
_SIZE = 8192
_TRIES = 7


def measure_ceilings() -> dict[str, Any]:
    """The best of several tries each. Only for CUDA; raises torch's OutOfMemoryError where 3 GiB are not free."""
    import torch

    matmul: Any = torch.backends.cuda.matmul
    # `allow_tf32` raises where the program has set `fp32_precision`, which torch has from 2.9 on.
    option, on, off = ("fp32_precision", "tf32", "ieee") if hasattr(matmul, "fp32_precision") else ("allow_tf32", True, False)
    before = getattr(matmul, option)
    rates: dict[str, float] = {}
    try:
        for name, dtype in (("float32", torch.float32), ("tf32", torch.float32), ("float16", torch.float16), ("bfloat16", torch.bfloat16)):
            setattr(matmul, option, on if name == "tf32" else off)
            rates[name] = 2 * _SIZE**3 / _best_s(*_product(dtype))
    finally:
        setattr(matmul, option, before)
    source = torch.randn(_COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * _COPY_BYTES / _best_s(target.copy_, source)
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy_bytes_per_s": copied,
        "matmul_flops_per_s": rates,
        "l2_bytes": int(getattr(properties, "L2_cache_size", 0)),
    }


def _product(dtype: Any) -> tuple[Any, ...]:
    import torch

    left, right = (torch.randn(_SIZE, _SIZE, device="cuda", dtype=dtype) for _ in range(2))
    return torch.mm, left, right


def _best_s(function: Any, *arguments: Any) -> float:
    import torch

    best = float("inf")
    function(*arguments)
    event: Any = torch.cuda.Event
    for _ in range(_TRIES):
        began, ended = event(enable_timing=True), event(enable_timing=True)
        began.record()
        function(*arguments)
        ended.record()
        torch.cuda.synchronize()
        best = min(best, began.elapsed_time(ended) / 1e3)
    return best
