# 2 to cure: a step that is defined where it is compiled keeps counts and a log; the model and the loss are compiled instead of it.
import torch
from torch import nn


class Loss:
    def __init__(self):
        self.positive = 0

    def __call__(self, y, target):
        self.positive += (target > 0).sum().item()
        return distance(y, target)


def distance(y, target):
    return torch.nn.functional.mse_loss(torch.tanh(y), target) + y.abs().mean()


def main():
    torch.manual_seed(0)
    model, loss_of, log = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), Loss(), []

    def step(x, target):
        loss = loss_of(model(x), target)
        log.append(loss.item())
        return loss

    compiled = torch.compile(step, backend="aot_eager")
    for _ in range(4):
        compiled(torch.randn(3, 8), torch.randn(3, 4)).backward()
    print(f"{sum(log):.4f} {loss_of.positive}")


main()
