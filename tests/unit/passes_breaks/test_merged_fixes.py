"""One setting that cures several lines of a library is told once."""

from dataclasses import replace

from dynadiag.model.location import Location
from dynadiag.passes.find_graph_breaks import find_graph_breaks

CONSTANT = "builtin print [<class 'torch._dynamo.variables.constant.ConstantVariable'>] False"
PRINT = {"gb_id": "GB0059", "gb_type": "Failed to trace builtin operator", "context": CONSTANT}


def test_a_setting_for_several_lines_is_one_fix(maker, at, library):
    frame = maker.frame("helper", line=1, file=library(4).file)  # compiled itself: what an inlined function prints later is lost
    for line in (4, 6, 8):
        maker.breaks_at(frame, at(3, "step", "out = pool(x)"), replace(library(line), code='print("a")'), **PRINT)
    result = find_graph_breaks(maker.run())
    assert len(result.graph_breaks) == 3
    (finding,) = result.findings
    assert [advice.slug for advice in finding.fix] == ["print-ignore"]


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


def test_a_logger_call_that_breaks_on_its_line_and_inside_is_one_finding(maker, at):
    frame, line = maker.frame("step", line=1), at(3, "step", 'log.info("%s", x)')
    inside = Location("/usr/lib/python3.12/logging/__init__.py", 1488, "info", "if self.isEnabledFor(INFO):")
    said = {"gb_id": "GB0291", "gb_type": "logging.Logger method not supported for non-export cases"}
    method = "method: <Logger lm (INFO)>.{}, args: [TensorVariable()], kwargs: {{}}"
    maker.breaks_at(frame, line, context=method.format("info"), **said)
    maker.breaks_at(frame, line, inside, context=method.format("isEnabledFor"), **said)
    (finding,) = find_graph_breaks(maker.run()).findings
    assert finding.cost.value == 2 and [one.slug for one in finding.fix] == ["logger-guard"]
