# trap: each round begins with an optimizer without momentum
import torch

torch.manual_seed(0)
net = torch.nn.Linear(6, 6)


@torch.compile(backend="eager")
def step(optimizer):
    optimizer.step()


for number in range(5):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    optimizer.zero_grad()
    loss = net(torch.randn(3, 6)).square().sum()
    loss.backward()
    step(optimizer)
    print(number, f"{loss.item():.6f}")
