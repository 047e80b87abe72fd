import ast
import subprocess
import sys

import pytest

from dynadiag.fx.inputs import FILLINGS
from dynadiag.fx.rebuild import rebuild
from dynadiag.fx.script import write_script
from dynadiag.fx.standalone import TryOptions, make_standalone

CHILD = """    class wrap_body_0(torch.nn.Module):
        def forward(self, x: "f32[4][1]cpu"):
            sin: "f32[4][1]cpu" = torch.sin(x);  x = None
            return (sin,)
"""


def test_script_runs_alone_in_an_empty_directory(printed, tmp_path):
    text = printed(
        'L_x_: "f32[4][1]cpu", s0: "Sym(s0)", L_i_: "i64[s0][1]cpu"',
        "l_x_ = L_x_",
        '# File: /a/train.py:12 in step, code: y = checkpoint(x)"""',
        "wrap_body_0 = self.wrap_body_0",
        "tag = torch.ops.higher_order.tag_activation_checkpoint(wrap_body_0, l_x_, use_reentrant = False)",
        'getitem: "f32[4][1]cpu" = tag[0]',
        "sqrt = math_sqrt(s0)",
        "mul = getitem * sqrt",
        'buffer: "f32[4][1]cpu" = self.buffer',
        "add_ = mul.add_(buffer, alpha = -1)",
        "to = add_.to(dtype = torch.float64, device = device(type='cpu'))",
        "return (to, [s0, None], {'a': to})",
        children=CHILD,
    )
    made = make_standalone(text, title=["graph g1 of\nimport os"], trying=TryOptions(timeout_s=600))
    assert made.runnable, made.why_not
    assert "dynadiag" not in made.source
    assert "output[0]: float64 (4,) on cpu" in made.output
    assert "# /a/train.py:12 in step: y = checkpoint(x)" in made.source
    script = tmp_path / "empty" / "g1.py"
    script.parent.mkdir()
    script.write_text(made.source)
    done = subprocess.run([sys.executable, "-I", script.name], cwd=script.parent, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == made.output
    assert [item.name for item in script.parent.iterdir()] == ["g1.py"]


def test_a_script_is_written_without_compiling_the_graph(printed, monkeypatch):
    monkeypatch.setattr("torch.fx.graph_module._forward_from_src", None)
    made = make_standalone(printed('x: "f32[4][1]cpu"', "y = x + 1", "return (y,)"), trying=TryOptions(timeout_s=None))
    assert "y = x + 1" in made.source


def test_title_and_comments_cannot_become_code(printed):
    text = printed('x: "f32[4][1]cpu"', "# File: a\x0b.py:1 in f\u2028import os, code: x\x85import os", "y = x + 1", "return (y,)")
    source = write_script(rebuild(text), title=["a\nimport os\r\nimport sys\x0cimport io"])
    imported = [alias.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import) for alias in node.names]
    assert imported == ["torch"]


@pytest.mark.any_torch
def test_script_that_does_not_run_says_why(printed, monkeypatch):
    monkeypatch.setattr("dynadiag.fx.standalone.FILLINGS", FILLINGS[:1])
    made = make_standalone(printed('x: "f32[4][1]cpu"', "view = x.view(3)", "return (view,)"), trying=TryOptions(timeout_s=600))
    assert made.runnable is False
    assert "shape '[3]' is invalid" in made.why_not


@pytest.mark.slow
def test_scripts_of_foreign_graphs_compile_as_python(foreign_graphs):
    written = 0
    for _, _, text in foreign_graphs:
        if "test.baz" not in text:
            compile(write_script(rebuild(text)), "script", "exec")
            written += 1
    assert written == 79
