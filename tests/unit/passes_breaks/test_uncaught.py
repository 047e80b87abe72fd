"""Exceptions that ended the program: which of them torch.compile's own code raised."""

from dataclasses import replace

import pytest

from dynadiag.advice.uncaught import caught_in_vain
from dynadiag.model.graph import Graph
from dynadiag.model.location import Location, PayloadRef
from dynadiag.model.run import Problem, Run, RunInfo, SourceFunction
from dynadiag.passes.find_uncaught import find_uncaught

TORCH = "/opt/venv/lib/python3.12/site-packages/torch"
OWN = Location("/home/me/train.py", 7, "main", "g.sum().backward()")
WRAPPER = Location(f"{TORCH}/_functorch/_aot_autograd/runtime_wrappers.py", 3580, "CompiledFunction.backward")
INDUCTOR = (
    WRAPPER,
    Location("/tmp/torchinductor_me/gk/cgk.py", 63, "call"),
    Location(f"{TORCH}/_ops.py", 916, "__call__"),
    Location(f"{TORCH}/_compile.py", 54, "inner"),  # a dispatch mode of AOTAutograd's, which is kept out of Dynamo
    Location(f"{TORCH}/_dynamo/eval_frame.py", 1552, "_fn"),
    WRAPPER,
    Location(f"{TORCH}/_ops.py", 916, "__call__"),
)


def found(*stack, text="RuntimeError: it does not work"):
    return find_uncaught(Run(info=RunInfo(), problems=(Problem(kind="uncaught", process=0, text=text, stack=stack),))).findings


def test_what_the_run_time_of_torch_compile_raised_is_told_without_a_claim_about_eager():
    (finding,) = found(OWN, Location(f"{TORCH}/autograd/function.py", 4, "apply"), WRAPPER)
    assert (finding.code, finding.severity, finding.where) == ("DF11", "error", OWN)
    assert "it does not work. Raised at runtime_wrappers.py:3580 in CompiledFunction.backward" in finding.why
    assert "works without torch.compile was not tried" in finding.why
    assert [advice.slug for advice in finding.fix] == ["compare-with-eager"]


def test_a_double_backward_has_advice_of_its_own():
    (finding,) = found(OWN, WRAPPER, text="RuntimeError: torch.compile with aot_autograd does not currently support double backward")
    assert [advice.slug for advice in finding.fix] == ["gradient-inside", "backend-without-aot"]
    assert "torch.func.grad_and_value" in finding.fix[0].text  # `value_and_grad` is JAX's name


def test_a_double_backward_is_not_sent_to_another_back_end_where_parameters_are_replaced():
    """Followed on a program of MAML: it ran, with the parameters of the first call in every call (2.11 and 2.15)."""
    text = "RuntimeError: torch.compile with aot_autograd does not currently support double backward"
    inner = SourceFunction("/home/me/train.py", 4, "inner", "def inner(p, x):\n    return functional_call(net, p, (x,)).sum()")
    problem = Problem(kind="uncaught", process=0, text=text, stack=(OWN, WRAPPER))
    (finding,) = find_uncaught(Run(info=RunInfo(), problems=(problem,), functions=(inner,))).findings
    assert [advice.slug for advice in finding.fix] == ["gradient-inside"]


@pytest.mark.parametrize(
    "stack",
    [
        (),
        (OWN,),
        (OWN, WRAPPER, Location("<eval_with_key>.3", 5, "forward")),  # an op of the captured graph: eager may raise it too
        (OWN, WRAPPER, Location("/tmp/torchinductor_me/ab/cab.py", 5, "call")),
        (OWN, Location(f"{TORCH}/_dynamo/eval_frame.py", 9, "compile_wrapper")),
        (OWN, Location(f"{TORCH}/_dynamo/convert_frame.py", 9, "_compile"), WRAPPER),  # while compiling: DF10 tells it
        (OWN, WRAPPER, Location(f"{TORCH}/nn/modules/linear.py", 9, "forward")),
    ],
)
def test_anything_else_is_not_torch_compiles_doing(stack):
    assert found(*stack) == ()


def test_refused_mutations_are_told_as_such():
    assert found(OWN, WRAPPER, text="RuntimeError: one of the variables ... modified by an inplace operation") == ()


@pytest.mark.parametrize(
    ("handler", "raised", "told"),
    [
        ("except torch.linalg.LinAlgError:", "_LinAlgError", True),
        ("except RuntimeError as error:", "_LinAlgError", True),
        ("except (ValueError, LookupError):", "IndexError", True),
        ("except:", "IndexError", True),
        ("except ValueError:", "IndexError", False),
        ("finally:", "IndexError", False),
    ],
)
@pytest.mark.parametrize("behind", [(Location("<eval_with_key>.1", 7, "forward"),), INDUCTOR], ids=["eager", "inductor"])
def test_what_a_try_of_the_compiled_function_catches_in_eager_is_told(handler, raised, told, behind):
    """A graph runs when the function has left its `try`: the program ended, and there was no finding."""
    text = f"def nll(K):\n    try:\n        L = torch.linalg.cholesky(K)\n    {handler}\n        L = K\n    return L"
    entered = [Location(f"{TORCH}/_dynamo/eval_frame.py", line, "compile_wrapper") for line in (1265, 1552)]
    inner = Location("/home/me/train.py", 3, "nll", '@torch.compile(backend="eager")')
    stack = (OWN, entered[0], inner, entered[1], *behind)
    problem = Problem(kind="uncaught", process=0, text=f"{raised}: not positive-definite", stack=stack)
    run = Run(info=RunInfo(), problems=(problem,), functions=(SourceFunction("/home/me/train.py", 4, "nll", text),))
    findings = find_uncaught(run).findings
    assert [one.where for one in findings] == ([inner] if told else [])
    for one in findings:
        assert one.why.startswith(f"`{handler.partition(' as ')[0].rstrip(':')}` in `nll` catches it where its `try` is in force")
        assert [advice.slug for advice in one.fix] == ["try-outside"] and "not tried" not in one.why


def test_the_try_of_a_method_is_that_of_its_own_class():
    """Python 3.11 and newer name it with its class, of which a file has many with a `forward`."""
    texts = {
        name: f"def forward(self, K):\n    try:\n        return K.inverse()\n    except {error}:\n        return K"
        for name, error in (("Filter.forward", "RuntimeError"), ("Other.forward", "KeyError"))
    }
    functions = tuple(SourceFunction("/home/me/train.py", at, name, text) for at, (name, text) in enumerate(texts.items(), start=4))
    for name, told in (("Filter.forward", 1), ("Other.forward", 0), ("forward", 0)):
        entered, inner = Location(f"{TORCH}/_dynamo/eval_frame.py", 1552, "_fn"), Location("/home/me/train.py", 4, name)
        problem = Problem(kind="uncaught", process=0, text="_LinAlgError: singular", stack=(OWN, inner, entered, *INDUCTOR))
        assert len(find_uncaught(Run(info=RunInfo(), problems=(problem,), functions=functions)).findings) == told


def test_a_try_does_not_count_where_the_users_own_code_raised():
    text = "def nll(K):\n    try:\n        L = f(K)\n    except ValueError:\n        L = K\n    return L"
    entered = Location(f"{TORCH}/_dynamo/eval_frame.py", 1552, "_fn")
    inner = Location("/home/me/train.py", 3, "nll")
    problem = Problem(kind="uncaught", process=0, text="ValueError: no", stack=(OWN, inner, entered, Location("/home/me/lib.py", 7, "f")))
    run = Run(info=RunInfo(), problems=(problem,), functions=(SourceFunction("/home/me/train.py", 4, "nll", text),))
    assert find_uncaught(run).findings == ()


ASSERTS = """
class GraphModule(torch.nn.Module):
    def forward(self, L_d_: "f32[5][1]cpu"):
        l_d_ = L_d_

        # File: /home/me/model.py:14 in forward, code: assert torch.isfinite(d).all(), "deltas are not finite"
        isfinite: "b8[5][1]cpu" = torch.isfinite(l_d_)
        all_1: "b8[][]cpu" = isfinite.all();  isfinite = None
        _assert_async = torch._assert_async(all_1, 'deltas are not finite');  all_1 = _assert_async = None

        # File: /home/me/model.py:15 in forward, code: torch._assert_async(d.sum() > 0, "no deltas")
        sum_1: "f32[][]cpu" = l_d_.sum()
        gt: "b8[][]cpu" = sum_1 > 0;  sum_1 = None
        _assert_async_1 = torch._assert_async(gt, 'no deltas');  gt = _assert_async_1 = None
        return (l_d_,)
"""


@pytest.mark.parametrize(
    ("said", "raised", "told"),
    [
        ("deltas are not finite", Location(f"{TORCH}/_ops.py", 916, "__call__"), True),
        ("deltas are not finite", Location("/tmp/torchinductor_me/gk/cgk.py", 63, "call"), True),
        ("deltas are not finite", Location("/home/me/model.py", 30, "check"), False),  # the program raises it itself
        ("deltas", Location(f"{TORCH}/_ops.py", 916, "__call__"), False),
        ("no deltas", Location(f"{TORCH}/_ops.py", 916, "__call__"), False),  # RuntimeError in eager, too
    ],
)
def test_an_assert_of_a_graph_raises_another_exception_than_eager(tmp_path, said, raised, told):
    """Three programs caught the AssertionError; compiled they ended, and no finding said why (2.11 and 2.15)."""
    (tmp_path / "text").write_text(ASSERTS)
    text = PayloadRef(str(tmp_path / "text"), 0, len(ASSERTS))
    graph = Graph(id="g0", frame="f0", kind="dynamo", attempt=0, nodes=8, ops={"torch._assert_async": 2}, text=text)
    entered = Location(f"{TORCH}/_dynamo/eval_frame.py", 1552, "_fn")
    problem = Problem(kind="uncaught", process=0, text=f"RuntimeError: {said}", stack=(OWN, entered, raised))
    findings = find_uncaught(Run(info=RunInfo(), problems=(problem,), graphs=(graph,))).findings
    assert [(one.code, one.severity, one.where and one.where.line) for one in findings] == ([("DF11", "error", 14)] if told else [])
    for one in findings:
        assert "RuntimeError, not AssertionError" in one.title and [advice.slug for advice in one.fix] == ["catch-both-errors"]


OVERWRITTEN = (
    "RuntimeError: Error: accessing {}tensor output of CUDAGraphs that has been overwritten by a subsequent run. Stack trace: "
    'File "/home/me/train.py", line {}, in {}\n    {}. To prevent overwriting, clone the tensor outside of torch.compile() or call '
    "torch.compiler.cudagraph_mark_step_begin() before each model invocation."
)


def overwritten(code, made, *, gradient="", inside=True):
    """An overwritten output as torch 2.11 told it on an H200: read by a call of the compiled function, or by eager code."""
    line, function, source = made
    place = Location("/home/me/train.py", 10, "<module>", code)
    entered = (
        Location(f"{TORCH}/_dynamo/eval_frame.py", 1024, "_TorchDynamoContext.__call__.<locals>.compile_wrapper"),
        Location("/home/me/train.py", line, function, source),
        Location(f"{TORCH}/_inductor/cudagraph_trees.py", 126, "format_inputs_log.<locals>.format_item"),
    )
    (finding,) = found(place, *(entered if inside else ()), text=OVERWRITTEN.format(gradient, line, function, source))
    return finding


def test_an_output_of_a_cuda_graph_that_was_overwritten_is_cloned_outside():
    finding = overwritten("state = f(state)", (5, "f", "return (x * 2).relu()"))
    assert (finding.code, finding.where.line) == ("DF11", 10)
    assert finding.title == "An output of a CUDA graph was read after a later call had overwritten it"
    assert "It was made at train.py:5: `return (x * 2).relu()`." in finding.why
    clone, steps = finding.fix
    assert (clone.slug, clone.before, clone.after) == ("clone-output", "state = f(state)", "state = f(state).clone()")
    assert "behind each call whose result is read after the next call (train.py:10)" in clone.text
    assert steps.options == ("torch.compiler.cudagraph_mark_step_begin",)


def test_an_overwritten_output_that_eager_code_reads_is_told_too():
    """Only CUDA graphs overwrite outputs: the innermost frame is the program's own then."""
    finding = overwritten("total = torch.stack(outs).sum()", (6, "f", "return (x * 2).relu()"), inside=False)
    assert (finding.code, finding.where.line) == ("DF11", 10)
    assert [advice.slug for advice in finding.fix] == ["clone-output", "mark-steps"]
    assert finding.fix[0].after is None


def test_state_that_compiled_code_keeps_is_not_cured_by_a_clone_of_what_it_returns():
    finding = overwritten("y = run(x)", (11, "forward", "self.state = torch.tanh(self.lin(x) + self.state)"))
    assert [advice.slug for advice in finding.fix] == ["state-in-buffer"]
    assert "`self.state.copy_(...)`" in finding.fix[0].text


def test_a_gradient_that_was_overwritten_has_advice_of_its_own():
    finding = overwritten("opt.step()", (6, "f", "return x"), gradient="gradient ", inside=False)
    assert [advice.slug for advice in finding.fix] == ["stable-gradients"]


def test_a_number_that_a_cuda_graph_cannot_take_stays_a_tensor():
    inputs = Location(f"{TORCH}/_inductor/cudagraph_trees.py", 1729, "CUDAGraphNode._allocate_and_copy_recording_inputs")
    (finding,) = found(OWN, inputs, text="AssertionError: ")
    assert finding.why.startswith("AssertionError. Raised at cudagraph_trees.py:1729")
    assert [advice.slug for advice in finding.fix] == ["number-stays-tensor"]


ENGINE = Location(f"{TORCH}/autograd/graph.py", 1113, "_engine_run_backward", "return Variable._execution_engine.run_backward(")
VIEW = (
    "RuntimeError: Output 0 of {} is a view and its base or another view of its base has been modified inplace. This view was created "
    "inside a custom Function (or because an input was returned as-is) and the autograd logic ..."
)


def backward_run(maker, text, *, file="/home/me/train.py", **fields):
    """A program that compiled one graph and ended in autograd's engine."""
    frame = maker.frame("step", line=1, file=file)
    maker.graph(frame)
    return maker.run(problems=(Problem(kind="uncaught", process=0, text=text, stack=(OWN, ENGINE)),), **fields)


def test_what_autograds_engine_raised_in_a_program_with_graphs_is_told_at_the_line_of_the_backward(maker):
    run = backward_run(maker, "RuntimeError: The size of tensor a (3) must match the size of tensor b (4)")
    (finding,) = find_uncaught(run).findings
    assert (finding.code, finding.severity, finding.where) == ("DF11", "error", OWN)
    assert finding.title == "An exception in a backward ended the program, part of which is compiled"
    assert "must match the size of tensor b (4). Raised in the backward that this line runs. Whether the program works" in finding.why
    assert [advice.slug for advice in finding.fix] == ["compare-with-eager"]
    assert find_uncaught(replace(run, graphs=())).findings == ()


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors ...",
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        "RuntimeError: grad can be implicitly created only for scalar outputs",
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation",
    ],
)
def test_a_backward_that_is_called_wrongly_is_not_blamed_on_compiled_code(maker, text):
    assert find_uncaught(backward_run(maker, text)).findings == ()


def test_an_input_that_a_custom_function_returns_is_to_be_copied(maker):
    text = "@staticmethod\ndef forward(ctx, scratch, value):\n    scratch.data[0] = value\n    return scratch"
    function = SourceFunction("/home/me/train.py", 9, "Assign.forward", text)
    (finding,) = find_uncaught(backward_run(maker, VIEW.format("Assign"), functions=(function,))).findings
    first = finding.fix[0]
    assert (first.slug, first.before, first.after) == ("return-clone", "return scratch", "return scratch.clone()")
    assert "`Assign.forward` (train.py:12)" in first.text
    problem = Problem(kind="uncaught", process=0, text=VIEW.format("Assign"), stack=(OWN, WRAPPER))
    (raised,) = find_uncaught(Run(info=RunInfo(), problems=(problem,), functions=(function,))).findings
    assert (raised.where.line, raised.where.function, raised.where.code) == (12, "Assign.forward", "return scratch")
    other = replace(function, text=text.replace("return scratch", "return scratch + 1"))
    (finding,) = find_uncaught(backward_run(maker, VIEW.format("Assign"), functions=(other,))).findings
    assert [advice.slug for advice in finding.fix] == ["compare-with-eager"]


def test_a_library_that_was_compiled_with_the_program_is_to_be_left_out(maker, at):
    for _ in range(2):
        maker.frame("integrate", line=30, file="/opt/venv/lib/python3.12/site-packages/odes/solvers.py", callers=(at(24),))
    (finding,) = find_uncaught(backward_run(maker, VIEW.format("Slice"))).findings
    assert [advice.slug for advice in finding.fix] == ["library-in-eager", "compare-with-eager"]
    assert "the call of odes (train.py:24)" in finding.fix[0].text


def caught(text, kind):
    """The advice for an error at the row `probe()` of a function with this text, which line 20 calls."""
    function = SourceFunction("/home/me/train.py", 8, "have", text)
    row = next(number for number, one in enumerate(text.split("\n")) if "probe()" in one)
    stack = (Location("/home/me/train.py", 20, "f"), Location("/home/me/train.py", 8 + row, "have"))
    return [one.text for one in caught_in_vain(stack, kind, Run(info=RunInfo(), functions=(function,)))]


@pytest.mark.parametrize(
    ("handler", "kind", "told"),
    [
        ("except lib.NotThere:", "NotThere", "`except lib.NotThere`"),
        ("except (OSError, lib.NotThere):", "NotThere", "`except (OSError, lib.NotThere)`"),
        ("except LookupError:", "KeyError", "`except LookupError`"),
        ("except:", "NotThere", "`except`"),
        ("except Exception:", "NotThere", "`except Exception`"),
        ("except OSError:", "NotThere", None),
        ("except KeyError:", "LookupError", None),
    ],
)
def test_an_error_that_the_traced_function_would_catch_is_to_be_met_before(handler, kind, told):
    found = caught(f"def have():\n    try:\n        probe()\n    {handler}\n        return False\n    return True", kind)
    assert len(found) == (told is not None)
    if told is not None:
        assert found[0].startswith(f"`have` would catch this error ({told}), but Dynamo runs the call at train.py:10 itself")


def test_a_handler_that_is_not_in_force_catches_nothing():
    assert caught("def have():\n    try:\n        pass\n    except Exception:\n        probe()", "KeyError") == []
    assert caught("def have():\n    probe()", "KeyError") == []
    assert caught("def have(:\n    probe()", "KeyError") == []
