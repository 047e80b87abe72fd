# 1 to cure
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@torch.compile(backend="aot_eager")
def train_step(x, y):
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


for number in range(5):
    x = torch.randn(4, 6)
    print(number, f"{train_step(x, x.sum(1, keepdim=True)).item():.6f}")
