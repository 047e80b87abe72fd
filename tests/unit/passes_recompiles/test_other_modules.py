"""Several compiled modules share torch's entry function: the first call of the second one is no change of the first."""

from dataclasses import replace

import pytest

from dynadiag.model.graph import TracedInput
from dynadiag.model.run import CompileCall, Run, RunInfo
from dynadiag.passes.find_recompiles import find_recompiles
from dynadiag.passes.recompile_causes import parts_with_parameters

ENTRY = {"name": "inner", "file": "/lib/python3.12/site-packages/torch/_dynamo/external_utils.py", "line": 67}
SIZE = "0/0: tensor 'args[0]' size mismatch at index 1. expected 4, actual 8"
GRAD = "0/1: tensor 'args[0]' requires_grad mismatch. expected requires_grad=0"


def held(frame, rows):
    rest = {"stride": None, "dtype": None, "device": None, "requires_grad": True, "is_leaf": True, "storage": None}
    return TracedInput(frame=frame, source="L['fn']._modules['0'].weight", shape=(16, rows), is_parameter=True, **rest)


def test_another_module_is_no_changed_size(builders):
    run = builders.recompiled([SIZE], [GRAD, SIZE], **ENTRY)
    run = builders.replace(run, traced_inputs=(held("f0", 4), held("f1", 8), held("f2", 8)))
    found = find_recompiles(run)
    assert [(row.source, row.kind) for row in found.transitions] == [
        ("another compiled module", "module"),
        ("args[0].requires_grad", "requires_grad"),
    ]
    (finding,) = found.findings
    assert "Another compiled module was called" in finding.why
    assert finding.fix == () and "Each of several compiled modules takes its own compiled version" in finding.why
    assert found.recompiles[0].reasons == (SIZE,)


def test_the_same_module_is_read_as_before(builders):
    run = builders.recompiled([SIZE], **ENTRY)
    run = builders.replace(run, traced_inputs=(held("f0", 4), held("f1", 4)))
    assert [row.source for row in find_recompiles(run).transitions] == ["args[0].size(1)"]


@pytest.mark.parametrize(("shape", "said"), [((16, 4), "module[0].active"), ((16, 8), "another compiled module")])
def test_a_module_that_takes_another_of_its_parts_is_the_same(builders, shape, said):
    """Adapters by name (2.11): three values of `active` were told as three modules, and there was one."""
    run = builders.recompiled(["0/0: fn._modules['0'].active is None"], **ENTRY)
    adapter = replace(held("f1", 4), source="L['fn']._modules['0']._modules['sql'].weight")
    run = builders.replace(run, traced_inputs=(held("f0", 4), replace(held("f1", 4), shape=shape), adapter))
    assert [row.source for row in find_recompiles(run).transitions] == [said]


def test_another_class_of_module_needs_no_conversion(builders):
    reason = "0/0: ___check_type_id(fn, 7), type=<class 'torch.nn.modules.container.Sequential'>"
    (finding,) = find_recompiles(builders.recompiled([reason], **ENTRY)).findings
    assert finding.fix == ()


def test_a_failed_compilation_of_the_same_module_is_no_other_module(builders):
    """It failed before it had read all parameters."""
    run = builders.recompiled([SIZE], **ENTRY)
    second = TracedInput(**{**{name: getattr(held("f0", 4), name) for name in TracedInput.__slots__}, "source": "L['fn'].bias"})
    frames = (run.frames[0], builders.replace(run.frames[1], outcome="failed"))
    run = builders.replace(run, frames=frames, traced_inputs=(held("f0", 4), second, held("f1", 4)))
    assert [row.source for row in find_recompiles(run).transitions] == ["args[0].size(1)"]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("L['self'].lin._parameters['weight']", "lin"),
        ("L['self']._modules['lin']._parameters['weight']", "lin"),
        ("L['self'].__dict__['_modules']['lin']._modules['0']._parameters['weight']", "lin"),
        ("L['self']._parameters['scale']", None),
        ("L['model']._modules['lin']._parameters['weight']", None),
    ],
)
def test_an_attribute_that_holds_a_parameter_is_a_module(source, name):
    """Followed on an agent whose net counts its calls: nothing was advised, since each of its layers might have been a method."""
    parameter = replace(held("f0", 4), source=source)
    found = parts_with_parameters(Run(info=RunInfo(), traced_inputs=(parameter,)))
    assert found == ({} if name is None else {"f0": {name}})


def test_a_parameter_of_another_size_is_another_compiled_module(builders):
    """Four layers compiled one by one: `module[0].weight.size(1)` was named, which no line of the program has."""
    reason = (
        "0/0: tensor 'fn.__self__._modules['0']._parameters['weight']' size mismatch at index 1. expected 2, actual 24. Guard failed on a "
        "parameter, consider using torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism on parameters."
    )
    calls = tuple(CompileCall(process=0, location=None, target=f"Net{n}", backend="eager") for n in (1, 2))
    for made, text in ((calls, "another compiled module"), (calls[:1], "`module[0].weight.size(1)`")):
        (finding,) = find_recompiles(replace(builders.recompiled([reason], **ENTRY), compile_calls=made)).findings
        assert text in finding.title
