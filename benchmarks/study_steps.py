"""Steps of the verdict study: a chain of equal products, of which `DYNADIAG_STUDY` says how many.

51 beside 50 is a slow-down of exactly 2 % in work, whatever the machine.
"""

from __future__ import annotations

import os

import torch

SIZE = 4096 if torch.cuda.is_available() else 128
DEVICE, DTYPE = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)


def step():
    """The chain; about 10 ms for 50 products on an H200."""
    count = int(os.environ["DYNADIAG_STUDY"])
    left = torch.randn(SIZE, SIZE, device=DEVICE, dtype=DTYPE)
    right = torch.randn(SIZE, SIZE, device=DEVICE, dtype=DTYPE) / SIZE**0.5
    out = torch.empty_like(left)

    def chain():
        for _ in range(count):
            torch.mm(left, right, out=out)
        return out

    return chain
