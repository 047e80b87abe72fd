# 1 to cure
import torch

torch.manual_seed(0)


def more_exactly(graph_module, inputs):
    """A back end that rounds differently: products of matrices in float64."""
    for node in graph_module.graph.nodes:
        if node.target is torch._C._nn.linear:
            node.target = lambda x, weight, bias: torch._C._nn.linear(x.double(), weight.double(), bias.double()).float()
    graph_module.recompile()
    return graph_module.forward


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2), dim=-1)
        loss = (weights @ self.value(x)).square().mean()
        if loss > 0.1:
            loss = loss * 0.5
        return loss


model = Attention()
compiled = torch.compile(model, backend=more_exactly)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for number in range(6):
    loss = compiled(torch.randn(4, 8, 16) * (1 + number % 3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(number, f"{loss.item():.4f}")
