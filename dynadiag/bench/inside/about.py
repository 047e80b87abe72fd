"""Where an arm runs."""

from __future__ import annotations

from typing import Any


def about_here(*, cuda: bool) -> dict[str, Any]:
    """Versions, device and flags of this process; `cuda` says whether it uses a device."""
    import platform

    import torch

    from dynadiag.torch_compat.dispatch.rounding import uses_tf32

    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if cuda else None,
        "gpu": f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}" if cuda else None,
        "cuda_available": torch.cuda.is_available(),
        "threads": torch.get_num_threads(),
        "tf32": uses_tf32(convolution=False),
    }
