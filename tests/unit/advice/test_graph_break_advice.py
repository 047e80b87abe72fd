"""Which advice is given when: by id or by text, own line or library, known or unknown options, and for input of strangers."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.advice.gb_types import GB_TYPES
from dynadiag.advice.graph_breaks import RULES, break_advice, rules_for
from dynadiag.model.report import GraphBreak
from dynadiag.model.run import BreakEvent, CompileKey, Frame, Graph, Location, Process, Run, RunInfo

CODES = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        ["print(x.shape)", "if x.sum() > 0:", "y = x.item()", "with open(f) as g:", "opt.step()", "x = [a.item() for a in b]", "raise E"]
    ),
)
LIBRARY = Location("/env/lib/python3.12/site-packages/lib/model.py", 7, "forward", "if mask.all():")


def run_of(options=None):
    process = Process(index=0, log="a.log", option_names={} if options is None else {"dynamo": frozenset(options)})
    frame = Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="f", file="/home/me/train.py", line=1, outcome="broke")
    return Run(info=RunInfo(), processes=(process,), frames=(frame,), site_prefixes=("/env/lib/python3.12",))


def event(gb_id="GB0124", code="y = x * x.sum().item()", *, gb_type="?", context="", inner=None, explanation="", hints=()):
    own = Location("/home/me/train.py", 3, "f", code)
    stack = (own,) if inner is None else (own, inner)
    return BreakEvent(
        frame="f0",
        attempt=0,
        gb_id=gb_id,
        gb_type=gb_type,
        explanation=explanation,
        hints=hints,
        context=context,
        stack=stack,
        torch_frame=stack[-1],
    )


def slugs(found):
    return [advice.slug for advice in found]


def test_an_option_that_the_torch_has_is_named_plainly():
    found = break_advice(event(), run_of({"capture_scalar_outputs"}))
    assert slugs(found) == ["item-keep-tensor", "item-capture"]
    assert "if your torch" not in found[1].text


def test_an_option_that_the_torch_lacks_is_left_out():
    assert slugs(break_advice(event(), run_of({"verbose"}))) == ["item-keep-tensor"]


def test_an_option_of_a_foreign_log_is_named_with_doubt():
    found = break_advice(event(), run_of())
    assert slugs(found) == ["item-keep-tensor", "item-capture"]
    assert "if your torch has this option" in found[1].text


def test_the_rewrite_is_the_line_with_the_change():
    first = break_advice(event(), run_of())[0]
    assert (first.before, first.after) == ("y = x * x.sum().item()", "y = x * x.sum().detach()")


@pytest.mark.parametrize(
    ("gb_id", "gb_type"),
    [("GB0124", "reworded in a later torch"), (None, "Unsupported Tensor.item() call with capture_scalar_outputs=False")],
)
def test_the_id_decides_and_the_text_stands_in(gb_id, gb_type):
    assert rules_for(gb_id, gb_type) == RULES["GB0124"]


def test_a_library_line_is_not_rewritten():
    found = break_advice(event("GB0170", "y = model(x)", inner=LIBRARY), run_of())
    assert found
    assert all(advice.before in (None, "y = model(x)") for advice in found)
    assert slugs(found) == ["library-line"]
    assert "lib's code, not yours to edit" in found[0].text


def test_code_without_a_source_file_is_not_called_a_librarys():
    made = Location("<made up>", 5, "ex")
    (found,) = break_advice(event("GB0170", "exec(text)", inner=made), run_of())
    assert "code without a source file" in found.text and "library" not in found.text


def test_an_unknown_break_gets_a_place_and_torchs_words_as_torchs():
    hints = ("Avoid calling it.", "Please report an issue to PyTorch.")
    found = break_advice(event("GB9999", "y = odd(x)", gb_type="Brand new", hints=hints), run_of())
    assert slugs(found) == ["move-out", "torch-hint"]
    assert found[1].text == "torch says: Avoid calling it."


def test_a_print_of_a_constant_may_move_and_a_print_of_a_shape_is_formatted():
    constant = event("GB0059", 'print("a")', context="builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False")
    shape = event("GB0059", "print(x.shape)", context="builtin print [<class 'torch._dynamo.variables.lists.SizeVariable'>] False")
    assert slugs(break_advice(constant, run_of()))[0] == "print-reorder"
    formatted = break_advice(shape, run_of())[0]
    assert (formatted.slug, formatted.after) == ("print-format", 'print(f"{x.shape}")')
    assert "print-reorder" not in slugs(break_advice(shape, run_of()))


def test_a_print_with_a_file_may_not_move():
    context = "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] True"
    assert "print-reorder" not in slugs(break_advice(event("GB0059", 'print("a", file=log)', context=context), run_of()))


SITE = "/env/lib/python3.12/site-packages"
SKIPPED = [
    (
        f"qualname: LRScheduler.step, name: step, filename: `{SITE}/torch/optim/lr_scheduler.py`, skip reason: x",
        "sched.step()",
        "scheduler-outside",
    ),
    (
        f"qualname: Optimizer.zero_grad, name: inner, filename: `{SITE}/torch/_compile.py`, skip reason: x",
        "opt.zero_grad()",
        "compile-model-apart",
    ),
    ("module: torch.optim.adam, qualname: Adam.step, skip reason: x", "opt.step()", "compile-model-apart"),
    ("module: <unknown module>, qualname: Random.random, skip reason: x", "p = random.random()", "random-torch"),
    ("module: <unknown module>, qualname: BytesIO.__new__, skip reason: x", "b = io.BytesIO()", "io-outside"),
    ("module: my_ext._C, qualname: fast_op, skip reason: C extension", "y = fast_op(x)", "call-outside"),
]


@pytest.mark.parametrize(("context", "code", "slug"), SKIPPED)
def test_a_skipped_function_is_known_by_its_name(context, code, slug):
    found = break_advice(event("GB0008" if "filename" in context else "GB0007", code, context=context), run_of())
    assert slugs(found)[0] == slug
    assert not any("<unknown" in advice.text for advice in found)


def test_only_an_optimizers_own_step_is_compiled_by_itself():
    assert "compile-optimizer-step" in slugs(break_advice(event("GB0123", "opt.step()"), run_of()))
    assert "compile-optimizer-step" not in slugs(break_advice(event("GB0123", "scaler.step(opt)"), run_of()))


def test_a_print_that_reads_a_tensor_is_not_moved():
    context = "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False"
    found = break_advice(event("GB0059", 'print("loss", loss.item())', context=context), run_of())
    assert slugs(found) == ["print-outside", "print-guard"]
    assert "this changes the program" in found[-1].text


def test_a_site_gets_the_advice_of_its_event():
    one = event()
    site = GraphBreak(
        id="b1",
        fingerprint="x",
        gb_id=one.gb_id,
        category="scalar",
        reason=one.gb_type,
        explanation=None,
        hints=(),
        own_frame=one.stack[0],
        torch_frame=one.torch_frame,
        stack=one.stack,
        events=1,
        frames=("f0",),
        processes=(0,),
    )
    assert break_advice(site, run_of()) == break_advice(one, run_of())


def test_a_line_that_was_not_recorded_still_gets_words():
    for gb_id in RULES:
        bare = dataclasses.replace(event(gb_id), stack=(), torch_frame=None)
        found = break_advice(bare, run_of())
        assert found
        assert all(advice.text and advice.before is None for advice in found)


def test_every_type_belongs_to_a_known_id():
    assert set(GB_TYPES.values()) == set(RULES)
    assert len(RULES) >= 35


@given(
    gb_id=st.one_of(st.none(), st.sampled_from(sorted(RULES))), code=CODES, context=st.text(max_size=120), explanation=st.text(max_size=60)
)
def test_any_text_of_strangers_gets_advice_and_no_error(gb_id, code, context, explanation):
    for inner in (None, LIBRARY):
        for advice in break_advice(event(gb_id, code, context=context, explanation=explanation, inner=inner), run_of()):
            assert advice.slug
            assert advice.text


LOGGING = Location("/env/lib/python3.12/logging/__init__.py", 1539, "info", "if self.isEnabledFor(INFO):")
CALL = "log.info('%s', x)  # each step"


def log_event(code=CALL, method="isEnabledFor", inner=LOGGING, kind="Logger"):
    return event("GB0291", code, context=f"method: <{kind} train (INFO)>.{method}, args: [ConstantVariable()], kwargs: {{}}", inner=inner)


def test_a_break_inside_logging_names_the_call_of_the_user():
    found = break_advice(log_event(), run_of({"ignore_logging_functions"}))
    options = [advice.after for advice in found if advice.options and advice.options[0].endswith("ignore_logging_functions")]
    assert options == ["torch._dynamo.config.ignore_logging_functions.add(logging.Logger.info)"]
    assert "isEnabledFor" not in "".join(f"{advice.text}{advice.after}" for advice in found)


def test_a_logger_method_of_a_library_is_named_on_the_class():
    inner = Location("/env/lib/python3.12/site-packages/lib/model.py", 9, "loss", "logger.warning_once(")
    found = break_advice(log_event("y = model(x)", "warning_once", inner), run_of({"ignore_logging_functions"}))
    assert [advice.after for advice in found if advice.after] == [
        "torch._dynamo.config.ignore_logging_functions.add(logging.Logger.warning_once)"
    ]
    assert any("after the imports of the libraries" in advice.text for advice in found if advice.after)


def test_a_logger_of_another_class_is_named_as_the_line_writes_it():
    found = break_advice(log_event("log.notice('a')", "notice", None, kind="MyLogger"), run_of({"ignore_logging_functions"}))
    assert "torch._dynamo.config.ignore_logging_functions.add(log.notice)" in [advice.after for advice in found]


def test_comments_are_neither_quoted_nor_in_a_change():
    found = break_advice(event(code="y = x * x.sum().item()  # the scale, '#1'"), run_of({"capture_scalar_outputs"}))
    assert (found[0].before, found[0].after) == ("y = x * x.sum().item()", "y = x * x.sum().detach()")
    assert all("scale" not in f"{advice.text}{advice.before}{advice.after}" for advice in found)


STEP = Location("/env/lib/python3.12/site-packages/torch/optim/optimizer.py", 78, "_use_grad", "torch._dynamo.graph_break()")


def test_no_line_of_a_train_step_is_replaced_by_a_compile_statement():
    for gb_id, code, inner in (("GB0123", "loss.backward()", None), ("GB0025", "opt.step()", STEP), ("GB0008", "opt.zero_grad()", None)):
        context = "qualname: Optimizer.zero_grad" if gb_id == "GB0008" else ""
        for advice in break_advice(event(gb_id, code, inner=inner, context=context), run_of({"trace_autograd_ops"})):
            assert advice.before is None or (advice.before, advice.after) == ("opt.step()", "compiled_step()")


@pytest.mark.parametrize(
    ("code", "after"),
    [
        ("if x.sum() > 0: y = y + 1", "y = torch.where(x.sum() > 0, y + 1, y)"),
        ("if x.isnan().any(): y = 0 * y", "y = torch.where(x.isnan().any(), 0 * y, y)"),
        ("if mask.sum(): y += a - b", "y = torch.where(mask.sum() != 0, y + (a - b), y)"),
        ("if not ok.all(): y = z", "y = torch.where(torch.logical_not(ok.all()), z, y)"),
        ("if loss.item() > best.item(): y = z", "y = torch.where(loss > best, z, y)"),
        ("if x.sum() > 0: return y", None),
        ("if flag and x.sum() > 0: y = z", None),
        ("if x.sum() > 0:", None),
    ],
)
def test_a_whole_if_on_one_line_is_written_out(code, after):
    found = [advice for advice in break_advice(event("GB0170", code), run_of()) if advice.after is not None]
    assert [advice.after for advice in found] == ([] if after is None else [after])
    assert all("torch.where" in advice.text and "shapes" in advice.text for advice in found)


def test_the_back_end_that_refused_is_named():
    context = "Backend: aot_eager\nException:no fake for sin\nTraceback:\n"
    first, second = break_advice(event("GB0219", "y = x.sin()", context=context), run_of())
    assert "`aot_eager`" in first.text and "no fake for sin" in first.text
    assert 'backend="eager"' in second.text


def test_a_call_over_several_lines_is_guarded_in_words():
    found = break_advice(log_event("log.info(", "info", None), run_of({"ignore_logging_functions"}))
    guard = next(advice for advice in found if advice.slug == "logger-guard")
    assert (guard.before, guard.after) == (None, None)
    assert "is_compiling()" in guard.text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("if torch.allclose(a, b):", "torch.where(torch.isclose(a, b).all(), "),
        ("if not torch.equal(a, b):", "torch.where(torch.logical_not((a == b).all()), "),
    ],
)
def test_a_comparison_keeps_its_sense(code, said):
    assert said in break_advice(event("GB0033", code), run_of())[0].text


def test_a_read_that_is_logged_or_collected_is_not_captured():
    for code in ('log.info("%f", x.sum().item())', "losses.append(x.sum().item())"):
        assert "item-capture" not in slugs(break_advice(event(code=code), run_of({"capture_scalar_outputs"})))


@pytest.mark.parametrize("tensor", ["TensorVariable()", "LazyVariableTracker(unrealized: <class 'torch.Tensor'>)"])
def test_a_tensor_is_not_logged_later(tensor):
    context = f"method: <Logger train (INFO)>.info, args: [ConstantVariable(str: '%s'), {tensor}], kwargs: {{}}"
    found = break_advice(
        event("GB0291", 'log.info("%s", x)', context=context, explanation="registered as reorderable"),
        run_of({"reorderable_logging_functions", "ignore_logging_functions"}),
    )
    assert "logger-reorder" not in slugs(found)
    assert {"logger-ignore", "logger-outside"} <= set(slugs(found))


def test_a_number_that_torch_has_not_looked_at_is_logged_later():
    context = (
        "method: <Logger t (INFO)>.info, args: [ConstantVariable(str: '%s'), LazyVariableTracker(unrealized: <class 'int'>)], kwargs: {}"
    )
    found = break_advice(
        event("GB0291", 'log.info("%s", n)', context=context, explanation="registered as reorderable"),
        run_of({"reorderable_logging_functions"}),
    )
    assert slugs(found)[0] == "logger-reorder"


@pytest.mark.parametrize(
    "context",
    [
        "module: torch.utils, qualname: swap_tensors, skip reason: x",
        "module: _hashlib, qualname: openssl_md5, x",
        "module: <unknown module>, qualname: list.append, skip reason: <missing reason>",
        "module: <unknown module>, qualname: Encoder.__new__, skip reason: <missing reason>",
    ],
)
def test_a_function_of_torch_or_python_becomes_no_operator(context):
    found = break_advice(event("GB0007", "swap(a, b)", context=context), run_of())
    assert "call-custom-op" not in slugs(found)
    assert slugs(found)[0] == "call-outside"


def test_membership_of_a_tensors_value_is_decided_outside():
    assert slugs(break_advice(event(code="if int(x) not in self.cold:"), run_of())) == ["member-outside"]


def test_numbers_that_a_library_draws_with_numpy_are_not_captured():
    inner = Location("/env/lib/python3.12/site-packages/lib/model.py", 9, "mask", "epsilon = np.random.rand(1).item()")
    assert slugs(break_advice(event("GB0033", "y = model(x)", inner=inner), run_of({"capture_scalar_outputs"}))) == ["library-line"]


def test_the_call_of_the_compiled_function_is_not_to_be_moved_out_of_itself():
    """A break inside a loop: torch's stack leads from the call of the compiled function straight into the library."""
    own = Location("/home/me/train.py", 57, "<module>", "y = fast(x)")
    inner = Location("/env/lib/python3.12/site-packages/lib/conv.py", 17, "forward", "if edges.max() >= n:")
    run = dataclasses.replace(run_of(), frames=(dataclasses.replace(run_of().frames[0], name="forward", stack=(own,)),))
    broken = dataclasses.replace(event("GB0170"), stack=(own, inner), torch_frame=inner)
    text = break_advice(broken, run)[-1].text
    assert "`y = fast(x)`" not in text
    assert "compile a submodule" in text


DDP = "/env/lib/python3.12/site-packages/torch/nn/parallel/distributed.py"
ENTRY = Location("/env/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py", 9, "compile_wrapper")


@pytest.mark.parametrize(("between", "compiled"), [((), True), ((ENTRY,), False)])
def test_ddps_own_breaks_are_not_the_users(between, compiled):
    """The model inside counts as compiled when the compiled DDP module called it, not a compiled module of its own."""
    run = run_of()
    called = (ENTRY, Location(DDP, 1736, "_run_ddp_forward"), *between)
    frame = dataclasses.replace(run.frames[0], id="f1", name="forward", callers=called, outcome="compiled")
    graph = Graph(id="g0", frame="f1", attempt=0, kind="dynamo", nodes=3, ops={}, text=None)
    run = dataclasses.replace(run, frames=(*run.frames, frame), graphs=(graph,))
    inner = Location(DDP, 1779, "_pre_forward", "self.logger.set_runtime_stats_and_log()")
    manager = Location("/env/lib/python3.12/contextlib.py", 105, "__init__", "self.gen = func(*args, **kwds)")
    told = [
        break_advice(event("GB0156", "loss = model(x).sum()", inner=inner), run),
        break_advice(
            event("GB0007", "loss = model(x).sum()", inner=manager, context="qualname: DistributedDataParallel._inside_ddp_forward"), run
        ),
    ]
    for found in told:
        assert slugs(found) == ["ddp-own-break", "ddp-compile-inside"]
        assert ("compiled all the same" in found[0].text) is compiled
        assert ("No graph of the model inside" in found[0].text) is not compiled
    assert told[0] == told[1]


def test_a_break_in_the_model_below_ddp_is_the_models():
    found = break_advice(event("GB0124", "y = x.item()"), run_of({"capture_scalar_outputs"}))
    assert "ddp-own-break" not in slugs(found)


def test_the_breaks_of_a_run_are_read_once():
    looked = []

    class Counting(tuple):
        def __iter__(self):
            looked.append(1)
            return super().__iter__()

    run = dataclasses.replace(run_of(), breaks=Counting(event() for _ in range(50)))
    for one in tuple.__iter__(run.breaks):
        break_advice(one, run)
    assert len(looked) == 1


def test_gradients_are_not_traced_beside_an_optimizer():
    """The option takes `backward()` into the graph too, and beside an optimizer that gives other results (torch 2.15)."""
    grad = event("GB9186", "g, = torch.autograd.grad(D(x).sum(), x, create_graph=True)")
    alone = run_of({"trace_autograd_ops"})
    assert slugs(break_advice(grad, alone)) == ["trace-grad", "grad-again"]
    trained = dataclasses.replace(alone, breaks=(event("GB0123", "loss.backward()"),))
    assert slugs(break_advice(grad, trained)) == ["grad-again"]
