"""Advice that failed when somebody followed it to the letter: each of these made a program worse, or changed nothing."""

import pytest

from dynadiag.advice.graph_breaks import break_advice
from dynadiag.model.run import BreakEvent, CompileKey, Frame, Location, Process, Run, RunInfo

FILE = "/home/me/train.py"
COPY = "/usr/lib/python3.12/copy.py"
OPTIONS = {
    "dynamo": frozenset({"capture_scalar_outputs", "capture_dynamic_output_shape_ops", "ignore_logging_functions", "allow_rnn"}),
    "compiler": frozenset({"is_compiling", "disable"}),
}


def broken(gb_id, stack, context="", explanation="", *, frame="f0"):
    return BreakEvent(
        frame=frame,
        attempt=0,
        gb_id=gb_id,
        gb_type="?",
        explanation=explanation,
        hints=(),
        context=context,
        stack=stack,
        torch_frame=stack[-1],
    )


def frame(name, file):
    return Frame(id=name, key=CompileKey(0, 0, int(name[1]), 0), attempts=1, name="f", file=file, line=1, outcome="broke")


def advice(gb_id, block, *, context="", below=(), explanation="", others=(), compiled=FILE, line=9):
    own = Location(FILE, 3, "f", block.partition("\n")[0].strip())
    stack = (own, *below)
    event = broken(gb_id, stack, context, explanation)
    run = Run(
        info=RunInfo(),
        processes=(Process(index=0, log="a.log", torch="2.15.0", option_names=OPTIONS),),
        frames=(frame("f0", compiled), frame("f1", FILE)),
        blocks={(FILE, 3): block},
        breaks=tuple(broken("GB0036", (Location(FILE, line, "f", code),), frame="f1") for code in others),
    )
    return {one.slug: one for one in break_advice(event, run)}


def test_a_number_inside_a_call_of_math_is_computed_with_torch():
    """`math.cos` of a tensor reads it again: the break stayed where it was."""
    found = advice("GB0124", "return self.lr * 0.5 * (1 + math.cos(math.pi * step.item() / 10))")
    assert "item-keep-tensor" not in found
    assert found["item-math"].after == "return self.lr * 0.5 * (1 + torch.cos(math.pi * step.detach() / 10))"


def test_all_calls_of_math_on_the_line_are_replaced():
    found = advice("GB0124", "s = math.sqrt(1.0 - a.item()) * math.exp(-t.item() / 10)")
    assert found["item-math"].after == "s = torch.sqrt(1.0 - a.detach()) * torch.exp(-t.detach() / 10)"


@pytest.mark.parametrize(
    "line",
    [
        "s = math.sqrt(1.0 - float(a[t])) * math.exp(-float(t) / 10)",  # which of the two is no tensor, the line does not say
        "s = math.pow(x.item() + 1, 2)",  # no function of torch takes the same arguments
        "s = work(x.item() + 1)",
    ],
)
def test_a_read_inside_another_call_is_not_simply_dropped(line):
    found = advice("GB0124", line)
    assert not {"item-keep-tensor", "item-math"} & set(found) or found["item-math"].after is None


def test_capture_is_not_advised_for_a_function_of_math_that_torch_cannot_trace_on_symbols():
    """`math.exp(-float(t) / 10)` of a step number ended the program: could not guard on data-dependent expression."""
    assert "item-capture" not in advice("GB0124", "return math.exp(-float(t) / 10)")
    assert "item-capture" in advice("GB0124", "return math.sqrt(x.item())")


def test_a_number_of_numpy_is_not_detached():
    """`numpy.float32` has no `detach()`: the eager program ended with an AttributeError."""
    found = advice("GB0124", "return self.state, float(-np.abs(self.state).sum())")
    assert all("detach" not in f"{one.text}{one.after}" for one in found.values())


def test_an_attribute_that_text_is_made_of_stays_a_number():
    """`json.dumps` of a tensor ended the program with a TypeError."""
    block = 'self.best = loss.item()\nlogging.info(json.dumps({"best": round(self.best, 3)}))'
    assert "item-keep-tensor" not in advice("GB0124", block)
    assert "item-keep-tensor" in advice("GB0124", "self.best = loss.item()\nself.mean = self.best / 2")


def test_a_number_that_an_object_keeps_is_read_where_it_is_printed():
    """`round(meter.avg)` raised a TypeError when the meter summed tensors as the advice had it."""
    found = advice("GB0124", "self.sum += float(v) * n")["item-keep-tensor"]
    assert "`self.sum` becomes one, so read it with `.item()` wherever it is printed, rounded or logged" in found.text
    assert "becomes one" not in advice("GB0124", "scale = x.sum().item()\nx * scale")["item-keep-tensor"].text


def test_a_hook_is_not_told_to_return_what_it_reads():
    """What a tensor hook returns takes the gradient's place."""
    found = advice("GB0124", "h.register_hook(lambda gr: self.grads.append(gr.norm().item()))")
    assert "item-append" not in found
    assert all("return the tensor" not in one.text.lower() for one in found.values())
    assert "hook" in found["item-hook"].text


def test_a_call_that_uses_the_value_last_is_done_after_the_compiled_call():
    found = advice("GB0124", "self.rows.append({k: float(v) for k, v in parts.items()})")
    assert "pass the value in" not in found["item-outside"].text
    assert "after the compiled call" in found["item-outside"].text


def test_a_module_that_is_copied_is_not_told_to_clone():
    """`nn.Module` has no `clone()`; copy.py is entered again for each part of a container."""
    inner = [Location(COPY, line, "deepcopy", "y = copier(memo)") for line in (146, 231, 153)]
    context = "call TensorVariable() __deepcopy__"
    assert "copy-clone" not in advice("GB4198", "snapshot = copy.deepcopy(self.head)", context=context, below=inner)
    assert "copy-clone" in advice("GB4198", "snapshot = copy.deepcopy(x)", context=context, below=inner[-1:])


@pytest.mark.parametrize("line", ["Hard.calls += 1", "self.state = self.state + self.rng.randn(4).astype(np.float32)"])
def test_what_has_no_name_is_named_by_its_line(line):
    found = advice("GB4841", line)
    assert all("the call outside" not in one.text and "Call the call" not in one.text for one in found.values())
    assert any(f"`{line}`" in one.text for one in found.values())


def test_the_clock_of_a_class_is_named():
    context = "call_method UserDefinedClassVariable(<class 'datetime.datetime'>) now [] {}"
    found = advice("GB0156", "self.t0 = datetime.datetime.now()", context=context)
    assert "`datetime.datetime.now()`" in found["clock-outside"].text


def test_a_grad_mode_on_an_exit_stack_becomes_a_with():
    """Leaving it out of compiled code would compute with gradients there."""
    context = "module: torch.autograd.grad_mode, qualname: set_grad_enabled.__enter__, skip reason: file matches MOD_SKIPLIST"
    found = advice("GB0007", "stack.enter_context(torch.no_grad())", context=context)
    assert "call-guard" not in found
    assert "`with torch.no_grad():`" in next(iter(found.values())).text


def test_a_check_of_a_negation_is_not_negated_twice():
    block = 'if not torch.isfinite(loss):\n    raise FloatingPointError("not finite")'
    (first, *_) = advice("GB0170", block).values()
    assert first.after == 'torch._assert_async(torch.isfinite(loss), "not finite")'


def test_a_number_that_a_list_collects_is_not_captured():
    """Each length of the list is guarded: the function was compiled until its limit, 47 s of compile time for three calls."""
    found = advice("GB0124", "i = order[0].item()\nkeep.append(i)\nif order.numel() == 1:\n    stop()")
    assert "item-capture" not in found and "item-keep-tensor" not in found
    assert "`keep.append(i)`" in found["item-collect"].text


def test_an_order_of_values_is_not_captured():
    """Sorting by symbols broke the graph in three new places."""
    found = advice("GB0124", "beams = heapq.nlargest(self.width, cand, key=lambda c: c[0].item())\nif beams[0][1][-1] == 7:\n    return")
    assert "item-capture" not in found
    assert "order" in found["item-order"].text


RNN = "Reason: Dynamo does not support RNN, GRU, or LSTM. Set torch._dynamo.config.allow_rnn=True"
VIEW = "Reason: Getting an inplace view on a graph input is not supported"


@pytest.mark.parametrize(
    ("line", "why", "slug"),
    [
        ("h, _ = self.rnn(x)", RNN, "rnn-apart"),
        ("x.t_()", VIEW, "view-input"),
        ("b.resize_(n)", VIEW, "view-input"),
        ("f(x)", "?", "call-outside"),
    ],
)
def test_a_delayed_break_is_read_by_its_reason(line, why, slug):
    """`x.t_()` was told to switch on `allow_rnn`."""
    assert slug in advice("GB0148", line, explanation=why)
    if slug != "rnn-apart":
        assert not {"rnn-allow", "rnn-apart"} & set(advice("GB0148", line, explanation=why))


@pytest.mark.parametrize("code", ["sizes = torch.bincount(i, minlength=4).tolist()", "n = mask.nonzero().tolist()"])
def test_a_list_of_unknown_length_is_not_captured(code):
    """torch raises there, in the middle of the program; on another line of the file the option is given with that warning."""
    assert "shape-capture" not in advice("GB0036", code)
    other = advice("GB0036", "rows = (idx == e).nonzero().view(-1)", others=(code,))["shape-capture"].text
    assert f"first change `{code}`" in other


LOGGING = "/usr/lib/python3.12/logging/__init__.py"


def test_a_logger_that_is_compiled_on_its_own_is_not_told_options_that_reach_only_its_caller():
    """`ignore_logging_functions` and `is_compiling()` changed nothing: the function around the call ran eager already."""
    below = (Location(LOGGING, 1489, "info", "self._log(INFO, msg, args)"),)
    found = advice("GB0291", 'logger.info("step %d", n)', below=below, compiled=LOGGING)
    assert not {slug for slug in found if slug.endswith(("-ignore", "-guard"))}
    assert "runs eager" in next(iter(found.values())).text
    assert any(slug.endswith("-ignore") for slug in advice("GB0291", 'logger.info("step %d", n)', below=below))
    # The function breaks there itself: what logging does then is the same call.
    found = advice("GB0291", 'logger.info("step %d", n)', below=below, compiled=LOGGING, others=('logger.info("step %d", n)',), line=3)
    assert "logger-caller" not in found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("best.append(int(ptr[best[-1]]))", "in plain Python"),
        ("best.append(score.max().item())", "append the tensor"),
        ("self.rows.append(score.max().item())", "after the compiled call"),
    ],
)
def test_a_list_that_the_line_reads_itself_is_not_appended_to_later(line, said):
    """`best.append(int(ptr[best[-1]]))` needs each number for the next one: "append after the compiled call" could not be followed."""
    assert said in advice("GB0124", line)["item-append"].text


def test_a_number_bounded_by_a_constant_is_clamped_on_the_device():
    """ "Take the line out and pass the value in" could not be followed in the middle of a forward."""
    found = advice("GB0124", "return (mel - mel.mean()) / max(mel.std().item(), 1e-5)")
    assert found["item-clamp"].after == "return (mel - mel.mean()) / mel.std().detach().clamp(min=1e-5)"
    assert "item-clamp" not in advice("GB0124", "n = max(mel.std().item(), low)")
    assert "item-clamp" not in advice("GB0124", "rows = max(int(n), 1) * y")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("return [collapse(row) for row in rows]", "Return what"),
        ("h = native(x, 3)", "End the compiled function before"),
        ("native(x)", "return what it takes"),
        ("seed = secrets.token_hex(4)", "before the compiled call and pass its result in"),
        ("names = build()", "before the compiled call and pass its result in"),
    ],
)
def test_what_is_computed_from_the_functions_own_values_cannot_be_passed_in(line, said):
    """ "Call it outside and pass its result in" cannot be followed for a call that takes what the function computes."""
    assert said in advice("GB0059", line, context="builtin native")["call-outside"].text


def test_a_function_that_is_given_numbers_is_no_operator():
    found = advice("GB0007", "y = collapse(best.tolist())", context="module: work, qualname: collapse, skip reason: x")
    assert "call-custom-op" not in found
    assert "call-custom-op" in advice("GB0007", "y = collapse(best)", context="module: work, qualname: collapse, skip reason: x")


def test_the_form_without_an_underscore_is_that_of_the_lines_own_method():
    """`x = x.t()` stood beside `table.unsqueeze_(0)`."""
    assert "`table = table.unsqueeze(0)`" in advice("GB0148", "table.unsqueeze_(0)", explanation=VIEW)["view-input"].text


def test_capture_is_not_advised_where_the_line_lists_what_it_cuts():
    """`best[i, :n].tolist()` with a captured `n` ended the program: a list of unknown length."""
    line = "return [collapse(best[i, :n].tolist()) for i, n in enumerate(frames)]"
    assert "item-capture" not in advice("GB0124", line)
    assert line[:30] in advice("GB0124", "k = x.sum().item()", others=(line,))["item-capture"].text


def test_the_option_for_unknown_sizes_is_not_advised_for_a_loss_that_reads_lengths():
    """`capture_dynamic_output_shape_ops` left the break at `ctc_loss` where it was."""
    found = advice("GB0036", "loss = F.ctc_loss(logp, targets, frames, lengths)")
    assert "shape-capture" not in found and "lengths-outside" in found


def test_a_read_that_is_only_one_side_of_a_choice_is_not_what_decides():
    """`torch.where(torch.is_tensor(value) != 0, ...)` takes no bool: the program ended with a TypeError."""
    assert "if-where" not in advice("GB0124", "self.total += value.item() if torch.is_tensor(value) else value")
    assert "if-where" in advice("GB0124", "y = a if value.item() else b")
