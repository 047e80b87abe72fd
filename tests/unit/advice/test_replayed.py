"""Where a message can be given after the graph: only where the compiled function itself gives it, for each line that the option reaches."""

import pytest

from dynadiag.advice.graph_breaks import advised
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, CompileKey, Frame, Process, Run, RunInfo

FILE = "/home/me/train.py"
MODULE = Location("/env/lib/python3.12/site-packages/torch/nn/modules/module.py", 1787, "_call_impl", "return forward_call(*args)")
OPTIONS = {
    "dynamo": frozenset(("reorderable_logging_functions", "ignore_logging_functions")),
    "compiler": frozenset({"is_compiling"}),
}
SAYS = {
    "print": ("GB0059", 'print("a")', "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False", ""),
    "warn": ("GB0007", 'warnings.warn("a")', "module: _warnings, qualname: warn, skip reason: builtin", ""),
    "log": ("GB0291", 'log.info("a")', "method: <Logger lm (INFO)>.info, args: [ConstantVariable(str: 'a')], kwargs: {}", "reorderable"),
}
TENSOR = "builtin print [<class 'torch._dynamo.variables.tensor.TensorVariable'>] False"
MESSAGES = {
    **SAYS,
    "tensor": (SAYS["print"][0], 'print("y", y)', TENSOR, ""),
    "tuple": (*SAYS["print"][:2], SAYS["print"][2].replace("constant.Constant", "lists.Tuple"), ""),
}


def at(line, function, code="y = f(x)"):
    return Location(FILE, line, function, code)


def slugs(*breaks, compiled=("step",), after=("    return x",), goes_on=True, block=None):
    """The advice for the first of some breaks: what is said, and the stack; `goes_on`: the code behind it was compiled."""
    row = breaks[0][2][-1]
    behind = (f"torch_dynamo_resume_in_{row.function}_at_{row.line}",) if goes_on else ()
    frames = tuple(
        Frame(id=f"f{number}", key=CompileKey(0, 0, number, 0), attempts=1, name=name, file=FILE, line=1, outcome="broke")
        for number, name in enumerate((*compiled, *behind))
    )
    events = tuple(
        BreakEvent(
            frame=f"f{number}",
            attempt=0,
            gb_id=MESSAGES[what][0],
            gb_type="?",
            explanation=MESSAGES[what][3],
            hints=(),
            context=MESSAGES[what][2],
            stack=stack,
            torch_frame=stack[-1],
        )
        for what, number, stack in breaks
    )
    process = Process(index=0, log="a.log", torch="2.15.0", option_names=OPTIONS)
    last = events[0].torch_frame
    blocks = (
        {(FILE, 1): block}
        if block is not None
        else {}
        if last is None
        else {(FILE, last.line - 1): "\n".join((f"def {last.function}(x):", f"    {last.code}", *after))}
    )
    run = Run(info=RunInfo(), processes=(process,), frames=frames, breaks=events, site_prefixes=("/env/lib/python3.12",), blocks=blocks)
    return {one.slug: one for one in advised(events[0], run)[0]}


@pytest.mark.parametrize("what", SAYS)
def test_what_the_compiled_function_says_itself_is_said_later(what):
    line = SAYS[what][1]
    assert any(slug.endswith("-reorder") for slug in slugs((what, 0, (at(9, "<module>"), at(3, "step", line)))))
    resumed = ("torch_dynamo_resume_in_step_at_2",)
    assert any(slug.endswith("-reorder") for slug in slugs((what, 0, (at(9, "<module>"), at(3, "step", line))), compiled=resumed))


@pytest.mark.parametrize(("what", "advised"), [("warn", False), ("print", True), ("log", True)])
def test_a_warning_that_may_be_an_exception_stays(what, advised):
    """With `simplefilter("error")` the call raised and the program caught it; compiled calls that skip the line gave other results."""
    assert bool(slugs((what, 0, (at(9, "<module>"), at(3, "step", SAYS[what][1]))), goes_on=False)) is advised


@pytest.mark.parametrize("what", SAYS)
@pytest.mark.parametrize(
    ("stack", "frame"),
    [
        ((at(9, "<module>"), at(3, "step"), at(6, "report")), 0),
        ((at(9, "<module>"), at(3, "step"), at(6, "report")), 1),  # compiled on its own, only because of the break
        ((at(9, "<module>"), at(3, "step"), MODULE, at(6, "step")), 0),  # `forward` of a module in the `forward` of another
    ],
)
def test_what_an_inlined_function_says_is_not_said_later(what, stack, frame):
    stack = (*stack[:-1], at(6, stack[-1].function, SAYS[what][1]))
    found = slugs((what, frame, stack), compiled=("step", "report"))
    assert found and not any(slug.endswith("-reorder") for slug in found)
    assert "loses it once Dynamo inlines" in " ".join(one.text for one in found.values())


def test_nothing_is_said_of_a_message_that_dynamo_would_not_take():
    """A tuple breaks the graph once more instead of being lost."""
    found = slugs(("tuple", 0, (at(9, "<module>"), at(3, "step"), at(6, "report", 'print("a", x)'))))
    assert found and "lose" not in found["print-guard"].text


def test_an_option_that_would_lose_another_line_is_not_named():
    """The option holds for each print of the program, also for that of a function that is inlined."""
    itself, inlined = (at(9, "<module>"), at(3, "step", 'print("a")')), (at(9, "<module>"), at(4, "step"), at(6, "report", 'print("b")'))
    assert list(slugs(("print", 0, itself), ("print", 0, inlined))) == ["print-guard"]
    assert list(slugs(("print", 0, itself), ("warn", 0, inlined))) == ["print-reorder"]


@pytest.mark.parametrize("what", SAYS)
def test_what_the_function_says_before_it_raises_is_not_said_later(what):
    """The graph does not come to its end: the message was lost."""
    stack = (at(9, "<module>"), at(3, "step", SAYS[what][1]))
    behind = ('    if x.dim() > 3: raise ValueError("rank")', "    return x")
    assert not any(slug.endswith("-reorder") for slug in slugs((what, 0, stack), after=behind))


@pytest.mark.parametrize(
    ("line", "kept"), [("y.add_(1)", False), ("y += 1", False), ("y[0] = 1", False), ("y = net(y)", False), ("z = y + 1", True)]
)
def test_a_tensor_that_is_written_later_is_not_printed_later(line, kept):
    """`print(y); y.add_(1)` printed the new values."""
    stack = (at(9, "<module>"), at(3, "step", 'print("y", y)'))
    found = slugs(("tensor", 0, stack), after=(f"    {line}", "    return y"))
    assert ("print-reorder" in found) is kept


@pytest.mark.parametrize("writes", [True, False])
def test_a_print_is_not_moved_where_the_option_would_move_another_that_then_tells_other_values(writes):
    """The option is one for all prints: `print("before", x)` showed the values after the write."""
    body = ("def step(x):", '    print("y", x)', "    x.add_(1)" if writes else "    x = x + 1", '    print("y", y)', "    return x")
    first, second = at(4, "step", body[3].strip()), at(2, "step", body[1].strip())
    found = slugs(("tensor", 0, (at(9, "<module>"), first)), ("tensor", 0, (at(9, "<module>"), second)), block="\n".join(body))
    assert list(found) == (["print-guard"] if writes else ["print-reorder"])
