"""What is written about a reduced script: its file and the first lines of its page."""

from __future__ import annotations

import pytest

from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.reproducer import bug_report
from dynadiag.reduce.reproducer.script_outcome import Header, reproducer
from dynadiag.reduce.scripts.program import parsed
from dynadiag.render.markdown_text import document

BREAK = Failure(kind="graph_break", phase="trace", message="GB0124 Unsupported Tensor.item()")
RAISED = Failure(kind="compile_error", phase="compile", exceptions=("a.b.BackendCompilerFailed", "some.module.ReluCompileError"))
HEADER = Header(versions="torch", story="From 9 statements to 4.")


def written(text, failure=BREAK):
    return reproducer(parsed(text, "script.py"), failure, HEADER)


def test_definitions_stand_apart():
    assert "import torch\n\n\ndef f(x):\n    return x\n\n\nclass C:\n    pass\n\n\nf(1)\nf(2)\n\n" in written(
        "import torch\ndef f(x):\n    return x\nclass C:\n    pass\nf(1)\nf(2)\n"
    )


@pytest.mark.parametrize("kind", ["graph_break", "hang", "recompile"])
def test_an_import_from_future_that_is_left_stays_first(kind):
    source = written(
        "from __future__ import annotations\ndef f(x: Missing):\n    return x\n", Failure(kind=kind, phase="call", message="m")
    )
    compile(source, "repro_min.py", "exec")
    assert source.count("from __future__ import annotations") == 1


def test_an_exception_without_words_is_named():
    assert written("f = 1\n", RAISED).startswith("# compile error: ReluCompileError\n")


def test_only_what_comes_without_torch_is_named_as_needed():
    source = written("import torch\nimport json\nimport numpy\nfrom functorch.compile import make_boxed_func\n")
    assert "# Besides torch it needs: numpy.\n" in source


def page(failure, *, recorded, error=None):
    return document(
        bug_report.document_of(
            bug_report.BugReport(
                failure=failure,
                about=bug_report.about_script(failure, recorded=recorded),
                story="From 9 statements to 4.",
                source="f = 1\n",
                source_why=None,
                cells=(),
                facts={},
                error=error,
            )
        )
    )


def test_the_page_says_of_the_uncompiled_run_only_what_was_run():
    assert 'Under `torch.compiler.set_stance("force_eager")` it passes.' in page(RAISED, recorded=False)
    assert "set_stance" not in page(BREAK, recorded=True) and "Graph break of `torch.compile`" in page(BREAK, recorded=True)


def test_the_page_names_no_folder_of_this_machine():
    error = 'Traceback:\n  File "/tmp/dynadiag-proof-x/empty/repro_min.py", line 7\nInner: bad'
    assert 'Traceback:\n  File "repro_min.py", line 7\nInner: bad' in page(BREAK, recorded=True, error=error)
