"""About 550 triples (eager, compiled, noise), each made from its name: what a comparison has to tell apart, planted faults beside rounding.

Values come from torch's generator and products in float64 alone, so that they are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.corpus.planted_faults.values import generator, negated_one, one_element, one_ulp, put, ulp, uniform

FLOATS = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "c64": torch.complex64}
WHOLE = {"i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}
SIZES = (0, 1, 8, 100, 65536)
MAGNITUDES = (1e-30, 1e-12, 1e-6, 1e6, 1e30)


@dataclass
class Triple:
    """What eager and the compiled call gave, and eager runs that differ by noise: in float64, a second one, on perturbed inputs, with
    sums in another order. `before` is what a value was before the step, `tf32` whether eager may use it.
    """

    name: str
    eager: list[Any]
    compiled: list[Any]
    exact: list[Any] | None = None
    again: list[Any] | None = None
    perturbed: list[list[Any]] = field(default_factory=list)
    reordered: list[list[Any]] = field(default_factory=list)
    before: list[Any] | None = None
    inputs: tuple[list[Any], list[Any]] = ((), ())
    where: str = "output"
    tf32: bool = False


def normal(name: str, count: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.complex(normal(f"{name} real", count, torch.float64), normal(f"{name} imag", count, torch.float64))
    return torch.randn(count, generator=generator(name), dtype=torch.float64)


def eps_of(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


def rounded(exact: torch.Tensor, dtype: torch.dtype, name: str, noise: float, scale: float = 1.0) -> torch.Tensor:
    """One of many ways to round: an error relative to each value of `noise` roundings, or of `-noise` roundings of `scale`."""
    off = torch.rand(exact.shape, generator=generator(f"rounding {name}"), dtype=torch.float64) * 2 - 1
    size = exact if noise > 0 else torch.full_like(exact, scale)
    return (exact + size * off * abs(noise) * eps_of(dtype)).to(dtype)


_RUNS: dict[str, list[torch.Tensor]] = {}


def with_noise(name: str, exact: torch.Tensor, dtype: torch.dtype, noise: float, compiled: Callable[[torch.Tensor], Any]) -> Triple:
    """Eager is one rounding of the exact values; `compiled` makes the compiled values of it."""

    group = name.split("/")[0]
    if group not in _RUNS:
        _RUNS[group] = [rounded(exact, dtype, f"{group} {at}", noise) for at in range(9)]
    eager, *others = _RUNS[group]
    return Triple(
        name=name,
        eager=[eager],
        compiled=[compiled(eager)],
        exact=[exact],
        again=[eager.clone()],
        perturbed=[[one] for one in others[:6]],
        reordered=[[one] for one in others[6:]],
    )


# Each makes the compiled values of eager's.
FAULTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "same": lambda value: value.clone(),
    **{f"uniform {size:g}": uniform(size) for size in (1e-8, 1e-6, 1e-5, 1e-4, 3e-4, 5e-4, 1e-3, 5e-3, 2e-2, 6e-2, 0.3)},
    **{f"one off {size:g}": one_element(size) for size in (5e-4, 5e-3, 5e-2, 1.0, 100.0)},
    "ulp": ulp,
    "one ulp": one_ulp,
    "negated": lambda value: -value,
    "one negated": negated_one,
    "zero": lambda value: torch.zeros_like(value),
    "one zero": put(0.0),
    "doubled": lambda value: value * 2,
    "1% more": lambda value: value * 1.01,
    "rolled": lambda value: value.roll(1, 0),
    "one inf": put(float("inf")),
    "one nan": put(float("nan")),
}
FEW = ("same", "uniform 1e-06", "uniform 0.0005", "uniform 0.02", "one off 0.005", "one off 1", "ulp", "one zero", "negated", "one nan")


def floats() -> Iterator[Triple]:
    for short, dtype in FLOATS.items():
        for kind, noise in (("few roundings", 4.0), ("cancellation", -1000.0)):
            exact = normal(f"{short} {kind}", 4096, dtype)
            for fault, make in FAULTS.items():
                yield with_noise(f"{short} {kind}/{fault}", exact, dtype, noise, make)
            other = f"{short} {kind}/another rounding"
            yield with_noise(other, exact, dtype, noise, lambda _, e=exact, d=dtype, n=noise, o=other: rounded(e, d, o, n))
    for size in SIZES:
        for fault in FEW:
            name = f"f32 {size} elements"
            yield with_noise(f"{name}/{fault}", normal(name, size, torch.float32), torch.float32, 4.0, FAULTS[fault])
    for magnitude in MAGNITUDES:
        for fault in FEW:
            name = f"f32 at {magnitude:g}"
            yield with_noise(f"{name}/{fault}", normal(name, 256, torch.float32) * magnitude, torch.float32, 4.0, FAULTS[fault])
    for fault in FEW:
        exact = torch.where(torch.arange(512) % 64 == 0, 1e6, 1e-3) * normal("mixed", 512, torch.float64)
        yield with_noise(f"f32 mixed magnitudes/{fault}", exact, torch.float32, 4.0, FAULTS[fault])


def not_finite() -> Iterator[Triple]:
    numbers = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"), "0": 0.0, "7": 7.0}
    for short in ("f32", "bf16", "c64"):
        dtype = FLOATS[short]
        exact = normal(f"special {short}", 64, dtype)
        for was in ("inf", "-inf", "nan"):
            for now in ("inf", "-inf", "nan", "7"):
                for truth in ("same", "finite"):
                    name = f"special {short}/eager {was}, compiled {now}, float64 {truth}"
                    triple = with_noise(name, exact, dtype, 4.0, put(numbers[now]))
                    for run in (triple.eager, triple.again, *triple.perturbed, *triple.reordered):
                        run[0] = put(numbers[was])(run[0])
                    triple.exact = [put(numbers[was])(exact)] if truth == "same" else triple.exact
                    yield triple
    for now in ("nan", "inf", "7"):
        name = f"special f32/unstable, compiled {now}"
        triple = with_noise(name, normal("unstable", 64, torch.float32), torch.float32, 4.0, put(numbers[now]))
        triple.perturbed[1:3] = [[put(float("nan"))(run[0])] for run in triple.perturbed[1:3]]
        yield triple
    everywhere = with_noise("special f32/all nan", normal("all", 64, torch.float32), torch.float32, 4.0, put(1.0, everywhere=True))
    for run in (everywhere.eager, everywhere.again, everywhere.exact, *everywhere.perturbed, *everywhere.reordered):
        run[0] = torch.full_like(run[0], float("nan"))
    yield everywhere
    zero = torch.zeros(64)
    for now, compiled in (("-0.0", -zero), ("1e-13", zero + 1e-13), ("1e-7", zero + 1e-7), ("1", zero + 1)):
        yield Triple(f"zeros/compiled {now}", [zero], [compiled], [zero.double()], [zero], [[zero]] * 6, [[zero]] * 2)


def whole() -> Iterator[Triple]:
    for short, dtype in WHOLE.items():
        base = torch.randint(0, 2 if short == "bool" else 100, (4096,), generator=generator(short)).to(dtype)
        other = (~base if short == "bool" else base + 1).to(dtype)
        for moved in (0, 1, 20):
            for wrong in (0, 1, 40, 4096):
                runs = [torch.where(torch.arange(4096) < moved, other, base)] * 6
                compiled = torch.where(torch.arange(4096) >= 4096 - wrong, other, base)
                yield Triple(
                    f"{short}/{wrong} wrong, {moved} moved", [base], [compiled], [base], [base], [[run] for run in runs], [[base], [base]]
                )


def facts() -> Iterator[Triple]:
    base = normal("facts", 24, torch.float64).float().reshape(4, 6)

    def one(name: str, eager: Any, compiled: Any, **more: Any) -> Triple:
        tensors = isinstance(eager, torch.Tensor) and eager.layout is torch.strided
        return Triple(
            f"facts/{name}", [eager], [compiled], [eager.detach().double()] if tensors and eager.is_floating_point() else None, **more
        )

    yield one("same", base, base.clone())
    yield one("another shape", base, base.reshape(6, 4))
    yield one("fewer dimensions", base, base.flatten())
    yield one("a longer shape", base, torch.cat([base, base]))
    yield one("another dtype", base, base.double())
    yield one("a half", base, base.half())
    yield one("whole numbers instead", base, base.long())
    yield one("shape and dtype", base, base.double().flatten())
    yield one("another stride", base, base.t().contiguous().t())
    yield one("another stride and value", base, (base.t().contiguous() + 1).t())
    yield one("stride of one row", base[:1], base[:1].t().contiguous().t())
    yield one("expanded", base[:1].expand(4, 6), base[:1].repeat(4, 1))
    yield one("sparse instead", base, base.to_sparse())
    yield one("both sparse", base.to_sparse(), base.to_sparse())
    yield one("sparse and wrong", base.to_sparse(), (base * 2).to_sparse())
    yield one("requires grad instead", base, base.clone().requires_grad_())
    yield one("no longer requires grad", base.clone().requires_grad_(), base.clone())
    yield one("requires grad and wrong", base.clone().requires_grad_(), base * 2)
    yield one("empty", base[:0], base[:0].clone())
    yield one("empty of another shape", base[:0], base[:, :0].clone())
    yield one("scalar tensor", base[0, 0], base[0, 0] * 2)
    yield one("gradient with another stride", base, base.t().contiguous().t(), where="gradient")
    yield one("gradient missing", base, None, where="gradient")
    yield one("gradient too many", None, base, where="gradient")
    yield one("no gradient on both sides", None, None, where="gradient")
    plain = {"None": None, "tensor": base, "3": 3, "4": 4, "3.0": 3.0, "3.5": 3.5, "nan": float("nan"), "True": True, "text": "text"}
    pairs = (
        ("None", "None"),
        ("None", "tensor"),
        ("tensor", "None"),
        ("tensor", "3"),
        ("3", "tensor"),
        ("3", "3"),
        ("3", "4"),
        ("3", "3.0"),
        ("3.0", "3.5"),
        ("nan", "nan"),
        ("True", "3"),
        ("3", "None"),
        ("text", "text"),
        ("text", "3"),
    )
    for was, now in pairs:
        yield one(f"{was} became {now}", plain[was], plain[now])
    yield Triple("facts/one value fewer", [base, base], [base])
    yield Triple("facts/one value more", [base], [base, base])
    yield Triple("facts/no values", [], [])
    yield Triple("facts/second of three", [base, base, base], [base, base + 1, base])
    yield Triple("facts/swapped", [base, base * 2], [base * 2, base])
    yield Triple("facts/whole numbers before fractions", [base.long(), base], [base.long() + 1, base + 1])


def aliases() -> Iterator[Triple]:
    one, two = normal("one", 16, torch.float64).float(), normal("two", 16, torch.float64).float()
    same = one.clone()
    yield Triple("alias/input returned, now a copy", [one], [same.clone()], inputs=([one, two], [same, two]))
    yield Triple("alias/copy, now the input", [one.clone()], [same], inputs=([one, two], [same, two]))
    yield Triple("alias/view of the input, now a copy", [one[:8]], [same[:8].clone()], inputs=([one], [same]))
    yield Triple("alias/view on both sides", [one[:8]], [same[:8]], inputs=([one], [same]))
    yield Triple("alias/two outputs share", [two, two], [two.clone(), two.clone()], inputs=([], []))
    yield Triple("alias/two outputs now share", [two.clone(), two.clone()], [two, two], inputs=([], []))
    yield Triple("alias/parts of one storage", [one[:8], one[8:]], [same[:8].clone(), same[8:].clone()], inputs=([], []))
    yield Triple("alias/another input", [one], [two.clone().copy_(one)], inputs=([one, two], [one.clone(), two]))
    yield Triple("alias/overlap, now the same", [one[:12], one[4:]], [same[:12], same[:12].clone()], inputs=([], []))


def updates() -> Iterator[Triple]:
    """Values that a step adds a little to: what is added counts too, where there is something to tell it by."""
    for short in ("f32", "bf16"):
        dtype = FLOATS[short]
        before = normal(f"before {short}", 1000, dtype).to(dtype)
        for step in (1e-5, 1e-3, 0.1):
            made = normal(f"made {short}", 1000, dtype) * step
            kinds = {"right": 1.0, "dropped": 0.0, "doubled": 2.0, "the other way": -1.0, "3% less": 0.97, "30% less": 0.7}
            for kind, times in kinds.items():
                name = f"update {short} of {step:g}/{kind}"
                compiled = (before.double() + made * times).to(dtype)
                triple = with_noise(name, before.double() + made, dtype, 0.5, lambda _, one=compiled: one)
                triple.before = [before]
                yield triple


def without_float64() -> Iterator[Triple]:
    for fault in FEW:
        name = "no float64"
        triple = with_noise(f"{name}/{fault}", normal(name, 4096, torch.float32), torch.float32, 4.0, FAULTS[fault])
        triple.exact = None
        yield triple
        bare = with_noise(f"nothing but eager/{fault}", normal("bare", 4096, torch.float32), torch.float32, 4.0, FAULTS[fault])
        bare.exact, bare.again, bare.perturbed, bare.reordered = None, None, [], []
        yield bare
    for fault in ("uniform 0.0005", "uniform 0.001", "uniform 0.005", "one off 0.005"):
        triple = with_noise(f"tf32/{fault}", normal("tf32", 4096, torch.float32), torch.float32, 8192.0, FAULTS[fault])
        triple.tf32 = True
        yield triple


def all_triples() -> Iterator[Triple]:
    for family in (floats, not_finite, whole, facts, aliases, updates, without_float64):
        yield from family()
