"""A train step that was compiled as a whole breaks at three calls and is told once."""

import pytest

from dynadiag.model import Location
from dynadiag.model.graph import TracedInput
from dynadiag.passes.find_graph_breaks import find_graph_breaks

OPTIMIZER = Location("/opt/venv/lib/python3.12/site-packages/torch/optim/optimizer.py", 78, "_use_grad", "torch._dynamo.graph_break()")
SKIPPED = "Attempted to inline function marked as skipped"


@pytest.fixture
def parts(maker, at):
    """Adds the breaks that the calls of a train step make, each in the function that goes on after the one before."""

    def zero_grad(function="step"):
        frame = maker.frame(function, line=1)
        maker.breaks_at(
            frame, at(4, function, "optimizer.zero_grad()"), gb_id="GB0008", gb_type=SKIPPED, context="qualname: Optimizer.zero_grad"
        )

    def backward(function="step"):
        frame = maker.frame(f"torch_dynamo_resume_in_{function}_at_4", line=4)
        maker.breaks_at(frame, at(6, function, "loss.backward()"), gb_id="GB0123", gb_type="Unsupported Tensor.backward() call")

    def step(function="step"):
        for name in (f"torch_dynamo_resume_in_{function}_at_6", "wrapper"):
            frame = maker.frame(name, line=6)
            stack = (at(7, function, "optimizer.step()"), OPTIMIZER)
            maker.breaks_at(frame, *stack, gb_id="GB0025", gb_type="Call to `torch._dynamo.graph_break()`")

    return {"zero_grad": zero_grad, "backward": backward, "step": step}


def with_model(maker):
    """The run with the source of `step`, and its graphs' parameters, which are those of `model`."""
    lines = ["def step(x):", "", "", "    optimizer.zero_grad()", "    loss = model(x)", "    loss.backward()", "    optimizer.step()"]
    rest = {"shape": (4, 4), "stride": None, "dtype": None, "device": None, "requires_grad": True, "is_leaf": True, "storage": None}
    taken = [TracedInput(frame=one.id, source="G['model']._parameters['weight']", is_parameter=True, **rest) for one in maker.frames]
    return maker.run(blocks={("/home/me/proj/train.py", 1): "\n".join(lines)}, traced_inputs=tuple(taken))


def test_three_sites_are_one_finding_and_stay_three_sites(maker, parts):
    for part in parts.values():
        part()
    result = find_graph_breaks(maker.run())
    assert len(result.graph_breaks) == 3
    (finding,) = result.findings
    assert finding.code == "DB02"
    assert finding.title == "A whole train step is compiled: zero_grad(), backward() and step() break the graph of step"
    assert (finding.where.line, finding.cost.value, finding.evidence[:3]) == (6, 4.0, ("b2", "b1", "b3"))
    assert "`optimizer.zero_grad()` (train.py:4, GB0008), `loss.backward()` (train.py:6, GB0123), `optimizer.step()`" in finding.why
    assert "(train.py:7, GB0025 inside the call, at optimizer.py:78)" in finding.why


def test_the_advice_comes_once_and_names_every_line(maker, parts):
    for part in parts.values():
        part()
    (finding,) = find_graph_breaks(with_model(maker)).findings
    first, *others = finding.fix
    assert first.after == "compiled_model = torch.compile(model)"
    assert "leave `optimizer.zero_grad()`, `loss.backward()` and `optimizer.step()` in plain Python" in first.text
    slugs = [advice.slug for advice in finding.fix]
    assert len(slugs) == len(set(slugs))
    assert first.slug not in [advice.slug for advice in others]


def test_without_a_module_that_the_step_calls_nothing_is_advised_once(maker, parts):
    for part in parts.values():
        part()
    (finding,) = find_graph_breaks(maker.run()).findings
    assert finding.fix == () and finding.why.count("compile only what computes the loss") == 1


def test_two_parts_are_enough_and_one_is_not(maker, parts):
    parts["backward"]()
    assert [finding.code for finding in find_graph_breaks(maker.run()).findings] == ["GB0123"]
    parts["step"]()
    (finding,) = find_graph_breaks(maker.run()).findings
    assert finding.title.startswith("A whole train step is compiled: backward() and step() break")


def test_several_parts_on_one_line_are_each_named_and_what_two_lines_share_is_said_once(maker, at):
    code = "optimizer.zero_grad(); loss.backward(); optimizer.step()"
    for line in (4, 5):
        frame = maker.frame("step", line=1)
        maker.breaks_at(frame, at(line, "step", code), gb_id="GB0008", gb_type=SKIPPED, context="qualname: Optimizer.zero_grad")
        maker.breaks_at(frame, at(line, "step", code), gb_id="GB0123", gb_type="Unsupported Tensor.backward() call")
        own_break = {"gb_id": "GB0025", "gb_type": "Call to `torch._dynamo.graph_break()`"}
        for name in (f"torch_dynamo_resume_in_step_at_{line}", "wrapper"):
            maker.breaks_at(maker.frame(name, line=line), at(line, "step", code), OPTIMIZER, **own_break)
    (finding,) = find_graph_breaks(maker.run()).findings
    assert finding.title == "A whole train step is compiled: zero_grad(), backward() and step() break the graph of step"
    assert finding.why.count("GB0123 Unsupported") == 1
    assert ". Also on these lines: GB0123 Unsupported Tensor.backward() call" in finding.why


def test_other_breaks_of_the_function_stay_findings_of_their_own(maker, parts, at):
    parts["zero_grad"]()
    parts["backward"]()
    maker.breaks_at(maker.frame("torch_dynamo_resume_in_step_at_6", line=6), at(9, "step", "print(loss)"), gb_id="GB0059", gb_type="print")
    assert [finding.code for finding in find_graph_breaks(maker.run()).findings] == ["DB02", "GB0059"]


def test_parts_of_two_functions_are_two_things(maker, parts):
    parts["zero_grad"]("one")
    parts["backward"]("two")
    assert [finding.code for finding in find_graph_breaks(maker.run()).findings] == ["GB0008", "GB0123"]


def test_fullgraph_fails_at_the_first_part(maker, parts, at, failed):
    frame = maker.frame("step", line=1, outcome="failed", metrics=failed("Unsupported", "x"))
    maker.breaks_at(
        frame, at(4, "step", "optimizer.zero_grad()"), gb_id="GB0008", gb_type=SKIPPED, context="Optimizer.zero_grad", source="metrics"
    )
    (finding,) = find_graph_breaks(maker.run()).findings
    assert (finding.code, finding.severity) == ("GB0008", "error")


def test_a_gradient_scaler_is_part_of_the_step(maker, at, parts):
    parts["zero_grad"]()
    lines = {5: "scaler.scale(loss).backward()", 6: "scaler.step(optimizer)", 7: "scaler.update()"}
    for line, code in lines.items():
        frame = maker.frame(f"torch_dynamo_resume_in_step_at_{line - 1}", line=line)
        context = "module: torch.autograd, qualname: backward" if line == 5 else f"qualname: GradScaler.{code[7:].partition('(')[0]}"
        kind = "Unsupported Tensor.backward() call" if line == 5 else SKIPPED
        maker.breaks_at(frame, at(line, "step", code), gb_id="GB0123" if line == 5 else "GB0008", gb_type=kind, context=context)
    inside = maker.frame("step", line=500, file=OPTIMIZER.file)
    maker.breaks_at(inside, at(6, "step", lines[6]), OPTIMIZER, gb_id="GB0025", gb_type="Call to `torch._dynamo.graph_break()`")
    (finding,) = find_graph_breaks(with_model(maker)).findings
    assert finding.title == "A whole train step is compiled: zero_grad(), backward(), step() and update() break the graph of step"
    assert "`scaler.scale(loss).backward()`, `scaler.step(optimizer)` and `scaler.update()` in plain Python" in finding.fix[0].text
    assert [advice.slug for advice in finding.fix] == ["compile-model-apart"]


def test_a_compiled_function_that_only_steps_is_no_train_step(maker, parts):
    parts["step"]()
    (finding,) = find_graph_breaks(maker.run()).findings
    assert (finding.fix, finding.severity) == ((), "note")
    assert "nothing has to change" in finding.why


def test_a_compiled_step_method_has_nothing_to_change(maker, at):
    """`opt.step = torch.compile(opt.step)`: the own line is the call, and what breaks is torch's wrapper around the method."""
    wrapper = "/opt/venv/lib/python3.12/site-packages/torch/_dynamo/external_utils.py"
    frame = maker.frame("inner", line=60, file=wrapper)
    context = "module: torch.optim.sgd, qualname: SGD.step, skip reason: file is force-skipped (torch/optim/lr_scheduler.py)"
    stack = (at(32, "<module>", "sgd.step()"), Location(wrapper, 69, "inner", "return fn(*args)"))
    maker.breaks_at(frame, *stack, gb_id="GB0007", gb_type="Attempted to call function marked as skipped", context=context)
    (finding,) = find_graph_breaks(maker.run()).findings
    assert (finding.fix, finding.severity) == ((), "note")
    assert "nothing has to change" in finding.why
