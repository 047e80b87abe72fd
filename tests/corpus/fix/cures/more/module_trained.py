# 1 to cure
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(6, 6)

    def forward(self, x):
        h = self.lin(x)
        y = h * 2
        if y.sum() > 0:
            y = y + 1
        return y * x


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def data(number):
    return (torch.randn(6) + (1 if number % 2 else -1),)


compiled = torch.compile(net, backend="aot_eager")
for number in range(4):
    loss = compiled(*data(number)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(number, f"{loss.item():.6f}")
