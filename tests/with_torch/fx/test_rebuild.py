import pytest
import torch

from dynadiag.errors import NotRebuildableError
from dynadiag.fx.rebuild import RebuildOptions, rebuild
from dynadiag.fx.running import rebuild_and_try, try_run
from dynadiag.fx.script import write_script
from dynadiag.torch_compat.dispatch.state import kept_global_state

ON_CPU = RebuildOptions(device="cpu")
COND = """    class true_0(torch.nn.Module):
        def forward(self, x: "f32[4][1]cpu"):
            sin: "f32[4][1]cpu" = x.sin();  x = None
            return (sin,)

    class false_0(torch.nn.Module):
        def forward(self, x: "f32[4][1]cpu"):
            cos: "f32[4][1]cpu" = x.cos();  x = None
            return (cos,)
"""


def test_foreign_graphs_run_but_for_private_operators(foreign_graphs):
    why_not = {}
    for name, kind, text in foreign_graphs:
        try:
            trial = rebuild_and_try(text, options=ON_CPU)[1]
            reason = trial.why_not
        except NotRebuildableError as error:
            reason = error.message
        if reason is not None:
            why_not.setdefault(kind, []).append((name, reason))
    assert sum(kind == "dynamo_output_graph" for _, kind, _ in foreign_graphs) == 35
    assert {kind: len(reasons) for kind, reasons in why_not.items()} == {
        "dynamo_output_graph": 2,
        "aot_inference_graph": 2,
        "inductor_post_grad_graph": 2,
    }
    assert all("test::baz" in reason for reasons in why_not.values() for _, reason in reasons)


def test_result_equals_the_function(printed):
    text = printed(
        'L_x_: "f32[4][1]cpu", L_y_: "f32[4][1]cpu"',
        "l_x_ = L_x_",
        "l_y_ = L_y_",
        'mul: "f32[4][1]cpu" = l_x_ * 2.5;  l_x_ = None',
        'add: "f32[4][1]cpu" = torch.add(mul, l_y_, alpha = 3);  mul = l_y_ = None',
        'view: "f32[2, 2][2, 1]cpu" = add.view(2, -1);  add = None',
        "getitem = view[(slice(None, None, None), 0)];  view = None",
        "shape = getitem.shape",
        "return (getitem, shape)",
    )
    rebuilt = rebuild(text)
    x, y = rebuilt.example_inputs()
    value, shape = rebuilt.graph_module(x, y)
    torch.testing.assert_close(value, (x * 2.5 + 3 * y).view(2, -1)[:, 0])
    assert shape == (2,)
    assert [node.name for node in rebuilt.graph_module.graph.nodes][:3] == ["l_x_", "l_y_", "mul"]


def test_in_place_operators_and_setitem_keep_their_nodes(printed):
    text = printed(
        'L_x_: "f32[4][1]cpu"',
        "l_x_ = L_x_",
        "l_x_[0] = 7;  setitem = l_x_;  setitem = None",
        'l_x_ += 1;  iadd: "f32[4][1]cpu" = l_x_;  l_x_ = None',
        "return (iadd,)",
    )
    rebuilt = rebuild(text)
    assert [str(node.target) for node in rebuilt.graph_module.graph.nodes if node.op == "call_function"] == [
        "<built-in function setitem>",
        "<built-in function iadd>",
    ]
    x = torch.zeros(4)
    assert rebuilt.graph_module(x)[0] is x
    assert x.tolist() == [8, 1, 1, 1]


def test_higher_order_operator_runs_its_bodies(printed):
    text = printed(
        'L_x_: "f32[4][1]cpu", L_p_: "b8[][]cpu"',
        "true_0 = self.true_0",
        "false_0 = self.false_0",
        "cond = torch.ops.higher_order.cond(L_p_, true_0, false_0, (L_x_,));  L_p_ = true_0 = false_0 = L_x_ = None",
        'getitem: "f32[4][1]cpu" = cond[0];  cond = None',
        "return (getitem,)",
        children=COND,
    )
    x = torch.randn(4)
    module = rebuild(text).graph_module
    assert torch.equal(module(x, torch.tensor(True))[0], x.sin())
    assert torch.equal(module(x, torch.tensor(False))[0], x.cos())


def test_joint_graph_takes_its_flattened_inputs():
    text = """class inner_f(torch.nn.Module):
    def forward(
        self,
        primals,
        tangents,
    ):
        primals_1: "f32[4][1]cpu"  # PlainAOTInput(idx=0)
        tangents_1: "f32[4][1]cpu"  # TangentAOTInput(output=PlainAOTOutput(idx=0))
        primals_1, tangents_1, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
        mul: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(primals_1, tangents_1);  primals_1 = tangents_1 = None
        return pytree.tree_unflatten([
            mul,  # PlainAOTOutput(idx=0)
        ], self._out_spec)
"""
    rebuilt = rebuild(text)
    assert [spec.name for spec in rebuilt.inputs] == ["primals_1", "tangents_1"]
    assert try_run(rebuilt).runnable


def test_parameters_without_values_are_made_from_their_annotations(printed):
    text = printed(
        'x: "f32[2, 4][4, 1]cpu"',
        'weight: "f32[3, 4][4, 1]cpu" = self.linear.weight',
        'linear: "f32[2, 3][3, 1]cpu" = torch._C._nn.linear(x, weight, None)',
        "return (linear,)",
    )
    rebuilt = rebuild(text)
    assert [(spec.name, spec.shape) for spec in rebuilt.attributes] == [("linear.weight", (3, 4))]
    assert try_run(rebuilt).outputs[0].shape == (2, 3)


def test_symbolic_sizes_are_consistent_across_inputs(printed):
    text = printed(
        's0: "Sym(s0)", s1: "Sym(s1)", x: "f32[s0, s1][s1, 1]cpu", y: "f32[s1, 2*s0][2*s0, 1]cpu", z: "Sym(zf0)"',
        "matmul = x @ y",
        "mul = matmul * z",
        "view = mul.view(2, s0, s0)",
        "return (view,)",
    )
    rebuilt, trial = rebuild_and_try(text)
    assert trial.runnable
    assert rebuilt.inputs[2].shape == (rebuilt.symbols["s0"], rebuilt.symbols["s1"])
    assert rebuilt.symbols["s0"] != rebuilt.symbols["s1"]


def test_recorded_details_beat_made_up_ones(printed):
    text = printed(
        's0: "Sym(s0)", L_x_: "f32[s0][1]cpu", L_y_: "f32[4][1]cpu"', "l_x_ = L_x_", "l_y_ = L_y_", "add_ = l_x_.add_(s0)", "return (l_y_,)"
    )
    tensor = {
        "dtype": "torch.float32",
        "device": "cpu",
        "stride": [1],
        "storage": 0,
        "storage_bytes": 40,
        "requires_grad": False,
        "is_leaf": True,
    }
    details = {
        "inputs": [
            {"name": "s0", "source": "L['x'].size()[0]", "value": "6"},
            {"name": "l_x_", "source": "L['x']", "shape": [6], "offset": 2, **tensor},
            {"name": "l_y_", "source": "L['y']", "shape": [4], "offset": 0, **tensor},
        ],
        "nodes": [["add_", 0, 1]],
        "strings": ["L['self'] > L['self'].layer", 'File "train.py", line 3, in f\n    x.add_(n)\n'],
        "grad": False,
    }
    rebuilt = rebuild(text, details=details)
    assert rebuilt.symbols == {"s0": 6} and rebuilt.unknown_symbols == 0 and rebuilt.grad is False
    number, x, y = rebuilt.example_inputs()
    assert number == 6
    assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() and x.storage_offset() == 2
    before = y.clone()
    rebuilt.graph_module(number, x, y)
    assert torch.equal(y, before + torch.tensor([0.0, 0, 6, 6]))
    node = next(node for node in rebuilt.graph_module.graph.nodes if node.name == "add_")
    assert "line 3" in node.meta["stack_trace"]


def test_computed_inputs_may_be_written_in_place_and_still_share_memory(printed):
    text = printed('L_x_: "f32[4][1]cpu", L_y_: "f32[4][1]cpu"', "l_x_ = L_x_", "mul_ = l_x_.mul_(2)", "return (mul_,)")
    tensor = {"shape": [4], "dtype": "torch.float32", "device": "cpu", "stride": [1], "storage": 0, "requires_grad": True, "is_leaf": False}
    details = {"inputs": [{"name": "l_x_", "offset": 1, **tensor}, {"name": "L_y_", "offset": 0, **tensor}], "grad": True}
    rebuilt = rebuild(text, details=details)
    x, y = rebuilt.example_inputs()
    assert not x.is_leaf and x.requires_grad and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    assert try_run(rebuilt).why_not is None
    exec(compile(write_script(rebuilt), "script", "exec"), {"__name__": "__main__"})


def test_functions_that_dynamo_makes_itself(printed):
    text = printed(
        'x: "f32[4, 4][4, 1]cpu"',
        "set_ = torch_Tensor_set_(x, x)",
        "lowered = torch__dynamo_variables_builtin__lower_version_count_by_1(set_)",
        "wrapped_sin = torch__dynamo_utils_wrapped_sin(lowered)",
        "wrapped_sum = torch__dynamo_utils_wrapped_sum(wrapped_sin, axis = 0)",
        "attribute = torch__dynamo_utils_numpy_attr_wrapper(wrapped_sin, 'T')",
        "return (lowered, wrapped_sum, attribute)",
    )
    rebuilt = rebuild(text)
    x = torch.rand(4, 4)
    lowered, total, transposed = rebuilt.graph_module(x)
    assert lowered is x and x._version == 0
    torch.testing.assert_close((total, transposed), (x.sin().sum(0), x.sin().t()))
    exec(compile(write_script(rebuilt), "script", "exec"), {"__name__": "__main__"})
    assert "__reduce__" in try_run(rebuild(text.replace("'T'", "'__reduce__'"))).why_not


@pytest.mark.parametrize(
    "details",
    [{"inputs": 3}, {"inputs": [{"name": 1}]}, {"nodes": [["a"]], "strings": 4}, {"inputs": [{"name": "x", "shape": ["a"], "dtype": 3}]}],
)
def test_odd_details_are_ignored(printed, details):
    assert try_run(rebuild(printed('x: "f32[4][1]cpu"', "return (x,)"), details=details)).runnable


def test_user_line_of_the_text_becomes_the_stack_trace(printed):
    text = printed('x: "f32[4][1]cpu"', "# File: /a/train.py:12 in step, code: y = x.sin()", "sin = x.sin()", "return (sin,)")
    nodes = {node.name: node for node in rebuild(text).graph_module.graph.nodes}
    assert 'File "/a/train.py", line 12, in step' in nodes["sin"].meta["stack_trace"]


def test_accelerator_is_rewritten_on_request_only(printed):
    text = printed(
        'x: "f32[4][1]cuda:0"',
        "zeros = torch.zeros(4, device = device(type='cuda', index=0))",
        "to = x.to('cuda:0')",
        "cuda = to.cuda()",
        "add = cuda + zeros",
        "return (add,)",
    )
    on_cpu = rebuild(text, options=ON_CPU)
    assert try_run(on_cpu).runnable
    zeros = next(node for node in on_cpu.graph_module.graph.nodes if node.target is torch.zeros)
    assert zeros.kwargs["device"] == torch.device("cpu"), "fake tensors on cpu:0 and on cpu do not go together"
    recorded = rebuild(text)
    assert recorded.inputs[0].device == "cuda:0" if torch.cuda.is_available() else True
    if not torch.cuda.is_available():
        with pytest.raises((AssertionError, RuntimeError)):
            recorded.example_inputs()
        assert "cuda:0" in try_run(recorded).why_not


def test_rare_dtypes_and_strides(printed):
    text = printed(
        'a: "f8e4m3fn[2, 3][3, 1]cpu", b: "c64[2][1]cpu", c: "f32[3, 4][1, 3]cpu", d: "b8[2][1]cpu",'
        ' e: "f32[4, 2][0, 1]cpu", f: "bf16[0][1]cpu"',
        "return (a, b, c, d, e, f)",
    )
    made = rebuild(text).example_inputs()
    assert [str(value.dtype) for value in made[:2]] == ["torch.float8_e4m3fn", "torch.complex64"]
    assert made[2].stride() == (1, 3) and made[4].stride() == (0, 1) and made[5].numel() == 0


def test_collectives_get_process_groups_of_the_right_size(printed):
    text = printed(
        'x: "f32[4][1]cpu"',
        "gather: \"f32[32][1]cpu\" = torch.ops._c10d_functional.all_gather_into_tensor.default(x, 8, '5');  x = None",
        "wait = torch.ops._c10d_functional.wait_tensor.default(gather);  gather = None",
        "return (wait,)",
    )
    rebuilt = rebuild(text)
    assert rebuilt.groups == {"5": 8}
    assert try_run(rebuilt).outputs[0].shape == (32,)


def test_large_graph_runs_on_fake_tensors(printed):
    text = printed('x: "f32[100000, 100000][100000, 1]cpu"', "matmul = x @ x", "return (matmul,)")
    trial = try_run(rebuild(text))
    assert trial.runnable and trial.how == "fake"


@pytest.mark.parametrize(
    ("signature", "line", "reason"),
    [
        ("x", "y = x + 1", "no annotation"),
        ('x: "DTensor(f32[4][1]cpu, S(0))"', "y = x + 1", "is a DTensor"),
        ('x: "f32[4][1]cpu"', "y = self.linear(x)", "whose code is not in the graph's text"),
        ('x: "f32[4][1]cpu"', "y = mylib_scale(x)", "mylib_scale"),
        ('x: "f32[4][1]cpu"', "y = torch.ops.mylib.scale(x)", "mylib::scale"),
        ('x: "f32[4][1]cpu"', "y = torch.add(x, torch.Tensor(size=[2], dtype=float32))", "constant tensor"),
        ('x: "f32[4][1]cpu"', "y = torch.ops.higher_order.triton_kernel_wrapper_mutation(kernel_idx = 0)", "triton"),
    ],
)
def test_reason_says_what_cannot_be_rebuilt(printed, signature, line, reason):
    with pytest.raises(NotRebuildableError, match=reason):
        rebuild(printed(signature, line, "return (y,)"))


def test_running_leaves_global_state_alone(printed):
    text = printed(
        'x: "f32[4][1]cpu"',
        "_set_grad_enabled = torch._C._set_grad_enabled(False)",
        "_vmap_increment_nesting = torch._C._functorch._vmap_increment_nesting(4, 'different')",
        "rand = torch.rand(4)",
        "bad = rand.view(3)",
        "return (bad,)",
    )
    state, grad = torch.get_rng_state(), torch.is_grad_enabled()
    trial = try_run(rebuild(text))
    assert not trial.runnable and "shape" in trial.why_not
    assert torch.equal(state, torch.get_rng_state()) and torch.is_grad_enabled() == grad
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


@pytest.mark.parametrize("kinds", [("vmap", "vmap", "vmap"), ("grad", "vmap"), ("vmap", "grad", "vmap"), ("jvp", "grad"), ("func",)])
def test_left_over_functorch_levels_are_left_one_by_one(kinds):
    functorch = torch._C._functorch
    arguments = {"vmap": (4, "different"), "func": (False,)}
    enter = [lambda kind=kind: getattr(functorch, f"_{kind}_increment_nesting")(*arguments.get(kind, ())) for kind in kinds]
    enter[0]()
    try:
        with kept_global_state():
            for one in enter[1:]:
                one()
        assert functorch.get_dynamic_layer_stack_depth() == 1
    finally:
        getattr(functorch, f"_{kinds[0]}_decrement_nesting")()
    assert functorch.get_dynamic_layer_stack_depth() == 0


def test_numpy_norm_and_operators_with_names_of_python(printed):
    text = printed(
        'L_x_: "i32[4][1]cpu"',
        "shifted = torch.ops.aten.__lshift__.Scalar(L_x_, 2)",
        "wide = torch.ops.aten._to_copy.default(shifted, dtype = torch.float64)",
        "wrapped_norm = torch__dynamo_utils_wrapped_norm(wide)",
        "return (shifted, wrapped_norm)",
    )
    rebuilt = rebuild(text)
    shifted, norm = rebuilt.graph_module(torch.ones(4, dtype=torch.int32))
    assert shifted.tolist() == [4] * 4 and float(norm) == 8.0
    assert "torch._numpy.linalg.norm" in write_script(rebuilt, title=[])
    with pytest.raises(NotRebuildableError, match="not an operator name"):
        rebuild(printed('L_x_: "i32[4][1]cpu"', "a = torch.ops.aten.__class__.default(L_x_)", "return (a,)"))


def test_numbers_that_dynamo_did_not_fold_and_names_of_augmented_assignments(printed):
    text = printed(
        'L_x_: "f32[4][1]cpu"',
        "l_x_ = L_x_",
        'mul: "Sym(0.0125)" = 0.025 * 0.5',
        'l_x_ *= mul;  x: "f32[4][1]cpu" = l_x_;  l_x_ = mul = None',
        "shifted = x + (1-2j)",
        "return (shifted,)",
    )
    rebuilt = rebuild(text)
    (shifted,) = rebuilt.graph_module(torch.full((4,), 80.0))
    assert shifted.tolist() == [2 - 2j] * 4
    assert [node.name for node in rebuilt.graph_module.graph.nodes] == ["l_x_", "mul", "x", "shifted", "output"]
