"""`explain --parity` against known truth: snippets of the shared corpus whose results are silently wrong, and others that are not.

All snippets were run once by hand (the figures are in docs/parity-evidence.md); here the wrong ones and a few of the hardest right ones.
"""

import contextlib
import io
from pathlib import Path

import pytest
import torch

import dynadiag
from dynadiag.passes.find_mutations import find_mutations
from dynadiag.passes.find_parity import find_parity
from dynadiag.trace import load

CORPUS = Path(__file__).parents[1] / "corpus" / "mutations"
WRONG = {"31_overlap_appears_later": ("L['x']", "x.mul_(2)"), "59_custom_op_returns_alias": ("L['x']", "y.add_(1)")}
RIGHT = (
    "05_batchnorm_running_stats",
    "13_set_input",
    "27_aliased_inputs_disjoint",
    "29_aliased_dtype_views",
    "33_outputs_share_base",
    "57_custom_op_declared",
    "61_autograd_function_mutates_buffer",
    "75_internal_overlap",
    "95_stacked_kv_cache_views",
    "105_inference_tensor_input",
    "125_init_normal_inplace",
)


def snippet(name):
    """The names that the snippet defines; its source is the corpus's own."""
    file = CORPUS / f"{name}.py"
    names = {"__name__": name}
    exec(compile(file.read_text(), str(file), "exec"), names)  # noqa: S102
    return names


def run(name, directory):
    torch._dynamo.reset()
    with dynadiag.observe(directory, parity_calls=3):
        body = snippet(name)
        arguments = body["make"]()
        compiled = torch.compile(body["fn"], backend="aot_eager")
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            for _ in range(body.get("CALLS", 2)):
                body["step"](compiled, arguments) if "step" in body else compiled(*arguments)
    return load(directory)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_silently_wrong_is_an_error_with_its_input_and_line(name, tmp_path):
    found = run(name, tmp_path / "run")
    source, line = WRONG[name]
    assert [(one.code, one.severity, one.where.code) for one in find_parity(found).findings] == [("DM40", "error", line)]
    wrong = [one for one in find_mutations(found).mutations if one.worst == "silent_wrong"]
    assert [(one.input, one.effects[0]["basis"]) for one in wrong] == [(source, "observed")]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_has_no_finding(name, tmp_path):
    assert find_parity(run(name, tmp_path / "run")).findings == ()
