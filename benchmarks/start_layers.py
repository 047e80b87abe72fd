"""A 24-layer transformer, compiled as a whole or one block for all layers: cold seconds to the first step, and the steady step.

`python benchmarks/start_layers.py LAYOUT MODE TASK` on a machine with a GPU: whole or block; default or a mode of torch.compile; infer or
train. Twice on one TORCHINDUCTOR_CACHE_DIR gives the first and the second start; the results are in docs/start-evidence.md.
"""

import json
import sys
import time

begun = time.perf_counter()
import torch  # noqa: E402 - its import is timed
from torch import nn  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

layout, mode, task = sys.argv[1:4]
WIDTH, HEADS, LAYERS, BATCH, LENGTH = 1024, 16, 24, 8, 512


class Block(nn.Module):
    """Attention and a two-layer perceptron, each with its norm."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        """One layer."""
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, WIDTH)
        x = x + self.out(mixed)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """All layers, one after the other."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x):
        """The whole model."""
        for layer in self.layers:
            x = layer(x)
        return x


torch.manual_seed(0)
model = Model().cuda().bfloat16()
x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda", dtype=torch.bfloat16)
loaded = time.perf_counter()


def step():
    """One call, with its backward where it trains."""
    if task == "infer":
        with torch.no_grad():
            return model(x)
    model.zero_grad(set_to_none=False)
    loss = model(x).float().pow(2).mean()
    loss.backward()
    return loss.detach()


expected = step().clone()
options = {} if mode == "default" else {"mode": mode}
if layout == "whole":
    model.compile(**options)
else:
    for layer in model.layers:
        layer.compile(**options)
torch.cuda.synchronize()
start = time.perf_counter()
found = step().clone()
torch.cuda.synchronize()
first = time.perf_counter() - start
for _ in range(5):
    step()
torch.cuda.synchronize()
times = []
for _ in range(30):
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - start)
difference = ((found.double() - expected.double()).norm() / expected.double().norm()).item()
steady = sorted(times)[len(times) // 2] * 1e3
found_out = {
    "layout": layout,
    "mode": mode,
    "task": task,
    "first_s": round(first, 2),
    "steady_ms": round(steady, 3),
    "relative_difference": difference,
    "load_s": round(loaded - begun, 2),
}
print(json.dumps(found_out))
