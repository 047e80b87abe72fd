# 2 to cure: the range is read as a number, which is compared and divided; as a tensor it is compared by a selection.
import torch


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = 127
        self.register_buffer("high", torch.zeros(()))

    def forward(self, x):
        self.high.copy_(torch.maximum(self.high * 0.9, x.detach().abs().max()))
        bound = self.high.abs().item()
        if bound == 0.0:
            bound = 1.0
        scale = torch.tensor(bound / self.levels)
        return torch.round(x / scale) * scale


torch.manual_seed(0)
model = Scale()
compiled = torch.compile(model, backend="aot_eager")
for number in range(6):
    print(f"{compiled(torch.randn(8) * (1 + number)).sum().item():.4f}")
