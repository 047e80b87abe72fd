"""Where a report belongs, by the frame of a finding and by the guilty layer of a reduction: torch, a library, or the user's own project."""

import pytest

from dynadiag import report
from dynadiag.share.repository import TORCH, of_benchmark, of_layer, of_report
from dynadiag.trace import load
from tests.unit.gate.test_check_command import BREAK
from tests.unit.trace.conftest import LogBuilder

OWN, PACKAGES = "/home/alice/p/train.py", "/home/alice/.venv/lib/python3.11/site-packages"
INDUCTOR = f'  File "{PACKAGES}/torch/_inductor/lowering.py", line 7, in lower\n'


def built(tmp_path, *, stack, error=None):
    """The report of a log with one break, or with one failed compilation."""
    file, line = stack[-1]
    log = LogBuilder().intern(file).start(0)
    if error is None:
        frames = "".join(f'  File "{name}", line {number}, in f\n    f(x)\n' for name, number in stack)
        head, _, _ = BREAK.format(file).partition("User code traceback:")
        told = head.replace(f"{file}:5", f"{file}:{line}", 1)
        log.artifact("dynamo_graph_break_reason", f"{told}User code traceback:\n{frames}", frame=0)
        log.metrics(0, attempt=1, co_filename=file)
    else:
        places = [{"filename": name, "line": number, "name": "f", "loc": "f(x)"} for name, number in stack]
        log.artifact("dynadiag_problem", {"kind": "error", "text": error, "stack": places})
        log.metrics(0, co_filename=file, fail_type="BackendCompilerFailed", fail_reason=error)
    log.write(tmp_path)
    return report.build(load(tmp_path))


@pytest.mark.parametrize(
    ("stack", "error", "name", "label"),
    [
        ([(OWN, 9), (OWN, 5)], None, "your own project", None),
        ([(OWN, 9), (f"{PACKAGES}/transformers/models/gpt2/modeling_gpt2.py", 70)], None, "huggingface/transformers", None),
        ([(OWN, 9), (f"{PACKAGES}/acme_layers/norm.py", 7)], None, "the issue tracker of acme_layers", None),
        ([(OWN, 5)], f"{INDUCTOR}torch._inductor.exc.InductorError: LoweringException: x", "pytorch/pytorch", "module: inductor"),
        (
            [(OWN, 5)],
            f'{INDUCTOR}  File "{PACKAGES}/acme_compiler/backend.py", line 3, in compile\nBackendCompilerFailed: x',
            "the issue tracker of acme_compiler",
            None,
        ),
    ],
)
def test_the_frame_of_the_first_finding_decides(tmp_path, stack, error, name, label):
    place = of_report(built(tmp_path, stack=stack, error=error))
    assert (place.name, place.label) == (name, label), place


@pytest.mark.parametrize(
    ("layer", "frames", "name", "label"),
    [
        ("inductor", [], "pytorch/pytorch", "module: inductor"),
        ("dynamo", [f"{PACKAGES}/transformers/x.py"], "pytorch/pytorch", "module: dynamo"),
        ("eager", [f"{PACKAGES}/torch/nn/x.py"], "your own project", None),
        ("acme", [f"{PACKAGES}/torch/_dynamo/x.py", f"{PACKAGES}/acme_compiler/x.py"], "the issue tracker of acme_compiler", None),
        ("mine", [OWN], "your own project", None),
        ("", [f"{PACKAGES}/transformers/x.py"], "huggingface/transformers", None),
        ("", [], "pytorch/pytorch", "oncall: pt2"),
    ],
)
def test_the_guilty_layer_of_a_reduction_decides(layer, frames, name, label):
    place = of_layer({"guilty": {"layer": layer}}, frames)
    assert (place.name, place.label) == (name, label), place


@pytest.mark.parametrize(
    ("verdict", "compiled_ms", "name", "why"),
    [
        (
            "SLOWER",
            0.009,
            None,
            "default takes 0.005 ms a call more, no longer than looking up its compiled code (0.011 ms): compile more at once",
        ),
        ("SLOWER", 0.030, TORCH, "compiled code is SLOWER in a program that runs uncompiled"),
        ("WRONG", 0.009, TORCH, "compiled code is WRONG in a program that runs uncompiled"),
        ("VACUOUS", 0.009, None, "the benchmark found nothing that is slower or wrong"),  # the program gives nothing to compare
        ("FASTER", 0.001, None, "the benchmark found nothing that is slower or wrong"),
    ],
)
def test_a_benchmark_is_torchs_where_compiled_code_is_wrong_or_slower_by_more_than_a_call_costs(verdict, compiled_ms, name, why):
    """`x + 1` on eight numbers is slower by what each call of compiled code costs: that is no bug of PyTorch's."""
    arms = [{"name": "eager", "median_ms": 0.004}, {"name": "default", "median_ms": compiled_ms, "lookups": 1.0, "lookup_us": 10.6}]
    facts = {"arms": arms, "comparisons": [{"baseline": "eager", "arm": "default", "verdict": verdict}]}
    found = of_benchmark(facts)
    assert (found.name, found.why) == (name, why)


@pytest.mark.parametrize("arms", [None, [{}], [{"name": "default", "median_ms": "x", "lookup_us": None}], "x", [7]])
def test_a_benchmark_without_times_is_taken_at_its_word(arms):
    assert of_benchmark({"arms": arms, "comparisons": [{"baseline": "eager", "arm": "default", "verdict": "SLOWER"}, 3]}).name == TORCH
