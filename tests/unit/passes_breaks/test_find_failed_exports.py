"""An export that failed is a finding at the line at which tracing stopped, with the advice of the same break."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dynadiag.model.location import Location
from dynadiag.model.run import Problem, Process, Run, RunInfo
from dynadiag.passes.find_failed_exports import find_failed_exports
from dynadiag.render.terminal import print_summary
from dynadiag.report import build

SCRIPT = "/home/me/program.py"
CALL = Location(SCRIPT, 10, "<module>", "ep = torch.export.export(m, (x,))")
EXPORT = Location("/env/site-packages/torch/export/__init__.py", 260, "export", "return _export(")
BRANCH = Location(SCRIPT, 4, "M.forward", "if x.sum() > 0:")
TORCH = Location("/env/site-packages/torch/fx/experimental/symbolic_shapes.py", 9039, "ShapeEnv._evaluate_expr", "raise")
TEXT = (
    "GuardOnDataDependentSymNode: Could not guard on data-dependent expression Eq(u0, 1) (unhinted: Eq(u0, 1)).\n\n"
    "consider using data-dependent friendly APIs"
)
FAILED = Problem(kind="export_failed", process=0, text=TEXT, stack=(CALL, EXPORT, BRANCH, TORCH))
DONE = Problem(kind="exported", process=0, text="", stack=(CALL, EXPORT))
STRICT = """Unsupported: Call to `torch._dynamo.graph_break()`
  Explanation: User-inserted graph break. Message: None
  Hint: Remove the `torch._dynamo.graph_break()` call.

  Developer debug context: Called `torch._dynamo.graph_break()` with args `[]`, kwargs `{}`

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0025.html

from user code:
   File "/home/me/program.py", line 6, in forward
    torch._dynamo.graph_break()
"""


def findings(*problems):
    return find_failed_exports(Run(info=RunInfo(), problems=problems, site_prefixes=("/env",))).findings


def test_the_line_and_torchs_words_are_told():
    (finding,) = findings(FAILED, FAILED)
    assert (finding.code, finding.severity, finding.where.line) == ("DF17", "error", 4)
    assert "The program exports at program.py:10, and tracing stopped at program.py:4: GuardOnDataDependentSymNode: Could" in finding.why
    assert "consider using" not in finding.why and "Nothing is advised" not in finding.why
    assert [one.slug for one in finding.fix] == ["export-branch", "draft-export"]


@pytest.mark.parametrize("code", ["assert x.sum() > 0", "while x.sum() > 0:"])
def test_a_check_or_a_loop_is_no_choice_between_two_values(code):
    (finding,) = findings(replace(FAILED, stack=(CALL, EXPORT, replace(BRANCH, code=code), TORCH)))
    assert "export-branch" not in [one.slug for one in finding.fix]


def test_the_headline_is_the_failed_export():
    report = build(Run(info=RunInfo(command=("python", SCRIPT)), processes=(Process(index=0, log="0.log", pid=1),), problems=(FAILED,)))
    console = Console(file=io.StringIO(), width=200)
    print_summary(report, console)
    said = console.file.getvalue()
    assert "torch.export failed" in said and "no graph breaks" not in said.lower()


def test_a_strict_export_names_the_line_in_its_text():
    (finding,) = findings(replace(FAILED, text=STRICT, stack=(CALL, EXPORT, TORCH)))
    assert finding.where.line == 6 and "draft-export" not in [one.slug for one in finding.fix]


def test_an_error_without_a_line_stands_at_the_call():
    (finding,) = findings(replace(FAILED, text="RuntimeError: no", stack=(CALL, EXPORT, TORCH)))
    assert finding.where.line == 10 and "and it failed: RuntimeError: no" in finding.why and finding.fix == ()


@pytest.mark.parametrize(("problems", "count"), [((FAILED, DONE), 0), ((DONE, FAILED), 1)])
def test_what_another_way_exported_has_not_failed(problems, count):
    assert len(findings(*problems)) == count
