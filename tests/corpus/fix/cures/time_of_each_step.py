# 1 to cure: the time of each step reaches no operator, so that torch compiles each value in.
import torch


def force(x, t):
    return -x


def step(x, t, dt):
    k = force(x, t)
    return x + dt * force(x + dt / 2 * k, t + dt / 2)


torch.manual_seed(0)
step = torch.compile(step, backend="aot_eager")
x, t, dt = torch.randn(8), 0.0, 0.1
for _ in range(7):
    x = step(x, t, dt)
    t = t + dt
    dt = dt * 1.1
print(f"{x.sum():.4f} {t:.4f}")
