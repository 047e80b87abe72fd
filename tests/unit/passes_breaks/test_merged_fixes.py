"""One setting that cures several lines of a library is told once."""

from dataclasses import replace

from dynadiag.model.report import Advice
from dynadiag.passes.find_graph_breaks import find_graph_breaks
from dynadiag.passes.merged_fixes import marked_together

CONSTANT = "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False"
PRINT = {"gb_id": "GB0059", "gb_type": "Failed to trace builtin operator", "context": CONSTANT}


def test_a_setting_for_several_lines_is_one_fix_that_names_them(maker, at, library):
    frame = maker.frame("step", line=1)
    for line in (4, 6, 8):
        maker.breaks_at(frame, at(3, "step", "out = pool(x)"), replace(library(line), code='print("a")'), **PRINT)
    result = find_graph_breaks(maker.run())
    assert len(result.graph_breaks) == 3
    (finding,) = result.findings
    settings = [advice for advice in finding.fix if advice.after and "reorderable" in advice.after]
    assert len(settings) == 1
    assert settings[0].text.endswith("the same for core.py:6, core.py:8")


def test_changes_of_different_lines_stay_apart(maker, at):
    frame = maker.frame("step", line=1)
    for line, name in ((4, "a"), (6, "b")):
        maker.breaks_at(
            frame,
            at(line, "step", f"print({name})"),
            gb_id="GB0059",
            gb_type="Failed to trace builtin operator",
            context="builtin print [] False",
        )
    texts = [advice.text for finding in find_graph_breaks(maker.run()).findings for advice in finding.fix]
    assert any("print(a)" in text for text in texts) and any("print(b)" in text for text in texts)


def test_sizes_of_one_call_are_marked_together():
    def mark(name, dimension):
        text = f"Say before the first call that dimension {dimension} of `{name}` varies, so the first version is dynamic already."
        return Advice(
            slug="mark-dynamic", text=text, before="f(x, y)", after=f"torch._dynamo.maybe_mark_dynamic({name}, {dimension})\nf(x, y)"
        )

    other = Advice(slug="compile-dynamic", text="Or give it.")
    first, second = marked_together((mark("x", 1), other, mark("y", 0), mark("y", 1)))
    assert "that dimension 1 of `x`, dimension 0 of `y` and dimension 1 of `y` vary, so" in first.text
    assert first.after == "\n".join(
        [*(f"torch._dynamo.maybe_mark_dynamic({name}, {d})" for name, d in (("x", 1), ("y", 0), ("y", 1))), "f(x, y)"]
    )
    assert second is other
    assert marked_together((mark("x", 1), other)) == (mark("x", 1), other)
