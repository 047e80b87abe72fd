"""Recompile reasons as torch 2.11 and 2.15 print them, taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.facts.guard_sources import dimension, named_in, readable
from dynadiag.passes.guard_text import parse_guard_code, parse_reason

WHERE = '  # return x * k  # proj/train.py:14 in step\nUser stack trace:\n  File "/proj/train.py", line 14, in step\n    return x * k'


def padded(code):
    return f"{code:<60}{WHERE}"


# (reason without its entry, kind, source, expected, actual)
TEXTS = [
    ("tensor 'x' size mismatch at index 0. expected 4, actual 8", "size", "x.size(0)", "4", "8"),
    ("tensor 'batch['ids']' size mismatch at index 1. expected 4, actual 8", "size", "batch['ids'].size(1)", "4", "8"),
    ("tensor 'x' stride mismatch at index 1. expected 16, actual 1", "stride", "x.stride(1)", "16", "1"),
    ("tensor 'x' rank mismatch. expected 2, actual 1", "rank", "x.dim()", "2", "1"),
    ("tensor 'x' dtype mismatch. expected Float, actual Double", "dtype", "x.dtype", "float32", "float64"),
    ("tensor 'x' dtype mismatch. expected BFloat16, actual Float8_e5m2", "dtype", "x.dtype", "bfloat16", "Float8_e5m2"),
    ("tensor '___from_numpy(a)' dtype mismatch. expected Float, actual Double", "dtype", "a.dtype", "float32", "float64"),
    ("tensor 'x' requires_grad mismatch. expected requires_grad=0", "requires_grad", "x.requires_grad", "False", "True"),
    (
        "tensor 'm._parameters['weight']' requires_grad mismatch. expected requires_grad=1. Guard failed on a parameter, consider using "
        "torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism on parameters.",
        "requires_grad",
        "m.weight.requires_grad",
        "True",
        "False",
    ),
    (
        "tensor 'm._modules['0']._parameters['bias']' size mismatch at index 0. expected 3, actual "
        "5. Guard failed on a parameter, consider "
        "using torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism on parameters.",
        "size",
        "m[0].bias.size(0)",
        "3",
        "5",
    ),
    (
        "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), actual "
        "DispatchKeySet(Meta, BackendSelect, ADInplaceOrView, AutogradMeta)",
        "device",
        "x.device",
        "cpu",
        "meta",
    ),
    (
        "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), actual "
        "DispatchKeySet(CPU, BackendSelect)",
        "dispatch_keys",
        "x",
        "ADInplaceOrView, AutogradCPU",
        "none of these",
    ),
    ("Tensor device index mismatch. Expected device index to be 0, got 1", "unknown", "", None, None),
    ("tensor 'x' Tensor device index mismatch. Expected device index to be 0, got 1", "device", "x.device.index", "0", "1"),
    ("expected type of 'mask' to be a tensor type, ' but found <class 'NoneType'>", "type", "mask", "Tensor", "NoneType"),
    ("expected type of 'mask' to be <class 'torch.Tensor'>, but found <class 'NoneType'>", "type", "mask", "Tensor", "NoneType"),
    ("GLOBAL_STATE changed: grad_mode ", "global_state", "grad_mode", None, None),
    ("GLOBAL_STATE changed: autocast(cpu)_enabled ", "global_state", "autocast(cpu)_enabled", None, None),
    ("___check_torch_function_mode_stack()", "function_mode", "torch function mode stack", None, None),
    ('Duplicate tensors found: ["x", "y"]', "aliasing", "x and y", "different tensors", "the same tensor"),
    (padded("x is y"), "aliasing", "x and y", "the same object", "different objects"),
    ("len(d) != 1", "length", "len(d)", "1", None),
    (padded("len(xs) == 2"), "length", "len(xs)", "2", None),
    (padded("not xs"), "length", "len(xs)", "0", None),
    (padded("___tuple_iterator_len(r) == 2"), "length", "len(r)", "2", None),
    (padded("list(dict.keys(d))[0] == 'a'"), "keys", "keys of d", "'a'", None),
    (padded("not ___dict_contains('m', d)"), "contains", "'m' in d", "missing", "there"),
    (padded("set.__contains__(s, 'a')"), "contains", "'a' in s", None, None),
    ("getattr failed on source o.q", "attribute", "o.q", "the attribute is present", "it is missing"),
    (padded("k == 2"), "value", "k", "2", None),
    (padded("flag == True"), "value", "flag", "True", None),
    (padded('mode == "it\'s"'), "value", "mode", '"it\'s"', None),
    (padded("s == 'a\\nb\\nUser stack trace:\\n'"), "value", "s", "'a\\nb\\nUser stack trace:\\n'", None),
    (padded("s == 'x == 1  # no comment'"), "value", "s", "'x == 1  # no comment'", None),
    (padded("d[\"a.b['c'] == 2  # x\"] == 1.0"), "value", "d[\"a.b['c'] == 2  # x\"]", "1.0", None),
    (padded("G['LR'] == 2.5"), "value", "LR", "2.5", None),
    (padded("x.storage_offset() == 0"), "value", "x.storage_offset()", "0", None),
    (padded("d == device(type='cpu')"), "value", "d", "device(type='cpu')", None),
    (padded("d == torch.float64"), "value", "d", "torch.float64", None),
    (padded("self.param_groups[0]['lr'] == 0.1"), "value", "self.param_groups[0]['lr']", "0.1", None),
    (padded("fn._modules['1'].training == True"), "value", "fn[1].training", "True", None),
    (padded("self.cache is None"), "none", "self.cache", "None", "not None"),
    (padded("___check_type_id(k, 140258498143136), type=<class 'float'>"), "type", "k", "float", None),
    (padded("___check_obj_id(e, 140258410635168), type=<class '__main__.Color'>"), "identity", "e", "Color", None),
    (padded("___check_obj_id(f.__code__, 1402), type=<class 'code'>"), "function", "f", "function", None),
    (
        '___check_obj_id(f.__code__, 14), type=<code object <lambda> at 0x7f07d99bae80, file "/p/t.py", line 256>  # return f(x)',
        "function",
        "f",
        '<code object <lambda>, file "/p/t.py", line 256>',
        None,
    ),
    ("CodeGuardAccessor: Not a function on f.__code__", "function", "f", "a Python function", "something else"),
    (
        "not math.isnan(scale)  # implicit guard for float input due to NaN specialization in the framework",
        "nan",
        "scale",
        "a number",
        "nan",
    ),
    ("scale == ___as_tensor(scale).item()  # (unknown var zf69, please file a bug)", "nan", "scale", "a number", "nan"),
    (
        "k <= 5  # return x if k > 5 else k  # t.py:671 in fn (_dynamo/variables/tensor.py:1951 in evaluate_expr)",
        "condition",
        "k <= 5",
        "true",
        "false",
    ),
    ("___as_tensor(scale).item() <= 2.0  # if scale > 2:  # t.py:70 in fn", "condition", "scale <= 2.0", "true", "false"),
    ("(x.size()[0] % 2) == 0  # return x  # t.py:42 in fn", "condition", "(x.size(0) % 2) == 0", "true", "false"),
    (
        "2 <= x.size()[0]  # def fn(x): return x * 2  # t.py:29 in fn (user code shown is first "
        "use of this value--the guard itself is not due "
        "user code but due to 0/1 specialization in the framework; to avoid specialization try "
        "torch._dynamo.decorators.mark_unbacked(tensor, dim))",
        "zero_one",
        "2 <= x.size(0)",
        "true",
        "false",
    ),
    (
        "y.size()[0] == x.size()[0]  # duck sizing added this equality because these variables had the same size 4 (to avoid this "
        "specialization, set torch.fx.experimental._config.use_duck_shape = False)",
        "duck_size",
        "y.size(0) == x.size(0)",
        "true",
        "false",
    ),
    ("hasattr(x, '_dynamo_dynamic_indices') == False", "dim_marking", "x", None, None),
    ("((x._dynamo_dynamic_indices.issubset({0})) if hasattr(x, '_dynamo_dynamic_indices') else True)", "dim_marking", "x", None, None),
    ("_has_dynamo_dim_marking is present on runtime tensor but was absent at compile time", "dim_marking", "a tensor", None, None),
    ("_dynamo_dynamic_indices not a subset: runtime {0, 1} is not a subset of compiled {0}", "dim_marking", "a tensor", None, None),
    ("Cache line invalidated because L['kind'] got deallocated", "invalidated", "kind", "alive", "freed"),
    (
        "Unexpected recompilation: runtime guards failed even though they passed during recompilation-reason analysis.",
        "unexpected",
        "",
        None,
        None,
    ),
    ("a guard that nobody has seen yet", "unknown", "", None, None),
    ("", "unknown", "", None, None),
]


@pytest.mark.parametrize(("text", "kind", "source", "expected", "actual"), TEXTS)
def test_reason(text, kind, source, expected, actual):
    failed = parse_reason(f"0/3: {text}")
    assert (failed.kind, failed.source, failed.expected, failed.actual) == (kind, source, expected, actual)
    assert failed.entry == "0/3"


def test_the_stack_gives_the_line_that_asked_for_the_guard():
    failed = parse_reason("1/0: " + padded("k == 2"))
    assert failed.origin is not None
    assert (failed.origin.file, failed.origin.line, failed.origin.code) == ("/proj/train.py", 14, "return x * k")
    assert "User stack" not in failed.text and failed.text.startswith("k == 2")


def test_the_comment_gives_the_line_when_there_is_no_stack():
    origin = parse_reason("0/0: k <= 5  # if k > 5:  # proj/t.py:7 in fn (_dynamo/variables/tensor.py:1951 in evaluate_expr)").origin
    assert origin is not None and (origin.file, origin.line) == ("proj/t.py", 7)


def test_a_quoted_line_ends_where_torch_names_the_next_place():
    place = "proj/t.py:7 in fn (_dynamo/variables/tensor.py:1951 in evaluate_expr)"
    origin = parse_reason(f"0/0: k <= 5  # if k > 5:  # {place} and if k > 5:  # {place}").origin
    assert origin is not None and (origin.line, origin.code) == (7, "if k > 5:")


def test_of_two_places_the_line_and_its_text_are_of_one_that_asked_for_the_guard():
    first_use = "(user code shown is first use of this value--the guard itself is not due user code but due to 0/1 specialization)"
    asked = "if ids.shape[1] > 16:  # me/llm.py:11 in score (_dynamo/variables/tensor.py:3083 in evaluate_expr)"
    drawn = f"keys = {{  # utils/capturing.py:332 in wrapper {first_use}"
    for comment in (f"{drawn} and {asked}", f"{asked} and {drawn}"):
        origin = parse_reason(f"0/0: 2 <= ids.size()[1] <= 16  # {comment}").origin
        assert (origin.file, origin.line, origin.code) == ("me/llm.py", 11, "if ids.shape[1] > 16:")
    origin = parse_reason(f"0/0: 2 <= ids.size()[1]  # {drawn}").origin
    assert (origin.file, origin.line, origin.code) == ("utils/capturing.py", 332, "keys = {")


def test_hints_are_kept_apart():
    failed = parse_reason(
        "0/0: " + f"{'self.step == 0':<60}  # self.step += 1  # t.py:3 in forward (HINT: torch.compile considers (this) static.)"
    )
    assert failed.hint == "torch.compile considers (this) static."
    assert failed.expected == "0"


def test_a_closure_variable_has_its_name():
    failed = parse_reason("0/0: " + f"{'f.__closure__[0].cell_contents == 1':<60}" + '  # return t * k  # t.py:4 in h (HINT: guard on "k")')
    assert failed.source == "k (closure of f)"
    length = parse_reason("5/1: len(G['f'].__closure__[0].cell_contents) == 1  # cache[key] = 1  # a.py:46 in f (HINT: guard on \"cache\")")
    assert length.source == "len(cache) (closure of f)"


def test_backend_objects_are_named_without_their_address():
    failed = parse_reason(
        "0/0: BACKEND_MATCH failure: torch.compile detected different backend callables. Cached "
        "backend: _TorchCompileWrapper(compiler='a', "
        "dynamic=None) (id=0x7f). New backend: _TorchCompileWrapper(compiler='b', dynamic=None) (id=0x8f). If this is unexpected, wrap it."
    )
    assert (failed.kind, failed.expected) == ("backend", "_TorchCompileWrapper(compiler='a', dynamic=None)")
    assert parse_reason("0/0: BACKEND_MATCH failure: torch.compile detected different backend callables. If this").kind == "backend"


def test_compile_ids_of_compiled_autograd_and_old_logs():
    assert parse_reason("!2/0/1: k == 1").entry == "!2/0/1"
    assert parse_reason("k == 1").entry is None
    assert parse_reason("k == 1").kind == "value"


def test_guard_code_of_a_dump():
    assert parse_guard_code("L['mode'] == 'b'").expected == "'b'"
    assert parse_guard_code("___check_type_id(L['k'], 94), type=<class 'float'>").expected == "float"
    assert parse_guard_code("check_tensor(L['x'], Tensor, size=[4, 3])") is None


def test_sources_as_people_write_them():
    assert readable("L['self']._modules['layers']._modules['0']._parameters['weight'].size()[0]") == "self.layers[0].weight.size(0)"
    assert readable("L['self']._modules['r'].__dict__['_modules']['fc']._parameters['weight']") == "self.r.fc.weight"
    assert readable("G['LR']") == "LR"
    nested = "object.__getattribute__(object.__getattribute__(L['self'].model, 'config'), 'problem_type')"  # torch 2.11
    assert readable(nested) == "self.model.config.problem_type"
    state = "L['opt'].state[list(dict.keys(L['opt'].state))[0]]['n']"
    assert readable(state) == readable(state.replace("dict.keys(L['opt'].state)", "L['opt'].state.keys()")) == "opt.state[key 0]['n']"
    assert readable("L['self']._modules['not-a-name']") == "self['not-a-name']"
    assert dimension("x.size(0)") == ("x", 0)
    assert dimension("x.stride(0)") is None
    assert named_in("2 <= L['x'].size()[0] <= 6".replace("L['x']", "x")) == ("x.size(0)",)
    assert named_in("y.size()[0] == x.size()[0]") == ("y.size(0)", "x.size(0)")


@given(st.text(max_size=300))
def test_any_text_is_taken(text):
    failed = parse_reason(text)
    assert failed.kind
    if failed.kind == "unknown":
        assert failed.source == ""


@given(st.text(alphabet="xL[]'\"=<>. ()#!0/1:\n_", max_size=200))
def test_texts_near_the_grammar_are_taken(text):
    parse_reason("0/0: " + text)
    parse_guard_code(text)


@given(st.text(max_size=40))
def test_string_values_come_back_exactly(value):
    failed = parse_reason("0/0: " + padded(f"mode == {value!r}"))
    assert (failed.kind, failed.source, failed.expected) == ("value", "mode", repr(value))


def test_the_place_of_a_guard_of_torchs_own_stands_in_brackets():
    file = "fx/passes/_tensorify_python_scalars.py"
    origin = parse_reason(f"0/0: ___stack1.item() == 0.5  # ({file}:443 in _tensorify_impl)").origin
    assert (origin.file, origin.line, origin.function) == (file, 443, "_tensorify_impl")
