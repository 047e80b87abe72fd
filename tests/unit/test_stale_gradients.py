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
DYNAMO = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu", L_self_state: "f32[4][1]cpu"):
        l_x_ = L_x_
        # File: /home/me/m.py:8 in forward, code: h = self.state.clone()
        h: "f32[4][1]cpu" = L_self_state.clone()
        # File: /home/me/m.py:9 in forward, code: y = h * x
        y: "f32[4][1]cpu" = h * l_x_;  h = l_x_ = None
        # File: /home/me/m.py:11 in forward, code: self.state.copy_(y.detach())
        copy_: "f32[4][1]cpu" = L_self_state.copy_(y);  L_self_state = copy_ = None
        return (y,)
"""
# Inductor's has no copy of its own: the line is that of the value.
LOWERED = FORWARD.replace('        copy: "f32[4][1]cpu" = torch.ops.aten.copy.default(primals_1, mul)\n', "").replace(
    "(primals_1, copy)", "(primals_1, mul)"
)
LOWERED = LOWERED.replace("        # File: /home/me/m.py:11 in forward, code: self.state.copy_(y.detach())\n", "")
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
    for kind, text in zip(("dynamo", "aot_forward", "aot_backward"), (DYNAMO, *texts), strict=False):
        (folder / kind).write_text(text)
        ref = PayloadRef(str(folder / kind), 0, len(text))
        graphs.append(
            Graph(id=f"g{len(graphs)}", frame="f0", kind=kind, attempt=0, nodes=5, ops={"torch.ops.aten.copy_.default": 1}, text=ref)
        )
    return Run(info=RunInfo(), graphs=tuple(graphs))


@pytest.mark.parametrize(
    ("forward", "kept", "operator", "wrong"),
    [
        (FORWARD, "primals_1", "clone", True),
        (LOWERED, "primals_1", "clone", True),
        (FORWARD, "clone", "clone", False),  # the old value
        (FORWARD, "primals_1", "zeros_like", False),  # only its size
    ],
)
def test_an_input_that_is_kept_and_overwritten_gives_wrong_gradients(tmp_path, forward, kept, operator, wrong):
    """Two of 840 programs (2.11 and 2.15): gradients were wrong from the first write on, and no finding said so."""
    run = run_of(tmp_path, forward.replace("KEPT", kept), BACKWARD.replace("OPERATOR", operator))
    findings = find_stale_gradients(run).findings
    assert [(one.code, one.severity, one.where and one.where.line) for one in findings] == ([("DF14", "error", 11)] if wrong else [])
    for one in findings:
        assert "which `h = self.state.clone()` (m.py:8) had read" in one.why and [advice.slug for advice in one.fix] == [
            "assign-new-tensor"
        ]


def test_nothing_is_said_of_a_backward_that_was_not_compiled(tmp_path):
    assert find_stale_gradients(run_of(tmp_path, FORWARD.replace("KEPT", "primals_1"))).findings == ()
