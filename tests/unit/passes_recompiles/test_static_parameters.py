"""A size that a parameter has is compiled for each value, whichever tensor's guard fails first."""

import pytest

from dynadiag.model.graph import TracedInput
from dynadiag.passes.find_recompiles import find_recompiles

SIZES = [(8, 8), (8, 16), (16, 8), (4, 4)]


def given(frame, source, shape, *, parameter):
    rest = {"stride": None, "dtype": "torch.float32", "device": "cpu", "requires_grad": parameter, "is_leaf": True, "storage": None}
    return TracedInput(frame=frame, source=f"L['{source}']", shape=shape, is_parameter=parameter, **rest)


def run_of(builders, parameters, others=SIZES):
    mismatch = "tensor 'g' size mismatch at index {}. expected {}, actual {}"
    pairs = [
        (i, next(at for at in (0, 1) if old[at] != new[at]), old, new) for i, (old, new) in enumerate(zip(others, others[1:], strict=False))
    ]
    run = builders.recompiled(*[[f"0/{i}: {mismatch.format(at, old[at], new[at])}"] for i, at, old, new in pairs])
    inputs = [given(f"f{i}", "g", shape, parameter=False) for i, shape in enumerate(others)]
    inputs += [given(f"f{i}", "w", shape, parameter=True) for i, shape in enumerate(parameters)]
    return builders.replace(run, traced_inputs=tuple(inputs))


def test_a_parameter_of_the_same_sizes_is_the_cause(builders):
    (finding,) = find_recompiles(run_of(builders, SIZES)).findings
    (fix,) = finding.fix
    assert fix.slug == "parameter-shapes" and "torch._dynamo.config.force_parameter_static_shapes = False" in fix.after
    assert "`w` is a parameter, whose sizes torch keeps static, and `g.size(" in fix.text
    assert "This ends 1 of these 3 recompiles" in fix.words, "each of the two sizes becomes dynamic when it changes for the first time"


@pytest.mark.parametrize("parameters", [[(8, 8)] * 4, [(8, 8), (8, 16), (16, 8), (5, 5)], SIZES[:3]])
def test_a_parameter_of_other_sizes_is_not(builders, parameters):
    (finding,) = find_recompiles(run_of(builders, parameters)).findings
    assert finding.fix == ()
