# 1 to cure
"""A check that reads each layer's values in a loop over modules, and a counter that recompiles once the check is gone."""

import torch
from torch import nn

torch.manual_seed(0)


class Adapter(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down, self.up = nn.Linear(width, width // 2), nn.Linear(width // 2, width)

    def forward(self, x):
        h = x + self.up(torch.tanh(self.down(x)))
        if h.abs().amax() > 1000.0:
            h = h * 0.1
        return h


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.adapters = nn.ModuleList(Adapter(8) for _ in range(2))
        self.head = nn.Linear(8, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        h = x
        for adapter in self.adapters:
            h = adapter(h)
        share = min(1.0, self.calls / 100)
        logits = self.head(h)
        return logits.sum() + 0.01 * share * logits.square().mean()


model = Classifier()
run = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    losses = [run(torch.randn(4, 8)) for _ in range(12)]
print("RESULT", f"{float(sum(losses)):.3f}", model.calls)
