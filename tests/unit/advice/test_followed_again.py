"""More advice that failed when somebody followed it to the letter: each of these made a program worse, or changed nothing."""

import pytest

from dynadiag.advice.graph_breaks import break_advice
from dynadiag.model.run import CompileKey, Frame, Graph, Location, Process, Run, RunInfo
from tests.unit.advice.test_followed_literally import FILE, OPTIONS, advice, broken, frame

LIBRARY = "/usr/lib/python3.12/site-packages/somelib/model.py"
MODULE = "/usr/lib/python3.12/site-packages/torch/nn/modules/module.py"


def advised(stack, gb_id="GB0170", *, block="", name="f", others=(), frames=None, graphs=(), context="", hints=()):
    """The advice for a break with this stack, in a frame that has this name."""
    own = next(one for one in reversed(stack) if one.file == FILE)
    first = broken(gb_id, stack, context)
    first = type(first)(**{**{key: getattr(first, key) for key in first.__slots__}, "hints": hints})
    run = Run(
        info=RunInfo(),
        processes=(Process(index=0, log="a.log", torch="2.15.0", option_names=OPTIONS),),
        frames=frames
        or (Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name=name, file=FILE, line=1, outcome="broke"), frame("f1", FILE)),
        graphs=graphs,
        blocks={(FILE, own.line): block or own.code},
        breaks=(first, *(broken(other, (Location(FILE, 90, "f", code),), frame="f1") for other, code in others)),
    )
    return {one.slug: one for one in break_advice(first, run)}


def line(code, number=3, function="f"):
    return Location(FILE, number, function, code)


@pytest.mark.parametrize(
    ("condition", "check"),
    [
        ("not math.isfinite(loss.item())", "torch.isfinite(loss)"),
        ("math.isnan(loss.item())", "torch.logical_not(torch.isnan(loss))"),
        ("math.isnan(float(loss))", "torch.logical_not(torch.isnan(loss))"),
        ("math.exp(-loss.item()) < 0.1", "torch.logical_not(torch.exp(-loss) < 0.1)"),
    ],
)
def test_a_check_with_a_function_of_math_is_written_with_torch(condition, check):
    """`torch._assert_async(math.isfinite(loss))` raised a TypeError: `math` gives no tensor."""
    found = advice("GB0124", f'if {condition}:\n    raise RuntimeError("no")')
    assert found["if-check"].after == f'torch._assert_async({check}, "no")'


@pytest.mark.parametrize(
    "condition", ["far(loss.item())", "np.isclose(loss.item(), 0)", "math.gcd(n.item(), 2) > 1", "len(str(x.item())) > 3"]
)
def test_a_condition_that_a_python_function_decides_is_no_tensor(condition):
    found = advice("GB0124", f'if {condition}:\n    raise RuntimeError("no")')
    assert all(one.after is None or "torch._dynamo.config" in one.after for one in found.values())


@pytest.mark.parametrize(
    "block",
    [
        "by = drawn.item()\nreturn torch.roll(wave, by, dims=-1)",
        "width = drawn.item()\nfirst = low + 1\nspec[..., first:first + width] = 0.0",
        "width = drawn.item()\nfirst = int(torch.rand(()) * (size - width))\nreturn x[first]",
        "k = drawn.item()\nreturn x.topk(k)",
        "rows = drawn.item()\nreturn torch.split(x, rows)",
        "rows = drawn.item()\nreturn x.view(rows * heads, -1)",
        "many = drawn.item()\nreturn x.expand(many, 3)",
    ],
)
def test_a_number_that_torch_needs_as_a_number_is_kept_one(block):
    """The tensor in its place is read again by the slice or by `torch.roll`: the break moved on by a line."""
    assert "item-keep-tensor" not in advice("GB0124", block)


def test_a_number_that_only_computes_may_still_become_a_tensor():
    for block in ("s = x.max().item()\nreturn torch.mul(x, s)", "s = x.max().item()\nreturn x.clamp(max=s * other)"):
        assert "item-keep-tensor" in advice("GB0124", block)


def test_a_call_moves_behind_the_compiled_call_only_if_nothing_reads_what_it_writes():
    """A running mean was updated after the call, and the next line had normalised with the old one: other results."""
    found = advice("GB0007", "self.store.put(key, value)", context="module: store, qualname: Store.put, skip reason: a")
    assert "nothing behind it in the function reads what it changes" in found["call-outside"].text


def test_an_operator_of_torch_is_neither_left_out_nor_wrapped():
    """`Tensor.lerp_` with a number that a break made: to leave it out changes the results, to wrap it is work for nothing."""
    context = "module: <unknown module>, qualname: Tensor.lerp_, skip reason: <missing reason>"
    found = advice("GB0007", "self.mean.lerp_(new, 1.0 / n)", context=context)
    assert not {"call-guard", "call-custom-op"} & set(found)


def test_a_hook_keeps_what_it_would_return():
    """What a forward hook returns takes the place of the module's output: the next layer got a tensor of one bool."""
    stack = (
        line("out = model(x)", 9, "step"),
        Location(MODULE, 1854, "inner", "hook_result = hook(self, args, result)"),
        line("if torch.isnan(t).any():", 3, "hook"),
    )
    found = advised(stack, block="if torch.isnan(t).any():\n    warn(name)")["if-outside"].text
    assert "return the tensor" not in found
    assert "keep the tensor in an object of yours" in found
    assert "return the tensor" in advised(stack[2:], block="if torch.isnan(t).any():\n    warn(name)")["if-outside"].text


HINTS = ("Try again", "Enable tracing of data-dependent output operators with `torch._dynamo.config.capture_scalar_outputs = True`")


def test_torchs_hint_does_not_ask_for_an_option_that_our_rule_left_out():
    """`confusion[t, p] += 1` with `capture_scalar_outputs`: PendingUnbackedSymbolNotFound."""
    found = advised((line("self.confusion[t, p] += 1"),), "GB0033", hints=HINTS)
    assert not any("capture_scalar_outputs" in f"{one.text}{one.after}" for one in found.values())
    unknown = advised((line("work(x)"),), "GB9999", hints=HINTS)
    assert any("capture_scalar_outputs" in one.text for one in unknown.values())


def test_an_option_says_which_other_line_it_can_end_the_program_at():
    """The same option asked for by `int(lengths.max())` ended the program at the line that reads a number inside an operator."""
    asked = (line("longest = int(lengths.max())"),)
    found = advised(asked, "GB0124", others=(("GB0033", "self.confusion[t, p] += 1"),))["item-capture"].text
    assert "first change `self.confusion[t, p] += 1`, at which torch can raise an error with this option" in found
    assert "first change" not in advised(asked, "GB0124", others=(("GB0033", "n = x.sum().item()"),))["item-capture"].text
    assert "first change" not in advised(asked, "GB0124", others=(("GB0124", "self.confusion[t, p] += 1"),))["item-capture"].text


def test_the_line_that_holds_the_compiled_work_is_not_moved_out():
    """`out = self.model(ids)` before the compiled function: nothing of the model was compiled any more."""
    call = line("out = self.model(ids)")
    below = Location(LIBRARY, 332, "<dictcomp>", "keys = {")
    inner = Frame(
        id="f1",
        key=CompileKey(0, 0, 1, 0),
        attempts=1,
        name="forward",
        file=LIBRARY,
        line=1,
        outcome="compiled",
        stack=(call,),
        callers=(call,),
    )
    outer = frame("f0", FILE)
    graph = Graph(id="g0", kind="dynamo", frame="f1", attempt=0, nodes=9, ops={}, text=None)
    found = advised((call, below), "GB9493", frames=(outer, inner), graphs=(graph,))
    assert "before or after the compiled function" not in found["library-line"].text
    assert "most of the work that is compiled" in found["library-line"].text
    assert "before or after the compiled function" in advised((call, below), "GB9493")["library-line"].text


def test_both_sides_in_one_graph_is_not_advised_where_the_choice_is_written_out():
    """`torch.cond` ends the program where two of its tensors share memory (`lo, hi = torch.quantile(...)`)."""
    found = advice("GB0170", "if many:\n    x = torch.minimum(torch.maximum(x, lo), hi)")
    assert list(found) == ["if-where"]


def test_a_gradient_of_a_gradient_stays_eager():
    """AOTAutograd has no second backward: the compiled forward ended the program at `loss.backward()`."""
    found = advice("GB9186", "(grad,) = torch.autograd.grad(score.sum(), mix, create_graph=True)")
    assert "second backward" in found["grad-again"].text
    assert "grad-outside" not in found
    assert "Compile only the forward" in advice("GB9186", "(grad,) = torch.autograd.grad(score.sum(), mix)")["grad-outside"].text


def test_a_gradient_behind_a_break_is_not_traced_by_an_option():
    """The graph of `score` ends at the break: autograd.grad then meets a gradient function from outside, and breaks as before."""
    options = {**OPTIONS, "dynamo": OPTIONS["dynamo"] | {"trace_autograd_ops"}}
    stack = (line("g = torch.autograd.grad(score, mix)"),)
    for name, there in (("critic_loss", True), ("torch_dynamo_resume_in_critic_loss_at_54", False)):
        event = broken("GB9186", stack)
        run = Run(
            info=RunInfo(),
            processes=(Process(index=0, log="a.log", torch="2.15.0", option_names=options),),
            frames=(Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name=name, file=FILE, line=1, outcome="broke"),),
            breaks=(event,),
        )
        assert ("trace-grad" in {one.slug for one in break_advice(event, run)}) is there


def test_a_break_that_nobody_knows_is_not_moved_out():
    """A helper under `torch.compiler.disable` broke the graph where the line had done so; twice that was one break more."""
    found = advised((line("o = attend(q, k)"),), "GB9999")
    assert "out of the compiled function" not in found["move-out"].text


def test_a_random_decision_is_passed_in_as_a_flag():
    """A number that was drawn outside and passed in is guarded by its value; the answer of a condition has two."""
    found = advice("GB0170", "if random.random() < 0.1:\n    x = x + 1")
    assert "pass in the answer" in found["random-torch"].text
    assert "other numbers" in found["random-torch"].text
    assert (
        "0-d tensor"
        in advice("GB0007", "x = x * random.random()", context="module: random, qualname: Random.random, skip")["random-torch"].text
    )


def test_a_drawn_number_that_must_be_one_is_drawn_outside():
    """`torch.roll` by a tensor reads it: the break moved to that line."""
    found = advice("GB0033", "k = np.random.randint(0, 4)\nreturn torch.roll(x, k)")
    assert list(found) == ["random-outside"]
    assert "random-torch" in advice("GB0033", "k = np.random.randint(0, 4)\nreturn x * k")


def test_a_list_is_not_advised_for_a_break_inside_a_generator():
    """The list has the same break inside."""
    found = advice("GB8335", "return sum(v.item() * 2 for v in x)")
    assert "list" not in found["generator-break"].text
