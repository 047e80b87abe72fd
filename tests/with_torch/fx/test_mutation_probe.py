"""What the probe finds in a graph: which input, which kind, which op on which line, who writes it back, how many bytes."""

import pytest
import torch

from dynadiag.errors import NotRebuildableError
from dynadiag.fx.missing_operators import OperatorFacts
from dynadiag.fx.mutation_probe import probe
from dynadiag.fx.probe_graph import may_refuse, refusal_of
from dynadiag.fx.rebuild import RebuildOptions, rebuild

X = 'L_x_: "f32[4, 4][4, 1]cpu", L_y_: "f32[4, 4][4, 1]cpu"'


def details(**inputs):
    tensor = {"type": "Tensor", "dtype": "torch.float32", "device": "cpu", "requires_grad": False, "is_leaf": True, "offset": 0}
    entries = [
        {
            "name": name,
            "source": f"L['{name}']",
            **tensor,
            "shape": [4, 4],
            "stride": [4, 1],
            "storage": number,
            "storage_bytes": 64,
            **given,
        }
        for number, (name, given) in enumerate(inputs.items())
    ]
    return {"inputs": entries, "grad": True}


def found(text, known=None, **options):
    return probe(rebuild(text, details=known, options=RebuildOptions(device="cpu")), **options)


def summary(result):
    assert result.error is None, result.error
    return {one.name: (one.kinds, one.where, [site.op for site in one.sites]) for one in result.mutations}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["add_ = L_x_.add_(1)"], (("data",), "in_graph", ["aten.add_.Tensor"])),
        (["row = L_y_[1]", "L_x_[0] = row"], (("data",), "in_graph", ["aten.copy_.default"])),
        (["view = L_x_.view(16)", "mul_ = view.mul_(2)"], (("data",), "in_graph", ["aten.mul_.Tensor"])),
        (["detach = L_x_.detach()", "mul_ = detach.mul_(2)"], (("data",), "in_graph", ["aten.mul_.Tensor"])),
        (["t_ = L_x_.t_()"], (("metadata",), "epilogue", ["aten.t_.default"])),
        (["t_ = L_x_.t_()", "t__1 = L_x_.t_()"], {}),
        (["t_ = L_x_.t_()", "mul_ = L_x_.mul_(2)"], (("data", "metadata"), "epilogue", ["aten.t_.default", "aten.mul_.Tensor"])),
        (["set_ = torch_Tensor_set_(L_x_, L_y_)"], (("storage",), "rejected", ["aten.set_.source_Tensor"])),
        (["resize_ = L_x_.resize_(8, 8)"], (("storage",), "rejected", ["aten.resize_.default"])),
        (["add = torch.add(L_y_, 1, out = L_x_)"], (("data",), "in_graph", ["aten.add.out"])),
        (["requires_grad_ = L_x_.requires_grad_()"], (("requires_grad",), "epilogue", ["aten::requires_grad_"])),
        (["_foreach_add_ = torch._foreach_add_([L_x_], [L_y_])"], (("data",), "in_graph", ["aten._foreach_add_.List"])),
        (
            ["resize = torch.ops.inductor.resize_storage_bytes_(L_x_, 0)"],
            (("storage",), "rejected", ["inductor.resize_storage_bytes_.default"]),
        ),
        (["normal_ = L_x_.normal_()"], (("data",), "in_graph", ["aten.normal_.default"])),
        (["add = L_x_ + 1", "add_ = add.add_(1)"], {}),
    ],
)
def test_kind_and_op_of_a_write(printed, lines, expected):
    result = summary(found(printed(X, *lines, "return (L_y_,)")))
    assert result == (expected and {"L_x_": expected})


def test_storage_replaced_under_no_grad_stays_in_the_graph(printed):
    text = printed(
        X,
        "off = torch._C._set_grad_enabled(False)",
        "set_ = torch_Tensor_set_(L_x_, L_y_)",
        "on = torch._C._set_grad_enabled(True)",
        "return (L_y_,)",
    )
    (mutation,) = found(text).mutations
    assert (mutation.kinds, mutation.where, mutation.no_grad) == (("storage",), "in_graph", True)
    assert found(text, keep_input_mutations=False).mutations[0].where == "rejected"


ENTER = "on = torch.autograd.grad_mode._enter_inference_mode(True)"
EXIT = "off = torch.autograd.grad_mode._exit_inference_mode(on)"


@pytest.mark.parametrize("last", [EXIT, "view = L_x_.view(3)", "neg = L_y_.neg()"])
def test_inference_mode_is_followed_and_never_left_on(printed, last):
    result = found(printed(X, ENTER, "add_ = L_x_.add_(1)", last, "return (L_y_,)"))
    (mutation,) = result.mutations
    assert (mutation.kinds, mutation.where, mutation.no_grad) == (("data",), "in_graph", True)
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize(("grad", "no_grad", "where"), [(False, False, "in_graph"), (True, False, "epilogue"), (True, True, "in_graph")])
def test_who_writes_back_depends_on_grad(printed, grad, no_grad, where):
    switch = ["off = torch._C._set_grad_enabled(False)"] if no_grad else ["detach = L_x_.detach()"]
    text = printed(X, *switch, f"mul_ = {'L_x_' if no_grad else 'detach'}.mul_(2)", "return (L_y_,)")
    (mutation,) = found(text, details(L_x_={"requires_grad": grad}, L_y_={})).mutations
    assert (mutation.where, mutation.requires_grad, mutation.no_grad) == (where, grad, no_grad)
    assert mutation.bytes_written_back == (64 if where == "epilogue" else 0)
    assert found(text, keep_input_mutations=False).mutations[0].where == "epilogue"


@pytest.mark.parametrize(
    ("call", "touched"),
    [
        ("part.add_(1)", 16),
        ("L_x_.index_copy_(0, L_i_, row)", 16),
        ("L_x_.index_put_((L_i_,), row)", 16),
        ("L_x_.index_fill_(0, L_i_, 7)", 16),
        ("L_x_.scatter_(0, place, L_y_)", 4),
        ("L_x_.masked_fill_(mask, 7)", None),
        ("L_x_.add_(1)", 64),
    ],
)
def test_bytes_that_a_write_reaches(printed, call, touched):
    text = printed(
        f'{X}, L_i_: "i64[1][1]cpu"',
        "row = L_y_[slice(0, 1, None)]",
        "part = L_x_[slice(1, 2, None)]",
        "mask = L_y_ > 0",
        "place = L_i_.view(1, 1)",
        f"write = {call}",
        "return (L_y_,)",
    )
    (mutation,) = found(text).mutations
    assert mutation.bytes_touched == touched


def test_two_writes_of_one_cache_are_two_sites(printed):
    text = printed(
        'L_c_: "f32[2, 8, 4][32, 4, 1]cpu", L_k_: "f32[1, 4][4, 1]cpu", L_i_: "i64[1][1]cpu"',
        "# File: /a/gen.py:9 in step, code: cache[0].index_copy_(0, i, k)",
        "getitem = L_c_[0]",
        "a = getitem.index_copy_(0, L_i_, L_k_)",
        "# File: /a/gen.py:10 in step, code: cache[1].index_copy_(0, i, k)",
        "getitem_1 = L_c_[1]",
        "b = getitem_1.index_copy_(0, L_i_, L_k_)",
        "return (L_k_,)",
    )
    (mutation,) = found(text).mutations
    assert [(site.node, site.stack[-1][:2], site.bytes_touched) for site in mutation.sites] == [
        ("a", ("/a/gen.py", 9), 16),
        ("b", ("/a/gen.py", 10), 16),
    ]
    assert (mutation.bytes_touched, mutation.where, mutation.bytes_written_back) == (32, "in_graph", 0)


def test_batch_norm_writes_statistics_only_while_training(printed):
    text = printed(
        'x: "f32[2, 3, 4][12, 4, 1]cpu", mean: "f32[3][1]cpu", var: "f32[3][1]cpu"',
        "batch_norm = torch.nn.functional.batch_norm(x, mean, var, None, None, TRAINING, 0.1, 1e-05)",
        "return (batch_norm,)",
    )
    assert set(summary(found(text.replace("TRAINING", "True")))) == {"mean", "var"}
    assert found(text.replace("TRAINING", "False")).mutations == ()


BODY = """    class body_0(torch.nn.Module):
        def forward(self, x: "f32[4, 4][4, 1]cpu", y: "f32[4, 4][4, 1]cpu"):
            # File: /a/train.py:7 in inner, code: x.add_(y)
            add_ = x.add_(y)
            sin = y.sin()
            return (sin,)
"""


@pytest.mark.parametrize(
    "call",
    [
        "torch.ops.higher_order.tag_activation_checkpoint(body_0, L_x_, L_y_, use_reentrant = False)",
        "torch.ops.higher_order.invoke_subgraph(body_0, 'body_0', L_x_, L_y_)",
        "torch.ops.higher_order.wrap_with_set_grad_enabled(False, body_0, L_x_, L_y_)",
        "torch.ops.higher_order.cond(L_p_, body_0, body_0, (L_x_, L_y_))",
        "torch.ops.higher_order.scan(body_0, [], [L_z_], [L_y_])",
    ],
)
def test_writes_in_bodies_of_higher_order_operators(printed, call):
    text = printed(
        f'{X}, L_p_: "b8[][]cpu", L_z_: "f32[3, 4, 4][16, 4, 1]cpu"',
        "body_0 = self.body_0",
        f"hop = {call}",
        "getitem = hop[0]",
        "return (getitem,)",
        children=BODY,
    )
    result = found(text)
    (mutation,) = result.mutations
    assert result.error is None and mutation.name == ("L_z_" if "scan" in call else "L_x_")
    assert mutation.sites[0].through == ("hop",) and mutation.sites[0].stack == (("/a/train.py", 7, "inner", "x.add_(y)"),)
    assert mutation.no_grad == ("set_grad" in call)


def private(printed, facts):
    text = printed(
        X,
        "put = torch.ops.mylib.put.default(L_x_, L_y_)",
        "both = torch.ops.mylib.both.default(L_y_)",
        'getitem: "f32[2][1]cpu" = both[1]',
        "add_ = getitem.add_(1)",
        'same: "f32[4, 4][4, 1]cpu" = torch.ops.mylib.same.default(L_y_)',
        "mul_ = same.mul_(2)",
        "return (add_,)",
    )
    return probe(rebuild(text, options=RebuildOptions(missing_operators=facts)))


def test_operators_that_are_not_here_write_what_their_schema_says(printed):
    schemas = {
        "mylib::put": "mylib::put(Tensor(a!) x, Tensor y) -> ()",
        "mylib::both": "mylib::both(Tensor x) -> (Tensor, Tensor)",
        "mylib::same": "mylib::same(Tensor(a) x) -> Tensor(a)",
    }
    result = private(printed, OperatorFacts(schemas=schemas))
    assert summary(result) == {
        "L_x_": (("data",), "in_graph", ["mylib.put.default"]),
        "L_y_": (("data",), "in_graph", ["aten.mul_.Tensor"]),
    }
    assert any("a write that it does not declare is not seen" in note for note in result.notes)


def test_operators_without_schema_leave_the_rest_told_and_say_so(printed):
    result = private(printed, OperatorFacts(schemas={"mylib::put": "no schema"}))
    assert "mylib.put.default` writes is not recorded: more may be mutated" in result.error
    assert result.mutations == ()


def test_triton_kernels_write_what_aotautograd_printed(printed):
    call = (
        "triton = torch.ops.higher_order.triton_kernel_wrapper_mutation(kernel_idx = 3, constant_args_idx = 0, grid = [(1, 1, 1)],"
        " tma_descriptor_metadata = {}, kwargs = {'source': L_y_, 'target': L_x_})"
    )
    text = printed(X, call, "return (L_y_,)")
    known = OperatorFacts(triton_writes={3: ("target",)})
    assert list(summary(probe(rebuild(text, options=RebuildOptions(missing_operators=known))))) == ["L_x_"]
    unknown = probe(rebuild(text, options=RebuildOptions(missing_operators=OperatorFacts())))
    assert unknown.mutations == () and "is not recorded" in unknown.error


OPS = "torch__dynamo_compiled_autograd_ops_"
BACKWARD = (
    'getitem: "f32[4][1]cpu" = l_inputs_[0]',
    'getitem_1: "f32[4][1]cpu" = l_inputs_[2]',
    'getitem_2: "f32[4][1]cpu" = l_inputs_[3];  l_inputs_ = None',
    f"validate_outputs = {OPS}validate_outputs([getitem], [((None, None, device(type='cpu'), 6, 0, None), [4], False, 6)])",
    'getitem_7: "f32[4][1]cpu" = validate_outputs[0];  validate_outputs = None',
    "prologue = torch__dynamo_compiled_autograd_call_aot_bwd_prologue((getitem_1,), [], [], (getitem_7,));  getitem_7 = None",
    'primals_2: "f32[4][1]cpu" = prologue[0]',
    'tangents_1: "f32[4][1]cpu" = prologue[1];  prologue = None',
    "mul = torch.ops.aten.mul.Tensor(tangents_1, primals_2);  primals_2 = None",
)


def test_backward_of_compiled_autograd_adds_to_the_gradients_that_are_there(printed):
    text = printed(
        'L_inputs_ : list, L_x_: "f32[4][1]cpu"',
        "l_inputs_ = L_inputs_",
        *BACKWARD,
        f"accumulate_grad = {OPS}AccumulateGrad([mul], getitem_1, getitem_2, False);  getitem_2 = mul = None",
        'call_accumulate_grad: "f32[4][1]cpu" = accumulate_grad[0];  accumulate_grad = None',
        f"fresh = {OPS}AccumulateGrad([tangents_1], getitem_1, None, False);  getitem_1 = tangents_1 = None",
        "new = fresh[0];  fresh = None",
        "add_ = L_x_.add_(new)",
        "return (call_accumulate_grad, new)",
    )
    rebuilt = rebuild(text)
    assert [spec.name for spec in rebuilt.inputs] == ["l_inputs_0", "l_inputs_1", "l_inputs_2", "l_inputs_3", "L_x_"]
    gradient, parameter, held, plain = torch.full((4,), 2.0), torch.full((4,), 3.0), torch.ones(4), torch.zeros(4)
    with torch.no_grad():
        added, new = rebuilt.graph_module(gradient, 0, parameter, held, plain)
    assert added is held and held.tolist() == [7.0] * 4 and new.tolist() == plain.tolist() == [2.0] * 4
    told = {one.index: [site.op for site in one.sites] for one in probe(rebuilt).mutations}
    assert told == {3: ["aten.add_.Tensor"], 4: ["aten.add_.Tensor"]}


def test_backward_functions_of_cpp_are_followed_and_said_to_be_elsewhere(printed):
    text = printed(
        "L_inputs_ : list",
        "l_inputs_ = L_inputs_",
        *BACKWARD,
        f"mm = {OPS}MmBackward0([mul], [True, False], getitem_1)",
        'left: "f32[4][1]cpu" = mm[0]',
        f"accumulate_grad = {OPS}AccumulateGrad([left], getitem_1, getitem_2, False)",
        "return ()",
    )
    with pytest.raises(NotRebuildableError, match="it calls `MmBackward0`, a backward function in C"):
        rebuild(text)
    result = probe(rebuild(text, options=RebuildOptions(missing_operators=OperatorFacts())))
    assert result.error is None and [one.index for one in result.mutations] == [3]


@pytest.mark.parametrize(
    "call", ["AccumulateGrad(getitem_1)", "AccumulateGrad([], getitem_1, None, False)", "validate_outputs([getitem_1], [7])"]
)
def test_calls_of_compiled_autograd_in_another_form_are_refused(printed, call):
    text = printed("L_inputs_ : list", 'getitem_1: "f32[4][1]cpu" = L_inputs_[0]', f"other = {OPS}{call}", "return (getitem_1,)")
    with pytest.raises(NotRebuildableError, match="in an unknown form"):
        rebuild(text)


def test_subclass_is_followed_as_a_plain_tensor_and_sizes_stay_unknown(printed):
    text = printed('t: "TwoTensor(f32[4][1]cpu)"', "add_ = t.add_(1)", "return (add_,)")
    with pytest.raises(NotRebuildableError, match="is a TwoTensor"):
        rebuild(text)
    result = probe(rebuild(text, options=RebuildOptions(missing_operators=OperatorFacts())))
    (mutation,) = result.mutations
    assert (mutation.kinds, mutation.bytes_touched, mutation.bytes_written_back) == (("data",), None, None)
    assert result.notes == ("t: followed as a plain tensor, not a TwoTensor",)


def test_values_that_decide_are_looked_up_on_real_tensors(printed):
    text = printed(
        'x: "f32[4][1]cpu", n: "i64[1][1]cpu"', "item = n.item()", "new = torch.zeros([item])", "s = new.sum()", "t = s.item()",
        "b = bool(t)", "add_ = x.add_(1)", "return (add_,)",
    )  # fmt: skip
    assert list(summary(found(text))) == ["x"]


ALIASED = {"L_x_": {"storage": 0, "storage_bytes": 128}, "L_y_": {"storage": 0, "storage_bytes": 128, "offset": 16}}


def test_aliases_and_overlaps_are_told_apart_and_blamed_apart(printed):
    text = printed(X, "add_ = L_x_.add_(1)", "return (L_y_,)")
    (apart,) = found(text, details(**ALIASED)).mutations
    assert (apart.name, apart.aliases, apart.overlaps) == ("L_x_", ("L_y_",), ())
    overlapping = ALIASED | {"L_y_": {**ALIASED["L_y_"], "offset": 8}}
    (over,) = found(text, details(**overlapping)).mutations
    assert (over.aliases, over.overlaps) == (("L_y_",), ("L_y_",))


def test_aotautograd_is_asked_when_it_may_refuse_and_is_quoted(printed):
    text = printed('L_x_: "f32[4, 4][4, 1]cpu", L_y_: "i32[4, 4][4, 1]cpu"', "add_ = L_x_.add_(1)", "add = L_y_ + 1", "return (add,)")
    views = details(L_x_={"storage": 0}, L_y_={"storage": 0, "dtype": "torch.int32"})
    rebuilt = rebuild(text, details=views)
    assert may_refuse(rebuilt, probe(rebuilt))
    said = refusal_of(rebuilt)
    assert said == "AssertionError: aot_autograd() does not yet handle input mutations on views with different dtypes."
    harmless = rebuild(printed(X, "add_ = L_x_.add_(1)", "return (L_y_,)"), details=details(**ALIASED))
    assert may_refuse(harmless, probe(harmless)) and refusal_of(harmless) is None
    alone = rebuild(printed(X, "add_ = L_x_.add_(1)", "return (L_y_,)"))
    assert not may_refuse(alone, probe(alone))


def test_replaced_storage_is_refused_in_aotautograds_words(printed):
    rebuilt = rebuild(printed(X, "resize_ = L_x_.resize_(8, 8)", "return (L_y_,)"), details=details(L_x_={}, L_y_={}))
    assert probe(rebuilt).mutations[0].where == "rejected"
    assert may_refuse(rebuilt, probe(rebuilt))


def test_attributes_come_before_inputs_as_aotautograd_counts(printed):
    text = printed(X, 'state: "f32[4][1]cpu" = self.state', "add_ = state.add_(1)", "mul_ = L_y_.mul_(2)", "return (L_x_,)")
    known = details(L_x_={}, L_y_={})
    known["attributes"] = [{"name": "state", "source": "L['self'].state", **known["inputs"][0], "shape": [4], "stride": [1], "storage": 9}]
    known["attributes"][0].update(name="state", source="L['self'].state")
    result = found(text, known)
    assert [(one.index, one.source, one.static) for one in result.mutations] == [
        (0, "L['self'].state", "attribute"),
        (2, "L['L_y_']", None),
    ]


def test_graph_that_stops_half_way_says_so(printed):
    result = found(printed(X, "add_ = L_x_.add_(1)", "view = L_x_.view(3)", "mul_ = L_y_.mul_(2)", "return (view,)"))
    assert [one.name for one in result.mutations] == ["L_x_"] and "shape" in result.error


def test_following_leaves_torch_as_it_was(printed):
    text = printed(
        X, "off = torch._C._set_grad_enabled(False)", "rand = torch.rand(4)", "manual = torch.random.manual_seed(1)", "return (rand,)"
    )
    state = torch.get_rng_state()
    found(text)
    assert torch.is_grad_enabled() and torch.equal(state, torch.get_rng_state())


def test_graphs_of_other_peoples_logs_are_followed(foreign_graphs):
    texts = [text for _, kind, text in foreign_graphs if kind == "dynamo_output_graph"]
    options = RebuildOptions(device="cpu", missing_operators=OperatorFacts(), lazy=True)
    errors = [error for text in texts if (error := probe(rebuild(text, options=options)).error) is not None]
    assert len(texts) == 35
    assert errors == ["what `torch.ops.test.baz` writes is not recorded: more may be mutated"] * 2
