"""The layers of torch.nn that torch writes into a repro, such as `self.fc = Linear(in_features=2, out_features=3, bias=True)`, as the
operators that they call. No torch here.

The layers are those of `NNModuleToString.safe_reprs` (torch/_dynamo/debug_utils.py, 2.11 to 2.15) but for LSTM; their arguments are read as
literals, nothing is run. As in torch's script they are in training mode, their parameters random, their statistics new.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Literal = bool | int | float | str | None | tuple[int, ...]
Sizes = int | tuple[int, ...]
_Made = tuple[dict[str, tuple[tuple[int, ...], float | None]], str]
_LARGEST = 1 << 24
_STRINGS = ("none", "tanh")
_CALL = re.compile(r"^(\s*)(\w+) = self\.(\w+)\((\w+)\)(\s*(?:;.*)?)$")


@dataclass(frozen=True)
class Layer:
    """`tensors` are its parameters and buffers as attributes of the class, by their roles; `call` the text with `{x}` for its input."""

    name: str
    tensors: Mapping[str, Mapping[str, Any]]
    call: str

    def lines(self, line: str, *, first: bool, notes: Mapping[str, str]) -> list[str] | None:
        """The line `y = self.NAME(x)` as lines without the layer, its tensors read before the `first`; None for any other line."""
        found = _CALL.match(line)
        if found is None or found[3] != self.name:
            return None
        held = {role: str(mapping["name"]) for role, mapping in self.tensors.items()}
        reads = [f'{found[1]}{name}_read: "{notes[name]}" = self.{name}' for name in held.values()]
        call = self.call.format(x=found[4], **{role: f"{name}_read" for role, name in held.items()})
        return [*(reads if first else ()), f"{found[1]}{found[2]} = {call}{found[5]}"]


def read_layer(name: str, value: ast.expr, device: str) -> Layer | None:
    """The layer that an expression makes; None where it is none of those known, or has other arguments."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or value.func.id not in _LAYERS:
        return None
    args = [_literal(argument) for argument in value.args]
    named = {keyword.arg: _literal(keyword.value) for keyword in value.keywords if keyword.arg is not None}
    if _NOTHING in (*args, *named.values()) or len(named) < len(value.keywords):
        return None
    try:
        tensors, call = _LAYERS[value.func.id](*args, **named)
        senseless = any(size < 0 or size > _LARGEST for shape, _ in tensors.values() for size in shape)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    if senseless:
        return None
    return Layer(name, {role: _attribute(f"{name}_{role}", *pair, device) for role, pair in tensors.items()}, call)


_NOTHING = object()


def _literal(node: ast.expr) -> Any:
    """A number, a tuple of sizes or one of a few words; `_NOTHING` for anything else."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _NOTHING
    sizes = isinstance(value, tuple) and all(type(item) is int for item in value)
    return value if sizes or value is None or type(value) in (bool, int, float) or value in _STRINGS else _NOTHING


def _attribute(name: str, shape: Sequence[int], fill: float | None, device: str) -> dict[str, Any]:
    values = None if fill is None else [fill] * shape[0]
    return {"name": name, "shape": [*shape], "dtype": "float32", "device": device, "values": values, "requires_grad": fill is None}


def _shape(*parts: Sizes) -> tuple[tuple[int, ...], None]:
    return tuple(int(size) for part in parts for size in (part if isinstance(part, tuple) else (part,))), None


def _with_bias(weight: tuple[tuple[int, ...], None], outputs: Sizes, bias: Literal) -> dict[str, tuple[tuple[int, ...], float | None]]:
    return {"weight": weight, **({"bias": _shape(outputs)} if bias else {})}


def _named(role: str, present: Literal) -> str:
    return f"{{{role}}}" if present else "None"


def _linear(in_features: int, out_features: int, bias: bool = True) -> _Made:
    return _with_bias(
        _shape(out_features, in_features), out_features, bias
    ), f"torch._C._nn.linear({{x}}, {{weight}}, {_named('bias', bias)})"


def _conv(dims: int) -> Callable[..., _Made]:
    def conv(
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> _Made:
        weight = _shape(out_channels, in_channels // groups, kernel_size)
        call = f"torch.conv{dims}d({{x}}, {{weight}}, {_named('bias', bias)}, {stride}, {padding}, {dilation}, {groups})"
        return _with_bias(weight, out_channels, bias), call

    return conv


def _conv_transpose1d(
    in_channels: int,
    out_channels: int,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    bias: bool = True,
    dilation: Sizes = 1,
) -> _Made:
    numbers = f"{stride}, {padding}, {output_padding}, {groups}, {dilation}"
    weight = _shape(in_channels, out_channels // groups, kernel_size)
    return _with_bias(weight, out_channels, bias), f"torch.conv_transpose1d({{x}}, {{weight}}, {_named('bias', bias)}, {numbers})"


def _batch_norm(
    num_features: int,
    eps: float = 1e-5,
    momentum: float | None = 0.1,
    affine: bool = True,
    track_running_stats: bool = True,
    bias: bool = True,
) -> _Made:
    tensors = _with_bias(_shape(num_features), num_features, bias) if affine else {}
    kept = {"running_mean": ((num_features,), 0.0), "running_var": ((num_features,), 1.0)} if track_running_stats else {}
    held = ", ".join(_named(role, role in tensors or role in kept) for role in ("running_mean", "running_var", "weight", "bias"))
    # Without a momentum the mean of all steps is kept, of which this is the first.
    return {**tensors, **kept}, f"torch.nn.functional.batch_norm({{x}}, {held}, True, {1.0 if momentum is None else momentum}, {eps})"


def _layer_norm(normalized_shape: Sizes, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True) -> _Made:
    shape, _ = _shape(normalized_shape)
    tensors = _with_bias(_shape(shape), shape, bias) if elementwise_affine else {}
    held = ", ".join(_named(role, role in tensors) for role in ("weight", "bias"))
    return tensors, f"torch.nn.functional.layer_norm({{x}}, {shape}, {held}, {eps})"


def _embedding(
    num_embeddings: int,
    embedding_dim: int,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> _Made:
    numbers = f"{padding_idx}, {max_norm}, {norm_type}, {scale_grad_by_freq}, {sparse}"
    return {"weight": _shape(num_embeddings, embedding_dim)}, f"torch.nn.functional.embedding({{x}}, {{weight}}, {numbers})"


def _max_pool2d(kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, dilation: Sizes = 1, ceil_mode: bool = False) -> _Made:
    numbers = f"{kernel_size}, {kernel_size if stride is None else stride}, {padding}, {dilation}"
    return {}, f"torch.nn.functional.max_pool2d({{x}}, {numbers}, ceil_mode={ceil_mode}, return_indices=False)"


def _dropout(p: float = 0.5, inplace: bool = False) -> _Made:
    return {}, f"torch.nn.functional.dropout({{x}}, {p}, True, {inplace})"


def _relu(inplace: bool = False) -> _Made:
    return {}, f"torch.nn.functional.relu({{x}}, inplace={inplace})"


def _softmax(dim: int | None = None) -> _Made:
    return {}, f"torch.nn.functional.softmax({{x}}, {dim})"


def _gelu(approximate: str = "none") -> _Made:
    return {}, f"torch._C._nn.gelu({{x}}, approximate={approximate!r})"


def _glu(dim: int = -1) -> _Made:
    return {}, f"torch.nn.functional.glu({{x}}, {dim})"


def _flatten(start_dim: int = 1, end_dim: int = -1) -> _Made:
    return {}, f"{{x}}.flatten({start_dim}, {end_dim})"


def _adaptive_avg_pool2d(output_size: Sizes) -> _Made:
    return {}, f"torch.nn.functional.adaptive_avg_pool2d({{x}}, {output_size})"


def _identity() -> _Made:
    return {}, "{x}.view_as({x})"


def _tanh() -> _Made:
    return {}, "torch.tanh({x})"


_LAYERS: Mapping[str, Callable[..., _Made]] = {
    "AdaptiveAvgPool2d": _adaptive_avg_pool2d,
    **{f"BatchNorm{dims}d": _batch_norm for dims in (1, 2, 3)},
    **{f"Conv{dims}d": _conv(dims) for dims in (1, 2, 3)},
    "ConvTranspose1d": _conv_transpose1d,
    "Dropout": _dropout,
    "Embedding": _embedding,
    "Flatten": _flatten,
    "GELU": _gelu,
    "GLU": _glu,
    "Identity": _identity,
    "LayerNorm": _layer_norm,
    "Linear": _linear,
    "MaxPool2d": _max_pool2d,
    "ReLU": _relu,
    "Softmax": _softmax,
    "Tanh": _tanh,
}
