# 1 to cure
import torch

torch.manual_seed(0)
net = torch.nn.Linear(6, 6)


def step(x):
    return net(x).relu() * 2


for number in range(12):
    # a new back end each time
    compiled = torch.compile(step, backend=lambda graph, inputs: graph.forward)
    print(number, f"{compiled(torch.randn(3, 6)).double().sum().item():.6f}")
