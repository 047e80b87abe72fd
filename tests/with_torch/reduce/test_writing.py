"""The reproducer file: it runs alone, makes exactly the inputs of the search, and spells whatever a graph may hold."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import replace

import pytest
import torch

from dynadiag.errors import NotRebuildableError
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.core.failure import from_json as failure_of
from dynadiag.reduce.graphs.candidate import Candidate, candidate_of
from dynadiag.reduce.graphs.inputs import PlainInput, TensorInput, from_value, make_values
from dynadiag.reduce.graphs.observing import observe
from dynadiag.reduce.graphs.setting import Setting, from_json
from dynadiag.reduce.reproducer.graph_file import Header, reproducer

pytestmark = pytest.mark.oldest
FAILURE = Failure(kind="runtime_error", phase="call", exceptions=("ValueError",), message='a "quoted" \\ \x1b[31mmessage\u202e """')
HEADER = Header(failure=FAILURE, made_by="Made by a test", versions="torch of today", story="From many nodes to few.")


def written(candidate, *, header=HEADER, **setting):
    source = reproducer(candidate, Setting(**{"backend": "eager", **setting}), header)
    assert "dynadiag" not in source
    names = {"__name__": "repro"}
    exec(compile(source, "repro_min.py", "exec"), names)
    return source, names


def recipe(shape, fill="random", dtype=torch.float32, stride=None, **more):
    stride = stride or torch.empty(shape).stride()
    return TensorInput(shape=shape, stride=stride, dtype=dtype, device="cpu", requires_grad=False, fill=fill, **more)


RECIPES = [
    recipe((2, 3)),
    recipe(()),
    recipe((0, 3), "ones"),
    recipe((3,), "zeros", torch.bfloat16),
    recipe((3, 2), dtype=torch.float8_e4m3fn),
    recipe((4,), dtype=torch.int64, high=7),
    recipe((4,), dtype=torch.bool),
    recipe((2, 2), dtype=torch.complex64),
    recipe((3, 4), stride=(1, 3)),
    recipe((3, 4), stride=(8, 2), dtype=torch.float64),
    recipe((3, 4), stride=(1, 0)),
    recipe((3, 4), stride=(0, 9), dtype=torch.int64, high=5),
    recipe((3, 4), "ones", stride=(2, 1)),
    from_value(torch.tensor([1.5, float("nan"), float("inf"), -float("inf")]), "a"),
    from_value(torch.arange(6).reshape(2, 3), "b"),
    from_value(torch.randn(40, 5), "c"),
    from_value(torch.randn(40, 10).t()[::2], "d"),
    from_value(torch.randn(3, dtype=torch.bfloat16), "e"),
    from_value(torch.tensor([], dtype=torch.float64), "f"),
    from_value(torch.arange(30.0)[3:5, None].expand(2, 3), "g"),
    from_value(torch.arange(30.0)[3:].unfold(0, 4, 2), "h"),
    from_value(torch.randn(90)[1:].unfold(0, 40, 1), "i"),
    PlainInput(value=3),
    PlainInput(value=None),
    PlainInput(value="text"),
]


@pytest.mark.parametrize("default", ["float32", "float64"])
def test_the_file_makes_the_inputs_of_the_search(default):
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"x{position}") for position in range(len(RECIPES))]
    graph.output((nodes[0],))
    candidate = Candidate(torch.fx.GraphModule(torch.nn.Module(), graph), tuple(RECIPES))
    try:
        _, names = written(candidate, default_dtype=default)
        made = names["make_inputs"]()
    finally:
        torch.set_default_dtype(torch.float32)
    for one, mine, theirs in zip(RECIPES, made, make_values(candidate.inputs), strict=True):
        if isinstance(theirs, torch.Tensor):
            assert (mine.shape, mine.stride(), mine.dtype) == (theirs.shape, theirs.stride(), theirs.dtype), one
            assert repr(mine.to(torch.complex128).tolist()) == repr(theirs.to(torch.complex128).tolist()), one
        else:
            assert mine == theirs


def test_the_file_is_short_and_says_what_it_shows():
    source, _ = written(candidate_of(torch.fx.symbolic_trace(lambda x: (torch.relu(x),)), [torch.ones(2)]))
    assert source.startswith("\"\"\"ValueError: a 'quoted' / message '''") and len(source.splitlines()) < 40
    assert "From many nodes to few." in source and "import torch" in source


def test_what_surrounded_the_call_is_written():
    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x) + 1,))
    around = {"autocast": ("cpu", "bfloat16"), "deterministic": True, "matmul_precision": "high", "grad": False, "dynamic": True}
    source, _ = written(candidate_of(gm, [torch.ones(2)]), **around)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.set_grad_enabled(True)
    for part in ("torch.autocast('cpu', dtype=torch.bfloat16)", "use_deterministic_algorithms(True)", "'high'", "dynamic=True"):
        assert part in source


def test_a_wrong_result_ends_in_an_assertion_and_a_right_one_does_not():
    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x),))
    header = Header(failure=Failure(kind="wrong_result", phase="call"), made_by="-", versions="-", story="-")
    inputs = [torch.ones(2, requires_grad=True)]
    written(candidate_of(gm, inputs), header=header, check="gradient", backward=True)
    with pytest.raises(AssertionError, match="wrong result 0: error 1 at size 1"):
        written(candidate_of(gm, inputs), header=header, check="forward", backend="relu_accuracy_error_TESTING_ONLY")


def loses_gradients(gm, inputs):
    return lambda *values: [result.detach().requires_grad_() for result in gm(*values)]


def has_no_gradients(gm, inputs):
    return lambda *values: [result.detach() for result in gm(*values)]


@pytest.mark.parametrize("backend", [loses_gradients, has_no_gradients])
def test_a_missing_gradient_is_found_and_asserted(backend):
    """Autograd gives None for it, or there is nothing to give it to autograd for."""
    x = torch.ones(3, requires_grad=True)
    candidate = candidate_of(torch.fx.symbolic_trace(lambda x: (torch.sin(x),)), [x])
    setting = Setting(backend=backend, check="gradient", backward=True)
    told = []
    observe(candidate, setting, told.append)
    failure = failure_of(told[-1]["failure"])
    assert failure.kind == "wrong_gradient" and failure.phase == "backward"
    source = inspect.getsource(backend)
    with pytest.raises(AssertionError, match="wrong result 1: None instead of a tensor"):
        written(candidate, check="gradient", backward=True, backend=backend, backend_source=source, header=replace(HEADER, failure=failure))


def one_of_many(gm, inputs):
    def run(x):
        result = gm(x)[0]
        return (result + 0.005 * (torch.arange(result.numel()) == 7),)

    return run


def test_one_wrong_element_is_asserted_where_it_was_the_failure():
    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x),))
    candidate, failure = candidate_of(gm, [torch.ones(4096)]), Failure(kind="wrong_result", phase="call")
    source = "def one_of_many" + inspect.getsource(one_of_many).partition("def one_of_many")[2]
    for detail, fails in (("result 0: 1 of 4096 elements are off by more than rounding", True), ("", False)):
        header = Header(failure=replace(failure, detail=detail), made_by="-", versions="-", story="-")
        with pytest.raises(AssertionError, match="wrong result 0: 1 of 4096 elements are off") if fails else contextlib.nullcontext():
            written(candidate, header=header, check="forward", backend=one_of_many, backend_source=source)


def test_what_a_call_writes_into_its_inputs_is_compared():
    gm = torch.fx.symbolic_trace(lambda x: (x.add_(1).sum() * 0,))
    header = Header(failure=Failure(kind="wrong_mutation", phase="call"), made_by="-", versions="-", story="-")
    source, names = written(candidate_of(gm, [torch.ones(2)]), header=header, check="mutation")
    assert torch.equal(names["actual"][1], torch.full((2,), 2.0)) and "the inputs as the call left them" in source
    names["compiled"] = lambda x: (x.sum() * 0,)
    with pytest.raises(AssertionError, match="wrong result 1"):
        exec(source[source.index("actual = run") :], names)


def test_a_memory_limit_stands_before_the_first_call():
    source = reproducer(
        candidate_of(torch.fx.symbolic_trace(lambda x: (x + 1,)), [torch.ones(2)]), Setting(backend="eager", memory_limit_mib=512), HEADER
    )
    assert source.index("setrlimit") < source.index("expected = run") and "(512 << 20)" in source and "import resource" in source
    compile(source, "repro_min.py", "exec")


def test_a_memory_limit_on_a_gpu_is_of_its_memory():
    """CUDA reserves address space by the terabyte: under RLIMIT_AS it does not even start."""
    on_gpu = Candidate(torch.fx.symbolic_trace(lambda x: (x + 1,)), (TensorInput(**{**vars(recipe((2,))), "device": "cuda:0"}),))
    source = reproducer(on_gpu, Setting(backend="eager", memory_limit_mib=512), HEADER)
    assert source.index("set_per_process_memory_fraction") < source.index("expected = run") and "(512 << 20)" in source
    assert "resource" not in source
    compile(source, "repro_min.py", "exec")


def test_errors_of_a_gpu_are_waited_for():
    gm = torch.fx.symbolic_trace(lambda x: (torch.relu(x),))
    on_gpu = Candidate(gm, (TensorInput(**{**vars(recipe((2,))), "device": "cuda:0"}),))
    for backward in (False, True):
        source = reproducer(on_gpu, Setting(backend="eager", backward=backward), HEADER)
        compile(source, "repro_min.py", "exec")
        assert "torch.cuda.synchronize()\n    return results" in source and "torch.randn(2).to('cuda:0')" in source


def test_a_function_that_no_script_can_name_is_refused():
    def private(x):
        return x + 1

    graph = torch.fx.Graph()
    graph.output((graph.call_function(private, (graph.placeholder("x"),)),))
    with pytest.raises(NotRebuildableError, match="cannot be written as source"):
        written(candidate_of(torch.fx.GraphModule(torch.nn.Module(), graph), [torch.ones(2)]))


def test_settings_survive_json():
    setting = Setting(backend="inductor", options={"a": 1}, autocast=("cuda", "float16"), check="gradient", backward=True)
    assert from_json({**setting.to_json(), "autocast": ["cuda", "float16"], "of_a_newer_version": 1}) == setting


BACK_END = """
from functools import partial

import torch

def helper(gm, inputs, text):
    return gm.forward


import math; DIGITS = math.floor(2.5)

my_backend = partial(helper, text='''a



b''')
"""


def test_what_a_back_end_imports_stands_at_the_top():
    def my_backend(gm, inputs):
        return gm.forward

    source, names = written(
        candidate_of(torch.fx.symbolic_trace(lambda x: (torch.relu(x),)), [torch.ones(2)]), backend=my_backend, backend_source=BACK_END
    )
    head = source[: source.index("class Repro")]
    assert "from functools import partial\nimport torch\n" in head and source.count("import torch\n") == 1
    assert source.index("import math; DIGITS") > source.index("class Repro") and names["DIGITS"] == 2
    assert names["my_backend"].keywords == {"text": "a\n\n\n\nb"} and "\n\ndef helper" in source


@pytest.mark.parametrize(
    ("function", "check", "needed"), [(torch.rand_like, "forward", True), (torch.sin, "forward", False), (torch.rand_like, "raises", False)]
)
def test_the_file_draws_the_random_numbers_of_eager_where_it_compares(function, check, needed):
    gm = torch.fx.symbolic_trace(lambda x: (function(x),))
    source = reproducer(Candidate(gm, (recipe((2,)),)), Setting(check=check), HEADER)
    assert ("torch._inductor.config.fallback_random = True" in source) is needed
