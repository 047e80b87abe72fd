"""The mutation pass on small hand-made logs: one rule a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynadiag.advice.mutations import why_nothing
from dynadiag.model.graph import Graph
from dynadiag.passes.find_mutations import find_mutations
from dynadiag.passes.mutation_findings import mutation_findings

X = 'L_x_: "f32[4]"'


def kinds(mutation):
    return [(effect["kind"], effect["basis"]) for effect in mutation.effects]


def lines(mutation):
    return [site["line"] for site in mutation.sites]


def one(log, folder):
    found = find_mutations(log.load(folder))
    assert len(found.mutations) == 1, found.mutations
    return found.mutations[0]


@pytest.fixture
def log(build):
    """A frame with one input `L['x']`, written in place."""
    made = build.LogBuilder().start().tensor("L['x']")
    return made.graph(X, "# File: /home/me/train.py:7 in fn, code: x.add_(1)", "add_ = L_x_.add_(1)", "return (add_,)")


def test_a_plain_argument_would_skip_cuda_graphs(log, build, tmp_path):
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True})).probe(
        build.probed(0, "L['x']", build.write(7, "x.add_(1)"))
    ).metrics()
    found = one(log, tmp_path)
    assert (found.code, found.input, found.kind, found.where, found.static) == ("DM02", "L['x']", "data", "in_graph", False)
    assert kinds(found) == [("cudagraph_skip", "predicted")]
    assert (lines(found), found.bytes_touched, found.bytes_written_back, found.no_grad) == ([7], 16, 0, False)


def test_a_static_input_is_free(log, build, tmp_path):
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True}, static=[0])).metrics()
    found = one(log, tmp_path)
    assert (found.code, kinds(found), found.static) == ("DM01", [("free", "derived")], True)


def test_without_a_probe_the_lines_come_from_the_text_and_sizes_are_unknown(log, build, tmp_path):
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True})).metrics()
    result = find_mutations(log.load(tmp_path))
    found = result.mutations[0]
    assert lines(found) == [7] and found.bytes_touched is None
    assert found.unknown["bytes_touched"] == "the probe did not run on this recording"
    assert any("sizes are not known (the probe did not run" in note for note in result.notes)


def test_without_metadata_or_probe_nothing_is_guessed(log, tmp_path):
    found = one(log.metrics(), tmp_path)
    assert (found.effects, found.where) == ((), None)
    assert "AOTAutograd left no metadata" in found.unknown["effects"]
    assert lines(found) == [7]


def test_an_input_that_requires_grad_is_copied_back(log, build, tmp_path):
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True, "grad": True})).metrics()
    found = one(log, tmp_path)
    assert (found.code, found.where, found.bytes_written_back) == ("DM03", "epilogue", 16)
    assert found.worst == "copy_back"
    assert next(effect for effect in found.effects if effect["kind"] == "cudagraph_skip")["condition"]


def test_a_back_end_without_aotautograd_copies_nothing_back(log, build, tmp_path):
    log.probe(build.probed(0, "L['x']", build.write(7, "x.add_(1)"), where="epilogue", requires_grad=True)).metrics()
    found = one(log, tmp_path)
    assert (found.code, found.where, found.bytes_written_back) == ("DM03", None, None)
    assert ("copy_back", "predicted") in kinds(found) and not any(basis == "derived" for _, basis in kinds(found))
    assert "left no trace for this back end" in found.unknown["where"]


def test_list_inputs_are_counted_by_item_and_named_by_what_they_are_elsewhere(build, tmp_path):
    log = build.LogBuilder().start(name="forward")
    ops = "torch__dynamo_compiled_autograd_ops_"
    log.graph("L_inputs_ : list", "l_inputs_ = L_inputs_", f"accumulate_grad = {ops}AccumulateGrad([g], l_inputs_[1], l_inputs_[2], False)")
    tensor = {"type": "Tensor", "shape": [4], "dtype": "torch.float32"}
    items = [tensor, {**tensor, "known_as": "L['m'].weight"}, {**tensor, "grad_of": 1}, {**tensor, "grad_of": 0}]
    items = [{**item, "name": f"l_inputs_{number}", "source": f"L['inputs'][{number}]"} for number, item in enumerate(items)]
    log.artifact("dynadiag_graph", {"graph": 0, "inputs": [{"name": "l_inputs_", "source": "L['inputs']", "type": "list", "items": items}]})
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({}, {}, {"data": True}, {"data": True})).metrics(co_name="forward")
    found = find_mutations(log.load(tmp_path)).mutations
    assert sorted(mutation.input for mutation in found) == ["L['inputs'][0].grad", "L['m'].weight.grad"]
    assert any("(compiled autograd passes it as inputs[2])" in mutation.effects[0]["detail"] for mutation in found)
    assert [advice.slug for advice in found[0].advice] == ["clear-gradients"]


def test_items_of_a_list_that_nobody_recorded_are_counted_by_aotautograd(build, tmp_path):
    log = build.LogBuilder().start(name="forward").graph('L_inputs_ : list, L_x_: "f32[4]"', "return ()")
    inputs = [{"name": "l_inputs_", "source": "L['inputs']", "type": "list"}, {"name": "l_x_", "source": "L['x']", "type": "Tensor"}]
    log.artifact("dynadiag_graph", {"graph": 0, "inputs": inputs})
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({}, {"data": True}, {"data": True})).metrics(co_name="forward")
    found = find_mutations(log.load(tmp_path)).mutations
    assert sorted(mutation.input for mutation in found) == ["L['inputs'][1]", "L['x']"]


def test_augmented_assignment_of_an_input_is_no_write_on_a_tensor_of_the_graph(build, tmp_path):
    log = build.LogBuilder().start().tensor("L['x']")
    body = ["# File: /home/me/train.py:7 in fn, code: x += 1", 'L_x_ += 1;  x: "f32[4]" = L_x_;  L_x_ = None']
    log.graph(X, *body, "# File: /home/me/train.py:8 in fn, code: x |= 2", "x |= 2;  x_1 = x;  x = None", "return (x_1,)")
    sites = (build.write(7, "x += 1", node="x"), build.write(8, "x |= 2", node="x_1"))
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True})).probe(build.probed(0, "L['x']", *sites)).metrics()
    assert (one(log, tmp_path).input, lines(one(log, tmp_path))) == ("L['x']", [7, 8])


def test_what_aotautograd_does_not_count_is_no_write_on_a_tensor_of_the_graph(build, tmp_path):
    log = build.LogBuilder().start().tensor("L['x']")
    log.graph('L_x_: "f32[4]"', "l_x_ = L_x_", "resize = torch.ops.inductor.resize_storage_bytes_(l_x_, 0)", "return ()")
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({})).metrics()
    assert find_mutations(log.load(tmp_path)).mutations == ()


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("L['x']", None),
        ("L['self'].shadow[0]", None),
        ("L['self'].shadow", "self.shadow"),
        ("G['CACHE']", "CACHE"),
        ("G['POSITIONS'].grad", None),  # backward makes it
        ("L['___stack0']", None),
    ],
)
def test_only_what_lives_from_call_to_call_is_advised_to_be_marked(build, tmp_path, source, named):
    """What is passed in, or taken out of a list, may be another tensor each time: the mark changed nothing."""
    code = "b.mul_(2)"
    log = build.LogBuilder().start().tensor(source).graph(X, f"# File: /home/me/train.py:7 in fn, code: {code}", "add_ = L_x_.add_(1)")
    log.artifact("dynadiag_graph", {"graph": 0, "inputs": [{"name": "l_x_", "source": source, "type": "Tensor"}]})
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True})).probe(
        build.probed(0, source, build.write(7, code))
    ).metrics()
    expected = () if named is None else (f"torch._dynamo.mark_static_address({named})",)
    assert tuple(advice.after for advice in one(log, tmp_path).advice) == expected


def test_the_inputs_of_one_line_are_advised_together_or_not_at_all(build, tmp_path):
    """`pos.sub_(lr * pos.grad); pos.grad.zero_()`: one mark alone left the CUDA graph skipped, because of the gradient."""
    code = "pos.sub_(g); g.zero_()"
    log = build.LogBuilder().start().tensor("G['pos']").graph(X, f"# File: /home/me/train.py:7 in fn, code: {code}", "add_ = L_x_.add_(1)")
    log.artifact("dynadiag_graph", {"graph": 0, "inputs": [{"name": "l_x_", "source": "G['pos']", "type": "Tensor"}]})
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True})).probe(
        build.probed(0, "G['pos']", build.write(7, code))
    ).metrics()
    run = log.load(tmp_path)
    (position,) = find_mutations(run).mutations
    other = replace(position, input="G['g']", advice=(replace(position.advice[0], after="torch._dynamo.mark_static_address(g)"),))
    ((alone,), (both,), (neither,)) = (
        mutation_findings(group, run) for group in ([position], [position, other], [position, replace(other, advice=())])
    )
    assert [(one.after, one.follows) for one in alone.fix] == [("torch._dynamo.mark_static_address(pos)", False)]
    assert both.fix == (alone.fix[0], replace(other.advice[0], follows=True))
    assert neither.fix == () and "Nothing is advised" in neither.why


@pytest.mark.parametrize(
    ("source", "changed", "line", "advised"),
    [
        ("L['self'].s", "L['self']", "self.s = torch.stack(new)", False),
        ("L['self'].s", "L['self']", "self.r, self.s = step(a)", False),
        ("L['self'].s", "L['self']", "self.s += x", True),
        ("L['self'].s", "L['self']", "self.steps = self.s.sum()", True),
        ("L['self'].s", "G['rb']", "self.s = x", True),
        ("G['BUF']", "G['BUF']", "BUF = BUF + x", False),
        ("G['BUF']", "G['BUF']", "BUF += x", True),
    ],
)
def test_a_tensor_that_compiled_code_replaces_is_not_advised_to_be_marked(build, tmp_path, source, changed, line, advised):
    """Followed on an environment, `self.s = torch.stack(...)`: the tensor that was marked was not the one that is written."""
    code = "b.mul_(2)"
    place = f'      File "/home/me/train.py", line 8, in step\n        {line}\n'
    side = f"Mutating object of type Env (source name: {changed})\n\n{place}"
    log = build.LogBuilder().start().tensor(source).graph(X, f"# File: /home/me/train.py:7 in fn, code: {code}", "add_ = L_x_.add_(1)")
    log.artifact("dynamo_side_effects", side)
    log.artifact("dynadiag_graph", {"graph": 0, "inputs": [{"name": "l_x_", "source": source, "type": "Tensor"}]})
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True})).probe(
        build.probed(0, source, build.write(7, code))
    ).metrics()
    found = [each for each in find_mutations(log.load(tmp_path)).mutations if each.code == "DM02"]
    assert [bool(each.advice) for each in found] == [advised]


def test_what_the_first_version_did_not_have_is_not_advised_to_be_marked(build, tmp_path):
    """`self.sum += loss` begins with the number 0, which `mark_static_address` refuses; the compiled call makes the tensor."""
    log = build.LogBuilder().start().tensor("L['y']")
    log.graph('L_y_: "f32[4]"', "# File: /home/me/train.py:7 in fn, code: self.sum += y", "sum_1 = 0 + L_y_", "return (sum_1,)").metrics()
    log.start(again=1).tensor("L['self'].sum", again=1)
    log.graph('L_self_sum: "f32[4]"', "# File: /home/me/train.py:7 in fn, code: self.sum += y", "add_ = L_self_sum.add_(1)", again=1)
    log.artifact("dynadiag_graph", {"graph": 1, "inputs": [{"name": "l_self_sum", "source": "L['self'].sum", "type": "Tensor"}]}, again=1)
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True}), again=1)
    log.probe(build.probed(0, "L['self'].sum", build.write(7, "self.sum += y"))).metrics(again=1)
    assert (one(log, tmp_path).input, one(log, tmp_path).code, one(log, tmp_path).advice) == ("L['self'].sum", "DM02", ())


def test_a_number_of_one_process_is_no_part_of_a_name(build, tmp_path):
    log = build.LogBuilder().start().tensor("G['___unnamed_scope_140_c7']['LOG']")
    log.graph('G_unnamed_scope_140_c7_LOG_: "f32[4]"', "add_ = G_unnamed_scope_140_c7_LOG_.add_(1)", "return ()")
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True})).metrics()
    assert one(log, tmp_path).input == "G['LOG']"


def test_behind_a_break_a_skip_under_no_grad_needs_the_region_before_it_to_be_no_cuda_graph(build, tmp_path):
    log = build.LogBuilder().start(name="torch_dynamo_resume_in_fn_at_6", line=6).tensor("L['y']")
    log.graph('L_y_: "f32[4]"', "# File: /home/me/train.py:7 in fn, code: y.relu_()", "relu_ = L_y_.relu_()", "return (relu_,)")
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True, "grad": True}))
    found = one(log.metrics(co_name="torch_dynamo_resume_in_fn_at_6"), tmp_path)
    condition = next(effect for effect in found.effects if effect["kind"] == "cudagraph_skip")["condition"]
    assert "torch.no_grad" in condition and "does not itself run as a CUDA graph" in condition


def test_a_write_through_data_is_copied_back_and_has_its_own_code(build, tmp_path):
    log = build.LogBuilder().start().tensor("L['w']", is_parameter=True)
    log.graph(
        'L_w_: "f32[4]"',
        "# File: /home/me/train.py:7 in fn, code: w.data.mul_(2)",
        "d = torch._C._autograd._get_data_attr(L_w_)",
        "mul_ = d.mul_(2)",
    )
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True, "grad": True}, static=[0])).metrics()
    found = one(log, tmp_path)
    assert (found.code, kinds(found)) == ("DM04", [("copy_back", "derived")])
    assert found.advice[0].after == "with torch.no_grad():\n    w.mul_(2)"


def test_a_write_through_data_stays_where_a_backward_pass_may_need_the_old_value(build, tmp_path):
    """Autograd sees the write under `no_grad`, and refuses what was kept before it."""
    log = build.LogBuilder().start().tensor("L['w']", is_parameter=True)
    log.graph(
        'L_w_: "f32[4]"',
        "# File: /home/me/train.py:7 in fn, code: w.data.mul_(2)",
        "d = torch._C._autograd._get_data_attr(L_w_)",
        "mul_ = d.mul_(2)",
    )
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True, "grad": True}, static=[0])).metrics()
    run = log.load(tmp_path)
    backward = Graph(id="g1", frame=run.frames[0].id, kind="aot_backward", attempt=0, nodes=3, ops={}, text=None)
    (found,) = find_mutations(replace(run, graphs=(*run.graphs, backward))).mutations
    assert found.code == "DM04" and found.advice == ()


def test_a_back_end_that_keeps_no_writes(log, build, tmp_path):
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True}, keep=False)).metrics()
    found = one(log, tmp_path)
    assert (found.code, kinds(found)) == ("DM15", [("cudagraph_skip", "predicted"), ("copy_back", "derived")])


def test_a_skip_that_torch_told_is_observed(log, build, tmp_path):
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True}))
    log.metrics(cudagraph_skip_reason="skipping cudagraphs due to mutated inputs (1 instances)")
    assert kinds(one(log, tmp_path)) == [("cudagraph_skip", "observed")]


def test_sources_that_disagree_are_told(log, build, tmp_path):
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True})).probe().metrics()
    notes = find_mutations(log.load(tmp_path)).notes
    assert any("for `x`, AOTAutograd says its data is mutated, dynadiag's own probe says nothing is mutated" in note for note in notes)


def test_recompiles_of_one_function_are_one_mutation(build, tmp_path):
    log = build.LogBuilder()
    for again in range(3):
        log.start(again=again).tensor("L['x']", again=again)
        log.graph(X, "# File: /home/me/train.py:7 in fn, code: x.add_(1)", "add_ = L_x_.add_(1)", again=again)
        log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True}), again=again).metrics(again=again)
    assert len(one(log, tmp_path).frames) == 3


SIDE = "Mutating object of type M (source name: L['self'])\n\n      File \"/home/me/train.py\", line 8, in forward\n        self.n += 1\n"


def test_a_python_counter_is_free_until_a_guard_on_it_fails(build, tmp_path):
    log = build.LogBuilder().start().artifact("dynamo_side_effects", SIDE).metrics()
    found = one(log, tmp_path)
    assert (found.code, found.input, found.kind, kinds(found), lines(found)) == (
        "DM12",
        "L['self'].n",
        "python",
        [("free", "observed")],
        [8],
    )
    reason = "0/0: self.n == 0  # self.n += 1  # train.py:8 in forward"
    log.artifact("recompile_reasons", reason, again=1).start(again=1).artifact("dynamo_side_effects", SIDE, again=1).metrics(again=1)
    found = one(log, tmp_path)
    assert (found.code, kinds(found)) == ("DM11", [("recompile", "observed")])
    assert "1 recompile" in found.effects[0]["detail"]


@pytest.mark.parametrize(
    ("kind", "line", "told"),
    [("deque", "self.last.append(x.mean())", True), ("deque", "self.last.popleft()", False), ("list", "self.last.append(x.mean())", False)],
)
def test_a_deque_may_have_more_items_in_compiled_code_than_it_takes(build, tmp_path, kind, line, told):
    """`deque(maxlen=3)` gave another result than in eager, and nothing said so (torch 2.11 and 2.15)."""
    place = f'  File "/home/me/train.py", line 8, in forward\n    {line}\n'
    side = f"Mutating object of type {kind} (source name: L['self'].last)\n\n{place}"
    found = one(build.LogBuilder().start().artifact("dynamo_side_effects", side).metrics(), tmp_path)
    assert any("`maxlen`" in doubt for doubt in found.doubts) is told


@pytest.mark.parametrize("line", ["self.c = self.c + x.detach()", 'self.seen["c"] = x.detach()'])
def test_what_an_assigned_value_is_made_of_is_no_write(line, build, tmp_path):
    place = f'      File "/home/me/train.py", line 8, in forward\n        {line}\n'
    side = f"Mutating object of type dict (source name: L['self']._buffers)\n\n{place}"
    found = one(build.LogBuilder().start().artifact("dynamo_side_effects", side).metrics(), tmp_path)
    assert (found.input, found.sites[0]["op"]) == ("L['self']._buffers", "assignment")


def test_state_that_changes_between_calls(build, tmp_path):
    log = build.LogBuilder().start().metrics()
    log.artifact("recompile_reasons", "0/0: m.t == 1.0  # x * self.t  # train.py:9 in forward", again=1).start(again=1).metrics(again=1)
    found = one(log, tmp_path)
    assert (found.code, found.input, lines(found)) == ("DM11", "L['m'].t", [9])
    assert "code that is not compiled, or" in found.doubts[0]
    assert found.sites[0]["file"].startswith("/")


def test_a_file_that_torch_names_in_short_is_claimed_only_where_the_run_knows_it(build, tmp_path):
    log = build.LogBuilder().start().metrics()
    log.artifact("recompile_reasons", "0/0: m.t == 1.0  # x * self.t  # lightning/log.py:9 in forward", again=1)
    found = one(log.start(again=1).metrics(again=1), tmp_path)
    assert (found.code, found.sites) == ("DM11", ())
    assert "in line 9 of lightning/log.py (torch cuts the names of files)" in found.doubts[0]


def test_a_list_whose_length_changes_has_its_own_name(build, tmp_path):
    log = build.LogBuilder().start().metrics()
    log.artifact("recompile_reasons", "0/0: len(m.trace) == 1  # m.trace.append(y)  # train.py:9 in forward", again=1)
    found = one(log.start(again=1).metrics(again=1), tmp_path)
    assert (found.code, found.input) == ("DM11", "L['m'].trace")
    assert "or another object is passed" in found.doubts[0]  # `m` may be a new object in each call


def test_a_list_that_compiled_code_grows_under_another_name_is_not_changed_outside(build, tmp_path):
    log = build.LogBuilder().start().metrics()
    place = '      File "/home/me/train.py", line 9, in forward\n        m.trace.append(y)\n'
    side = f"Mutating object of type list (source name: L['___stack0'].__self__)\n\n{place}"
    log.artifact("recompile_reasons", "0/0: len(m.trace) == 1  # m.trace.append(y)  # train.py:9 in forward", again=1)
    log.start(again=1).artifact("dynamo_side_effects", side, again=1).metrics(again=1)
    found = next(one for one in find_mutations(log.load(tmp_path)).mutations if one.code == "DM11")
    assert found.input == "L['m'].trace" and "outside" not in found.doubts[0] and "under another name" in found.doubts[0]


def test_an_argument_with_another_value_is_no_mutation(build, tmp_path):
    log = build.LogBuilder().start().metrics()
    for again, reason in ((1, "0/0: scale == 1.0"), (2, "0/1: tensor 'x' size mismatch at index 0. expected 4, actual 8")):
        log.artifact("recompile_reasons", reason, again=again).start(again=again).metrics(again=again)
    assert find_mutations(log.load(tmp_path)).mutations == ()


REFUSED = "aot_autograd() does not yet handle input mutations on views with different dtypes."


def test_a_refusal_is_quoted_with_the_input_that_caused_it(build, tmp_path):
    inputs = [{"name": "l_x_", "source": "L['x']", "static": None, "storage": 0, "shape": [4], "dtype": "torch.float32"}]
    inputs.append({"name": "l_y_", "source": "L['y']", "static": None, "storage": 0, "shape": [4], "dtype": "torch.int32"})
    inputs.append({"name": "l_z_", "source": "L['z']", "static": None, "storage": 1, "shape": [4], "dtype": "torch.float32"})
    log = build.LogBuilder().start().graph('L_x_: "f32[4]", L_y_: "i32[4]", L_z_: "f32[4]"', "add_ = L_x_.add_(1)", "mul_ = L_z_.mul_(1)")
    log.artifact("dynadiag_graph", {"inputs": inputs, "nodes": [], "strings": []})
    sites = build.write(7, "x.add_(1)"), build.write(8, "z.mul_(1)")
    log.probe(build.probed(0, "L['x']", sites[0], overlaps=["l_y_"], aliases=["l_y_"]), build.probed(2, "L['z']", sites[1]))
    log.artifact(
        "dynadiag_problem",
        {"kind": "aot_rejected", "text": f"BackendCompilerFailed: backend='aot_eager' raised:\nAssertionError: {REFUSED}"},
    )
    log.metrics(fail_type="BackendCompilerFailed", fail_reason="raised", has_guarded_code=None)
    refused, other = find_mutations(log.load(tmp_path)).mutations
    assert (refused.code, refused.input, refused.refusal, refused.where) == ("DM09", "L['x']", f"AssertionError: {REFUSED}", "rejected")
    assert [effect["kind"] for effect in refused.effects] == ["error", "eager_fallback", "cudagraph_skip"]
    # Nothing was compiled: what the write would cost holds only once AOTAutograd takes the graph.
    assert refused.effects[2]["condition"] == "once AOTAutograd takes the graph"
    assert all("condition" in effect for effect in other.effects)
    assert (refused.aliases, refused.overlaps) == (("L['y']",), ("L['y']",))
    assert (other.input, other.code) == ("L['z']", "DM02")


SAVED = (
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor "
    "[4]], which is output 0 of Sigmoid, is at version 1"
)


def test_what_autograd_refuses_while_torch_compiles_is_told_once_and_of_eager_only_when_gradients_are_computed(build, tmp_path):
    """torch.compile computes gradients ahead, eager perhaps never; the same exception ended the program."""
    text = f"BackendCompilerFailed: backend='inductor' raised:\n{SAVED}"
    log = build.LogBuilder().start().graph(X, "h = torch.sigmoid(L_x_)", "mul_ = h.mul_(2)", "return (mul_,)")
    log.artifact("dynadiag_problem", {"kind": "aot_rejected", "text": text})
    log.metrics(fail_type="BackendCompilerFailed", fail_reason="raised", has_guarded_code=None)
    log.artifact("dynadiag_problem", {"kind": "uncaught", "text": f"{text}\n\nSet TORCHDYNAMO_VERBOSE=1 for more", "stack": []})
    found = one(log, tmp_path)
    assert (found.code, found.input.partition(" (")[0]) == ("DM23", "h")
    assert found.effects[0]["detail"] == f"autograd refuses this when gradients are computed, also without torch.compile: {SAVED}"


def test_a_break_on_an_inplace_view_names_tensor_and_line(build, tmp_path):
    reason = (
        "Graph break in user code at /home/me/train.py:7\nGraph Break Reason: Unsupported function call (delayed)\n"
        "  Explanation: Dynamo determined that a graph break should occur when calling `L['x'].t_`. "
        "Reason: Getting an inplace view on a graph input is not supported\n\n\n"
        "  Developer debug context: source: x\n\n\nUser code traceback:\n"
        '  File "/home/me/train.py", line 30, in <module>\n    fn(x)\n  File "/home/me/train.py", line 7, in fn\n    x.t_()\n'
    )
    log = build.LogBuilder().start().artifact("dynamo_graph_break_reason", reason).metrics()
    found = one(log, tmp_path)
    assert (found.code, found.input, found.kind, lines(found)) == ("DM05", "L['x']", "metadata", [7])
    assert kinds(found) == [("graph_break", "observed")]
    assert found.advice == () and "`dynadiag rule DM05`" in why_nothing(found)


def test_a_scatter_that_inductor_copies_whole(log, build, tmp_path):
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True}))
    log.post_grad(
        'arg0_1: "f32[4]", arg1_1: "i64[1]"',
        'index_put: "f32[4]" = torch.ops.aten.index_put.default(arg0_1, [arg1_1], arg1_1)',
        'copy_: "f32[4]" = torch.ops.aten.copy_.default(arg0_1, index_put)',
        "return ()",
    ).metrics()
    skipped, copied = find_mutations(log.load(tmp_path)).mutations
    assert (skipped.code, kinds(skipped)) == ("DM02", [("cudagraph_skip", "predicted")])
    assert (copied.code, copied.input, kinds(copied), lines(copied)) == ("DM14", "L['x']", [("extra_copy", "derived")], [7])
    assert "could not do the write in place" in copied.effects[0]["detail"]


def test_a_value_that_inductor_stores_where_it_belongs_is_no_copy(log, build, tmp_path):
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True}))
    log.post_grad(
        'arg0_1: "f32[4]", arg1_1: "f32[4]"',
        'add: "f32[4]" = torch.ops.aten.add.Tensor(arg0_1, arg1_1)',
        'copy_: "f32[4]" = torch.ops.aten.copy_.default(arg0_1, add)',
        "return ()",
    ).metrics()
    assert kinds(one(log, tmp_path)) == [("cudagraph_skip", "predicted")]


def test_a_clone_for_an_op_that_writes_is_a_missed_write_in_place(build, tmp_path):
    log = build.LogBuilder().start().graph(X, "y = L_x_.sin()").metrics()
    log.post_grad(
        'arg0_1: "f32[4]"',
        "# File: /home/me/train.py:9 in fn, code: scale(y)",
        'sin: "f32[4]" = torch.ops.aten.sin.default(arg0_1)',
        'clone: "f32[4]" = torch.ops.aten.clone.default(sin)',
        'view: "f32[4]" = torch.ops.aten.view.default(clone, [4])',
        "scale = torch.ops.mylib.scale.default(view)",
        "return (sin,)",
    )
    found = one(log, tmp_path)
    assert (found.code, found.input, lines(found), kinds(found)) == (
        "DM14",
        "y (made in the compiled code)",
        [9],
        [("extra_copy", "derived")],
    )


def test_a_tensor_that_only_a_break_makes_an_input(build, tmp_path):
    log = build.LogBuilder().start().tensor("L['x']").metrics()
    log.start(frame=1, name="torch_dynamo_resume_in_fn_at_6", line=6).tensor("L['y']", frame=1)
    log.graph('L_y_: "f32[4]"', "# File: /home/me/train.py:8 in fn, code: y.relu_()", "relu_ = L_y_.relu_()", frame=1)
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True}), frame=1).metrics(
        frame=1, co_name="torch_dynamo_resume_in_fn_at_6"
    )
    found = one(log, tmp_path)
    assert (found.code, found.worst) == ("DM19", "graph_break")
    assert "line 6" in found.effects[0]["detail"]


def test_writes_on_tensors_of_the_graph_are_free(build, tmp_path):
    log = (
        build.LogBuilder()
        .start()
        .graph(X, "# File: /home/me/train.py:7 in fn, code: y.add_(1)", "y = L_x_.sin()", "add_ = y.add_(1)")
        .metrics()
    )
    found = one(log, tmp_path)
    assert (found.code, found.input, kinds(found)) == ("DM18", "y (made in the compiled code)", [("free", "derived")])


BREAKS = [
    ("setattr() on Tensor.requires_grad", "x.requires_grad = True", ("DM07", "L['x']", "requires_grad")),
    ("Unsupported Tensor.resize_() call", "x.resize_(8)", ("DM06", "L['x']", "storage")),
    ("Failed to mutate tensor data attribute", "x.data = y", ("DM06", "L['x']", "storage")),
    ("setattr() on Parameter.data with different shape", "x.weight.data = y", ("DM06", "L['x'].weight", "storage")),
    ("Tensor.random_ op", "x.random_()", ("DM21", "L['x']", "data")),
    ("Inplace op on input tensor", "x.squeeze_(0)", ("DM05", "L['x']", "metadata")),
    ("Side effect on existing deque with limited maxlen", "self.q.append(x)", ("DM13", "self.q", "python")),
    ("torch.Generator method", "gen.manual_seed(3)", ("DM21", "L['gen']", "python")),
    ("Shape mismatch with out= tensor variant", "torch.add(x, x, out=o)", ("DM20", "L['o']", "storage")),
]


@pytest.mark.parametrize(("kind", "code", "expected"), BREAKS, ids=[kind for kind, _, _ in BREAKS])
def test_breaks_that_a_mutation_causes(build, tmp_path, kind, code, expected):
    reason = (
        f"Graph break in user code at /home/me/train.py:7\nGraph Break Reason: {kind}\n  Explanation: no.\n\n\n"
        "  Developer debug context: a\n\n\nUser code traceback:\n"
        f'  File "/home/me/train.py", line 30, in <module>\n    fn(x)\n  File "/home/me/train.py", line 7, in fn\n    {code}\n'
    )
    found = one(build.LogBuilder().start().artifact("dynamo_graph_break_reason", reason).metrics(), tmp_path)
    assert (found.code, found.input, found.kind) == expected
    assert (kinds(found), lines(found)) == ([("graph_break", "observed")], [7])


@pytest.mark.parametrize(
    ("kind", "context", "code", "expected"),
    [
        (
            "Skip inlining `torch.compiler.disable()`d function",
            "<function LBFGS.step at 0x7f>",
            "opt.step(closure)",
            ("DM16", "what an optimizer's step writes", "data"),
        ),
        (
            "Attempted to inline function marked as skipped",
            "qualname: Optimizer.zero_grad, name: inner, filename: `/site-packages/torch/_compile.py`",
            "opt.zero_grad()",
            ("DM16", "the gradients of an optimizer's parameters", "python"),
        ),
        (
            "Failed to convert args/kwargs to proxy",
            "call_function args: ConstantVariable(int: 4) UserDefinedObjectVariable(Generator)",
            "y = torch.rand(4, generator=g)",
            ("DM21", "g", "python"),
        ),
        (
            "Failed to trace builtin operator",
            "builtin setattr [<class 'UserDefinedClassVariable'>, <class 'ConstantVariable'>] False",
            "C.n += 1",
            ("DM21", "C.n", "python"),
        ),
        ("Skip calling `torch.compiler.disable()`d function", "<function Mine.step at 0x7f>", "mine.step()", None),
        ("Failed to trace builtin operator", "builtin ord [<class 'TensorVariable'>] False", "C.n = ord(x)", None),
        ("Failed to convert args/kwargs to proxy", "call_function args: UserDefinedObjectVariable(Mine)", "f(mine, generator=g)", None),
    ],
)
def test_breaks_whose_context_says_what_is_written(build, tmp_path, kind, context, code, expected):
    reason = (
        f"Graph break in user code at /home/me/train.py:7\nGraph Break Reason: {kind}\n  Explanation: no.\n\n\n"
        f"  Developer debug context: {context}\n\n\nUser code traceback:\n"
        f'  File "/home/me/train.py", line 30, in <module>\n    fn(x)\n  File "/home/me/train.py", line 7, in fn\n    {code}\n'
    )
    found = find_mutations(build.LogBuilder().start().artifact("dynamo_graph_break_reason", reason).metrics().load(tmp_path)).mutations
    assert [(mutation.code, mutation.input, mutation.kind) for mutation in found] == ([] if expected is None else [expected])


HAND_MADE = "Call to `torch._dynamo.graph_break()`"


@pytest.mark.parametrize(
    ("kind", "explanation", "context", "code"),
    [
        (
            "Attempted to wrap sparse Tensor with VariableTracker",
            "no.",
            "x: FakeTensor(..., size=(3, 3), layout=torch.sparse_csr)",
            "x @ y",
        ),
        ("Attempted to use strided NestedTensor", "no.", "layout=torch.strided", "y = nested(x)"),
        ("Failed to trace builtin operator", "no.", "builtin sorted [timeout=5, dropout=0.1]", "y = sorted(x)"),
        (HAND_MADE, "User-inserted graph break. Message: out= and requires_grad_() here", "", "graph_break(msg='out=')"),
        (HAND_MADE, "User-inserted graph break. Message: Unsafe side effect; Inplace op on input tensor", "", "self.a = f()"),
        (HAND_MADE, "User-inserted graph break. Message: a random seed, torch.nn.Parameter()", "random seed", "self.a = f()"),
        ("Attempted to call function marked as skipped", "no.", "module: random, qualname: Random.seed, skip reason: none", "r.seed(3)"),
        ("Attempted to call function marked as skipped", "no.", "module: mine.random, qualname: manual_seed, skip reason: no", "seed(3)"),
        ("AutogradFunctionContextVariable escaped Dynamo-traced region", "no.", "We cannot reconstruct the offset", "f.set(x)"),
        ("ContextVar.get() with non-constant default", "no.", "ContextVar('offset').get(default=x)", "y = V.get(x)"),
        ("Unsupported method call", "no.", "call_method UserDefinedObjectVariable(Bag) set [] {}", "bag.set(3)"),
        ("Unsupported function call (delayed)", "when calling `L['x'].t_`. Reason: another one", "source: x", "x.t_()"),
    ],
)
def test_words_of_the_program_in_a_breaks_text_are_no_mutation(build, tmp_path, kind, explanation, context, code):
    reason = (
        f"Graph break in user code at /home/me/train.py:7\nGraph Break Reason: {kind}\n  Explanation: {explanation}\n\n\n"
        f"  Developer debug context: {context}\n\n\nUser code traceback:\n"
        f'  File "/home/me/train.py", line 30, in <module>\n    fn(x)\n  File "/home/me/train.py", line 7, in fn\n    {code}\n'
    )
    log = build.LogBuilder().start().artifact("dynamo_graph_break_reason", reason).metrics()
    assert find_mutations(log.load(tmp_path)).mutations == ()


@pytest.mark.parametrize(
    ("kind", "context", "code", "expected"),
    [
        (
            "Attempted to call function marked as skipped",
            "module: torch.cuda.random, qualname: set_rng_state, skip reason: file matches MOD_SKIPLIST",
            "torch.cuda.set_rng_state(s)",
            "the state of torch's random number generator",
        ),
        ("ContextVar mutation not supported", "ContextVar('v').set()", "V.set(1)", "V"),
        ("Unsupported method call", "call_method UserDefinedObjectVariable(ContextVar) set [ConstantVariable(int: 1)] {}", "V.set(1)", "V"),
    ],
)
def test_what_torch_itself_names_as_state_is_found(build, tmp_path, kind, context, code, expected):
    reason = (
        f"Graph break in user code at /home/me/train.py:7\nGraph Break Reason: {kind}\n  Explanation: no.\n\n\n"
        f"  Developer debug context: {context}\n\n\nUser code traceback:\n"
        f'  File "/home/me/train.py", line 30, in <module>\n    fn(x)\n  File "/home/me/train.py", line 7, in fn\n    {code}\n'
    )
    found = one(build.LogBuilder().start().artifact("dynamo_graph_break_reason", reason).metrics(), tmp_path)
    assert (found.code, found.input) == ("DM21", expected)


def test_a_body_that_cannot_be_captured_is_told_with_the_cause_not_with_torchs_heading(build, tmp_path):
    reason = (
        "Graph break in user code at /home/me/train.py:7\n"
        "Graph Break Reason: This higher order operator doesn't work unless it is captured completely with torch.compile. "
        "Got graph break/error:\n\nEncountered input mutation during higher order op tracing\n"
        "  Explanation: Higher order ops do not support input mutation. Found in while_loop\n\n\n"
        "  Developer debug context: Input mutation detected at [l_log_] in\n graph():\n\n\nUser code traceback:\n"
        '  File "/home/me/train.py", line 30, in <module>\n    fn(x)\n'
        '  File "/home/me/train.py", line 7, in fn\n    while_loop(a, b, (x,))\n'
    )
    found = one(build.LogBuilder().start().artifact("dynamo_graph_break_reason", reason).metrics(), tmp_path)
    detail = found.effects[0]["detail"]
    assert (found.code, "Encountered input mutation during higher order op tracing" in detail) == ("DM13", True)
    assert "Got graph break" not in detail


def test_new_keyword_arguments_of_a_call_are_no_mutation(build, tmp_path):
    place = '      File "/home/me/train.py", line 8, in fn\n        kwargs["a"] = 1\n'
    side = f"Mutating object of type dict (source name: L['kwargs'])\n\n{place}"
    log = build.LogBuilder().start().artifact("dynamo_side_effects", side).metrics()
    log.artifact("recompile_reasons", "0/0: len(kwargs) == 6", again=1).start(again=1).artifact("dynamo_side_effects", side, again=1)
    found = one(log.metrics(again=1), tmp_path)
    assert (found.code, kinds(found)) == ("DM12", [("free", "observed")])


def test_a_compared_call_finds_its_frame_in_a_log_that_begins_after_many_resets(build, tmp_path):
    log = build.LogBuilder().artifact("dynadiag_reset", {"epoch": 38}, frame=None).artifact("dynadiag_reset", {"epoch": 39}, frame=None)
    log.start().tensor("L['x']").graph(X, "# File: /home/me/train.py:7 in fn, code: x.add_(1)", "add_ = L_x_.add_(1)", "return (add_,)")
    log.artifact("aot_forward_graph_fw_metadata", build.metadata({"data": True})).metrics()
    difference = {"kind": "value", "where": "input", "index": 0, "name": "L['x']", "eager": "2", "compiled": "1"}
    write = {"input": "L['x']", "declared": True, "op": "add_", "stack": []}
    compared = {"format": 1, "graph": 0, "call": 2, "verdict": "different", "epoch": 39, "differences": [difference], "writes": [write]}
    found = one(log.artifact("dynadiag_parity", compared), tmp_path)
    assert (found.frame, kinds(found)[0]) == ("f0", ("silent_wrong", "observed"))
