"""`explain --parity` on planted faults and on correct programs: what it finds, what it leaves alone, and that nothing else changes."""

import json
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dynadiag
from dynadiag.passes.find_mutations import find_mutations
from dynadiag.passes.find_parity import find_parity
from dynadiag.trace import load
from tests.corpus.planted_faults import backends


@pytest.fixture
def compared(tmp_path):
    """Runs a function under `observe(parity_calls=3)` and gives the run."""

    def run(program, **options):
        torch._dynamo.reset()
        torch.manual_seed(0)
        with dynadiag.observe(tmp_path / "run", parity_calls=3, **options):
            program()
        found = load(tmp_path / "run")
        assert [problem.text for problem in found.problems if problem.kind == "recorder"] == []
        return found

    return run


def backend(change):
    """A back end that calls the graph, and then does `change(outputs, inputs)` instead of giving its outputs."""
    return lambda module, _: lambda *inputs: change(list(module(*inputs)), inputs)


def findings(run):
    return [(one.code, one.where.code) for one in find_parity(run).findings]


def double(x):
    return x * 2


def flat(x):
    return x.view(-1)


def bump(x):
    x.add_(1)
    return x * 2


PLANTED = {
    "stride": (double, lambda outputs, _: [one.t().contiguous().t() for one in outputs], "DM42", "return x * 2"),
    "dtype": (double, lambda outputs, _: [one.double() for one in outputs], "DM42", "return x * 2"),
    "no gradient": (double, lambda outputs, _: [one.detach() for one in outputs], "DM42", "return x * 2"),
    "a copy": (flat, lambda outputs, _: [one.clone() for one in outputs], "DM43", "return x.view(-1)"),
    "an alias": (double, lambda _, inputs: [inputs[0].mul_(2)], "DM40", "def double(x):"),
    "one element": (
        double,
        lambda outputs, _: [one.index_put((torch.tensor(1),), torch.tensor(9.0)) for one in outputs],
        "DM41",
        "return x * 2",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found_on_its_line(compared, planted):
    function, change, code, line = PLANTED[planted]
    grad = planted == "no gradient"
    run = compared(lambda: torch.compile(function, backend=backend(change))(torch.ones(3, 4, requires_grad=grad)))
    found = findings(run)
    assert code in [one for one, _ in found]
    if code != "DM40":
        assert (code, line) in found


def test_a_lost_write_is_found_with_input_and_line(compared):
    def lose(module, _):
        return lambda *inputs: module(*[one.clone() for one in inputs])

    run = compared(lambda: torch.compile(bump, backend=lose)(torch.ones(4)))
    assert findings(run) == [("DM40", "x.add_(1)")]
    (mutation,) = [one for one in find_mutations(run).mutations if one.worst == "silent_wrong"]
    assert (mutation.input, mutation.effects[0]["basis"], mutation.sites[0]["code"]) == ("L['x']", "observed", "x.add_(1)")


@pytest.mark.parametrize(("fault", "codes"), [("one_by_one", set()), ("means_off", {"DM40"})])
def test_a_mean_that_is_rounding_may_be_added_up_in_another_order(compared, fault, codes):
    """MobileNet-v2 was called wrong: the mean of what is centred already is nothing but rounding (Inductor on a CPU, torch 2.11)."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 48, 1, bias=False), nn.BatchNorm2d(48))
    x = torch.randn(2, 4, 32, 32)
    run = compared(lambda: torch.compile(net, backend=getattr(backends, fault))(x))
    assert {one.code for one in find_parity(run).findings} == codes


def test_what_eager_refuses_and_compiled_code_writes(compared):
    """pytorch#126474: functionalization drops the check for overlapping memory."""

    def shift(x, y):
        torch.addcmul(x[:-1], y, y, out=x[1:])
        return x

    run = compared(lambda: torch.compile(shift, backend="aot_eager")(torch.ones(5), torch.ones(4)))
    (finding,) = find_parity(run).findings
    assert (finding.code, finding.where.code) == ("DM47", "torch.addcmul(x[:-1], y, y, out=x[1:])")
    assert "single memory location" in finding.why
    assert finding.why.endswith("the compiled call returned and wrote x.")


def test_a_back_end_that_fails_like_eager_is_not_told(compared):
    def read(x, at):
        return x[at]

    def program():
        with pytest.raises(IndexError):
            torch.compile(read, backend="aot_eager")(torch.ones(4), torch.tensor([7]))

    run = compared(program)
    assert find_parity(run).findings == ()
    assert "eager and the compiled call raised" in find_parity(run).parity.not_compared[0].why


def test_an_overlap_that_appears_on_a_later_call(compared):
    def write(x, y):
        x.mul_(2)
        return x + y

    def program():
        compiled = torch.compile(write, backend="aot_eager")
        for _ in range(5):
            compiled(torch.ones(4), torch.ones(4))
        base = torch.ones(8)
        compiled(base[:4], base[2:6])

    run = compared(program)
    assert findings(run) == [("DM40", "x.mul_(2)")]
    (different,) = find_parity(run).parity.different
    assert (different.call, different.shared) == (6, (("L['x']", "L['y']", "overlap"),))
    assert find_parity(run).parity.calls_equal == 3


@torch.library.custom_op("shadowlive::silent_bump", mutates_args=())
def silent_bump(x: torch.Tensor) -> None:
    x.add_(1)


@silent_bump.register_fake
def _(x):
    return None


def test_a_write_that_an_operator_does_not_declare_and_that_is_all_it_does(compared):
    """The commonest lie: compiled code leaves the call out (x stays as it was), since it seems to do nothing."""

    def fn(x):
        silent_bump(x)
        return x * 2

    run = compared(lambda: torch.compile(fn, backend="aot_eager")(torch.ones(4)))
    (finding,) = find_parity(run).findings
    assert (finding.code, finding.where.code) == ("DM40", "silent_bump(x)")
    assert finding.fix[0].slug == "declare-the-write"


def test_the_mean_of_a_batch_norm_that_a_back_end_spoils_is_not_blamed_on_torchs_schema(compared):
    """The schema of `native_batch_norm` does not say that it writes its means: nobody can mend that in his program."""
    norm = nn.BatchNorm1d(8)

    def spoiled(outputs, inputs):
        norm.running_mean.add_(0.5)
        return outputs

    run = compared(lambda: torch.compile(norm, backend=backend(spoiled))(torch.randn(16, 8)))
    (finding,) = find_parity(run).findings
    assert finding.code == "DM40"
    assert "declare-the-write" not in [advice.slug for advice in finding.fix]
    assert "without declaring it" not in finding.why


def test_an_operator_that_returns_its_argument(compared):
    library = torch.library.Library("shadowlive", "FRAGMENT")
    library.define("ident(Tensor x) -> Tensor")
    library.impl("ident", lambda x: x, "CompositeExplicitAutograd")
    torch.library.register_fake("shadowlive::ident", lambda x: torch.empty_like(x), lib=library)

    def fn(x):
        y = torch.ops.shadowlive.ident(x)
        y.add_(1)
        return y + x

    run = compared(lambda: torch.compile(fn, backend="aot_eager")(torch.ones(4)))
    assert findings(run) == [("DM40", "y.add_(1)")]
    assert {one.input for one in find_mutations(run).mutations if one.worst == "silent_wrong"} == {"L['x']"}


def test_a_call_that_only_raises_compiled(compared):
    def refuse(outputs, inputs):
        raise ValueError("broken kernel")

    def program():
        with pytest.raises(ValueError, match="broken kernel"):
            torch.compile(double, backend=backend(refuse))(torch.ones(4))

    run = compared(program)
    assert [one.code for one in find_parity(run).findings] == ["DM44"]


def test_an_operator_with_effects_outside_is_not_called_twice(compared):
    calls = []

    @torch.library.custom_op("shadowlive::count", mutates_args=())
    def count(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    count.register_fake(lambda x: torch.empty_like(x))
    run = compared(lambda: torch.compile(lambda x: count(x) + 1, backend="eager")(torch.ones(4)))
    assert len(calls) == 1
    (reason,) = find_parity(run).parity.not_compared
    assert "shadowlive::count uses calls, which it may change" in reason.why


def test_operators_of_a_library(compared):
    """What `lib.impl` registers is known by its code too: a hidden write is found, and what counts its calls is not called twice."""
    calls = []
    note = calls.append
    library = torch.library.Library("shadowlib", "FRAGMENT")

    def bumped(x):
        torch.ops.shadowlib.bump(x)
        return x * 2

    def program():
        library.define("bump(Tensor x) -> ()")
        library.impl("bump", lambda x: (x.add_(1), None)[1], "CompositeExplicitAutograd")
        library.define("count(Tensor x) -> Tensor")
        library.impl("count", lambda x: (note(1), x * 2)[1], "CompositeExplicitAutograd")
        torch.library.register_fake("shadowlib::count", lambda x: torch.empty_like(x), lib=library)
        torch.compile(bumped, backend="aot_eager")(torch.ones(4))
        torch.compile(lambda x: torch.ops.shadowlib.count(x) + 1, backend="aot_eager")(torch.ones(4))

    run = compared(program)
    assert findings(run) == [("DM40", "torch.ops.shadowlib.bump(x)")]
    assert len(calls) == 1
    (reason,) = find_parity(run).parity.not_compared
    assert "shadowlib::count uses note, which may change a list" in reason.why


def test_hooks_on_saved_tensors_do_not_see_the_shadow(compared):
    packed = []

    def program():
        compiled = torch.compile(lambda x: x.sin().cos(), backend="eager")
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: packed.append(1) or tensor, lambda tensor: tensor):
            compiled(torch.ones(4, requires_grad=True)).sum().backward()

    run = compared(program)
    assert find_parity(run).parity.calls_equal == 1
    seen = len(packed)
    packed.clear()
    torch._dynamo.reset()
    program()
    assert len(packed) == seen


@pytest.mark.parametrize("kind", ["profiler", "negated", "resized", "subclass", "sparse"])
def test_what_cannot_be_repeated_says_why(compared, kind):
    class Mine(torch.Tensor):
        pass

    inputs = {
        "negated": lambda: torch.imag(torch.conj(torch.ones(3, dtype=torch.complex64))),
        "subclass": lambda: torch.ones(3).as_subclass(Mine),
        "sparse": lambda: torch.eye(3).to_sparse(),
    }

    def program():
        x = inputs.get(kind, lambda: torch.ones(3))()
        compiled = torch.compile(lambda x: x + x, backend="eager")
        if kind == "profiler":
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                compiled(x)
        elif kind == "resized":
            x.untyped_storage().resize_(0)
            torch.compile(lambda x: (x.shape[0], x.new_ones(2)), backend="eager")(x)
        else:
            compiled(x)

    words = {"profiler": "a profiler is running", "subclass": "Mine"}
    told = find_parity(compared(program)).parity
    assert [words.get(kind, "cannot be copied") in one.why for one in told.not_compared] == [True] * len(told.not_compared)
    assert told.calls_different == 0
    assert told.not_compared or kind in ("sparse", "subclass")


def test_copies_over_the_cap_are_not_made(compared):
    run = compared(lambda: torch.compile(double, backend="eager")(torch.ones(1000)), parity_cap_bytes=10_000)
    (reason,) = find_parity(run).parity.not_compared
    assert reason.why == "copies of its inputs need 12000 bytes, the limit is 10000"
    assert findings(run) == []


def correct_programs():
    """Programs without a fault: random numbers, in-place writes, views, statistics, autocast, sizes that change, optimizers."""
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.4), nn.Flatten(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled = torch.compile(net, backend="aot_eager")
    for _ in range(2):
        optimizer.zero_grad()
        compiled(torch.randn(2, 1, 6, 6)).square().mean().backward()
        optimizer.step()

    def views(x, index):
        row = x.view(2, -1)[0]
        row.add_(1)
        x[index] = 3
        out = torch.empty_like(x)
        out.copy_(x)
        return row, x.t(), out, torch.empty(3), x.argmax(), x.sum() - x.sum(), torch.rand(2)

    compiled = torch.compile(views, backend="aot_eager")
    for _ in range(2):
        compiled(torch.randn(4, 4), torch.tensor([1]))

    def cast(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.softmax(x @ w, -1).float().sum()

    torch.compile(cast, backend="aot_eager")(torch.randn(8, 32), torch.randn(32, 8))
    grown = torch.compile(lambda x: (x.cumsum(0), x.shape[0] * 2), dynamic=True, backend="aot_eager")
    for size in (3, 5):
        grown(torch.randn(size, 2))
    shared = torch.compile(lambda a, b: (a.add_(b), a * b), backend="aot_eager")
    base = torch.randn(9)
    shared(torch.ones(4), torch.ones(4))
    shared(base[:4], base[5:])
    history = torch.compile(lambda x: x.mul_(2).sum(), backend="aot_eager")
    history(torch.randn(4, requires_grad=True) * 1).backward()
    with torch.inference_mode():
        torch.compile(bump, backend="aot_eager")(torch.ones(4))
    each = torch.func.vmap(torch.func.grad(lambda a, b: (a * b).sin().sum()), (0, None))
    torch.compile(lambda x, w: each(x, w), backend="aot_eager")(torch.randn(4, 6), torch.randn(6))


def test_correct_programs_have_no_finding(compared):
    run = compared(correct_programs)
    result = find_parity(run)
    assert result.findings == ()
    assert result.parity.calls_equal >= 12
    assert result.parity.not_compared == ()
    assert result.parity.random_values == 0  # each draws the same numbers as in eager


def test_statistics_of_what_was_drawn_are_no_wrong_values(compared):
    """torch's batch norm moves no version counter of its means; a back end may draw other random numbers (inductor does)."""

    def draws_otherwise(module, _):
        def call(*inputs):
            torch.rand(3)
            return module(*inputs)

        return call

    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU())
    step = torch.compile(net, backend=draws_otherwise)
    result = find_parity(compared(lambda: [step(torch.randn(8, 4)) for _ in range(3)]))
    assert [one.title for one in result.findings] == []
    assert result.parity.random_values == 3  # the output, and the two buffers of the second norm


SCRIPT = """
    import torch, json, sys
    from torch._dynamo.utils import counters
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4))
    step = torch.compile(net, backend="aot_eager")
    @torch.compile(backend="aot_eager")
    def write(x, y):
        x.mul_(2)
        y = y + torch.rand(4)
        torch._dynamo.graph_break()
        return x + y
    @torch.compile(backend="aot_eager")
    def release(x):
        y = x * 2
        torch._dynamo.graph_break()
        z = y.detach() + 1
        del y
        torch._dynamo.graph_break()
        return z * 3
    for number in range(5):
        print(release(torch.ones(4, requires_grad=True)).tolist())
        loss = step(torch.randn(8, 4)).square().sum()
        loss.backward()
        print(loss.item().hex(), write(torch.ones(4), torch.full((4,), float(number))).tolist())
    print([p.grad.sum().item().hex() for p in net.parameters()], net[2].running_mean.tolist(), torch.rand(3).tolist())
    print(json.dumps({name: dict(counters[name]) for name in ("frames", "stats", "graph_break")}))
    print(torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled())
    sys.exit(7)
"""


def test_results_counters_and_exit_status_stay_as_they_are(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    plain = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    command = [
        sys.executable,
        "-m",
        "dynadiag",
        "explain",
        "--parity",
        "--no-probe",
        "--no-pictures",
        "--out",
        str(tmp_path / "run"),
        str(script),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert plain.returncode == done.returncode == 7, done.stderr
    assert done.stdout == plain.stdout
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["parity"]["calls_equal"] + report["parity"]["calls_different"] >= 9
    assert "Parity: " in done.stderr
    assert "Parity: " in (tmp_path / "run" / "report.md").read_text()


@torch.library.custom_op("shadowlive::scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    x.mul_(by)
    return x.clone()


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


def halved(batch):
    return torch.ops.shadowlive.scaled(batch, 0.5) + 1


def test_a_write_that_nobody_declared_is_told_where_it_was_seen(compared):
    """Nothing is wrong yet: torch calls the operator once, where eager calls it. It may as well not."""
    run = compared(lambda: torch.compile(halved, backend="aot_eager")(torch.ones(4)))
    assert findings(run) == []
    found = find_mutations(run)
    (mutation,) = found.mutations
    assert (mutation.code, mutation.input, mutation.worst) == ("DM24", "L['batch']", None)
    assert (mutation.sites[0]["code"], mutation.sites[0]["op"]) == ("return torch.ops.shadowlive.scaled(batch, 0.5) + 1", "scaled")
    assert [(one.code, one.severity) for one in found.findings] == [("DM24", "warning")]
    assert "mutates_args" in found.findings[0].fix[0].text


def test_what_an_operator_leaves_alone_is_no_write(compared):
    run = compared(lambda: torch.compile(lambda x: torch.ops.shadowlive.scaled(x * 2, 0.5), backend="aot_eager")(torch.ones(4)))
    assert [one.code for one in find_mutations(run).mutations] == []
