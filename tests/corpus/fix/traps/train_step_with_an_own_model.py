# trap: the step trains the model that it is given, of which there are two
import torch

torch.manual_seed(0)
model = torch.nn.Linear(6, 1)
other = torch.nn.Linear(6, 1)


def make(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @torch.compile(backend="aot_eager")
    def train_step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train_step


steps = [make(model), make(other)]
for number in range(6):
    print(number, f"{steps[number % 2](torch.randn(4, 6)).item():.6f}")
