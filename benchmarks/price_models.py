"""Six models with planted graph breaks, for `prices_study.py`: `DYNADIAG_PLANTED` names the model and whether its breaks are there.

"mlp:broken" is the model with its breaks, "mlp:fixed" the same computation without them. `DYNADIAG_DEVICE` is "cuda" where there is one.
"""

from __future__ import annotations

import os

import torch

DEVICE = os.environ.get("DYNADIAG_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
WIDTH, ROWS = (1024, 256) if DEVICE == "cuda" else (128, 32)
MODELS = ("mlp", "mlp_inference", "residual", "attention", "convolution", "recurrent")
BROKEN = True


class Mlp(torch.nn.Module):
    """Two breaks of different kinds between linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        """One pass."""
        first, second, third = self.layers
        x = first(x).relu()
        if BROKEN:
            torch._dynamo.graph_break()
        x = second(x).relu()
        if BROKEN:
            print(end="")
        return third(x)


class Residual(torch.nn.Module):
    """One break in the middle of pointwise operations that would be one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        """One pass."""
        y = (x * self.scale).sin() + x
        if BROKEN:
            torch._dynamo.graph_break()
        return (y.cos() * self.scale + x).tanh()


class Attention(torch.nn.Module):
    """A break before and one after the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        """One pass."""
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / WIDTH**0.5
        if BROKEN:
            print(end="")
        weights = scores.softmax(-1)
        if BROKEN:
            torch._dynamo.graph_break()
        return weights @ self.value(x)


class Convolution(torch.nn.Module):
    """A break between convolution with batch norm, whose statistics are written, and the next."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)

    def forward(self, x):
        """One pass."""
        x = self.norm(self.first(x)).relu()
        if BROKEN:
            torch._dynamo.graph_break()
        return self.second(x).mean((2, 3))


class Recurrent(torch.nn.Module):
    """The same break three times, in a function that is called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        """One pass."""
        x = self.cell(x).tanh()
        if BROKEN:
            print(end="")
        x = self.cell(x).tanh()
        if BROKEN:
            print(end="")
        x = self.cell(x).tanh()
        if BROKEN:
            print(end="")
        return self.cell(x)


def call():
    """The model that the environment names, with its input; grad mode is off for "mlp_inference"."""
    global BROKEN
    name, state = os.environ["DYNADIAG_PLANTED"].split(":")
    BROKEN = state == "broken"
    torch.manual_seed(0)
    kinds = {"residual": Residual, "attention": Attention, "convolution": Convolution, "recurrent": Recurrent}
    model = kinds.get(name, Mlp)().to(DEVICE)
    if name == "mlp_inference":
        model.requires_grad_(False)
    x = torch.randn(ROWS, 3, 16, 16) if name == "convolution" else torch.randn(ROWS, WIDTH)
    return model, x.to(DEVICE)
