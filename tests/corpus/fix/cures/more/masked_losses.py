# 2 to cure: losses and a sum of what a mask selects, whose sizes depend on values.
import torch
import torch.nn.functional as F
from torch import nn


def step(model, x, labels, target, mask):
    logits = model(x)
    named = F.cross_entropy(logits[mask], labels[mask])
    near = F.smooth_l1_loss(logits[target > 0], target[target > 0])
    return named + near


torch.manual_seed(0)
model = nn.Linear(6, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = torch.compile(step, backend="aot_eager")
for _ in range(4):
    loss = compiled(model, torch.randn(3, 5, 6), torch.randint(0, 4, (3, 5)), torch.randn(3, 5, 4), torch.rand(3, 5) > 0.3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"{loss:.4f}")
