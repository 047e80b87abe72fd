"""Names with dots, as torch and Python print them."""

from __future__ import annotations


def lies_in(name: str, *packages: str) -> bool:
    """Whether a dotted name is of one of these packages, or that package itself: `torch.ops.aten.add` of `torch.ops`, not `torchvision`."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)
