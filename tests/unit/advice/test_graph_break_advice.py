"""Which advice is given when: by id or by text, own line or library, known or unknown options, and for input of strangers."""

import dataclasses
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.advice.gb_types import GB_TYPES
from dynadiag.advice.graph_breaks import RULES, advised, break_advice, in_collective, rules_for
from dynadiag.advice.reasons import REASONS
from dynadiag.changes.break_context import break_context_of
from dynadiag.model.graph import Graph, TracedInput
from dynadiag.model.location import Location
from dynadiag.model.report import GraphBreak
from dynadiag.model.run import BreakEvent, CompileCall, CompileKey, Frame, Process, Run, RunInfo

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
    call = CompileCall(process=0, location=None, target="f", backend="eager")
    return Run(info=RunInfo(), compile_calls=(call,), processes=(process,), frames=(frame,), site_prefixes=("/env/lib/python3.12",))


def with_source(run, code):
    """The run with the function around the line of `event`."""
    return dataclasses.replace(run, blocks={("/home/me/train.py", 2): f"def f(x, loss, n):\n    {code}\n    return x"})


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
    (found,) = break_advice(event("GB0148", "h = self.rnn(x)"), run_of({"allow_rnn"}))
    assert (found.slug, "if your torch" in found.text) == ("rnn-allow", False)


def test_an_option_that_the_torch_lacks_is_left_out():
    assert break_advice(event("GB0148", "h = self.rnn(x)"), run_of({"verbose"})) == ()


def test_an_option_of_a_foreign_log_is_named_with_doubt():
    (found,) = break_advice(event("GB0148", "h = self.rnn(x)"), run_of())
    assert "if your torch has this option" in found.text


@pytest.mark.parametrize(
    ("gb_id", "gb_type"),
    [("GB0124", "reworded in a later torch"), (None, "Unsupported Tensor.item() call with capture_scalar_outputs=False")],
)
def test_the_id_decides_and_the_text_stands_in(gb_id, gb_type):
    assert rules_for(gb_id, gb_type) == RULES["GB0124"]


def test_a_library_line_is_not_rewritten():
    found, reason = advised(event("GB0170", "y = model(x)", inner=LIBRARY), run_of())
    assert found == ()
    assert reason.endswith("lib's code, not yours to edit")  # whether a newer one breaks is not known


def test_code_without_a_source_file_is_not_called_a_librarys():
    made = Location("<made up>", 5, "ex")
    _, reason = advised(event("GB0170", "exec(text)", inner=made), run_of())
    assert "code without a source file" in reason and "library" not in reason


def test_an_unknown_break_gets_no_advice():
    found = advised(event("GB9999", "y = odd(x)", gb_type="Brand new", hints=("Avoid calling it.",)), run_of())
    assert found == ((), "dynadiag knows no change that removes this break")


def test_a_print_of_a_constant_may_move_and_a_print_of_a_shape_is_formatted():
    constant = event("GB0059", 'print("a")', context="builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False")
    shape = event("GB0059", "print(x.shape)", context="builtin print [<class 'torch._dynamo.variables.lists.SizeVariable'>] False")
    assert slugs(break_advice(constant, with_source(run_of(), 'print("a")')))[0] == "print-reorder"
    run = with_source(run_of(), "print(x.shape)")
    formatted = break_advice(shape, run)[0]
    assert (formatted.slug, formatted.after) == ("print-format", 'print(f"{x.shape}")')
    assert "print-reorder" not in slugs(break_advice(shape, run))


def test_a_shape_that_varies_is_not_formatted():
    """Its text would be a symbol's, at which the print breaks as before."""
    shape = event("GB0059", "print(x.shape)", context="builtin print [<class 'torch._dynamo.variables.lists.SizeVariable'>] False")
    kept = {"stride": None, "dtype": None, "device": None, "requires_grad": False, "is_leaf": True, "is_parameter": False, "storage": None}
    taken = tuple(TracedInput(frame="f0", source="L['x']", shape=(size, 2), **kept) for size in (3, 4))
    run = dataclasses.replace(with_source(run_of(), "print(x.shape)"), traced_inputs=taken)
    assert slugs(break_advice(shape, run)) == ["print-guard"]


def test_a_print_of_a_number_that_became_a_symbol_is_not_moved():
    """The first version of the code was cured, the one for any number broke as before."""
    kinds = ("constant.ConstantVariable", "tensor.SymNodeVariable")
    events = [event("GB0059", 'print("bad", n)', context=f"builtin print [<class 'torch._dynamo.variables.{one}'>] False") for one in kinds]
    run = dataclasses.replace(run_of(), breaks=tuple(events))
    assert slugs(break_advice(events[0], run)) == ["print-guard"]


def test_a_print_with_a_file_may_not_move():
    context = "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] True"
    assert "print-reorder" not in slugs(break_advice(event("GB0059", 'print("a", file=log)', context=context), run_of()))


SITE = "/env/lib/python3.12/site-packages"
SKIPPED = [
    (
        f"qualname: LRScheduler.step, name: step, filename: `{SITE}/torch/optim/lr_scheduler.py`, skip reason: x",
        "sched.step()",
        None,
    ),
    (
        f"qualname: Optimizer.zero_grad, name: inner, filename: `{SITE}/torch/_compile.py`, skip reason: x",
        "opt.zero_grad()",
        None,
    ),
    ("module: torch.optim.adam, qualname: Adam.step, skip reason: x", "opt.step()", None),
    ("module: <unknown module>, qualname: Random.random, skip reason: x", "p = random.random()", None),
    ("module: <unknown module>, qualname: BytesIO.__new__, skip reason: x", "b = io.BytesIO()", None),
    ("module: my_ext._C, qualname: fast_op, skip reason: C extension", "y = fast_op(x)", None),
]


@pytest.mark.parametrize(("context", "code", "slug"), SKIPPED)
def test_a_skipped_function_is_known_by_its_name(context, code, slug):
    found, reason = advised(event("GB0008" if "filename" in context else "GB0007", code, context=context), run_of())
    assert slugs(found) == ([] if slug is None else [slug])
    assert "<unknown" not in f"{found}{reason}"


def test_a_print_that_reads_a_tensor_is_not_moved():
    context = "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False"
    found = break_advice(
        event("GB0059", 'print("loss", loss.item())', context=context), with_source(run_of(), 'print("loss", loss.item())')
    )
    assert slugs(found) == ["item-print"]


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
    for gb_id in (*RULES, *REASONS):
        bare = dataclasses.replace(event(gb_id), stack=(), torch_frame=None)
        found, reason = advised(bare, run_of())
        assert found or reason
        assert all(advice.text and advice.before is None for advice in found)


def test_every_type_belongs_to_a_known_id():
    assert set(GB_TYPES.values()) == {*RULES, *REASONS}
    assert not set(RULES) & set(REASONS)


@given(
    gb_id=st.one_of(st.none(), st.sampled_from(sorted({*RULES, *REASONS}))),
    code=CODES,
    context=st.text(max_size=120),
    explanation=st.text(max_size=60),
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
    assert slugs(found) == ["logger-guard"]
    assert "isEnabledFor" not in "".join(f"{advice.text}{advice.after}" for advice in found)


def test_a_logger_method_of_a_library_is_named_on_the_class():
    inner = Location("/env/lib/python3.12/site-packages/lib/model.py", 9, "loss", "logger.warning_once(")
    found = break_advice(log_event("y = model(x)", "warning_once", inner), run_of({"ignore_logging_functions"}))
    assert [advice.after for advice in found] == ["torch._dynamo.config.ignore_logging_functions.add(logging.Logger.warning_once)"]
    assert any("after the imports of the libraries" in advice.text for advice in found if advice.after)


def test_a_logger_of_another_class_is_named_as_the_line_writes_it():
    found = break_advice(log_event("log.notice('a')", "notice", None, kind="MyLogger"), run_of({"ignore_logging_functions"}))
    assert [advice.after for advice in found] == ["if not torch.compiler.is_compiling():\n    log.notice('a')"]
    found = break_advice(log_event("y = log.notice('a')", "notice", None, kind="MyLogger"), run_of({"ignore_logging_functions"}))
    assert [advice.after for advice in found] == ["torch._dynamo.config.ignore_logging_functions.add(log.notice)"]


STEP = Location("/env/lib/python3.12/site-packages/torch/optim/optimizer.py", 78, "_use_grad", "torch._dynamo.graph_break()")


def test_no_line_of_a_train_step_is_replaced_by_a_compile_statement():
    for gb_id, code, inner in (("GB0123", "loss.backward()", None), ("GB0025", "opt.step()", STEP), ("GB0008", "opt.zero_grad()", None)):
        context = "qualname: Optimizer.zero_grad" if gb_id == "GB0008" else ""
        for advice in break_advice(event(gb_id, code, inner=inner, context=context), run_of({"trace_autograd_ops"})):
            assert advice.before is None


@pytest.mark.parametrize("tensor", ["TensorVariable()", "LazyVariableTracker(unrealized: <class 'torch.Tensor'>)"])
def test_a_tensor_is_not_logged_later(tensor):
    context = f"method: <Logger train (INFO)>.info, args: [ConstantVariable(str: '%s'), {tensor}], kwargs: {{}}"
    found = break_advice(
        event("GB0291", 'log.info("%s", x)', context=context, explanation="registered as reorderable"),
        run_of({"reorderable_logging_functions", "ignore_logging_functions"}),
    )
    assert "logger-reorder" not in slugs(found)
    assert slugs(found) == ["logger-guard"]


def test_words_are_logged_later_and_a_number_is_not():
    """The number of the second call was a symbol, at which the call broke as before (GB0296)."""
    context = (
        "method: <Logger t (INFO)>.info, args: [ConstantVariable(str: '%s'), LazyVariableTracker(unrealized: <class 'int'>)], kwargs: {}"
    )
    found = break_advice(
        event("GB0291", 'log.info("%s", n)', context=context, explanation="registered as reorderable"),
        with_source(run_of({"reorderable_logging_functions"}), 'log.info("%s", n)'),
    )
    assert slugs(found) == ["logger-guard"]
    found = break_advice(
        event(
            "GB0291", 'log.info("start")', context=context.partition(", Lazy")[0] + "], kwargs: {}", explanation="registered as reorderable"
        ),
        with_source(run_of({"reorderable_logging_functions"}), 'log.info("start")'),
    )
    assert slugs(found)[0] == "logger-reorder"


def test_a_schedulers_wrapper_around_the_step_is_named():
    context = "module: torch.optim.adam, qualname: Adam.step, skip reason: file is force-skipped (/env/torch/optim/lr_scheduler.py)"
    said = "intentionally marked that the function `Adam.step` in file `/env/torch/optim/lr_scheduler.py` should not be traced."
    run = with_source(run_of(), "opt.step()")
    _, reason = advised(event("GB0007", "opt.step()", context=context, explanation=said), run)
    assert reason.startswith("a learning-rate scheduler of torch wraps the optimizer's `step()`") and "zero_grad" not in reason


@pytest.mark.parametrize("method", ["zero_grad", "swap"])
def test_only_the_call_on_the_line_is_called_not_traced(method):
    context = f"qualname: Optimizer.{method}, name: inner, filename: `/env/site-packages/torch/_compile.py`"
    _, reason = advised(event("GB0007", f"opt.{method}()", context=context), with_source(run_of(), f"opt.{method}()"))
    assert f"Dynamo does not trace `{method}()` there" in reason


TORCH = Location("/env/lib/python3.12/site-packages/torch/library.py", 7, "f", "g()")


@pytest.mark.parametrize(
    ("code", "collective"),
    [
        ("y = dist.log_prob(x)", False),
        ("y = dist.all_reduce(x)", True),
        ("o = dist.AllreduceOptions()", True),
        ('f("dist.barrier()")', False),
    ],
)
def test_a_distribution_called_dist_is_no_collective(code, collective):
    context = break_context_of(event("GB0007", code, inner=TORCH), run_of())
    assert in_collective(context) is collective


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
        assert slugs(found) == ["ddp-compile-inside"]
        assert ("still compiled" in found[0].text) is compiled
        assert ("No graph of the inner model" in found[0].text) is not compiled
    assert told[0] == told[1]


def test_a_break_in_the_model_below_ddp_is_the_models():
    found = break_advice(event("GB0124", "y = x.item()"), run_of({"capture_scalar_outputs"}))
    assert "ddp-compile-inside" not in slugs(found)


def test_the_breaks_of_a_run_are_read_once():
    looked = []

    class Counting(tuple):
        def __iter__(self):
            looked.append(1)
            return super().__iter__()

    run = dataclasses.replace(run_of(), breaks=Counting(event() for _ in range(50)))
    for one in tuple.__iter__(run.breaks):
        break_advice(one, run)
    assert len(looked) == 1  # for the one table that these rules ask


def test_one_advice_costs_no_more_beside_many_other_breaks():
    """A hostile log has 50,000 of them: what one is asked about all others is looked up, not searched."""

    def cost_s(count):
        events = tuple(event("GB0025", "torch._dynamo.graph_break()") for _ in range(300)) + tuple(
            dataclasses.replace(event("GB0025"), torch_frame=Location("/home/me/train.py", line, "f", "x")) for line in range(count)
        )
        run = dataclasses.replace(run_of(), breaks=events)
        break_advice(events[0], run)  # what is found once a run
        began = time.process_time()
        for one in events[:300]:
            break_advice(one, run)
        return time.process_time() - began

    assert cost_s(30_000) < 12 * max(cost_s(300), 0.02)  # a search of all others takes 100 times as long
