"""Every row of the table of torch's names, called on this torch: what it gives, whose memory, which shape, what raises, which gradient."""

import warnings

import pytest
import torch
import torch.nn.functional as F

from dynadiag.source.torch_names import AUTOCAST, ELEMENTWISE, TORCH_NAMES

ROWS = tuple(TORCH_NAMES.values())
VALUES = torch.tensor([[-1e4, -20.0, -1.0, -0.5], [0.0, 0.5, 1.0, 2.0], [20.0, 1e4, 0.0, 3.0]])
OPERANDS = (VALUES, VALUES.double(), torch.zeros(3, 4), torch.ones(3, 4), torch.full((1, 1), 2.0), torch.eye(4)[:3], torch.zeros(1, 1))
"""Operands of gradients: large, small, zero, equal and single values."""

NUMBERS = {
    **dict.fromkeys(("add", "sub", "mul", "div", "fmod", "remainder", "eq", "ne", "lt", "le", "gt", "ge", "clamp_max", "clamp_min"), (2,)),
    **dict.fromkeys(("add_", "sub_", "mul_", "div_"), (2,)),
    **dict.fromkeys(("clamp", "clip", "clamp_"), (-1, 1)),
    **dict.fromkeys(("cumsum", "cumprod", "softmax", "log_softmax", "logsumexp"), (-1,)),
    **dict.fromkeys(("swapaxes", "swapdims", "movedim", "moveaxis", "transpose"), (0, 1)),
    **dict.fromkeys(("reshape", "view"), (-1, 2)),
    **dict.fromkeys(("new_zeros", "new_ones", "new_empty"), ((2,),)),
    **dict.fromkeys(("chunk", "split", "tensor_split", "tile", "topk", "kthvalue"), (1,)),
    "pow": (3,),
    "permute": (1, 0),
    "unsqueeze": (0,),
    "expand": (2, -1, -1),
    "broadcast_to": ((2, 3, 4),),
    "repeat": (2, 1),
    "roll": (1,),
    "flip": ((0,),),
    "narrow": (0, 0, 1),
    "select": (0, 0),
    "unflatten": (1, (2, 2)),
    "unfold": (0, 2, 1),
    "pad": ((1, 1),),
    "as_strided": ((1,), (1,)),
    "layer_norm": ((4,),),
    "new_full": ((2,), 1.0),
    "full_like": (1.0,),
    "to": (torch.float64,),
    "fill_": (1.0,),
    "resize_": ((12,),),
    "interpolate": (8,),
}
"""What else is given beside the tensor; nothing for names that are not listed here or in `called_with`."""
MADE = {
    **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn", "eye"), (3,)),
    "arange": (3.0,),
    "full": ((3,), 1.0),
    "linspace": (0, 1, 3),
    "randint": (5, (3,)),
    "tensor": ([1.0, 2.0],),
    "finfo": (torch.float32,),
    "iinfo": (torch.int32,),
}
FUNCTIONS = {
    "where": torch.where,
    "addmm": torch.addmm,
    "dropout": F.dropout,
    "cholesky": torch.linalg.cholesky,
    "solve": torch.linalg.solve,
}
"""Names of which the function is meant, and not the method."""


SCHEMAS: dict[str, list] = {}
for schema in torch._C._jit_get_all_schemas():
    SCHEMAS.setdefault(schema.name.removeprefix("aten::"), []).append(schema)


def called_with(name, x):
    """The arguments of a call: `x` first, or what it is computed from."""
    if "attribute" in TORCH_NAMES[name].marks:
        return (x,)
    other, rows = x.detach().flip(0), torch.zeros(x.shape, dtype=torch.long)
    square = torch.eye(3, dtype=x.dtype) * 2 + (x[:3, :3] if x.shape == (3, 4) else 0)
    special = {
        **dict.fromkeys(
            ("logical_and", "logical_or", "logical_xor", "maximum", "minimum", "isin", "isclose", "allclose", "equal"), (x, other)
        ),
        **dict.fromkeys(("expand_as", "view_as", "type_as", "copy_"), (x, other)),
        **dict.fromkeys(("matmul", "mm", "addmm"), (x, other.t())),
        **dict.fromkeys(("gather", "scatter_add", "scatter", "scatter_", "scatter_add_"), (x, 0, rows, other + 1)),
        **dict.fromkeys(("masked_fill", "masked_fill_"), (x, other > 0, 1.0)),
        **dict.fromkeys(("index_add", "index_add_", "index_copy_"), (x, 0, torch.arange(x.shape[0]), other)),
        **dict.fromkeys(("cat", "stack"), ([x, other],)),
        **dict.fromkeys(("det", "inverse"), (square,)),
    }
    special |= {"gather": (x, 0, rows), "addmm": (torch.zeros(x.shape[0], x.shape[0], dtype=x.dtype), x, other.t()), "linear": (x, other)}
    special |= {"bmm": (x[None], other.t()[None]), "einsum": ("ij,kj->ik", x, other), "where": (other > 0, x, other), "one_hot": (rows,)}
    special |= {"masked_select": (x, other > 0), "index_select": (x, 0, torch.zeros(1, dtype=torch.long)), "addcmul": (x, other, other)}
    special |= {"index_fill_": (x, 0, torch.zeros(1, dtype=torch.long), 1.0), "lerp_": (x, other, 0.5), "interpolate": (x[None], 8)}
    special |= {"cholesky": (torch.eye(3, dtype=x.dtype) * (x.abs().sum() + 1),), "solve": (square, torch.ones(3, 1, dtype=x.dtype))}
    special |= {"item": (x.sum(),), "squeeze": (x[None],), "dropout": (x, 0.5)}
    return MADE.get(name) or special.get(name) or (x, *NUMBERS.get(name, ()))


def call(name, *arguments):
    """The row's name on these arguments: an attribute, a method of the first, or a function of torch."""
    if "attribute" in TORCH_NAMES[name].marks:
        return getattr(arguments[0], name)
    first = arguments[0]
    if name in FUNCTIONS:
        return FUNCTIONS[name](*arguments)
    if isinstance(first, torch.Tensor) and hasattr(first, name):
        return getattr(first, name)(*arguments[1:])
    return next(getattr(owner, name) for owner in (torch, F) if hasattr(owner, name))(*arguments)


def operand_of(arguments):
    return next((each for each in arguments if isinstance(each, torch.Tensor)), None)


def operands_for(name):
    """Operands that the function is defined on: complex ones for what only these have."""
    return [torch.complex(VALUES, VALUES)] if name == "imag" else [VALUES]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_a_name_gives(row):
    for x in operands_for(row.name):
        arguments = called_with(row.name, x.clone())
        result = call(row.name, *arguments)
        if row.name == "grad":
            assert result is None or isinstance(result, torch.Tensor)
            continue
        first = result[0] if isinstance(result, tuple) and not isinstance(result, torch.Size) and row.gives != "size" else result
        if row.gives in ("tensor", "truth", "integer"):
            assert isinstance(result, torch.Tensor)
            kind = (
                "truth"
                if result.dtype == torch.bool
                else "integer"
                if not result.is_floating_point() and not result.is_complex()
                else "tensor"
            )
            assert kind == row.gives
        elif row.gives == "tensors":
            assert isinstance(result, tuple) and isinstance(first, torch.Tensor)
        elif row.gives == "answer":
            assert isinstance(result, bool)
        else:
            assert not isinstance(result, torch.Tensor)
        if row.gives in ("tensor", "truth", "integer", "tensors"):
            check_memory(row, arguments, first)
        if row.gives in ("tensor", "truth", "integer"):
            check_shape(row, arguments, result)


def check_memory(row, arguments, result):
    operands = [each for each in arguments if isinstance(each, torch.Tensor)]
    operands += [each for given in arguments if isinstance(given, list) for each in given if isinstance(each, torch.Tensor)]
    shares = any(each.untyped_storage().data_ptr() == result.untyped_storage().data_ptr() for each in operands)
    if row.memory == "new":
        assert not shares
    elif row.memory == "view":
        assert shares
    elif row.memory == "own":
        assert result is operands[0]
    else:
        assert row.memory == "shared"


def check_shape(row, arguments, result):
    operand = operand_of(arguments)
    if row.shape in ("each", "pair", "with_numbers", "two", "like"):
        assert result.shape == operand.shape
    elif row.shape == "reduce":
        assert result.dim() == 0
    elif row.shape == "arrange" and row.name not in ("unfold", "select", "narrow", "as_strided", "diagonal", "expand", "broadcast_to"):
        assert result.numel() == operand.numel()


@pytest.mark.parametrize("name", sorted(name for name, row in TORCH_NAMES.items() if row.memory == "shared"))
def test_shared_memory_is_seen_to_be_shared(name):
    dtypes = {
        "bfloat16": torch.bfloat16,
        "half": torch.half,
        "double": torch.double,
        "bool": torch.bool,
        "int": torch.int,
        "long": torch.long,
    }
    x = VALUES.to(dtypes.get(name, torch.float))
    arguments = {"to": (x, x.dtype), "type_as": (x, x), "dropout": (x, 0.5, False), "einsum": ("ij->ji", x), "reshape": (x, (4, 3))}.get(
        name, (x,)
    )
    assert call(name, *arguments).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.memory == "new" and row.gives in ("tensor", "truth", "integer")], ids=lambda row: row.name
)
def test_new_memory_is_new_where_nothing_changes(row):
    """No cleverness for what the operand already is: sums over nothing, powers of one, the same type."""
    x = torch.ones(4)
    for arguments in ((x,), (x, 1), (x, ()), (x, 0)):
        if len(arguments) > 1 and hasattr(F, row.name) and not hasattr(x, row.name):
            continue  # the second argument of these is `inplace`
        try:
            result = call(row.name, *arguments)
        except (TypeError, RuntimeError, ValueError, IndexError):
            continue
        if isinstance(result, torch.Tensor) and row.shape not in ("make",):
            assert result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr(), arguments


@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_elementwise_keeps_shape_and_type_of_floats(name, dtype):
    x = VALUES.to(dtype)
    result = call(name, *called_with(name, x))
    assert (result.shape, result.dtype) == (x.shape, dtype)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_raises(row):
    if row.gives == "size" or "attribute" in row.marks:
        return
    operands = [VALUES, VALUES.long(), VALUES > 0, VALUES * torch.nan, VALUES.double()]
    if row.raises == "never" and row.name not in ("item", "mm", "bmm", "matmul"):
        operands.append(torch.zeros(0, 4))
    for x in operands if row.raises in ("never", "empty") else ():
        try:
            call(row.name, *called_with(row.name, x.clone()))
        except RuntimeError as error:
            # The operator has no kernel for this type at all, so that the program would end at its own call too.
            assert any(
                words in str(error) for words in ("not implemented for", "dtype", "Boolean", "bool", "can't be cast", "floating point")
            )
    if row.raises == "empty":
        with pytest.raises((RuntimeError, IndexError)):
            call(row.name, torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_gradient(row):
    """What flows back where `torch.where` did not choose the value: the gradient of a cotangent of zeros."""
    if (
        row.memory == "own"
        or row.gives in ("size", "number", "answer")
        or "attribute" in row.marks
        or row.shape == "make"
        or row.name == "tensor"
    ):
        return
    found = set()
    for x in OPERANDS:
        for arguments in variants(row.name, x):
            found |= gradients(row, arguments)
    if row.gradient == "none":
        assert not found
    elif row.gradient == "finite":
        assert found == {"finite"}
    else:
        assert "infinite" in found


def variants(name, x):
    """The arguments of a call, and others of which the gradient may depend."""
    x = x.clone().requires_grad_()
    yield called_with(name, x)
    exponents = {"pow": (0.5, -1), "norm": (0.5, 1, 3, float("inf")), "div": (torch.zeros_like(x),), "remainder": (torch.zeros_like(x),)}
    for other in exponents.get(name, ()):
        yield (x, other.requires_grad_() if isinstance(other, torch.Tensor) and name == "div" else other)


def gradients(row, arguments):
    """`finite` or `infinite`, where a gradient flows at all; nothing where the operator does not take the operand."""
    leaves = [each for each in arguments if isinstance(each, torch.Tensor) and each.requires_grad]
    leaves += [
        each for given in arguments if isinstance(given, list) for each in given if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    try:
        result = call(row.name, *arguments)
    except (RuntimeError, IndexError):
        return set()
    first = result[0] if isinstance(result, tuple) else result
    if not isinstance(first, torch.Tensor) or not first.requires_grad or not leaves:
        return set()
    try:
        given = torch.autograd.grad(first, leaves, torch.zeros_like(first), allow_unused=True)
    except NotImplementedError:  # `unique`
        return set()
    flowing = [each for each in given if each is not None]
    return {"finite" if all(bool(each.isfinite().all()) for each in flowing) else "infinite"} if flowing else set()


@pytest.mark.parametrize("name", sorted(name for name, row in TORCH_NAMES.items() if row.memory == "own"))
def test_in_place_methods_write_and_are_in_torchs_schemas(name):
    x = VALUES.clone()
    before = x.clone()
    call(name, *called_with(name, x))
    assert name == "resize_" or not torch.equal(x, before)
    schemas = SCHEMAS[name]
    assert schemas and any(each.arguments[0].alias_info is not None and each.arguments[0].alias_info.is_write for each in schemas)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.memory != "own" and row.gives in ("tensor", "truth", "integer")], ids=lambda row: row.name
)
def test_what_is_pure_writes_nothing_by_torchs_schemas(row):
    for schema in (each for each in SCHEMAS.get(row.name, ()) if each.arguments):
        first = schema.arguments[0]
        assert first.alias_info is None or not first.alias_info.is_write, str(schema)


@pytest.mark.parametrize("row", [row for row in ROWS if row.gives == "tensor" and row.memory != "own"], ids=lambda row: row.name)
def test_autocast(row):
    """What `torch.autocast` computes in another type on a CPU has the mark; the lists for GPUs are longer (`tests/gpu`)."""
    if row.name in AUTOCAST or "attribute" in row.marks:
        return
    assert computed_type(row.name, "cpu", autocast=False) == computed_type(row.name, "cpu", autocast=True)


def computed_type(name, device, *, autocast):
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        arguments = [each.to(device) if isinstance(each, torch.Tensor) else each for each in called_with(name, VALUES.to(dtype))]
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            try:
                result = call(name, *arguments)
            except RuntimeError:
                continue
        found.append(result.dtype if isinstance(result, torch.Tensor) else None)
    return found
