"""Every cure that dynadiag names for a recompile, as a program without it and a program with it.

Run as a script: prints one JSON object {case: {"before": side, "after": side, "equal": bool}} where a side is
{"recompiles": [[reasons], ...], "names": [code names], "sources": {name: (file, line, text)}}. The reasons are torch's own texts, the
sources what dynadiag records of the functions.
"""

import contextlib
import dataclasses
import gc
import json
import math
import sys

import torch
import torch._dynamo as dynamo
from torch import nn

from dynadiag.torch_compat.dynamo.guard_timing import check_guards_untimed
from dynadiag.torch_compat.trace import stacks

CASES = {}
KEPT = []
FEATURES = {}


def case(name):
    def add(make):
        CASES[name] = make
        return make

    return add


def compiled(fn, **options):
    return torch.compile(fn, backend="eager", **options)


def rows(*sizes):
    return [torch.arange(float(n * 3)).reshape(n, 3) for n in sizes]


@case("mark-dynamic")
def _():
    def before():
        def fn(x):
            return x * 2

        c = compiled(fn)
        return [c(x) for x in rows(4, 8, 9)]

    def after():
        def fn(x):
            return x * 2

        c, out = compiled(fn), []
        for x in rows(4, 8, 9):
            torch._dynamo.maybe_mark_dynamic(x, 0)
            out.append(c(x))
        return out

    return before, after


@case("closure-as-tensor")
def _():
    def run(make):
        def scaled(number):
            return lambda x: x * number

        c = compiled(lambda op, x: op(x) + 1)
        return [c(scaled(make(number)), x) for number, x in zip((0.5, 1.5, 2.5), rows(4, 4, 4), strict=True)]

    return lambda: run(float), lambda: run(torch.tensor)


@case("compile-dynamic")
def _():
    def run(**options):
        def fn(x, k):
            return x * k

        c = compiled(fn, **options)
        return [c(x, n) for x, n in zip(rows(4, 8, 9), (3, 5, 7), strict=True)]

    return run, lambda: run(dynamic=True)


@case("drop-dynamic-false")
def _():
    def run(**options):
        def fn(x):
            return x * 2

        c = compiled(fn, **options)
        return [c(x) for x in rows(4, 8, 9, 10)]

    return lambda: run(dynamic=False), run


@case("parameter-shapes")
def _():
    def run():
        def fn(x, layer):
            return layer(x)

        c, x, out = compiled(fn), rows(2)[0], []
        for w in rows(4, 5, 6, 7):
            layer = nn.Linear(3, w.shape[0], bias=False)
            layer.weight.data.copy_(w)
            out.append(c(x, layer).detach())
        return out

    def after():
        with dynamo.config.patch(force_parameter_static_shapes=False, force_nn_module_property_static_shapes=False):
            return run()

    return run, after


@case("number-as-tensor")
def _():
    def run(wrap):
        def fn(x, scale):
            return x * scale

        c, x = compiled(fn), rows(4)[0]
        return [c(x, wrap(s)) for s in (1.0, 2.0, 3.0)]

    return lambda: run(float), lambda: run(torch.tensor)


@case("math-outside")
def _():
    def before():
        def fn(x, sigma):
            return x * math.log(sigma + 1.0)

        c, x = compiled(fn), rows(4)[0]
        return [c(x, sigma) for sigma in (1.0, 3.0, 7.0, 15.0)]

    def after():
        def fn(x, level):
            return x * level

        c, x = compiled(fn), rows(4)[0]
        return [c(x, torch.tensor(math.log(sigma + 1.0))) for sigma in (1.0, 3.0, 7.0, 15.0)]

    return before, after


@case("global-as-tensor")
def _():
    def run(wrap):
        def fn(x):
            return x * GLOBAL_SCALE

        global GLOBAL_SCALE
        c, x, out = compiled(fn), rows(4)[0], []
        for s in (2, 3, 4):
            GLOBAL_SCALE = wrap(s)
            out.append(c(x))
        return out

    return lambda: run(int), lambda: run(torch.tensor)


@case("flag-where")
def _():
    def before():
        def fn(x, flag):
            return x * 2 if flag else x + 1

        c, x = compiled(fn), rows(4)[0]
        return [c(x, True), c(x, False)]

    def after():
        def fn(x, flag):
            return torch.where(flag, x * 2, x + 1)

        c, x = compiled(fn), rows(4)[0]
        return [c(x, torch.tensor(True)), c(x, torch.tensor(False))]

    return before, after


@case("split-by-value")
def _():
    def before():
        def fn(x, mode):
            return x * 2 if mode == "a" else x + 1

        c, x = compiled(fn), rows(4)[0]
        return [c(x, mode) for mode in ("a", "b")]

    def after():
        def double(x):
            return x * 2

        def plus_one(x):
            return x + 1

        by_mode, x = {"a": compiled(double), "b": compiled(plus_one)}, rows(4)[0]
        return [by_mode[mode](x) for mode in ("a", "b")]

    return before, after


class Stepper(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def forward(self, x):
        return x * self.step * min(1.0, self.step / 4)


def run_stepper(first, advance):
    module = Stepper(first)
    c, x, out = compiled(module), rows(4)[0], []
    for _ in range(5):
        out.append(c(x))
        advance(module)
    return out


def plus_one(module):
    module.step = module.step + 1


@case("unspec-int-on-module")
def _():
    def after():
        with dynamo.config.patch(allow_unspec_int_on_nn_module=True):
            return run_stepper(2, plus_one)

    return lambda: run_stepper(2, plus_one), after


@case("hoist-function")
def _():
    def before():
        def fn(x, f):
            return f(x)

        c, x = compiled(fn), rows(4)[0]
        exec_scopes = [eval(compile("lambda t: t * 2", f"<made {i}>", "eval")) for i in range(3)]
        return [c(x, f) for f in exec_scopes]

    def after():
        def fn(x, f):
            return f(x)

        c, x = compiled(fn), rows(4)[0]
        f = lambda t: t * 2  # noqa: E731
        return [c(x, f) for _ in range(3)]

    return before, after


@case("closure-value-as-argument")
def _():
    def before():
        x, out = rows(4)[0], []

        def make(mode):
            def fn(x):
                return x * 2 if mode == "double" else x + len(mode)

            return compiled(fn)

        for mode in ("double", "b", "ccc"):
            out.append(make(mode)(x))
        return out

    def after():
        x = rows(4)[0]

        def double(x):
            return x * 2

        def plus(x, n):
            return x + n

        c, d = compiled(double), compiled(plus)
        return [c(x), d(x, torch.tensor(1)), d(x, torch.tensor(3))]

    return before, after


@case("one-backend-object")
def _():
    def run(backends):
        def fn(x):
            return x * 2

        x = rows(4)[0]
        return [torch.compile(fn, backend=backend)(x) for backend in backends]

    def fresh():
        def backend(gm, inputs):
            return gm

        return backend

    one = fresh()
    return lambda: run([fresh(), fresh(), fresh()]), lambda: run([one, one, one])


class _Scaled(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.factor, self.kind = number, "ab"[number % 2]

    def forward(self, x):
        return x * self.factor if self.kind == "a" else x + self.factor


@case("compile-parent")
def _():
    def net():
        return nn.Sequential(*(_Scaled(number) for number in range(1, 5)))

    def before():
        parts = net()
        for part in parts:
            part.compile(backend="eager")
        return [parts(rows(4)[0])]

    def after():
        return [compiled(net())(rows(4)[0])]

    return before, after


@case("count-outside")
def _():
    def run(inside):
        FEATURES.clear()
        FEATURES["calls"] = 0

        def fn(x):
            if inside:
                FEATURES["calls"] += 1
            return x * 2

        c, x, out = compiled(fn), rows(4)[0], []
        for _ in range(4):
            out.append(c(x))
            FEATURES["calls"] += not inside
        return [*out, torch.tensor(FEATURES["calls"])]

    return lambda: run(True), lambda: run(False)


@case("same-requires-grad")
def _():
    def run(change):
        def fn(x):
            return x * 2

        c, x = compiled(fn), rows(4)[0]
        return [c(x).detach(), c(change(x.clone().requires_grad_())).detach()]

    return lambda: run(lambda x: x), lambda: run(lambda x: x.detach())


@case("same-grad-mode")
def _():
    def run(context):
        def fn(x):
            return x * 2

        c, x = compiled(fn), rows(4)[0]
        with context():
            first = c(x)
        with torch.no_grad():
            return [first, c(x)]

    return lambda: run(contextlib.nullcontext), lambda: run(torch.no_grad)


@case("same-autocast")
def _():
    def run(inside):
        def fn(x):
            return x * 2

        c, x = compiled(fn), rows(4)[0]
        with torch.autocast("cpu", enabled=inside, dtype=torch.bfloat16):
            first = c(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return [first, c(x)]

    return lambda: run(False), lambda: run(True)


@case("state-before-compile")
def _():
    def run(early):
        def fn(x):
            return x * 2

        c, x = compiled(fn), rows(4)[0]
        try:
            torch.use_deterministic_algorithms(early)
            first = c(x)
            torch.use_deterministic_algorithms(True)
            return [first, c(x)]
        finally:
            torch.use_deterministic_algorithms(False)

    return lambda: run(False), lambda: run(True)


@case("same-function-mode")
def _():
    def run(early):
        def fn(x):
            return x * torch.ones(3)

        c, x = compiled(fn), rows(4)[0]
        with torch.device("cpu") if early else contextlib.nullcontext():
            first = c(x)
        with torch.device("cpu"):
            return [first, c(x)]

    return lambda: run(False), lambda: run(True)


@case("one-dtype")
def _():
    def run(cast):
        def fn(x):
            return x * 2

        c, x = compiled(fn), rows(4)[0]
        return [c(x).double(), c(cast(x.double())).double()]

    return lambda: run(lambda x: x), lambda: run(lambda x: x.float())


@case("one-device")
def _():
    def run(move):
        def fn(x):
            return x * 2

        c, x = compiled(fn), rows(4)[0]
        return [c(x), torch.zeros_like(c(move(x.to("meta"))), device="cpu")]

    return lambda: run(lambda x: x), lambda: run(lambda x: torch.zeros_like(x, device="cpu"))


@case("contiguous")
def _():
    def run(fix):
        def fn(x):
            return x * 2

        c, x = compiled(fn), torch.arange(16.0).reshape(4, 4)
        return [c(x), c(fix(x.t()))]

    return lambda: run(lambda x: x), lambda: run(lambda x: x.contiguous())


@case("one-rank")
def _():
    def run(fix):
        def fn(x):
            return x * 2

        c, x = compiled(fn), rows(4)[0]
        return [c(x), c(fix(x.reshape(12))).reshape(12)]

    return lambda: run(lambda x: x), lambda: run(lambda x: x.reshape(4, 3))


@case("stack-list")
def _():
    def before():
        def fn(xs):
            return torch.stack(xs).sum(0)

        c = compiled(fn)
        return [c([x.clone() for x in rows(4) * n]) for n in (2, 3, 4)]

    def after():
        def fn(xs):
            return xs.sum(0)

        c, out = compiled(fn), []
        for n in (2, 3, 4):
            stacked = torch.stack(rows(4) * n)
            torch._dynamo.maybe_mark_dynamic(stacked, 0)
            out.append(c(stacked))
        return out

    return before, after


@case("pass-items")
def _():
    def before():
        def fn(xs):
            return xs[0] + 1

        c = compiled(fn)
        return [c(rows(4) * n) for n in (1, 2, 3, 4)]

    def after():
        def fn(first):
            return first + 1

        c = compiled(fn)
        return [c((rows(4) * n)[0]) for n in (1, 2, 3, 4)]

    return before, after


@case("float-in-buffer")
def _():
    class Number(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = 0.0

        def forward(self, x):
            self.t += 0.5
            return x * self.t

    class Buffer(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("t", torch.tensor(0.0), persistent=False)

        forward = Number.forward

    def run(make):
        c = torch.compile(make(), backend="aot_eager")  # "eager" lets a float become a symbol
        return [c(rows(4)[0]) for _ in range(5)]

    return lambda: run(Number), lambda: run(Buffer)


@case("append-outside")
def _():
    def before():
        KEPT.clear()

        def fn(x):
            KEPT.append(x * 2)
            return x + 1

        c, x = compiled(fn), rows(4)[0]
        return [c(x) for _ in range(4)] + list(KEPT)

    def after():
        KEPT.clear()

        def fn(x):
            return x + 1, x * 2

        c, x, out = compiled(fn), rows(4)[0], []
        for _ in range(4):
            y, kept = c(x)
            out.append(y)
            KEPT.append(kept)
        return out + list(KEPT)

    return before, after


@case("fill-before")
def _():
    def run(**entries):
        FEATURES.clear()
        FEATURES.update(entries)

        def fn(x):
            FEATURES["low"] = x * 2
            return x + 1

        c, x = compiled(fn), rows(4)[0]
        return [c(x) for _ in range(4)] + [FEATURES["low"]]

    return run, lambda: run(low=torch.zeros(1))


@case("drop-last")
def _():
    def run(**options):
        def fn(x):
            return x * 2

        c = compiled(fn)
        loader = torch.utils.data.DataLoader(torch.arange(30.0).reshape(10, 3), batch_size=4, **options)
        return [c(x) for _ in range(2) for x in loader][:2]

    return run, lambda: run(drop_last=True)


@case("same-arguments")
def _():
    def run(*calls):
        def fn(x, **kwargs):
            return x * sum(kwargs.values())

        c, x = compiled(fn), rows(4)[0]
        return [c(x, **arguments) for arguments in calls]

    both = {"scale": 1, "shift": 0}
    return lambda: run({"scale": 1}, both), lambda: run(both, both)


@case("one-key-order")
def _():
    def run(put_in_order):
        def fn(by_name):
            return torch.cat(list(by_name.values()))

        c, (x, y) = compiled(fn), rows(4, 4)
        return [c(put_in_order(given)).sum() for given in ({"a": x, "b": y}, {"b": y, "a": x})]

    return lambda: run(dict), lambda: run(lambda given: {name: given[name] for name in sorted(given)})


@case("fixed-keys")
def _():
    def before():
        def fn(d):
            return d["a"] + d["bias"] if "bias" in d else d["a"] * 1

        c, x = compiled(fn), rows(4)[0]
        return [c({"a": x}), c({"a": x, "bias": x.clone()})]

    def after():
        def fn(d):
            return d["a"] + d["bias"]

        c, x = compiled(fn), rows(4)[0]
        return [c({"a": x, "bias": torch.zeros_like(x)}), c({"a": x, "bias": x.clone()})]

    return before, after


@case("always-a-tensor")
def _():
    def run(absent):
        def fn(x, mask):
            return x * 1 if mask is None else x * mask

        c, x = compiled(fn), rows(4)[0]
        return [c(x, absent(x)), c(x, torch.full_like(x, 2.0))]

    return lambda: run(lambda x: None), lambda: run(torch.ones_like)


class Cached(nn.Module):
    def __init__(self, cache):
        super().__init__()
        self.cache = cache

    def forward(self, x):
        if self.cache is None:
            self.cache = torch.zeros(4, 3)
        return x + self.cache


@case("initialise-attribute")
def _():
    def run(cache):
        c, x = compiled(Cached(cache)), rows(4)[0]
        return [c(x), c(x), c(x)]

    return lambda: run(None), lambda: run(torch.zeros(4, 3))


@case("one-type")
def _():
    def run(convert):
        def fn(x, dims):
            return x.sum(dims)

        c, x = compiled(fn), rows(4)[0]
        return [c(x, convert([0])), c(x, convert((0,)))]

    return lambda: run(lambda d: d), lambda: run(tuple)


@case("set-attribute-always")
def _():
    class Plain:
        pass

    def run(always):
        def fn(x, o):
            return x + o.bias if hasattr(o, "bias") else x * 1

        c, x = compiled(fn), rows(4)[0]
        one, two = Plain(), Plain()
        one.bias = torch.ones(3)
        if always:
            two.bias = torch.zeros(3)
        return [c(x, one), c(x, two)]

    return lambda: run(False), lambda: run(True)


@case("no-aliased-arguments")
def _():
    def run(second):
        def fn(x, y):
            return x + y

        c, x = compiled(fn), rows(4)[0]
        return [c(x, x.clone()), c(x, second(x))]

    return lambda: run(lambda x: x), lambda: run(lambda x: x.clone())


@case("mark-before-first-call")
def _():
    def run(early):
        def fn(x):
            return x * 2

        c, out = compiled(fn), []
        for i, x in enumerate(rows(4, 4, 4)):
            if early or i:
                torch._dynamo.mark_dynamic(x, 0)
            out.append(c(x))
        return out

    return lambda: run(False), lambda: run(True)


@case("avoid-size-one")
def _():
    def run(pad):
        def fn(x):
            return x * 2

        c = compiled(fn, dynamic=True)
        return [c(pad(x))[: len(x)] for x in rows(4, 8, 1)]

    return lambda: run(lambda x: x), lambda: run(lambda x: torch.cat([x, torch.zeros(1, 3)]))


@case("branch-outside")
def _():
    def before():
        def fn(x):
            return x * 2 if x.shape[0] > 6 else x + 1

        c = compiled(fn, dynamic=True)
        return [c(x) for x in rows(4, 8, 9)]

    def after():
        def small(x):
            return x + 1

        def large(x):
            return x * 2

        c, d = compiled(small, dynamic=True), compiled(large, dynamic=True)
        return [(d if x.shape[0] > 6 else c)(x) for x in rows(4, 8, 9)]

    return before, after


@case("no-duck-shape")
def _():
    def run():
        def fn(x, y):
            return x.sum() + y.sum()

        c = compiled(fn, dynamic=True)
        return [c(x, y) for x, y in zip(rows(4, 6), rows(4, 7), strict=True)]

    def after():
        import torch.fx.experimental._config as shapes

        with shapes.patch(use_duck_shape=False):
            return run()

    return run, after


@dataclasses.dataclass
class Settings:
    scale: float = 1.0


@case("attribute-as-tensor")
def _():
    def run(wrap):
        def fn(x, settings):
            return x * settings.scale

        c, x = compiled(fn), rows(4)[0]
        return [c(x, Settings(wrap(s))) for s in (1.0, 2.0, 3.0)]

    return lambda: run(float), lambda: run(torch.tensor)


@case("lr-as-tensor")
def _():
    def run(wrap):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=wrap(0.5))
        step = compiled(optimizer.step)
        out = []
        for lr in (0.5, 0.25, 0.125):
            optimizer.param_groups[0]["lr"] = wrap(lr)
            weight.grad = torch.ones(3)
            step()
            out.append(weight.detach().clone())
        return out

    return lambda: run(float), lambda: run(torch.tensor)


@case("constant-momentum")
def _():
    def run(*momenta):
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.AdamW([weight], lr=torch.tensor(0.5), betas=(momenta[0], 0.999), weight_decay=0.0)
        step = torch.compile(optimizer.step, backend="aot_eager")
        out = []
        for momentum in momenta:
            optimizer.param_groups[0]["betas"] = (momentum, 0.999)
            weight.grad = torch.zeros(3)  # results depend on the momentum else
            step()
            out.append(weight.detach().clone())
        return out

    return lambda: run(0.9, 0.8, 0.7, 0.6), lambda: run(0.9, 0.9, 0.9, 0.9)


@case("raise-limit")
def _():
    def run():
        def fn(x, mode):
            return x + len(mode)

        c, x = compiled(fn), rows(4)[0]
        return [c(x, "m" * n) for n in range(1, 12)]

    def after():
        with dynamo.config.patch(recompile_limit=16):
            return run()

    return run, after


@case("offset-clone")
def _():
    def run(fix):
        def fn(x):
            return x + x.storage_offset()

        c, base = compiled(fn), torch.arange(10.0)
        return [c(base[0:4]) * 0, c(fix(base[2:6])) * 0]

    return lambda: run(lambda x: x), lambda: run(lambda x: x.clone())


@case("keep-object-alive")
def _():
    def run(keep):
        def fn(x, kind):
            return x * 2 if kind is not None else x + 1

        c, x, out = compiled(fn), rows(4)[0], []
        kind = type("Kind0", (), {})
        for i in range(3):
            out.append(c(x, kind))
            if not keep:
                kind = None
                gc.collect()
                kind = type(f"Kind{i}", (), {})
        return out

    return lambda: run(False), lambda: run(True)


@case("same-inference-mode")
def _():
    def run(context):
        def fn(x):
            return x * 2

        c = compiled(fn)
        with context():
            x = rows(4)[0]
        with torch.inference_mode():
            y = rows(4)[0]
        with torch.no_grad():
            return [c(x), c(y)]

    return lambda: run(contextlib.nullcontext), lambda: run(torch.inference_mode)


@case("bounded-versions")
def _():
    def run(times):
        module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))
        with torch.no_grad():
            module[0].weight.fill_(1.0)
            module[0].bias.fill_(0.0)
        c, x, out = compiled(module), rows(4)[0], []
        for i in range(times):
            c.train(i % 2 == 0)
            out.append(c(x).detach())
        return out[:2]

    return lambda: run(2), lambda: run(6)


def collect(side):
    found = {"recompiles": [], "names": [], "sources": {}, "error": None}
    original = torch._dynamo.convert_frame.get_and_maybe_log_recompilation_reasons

    def listening(entries, frame, *args, **kwargs):
        reasons = original(entries, frame, *args, **kwargs)
        found["recompiles"].append(reasons)
        code = frame.f_code
        found["names"].append(code.co_name)
        found["sources"][code.co_name] = (code.co_filename, code.co_firstlineno, stacks.function_at(code.co_filename, code.co_firstlineno))
        return reasons

    torch._dynamo.reset()
    torch._dynamo.convert_frame.get_and_maybe_log_recompilation_reasons = listening
    try:
        found["result"] = side()
    except Exception as error:
        found["error"] = f"{type(error).__name__}: {error}"
    finally:
        torch._dynamo.convert_frame.get_and_maybe_log_recompilation_reasons = original
    return found


def same(one, other):
    return (
        one is not None and other is not None and len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    )


def main(names):
    torch.set_num_threads(1)
    check_guards_untimed()
    report = {}
    for name, make in CASES.items():
        if names and name not in names:
            continue
        before, after = (collect(side) for side in make())
        equal = same(before.pop("result", None), after.pop("result", None))
        report[name] = {"before": before, "after": after, "equal": equal}
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1:])
