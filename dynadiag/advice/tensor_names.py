"""Names of torch's by what they do: how a function's text shows that something is a tensor, and of which shape."""

from __future__ import annotations

# What only tensors have: methods that give another tensor, and attributes.
TENSOR_METHODS = frozenset(
    (
        "abs", "amax", "amin", "any", "all", "argmax", "argmin", "bmm", "clamp", "clone", "contiguous", "cos", "cumsum", "detach",
        "diff", "double", "exp", "expand", "flatten", "float", "gather", "half", "index_add", "index_select", "isfinite", "isnan",
        "log", "log1p", "log_softmax", "long", "masked_fill", "matmul", "mean", "norm", "permute", "pow", "prod", "relu", "reshape",
        "round", "scatter_add", "sigmoid", "sin", "softmax", "sqrt", "square", "squeeze", "std", "sum", "tanh", "to", "transpose",
        "unsqueeze", "var", "view",
    )
)  # fmt: skip
REDUCTIONS = frozenset(
    ("amax", "amin", "argmax", "argmin", "count_nonzero", "max", "mean", "median", "min", "norm", "prod", "std", "sum", "var")
)
IN_PLACE = frozenset(("add_", "clamp_", "copy_", "div_", "fill_", "lerp_", "mul_", "sub_", "zero_"))
TENSOR_ATTRIBUTES = frozenset(("device", "dim", "dtype", "grad", "requires_grad", "shape", "size", "numel", "item", "tolist"))
# Methods of a tensor that compute with a number as they do with a tensor of no dimensions.
TAKE_BOTH = frozenset(("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "pow"))
ELEMENTWISE = frozenset(
    (
        "abs", "clamp", "clone", "cos", "detach", "neg", "ones_like", "relu", "round", "sigmoid", "sin", "square", "tanh", "zeros_like",
    )
)  # fmt: skip
# Elsewhere their gradient is infinite, and so `nan` where `torch.where` did not choose them.
WITHOUT_GRADIENT = frozenset(("exp", "log", "log1p", "pow", "reciprocal", "rsqrt", "sqrt"))
SINGLE_OF_SINGLE = frozenset(("isnan", "isinf", "isfinite", "abs", "sqrt", "exp", "log", "float", "int", "bool", "logical_not", "detach"))
NO_TENSORS = frozenset(
    (
        "shape", "size", "item", "tolist", "numpy", "numel", "dim", "ndim", "dtype", "device", "stride", "data_ptr", "len", "int", "float",
        "bool", "str", "list", "tuple", "dict",
    )
)  # fmt: skip
