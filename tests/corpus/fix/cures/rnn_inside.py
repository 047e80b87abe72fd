# 1 to cure
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(4, 5, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0].sum(dim=1)


model = Net().eval()


def data(number):
    return (torch.randn(2, 3, 4),)


compiled = torch.compile(model, backend="eager")
for number in range(4):
    result = compiled(*data(number))
    print(number, tuple(result.shape), f"{result.double().sum().item():.6f}")
