"""Forward graphs that overwrite what their backward needs: torch's own text, shortened."""

import pytest

from dynadiag.model.graph import Graph
from dynadiag.model.location import PayloadRef
from dynadiag.model.run import Run, RunInfo
from dynadiag.passes.find_stale_gradients import find_stale_gradients

FORWARD = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[4][1]cpu", primals_2: "f32[4][1]cpu"):
        # File: /home/me/m.py:8 in forward, code: h = self.state.clone()
        clone: "f32[4][1]cpu" = torch.ops.aten.clone.default(primals_1)
        # File: /home/me/m.py:9 in forward, code: y = h * x
        mul: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(clone, primals_2);  clone = primals_2 = None
        # File: /home/me/m.py:11 in forward, code: self.state.copy_(y.detach())
        copy: "f32[4][1]cpu" = torch.ops.aten.copy.default(primals_1, mul)
        copy_: "f32[4][1]cpu" = torch.ops.aten.copy_.default(primals_1, copy);  copy = copy_ = None
        return (
            mul,  # PlainAOTOutput(idx=0)
            KEPT,  # SavedForBackwardsAOTOutput(idx=0)
        )
"""
BACKWARD = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[4][1]cpu", tangents_1: "f32[4][1]cpu"):
        clone: "f32[4][1]cpu" = torch.ops.aten.OPERATOR.default(primals_1);  primals_1 = None
        mul_1: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(tangents_1, clone);  tangents_1 = clone = None
        return (
            None,  # None
            mul_1,  # GradAOTOutput(grad_of=PlainAOTInput(idx=1))
        )
"""


def run_of(folder, *texts):
    graphs = []
    for kind, text in zip(("aot_forward", "aot_backward"), texts, strict=False):
        (folder / kind).write_text(text)
        ref = PayloadRef(str(folder / kind), 0, len(text))
        graphs.append(
            Graph(id=f"g{len(graphs)}", frame="f0", kind=kind, attempt=0, nodes=5, ops={"torch.ops.aten.copy_.default": 1}, text=ref)
        )
    return Run(info=RunInfo(), graphs=tuple(graphs))


@pytest.mark.parametrize(
    ("kept", "operator", "wrong"),
    [
        ("primals_1", "clone", True),
        ("clone", "clone", False),  # the old value
        ("primals_1", "zeros_like", False),  # only its size
    ],
)
def test_an_input_that_is_kept_and_overwritten_gives_wrong_gradients(tmp_path, kept, operator, wrong):
    """Two of 840 programs (2.11 and 2.15): gradients were wrong from the first write on, and no finding said so."""
    run = run_of(tmp_path, FORWARD.replace("KEPT", kept), BACKWARD.replace("OPERATOR", operator))
    findings = find_stale_gradients(run).findings
    assert [(one.code, one.severity, one.where and one.where.line) for one in findings] == ([("DF14", "error", 11)] if wrong else [])
    for one in findings:
        assert "which `h = self.state.clone()` (m.py:8) had read" in one.why and [advice.slug for advice in one.fix] == [
            "assign-new-tensor"
        ]


def test_nothing_is_said_of_a_backward_that_was_not_compiled(tmp_path):
    assert find_stale_gradients(run_of(tmp_path, FORWARD.replace("KEPT", "primals_1"))).findings == ()
