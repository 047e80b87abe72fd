# trap: the back end reads the number of the round
import torch

torch.manual_seed(0)
SEEN = []


def step(x):
    return x.sin() * 2


for number in range(12):
    compiled = torch.compile(step, backend=lambda graph, inputs, number=number: SEEN.append(number) or graph.forward)
    print(number, len(SEEN), f"{compiled(torch.randn(3, 6)).double().sum().item():.6f}")
