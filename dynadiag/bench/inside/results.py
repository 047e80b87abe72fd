"""The results of a step by name: their tensors, what a caller can see of them beside values, and whether they are as right as eager's.

`view` and writes into an output rest on its strides and its memory. A difference in them is noted and is not WRONG: inductor itself gives
other strides for `lerp` and `one_hot`, and its input for `x + 0` (2.15; 4 of 146 small functions), in spite of
`torch._inductor.config.keep_output_stride`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dynadiag.capture.reach import Snapshot

if TYPE_CHECKING:
    from dynadiag.compare.judge import Judged, Noise, Runs


_DEEPEST = 8


def tensors_in(name: str, value: Any, *, depth: int = 0) -> dict[str, Any]:
    """The tensors inside `value` (containers, dataclasses, mappings), each named by the way to it; numbers are left out."""
    import torch

    if isinstance(value, torch.Tensor):
        return {name: value}
    found: dict[str, Any] = {}
    if depth < _DEEPEST:
        for key, item in _items(value):
            found.update(tensors_in(f"{name}{key}", item, depth=depth + 1))
    return found


def numbers_in(name: str, value: Any, *, depth: int = 0) -> dict[str, float]:
    """Plain numbers inside `value`, named likewise: a loss that was read with `.item()` is a result as well."""
    if isinstance(value, bool | int | float):
        return {name: float(value)}
    found: dict[str, float] = {}
    if depth < _DEEPEST:
        for key, item in _items(value):
            found.update(numbers_in(f"{name}{key}", item, depth=depth + 1))
    return found


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, list | tuple):
        fields = getattr(value, "_fields", None)
        return [(f".{fields[at]}" if fields else f"[{at}]", item) for at, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{item.name}", getattr(value, item.name, None)) for item in dataclasses.fields(value)]
    return []


_STRIDES, _MEMORY = "strides of ", "memory of "


def layout_of(outputs: Mapping[str, Any], given: Iterable[Any]) -> dict[str, Any]:
    """The strides of each output (0 where the size is 1 or 0: none can be seen), and 1 where its storage is that of a tensor in `given`."""
    import torch

    known = {storage_of(tensor) for tensor in given} - {None}
    found = {}
    for name, tensor in outputs.items():
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            continue
        seen = [step if size > 1 and tensor.numel() else 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
        found[f"{_STRIDES}{name}"] = torch.tensor(seen, dtype=torch.int64, device="cpu")
        found[f"{_MEMORY}{name}"] = torch.tensor([int(storage_of(tensor) in known)], dtype=torch.int64, device="cpu")
    return found


def is_layout(name: str) -> bool:
    """Whether a result by that name is one of `layout_of`."""
    return name.startswith((_STRIDES, _MEMORY))


def other_layouts(eager: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """How the layout of the first output that differs from eager's does, and how many more differ, in one line; empty when none does."""
    found = [name for name in eager if is_layout(name) and name in result and not eager[name].equal(result[name])]
    if not found:
        return ""
    more = f" (and {len(found) - 1} more of this kind)" if len(found) > 1 else ""
    how = _how_it_differs(found[0], eager[found[0]], result[found[0]])
    return f"{found[0]}: {how}{more}; its values are still compared, but a `view` of it, or a write into it, may behave differently"


def _how_it_differs(name: str, eager: Any, other: Any) -> str:
    if name.startswith(_STRIDES):
        return f"{tuple(eager.tolist())} in eager, {tuple(other.tolist())} here"
    shared = "shares memory with a tensor passed to the step"
    return f"it {shared} in eager, but not here" if int(eager) else f"it {shared}, but not in eager"


def storage_of(tensor: Any) -> int | None:
    """The address of a tensor's memory; None for one that has none (sparse, fake, empty)."""
    try:
        return int(tensor.untyped_storage().data_ptr()) or None
    except (RuntimeError, NotImplementedError):
        return None


_NO_SUCH_VALUE = "no such value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nudged:
    """Results by name of more eager runs whose sums have errors of rounding at random.

    `further` began from states that were off as well, `same` from the same one: only these tell how much of what a step adds is rounding.
    """

    further: Sequence[Mapping[str, Any]] = ()
    same: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The eager results of one run by name, of a second run, and in float64 where that was possible.

    `nudged` stands in for `exact` where there is none: eager results from a state that is half a rounding off.
    `nudges` runs eager with errors of rounding of its own, some times, and gives the named results; asked for what would be wrong.
    `tf32` says whether it may be used; `before` has what held a value already when the step began.
    """

    first: Mapping[str, Any]
    second: Mapping[str, Any]
    exact: Mapping[str, Any]
    nudged: Mapping[str, Any] = field(default_factory=dict)
    nudges: Callable[[Collection[str]], Nudged] | None = None
    tf32: bool = False
    before: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        """How many values are compared."""
        return sum(not is_layout(name) for name in self.first)


def compare_all(reference: Reference, result: Mapping[str, Any]) -> list[Judged]:
    """What was found of each tensor of the reference, and of each that only the result has; layouts are no values."""
    from dynadiag.compare.judge import BENCH, Judged, Seen, difference, judge

    names = [name for name in reference.first if not is_layout(name)]
    values = [reference.first[name] for name in names]
    # A number of Python's is held as float64, however it was computed.
    numbers = [value.dim() == 0 and str(value.dtype) == "torch.float64" for value in values]
    seen = [Seen("output", at, name, values[at], number=numbers[at]) for at, name in enumerate(names)]
    found = judge(seen, [result.get(name) for name in names], _noise(reference, names), BENCH)
    extra = [Seen("output", 0, name, None) for name in result if name not in reference.first and not is_layout(name)]
    return found + [Judged(name=item.name, differences=(difference(item, "missing", _NO_SUCH_VALUE, "a value"),)) for item in extra]


def _noise(reference: Reference, names: Sequence[str]) -> Noise:
    from dynadiag.compare.judge import Noise, Runs

    def by_position(run: Mapping[str, Any]) -> list[Any]:
        return [run.get(name) for name in names]

    def runs(doubtful: Collection[int]) -> Runs:
        assert reference.nudges is not None
        made = reference.nudges({names[at] for at in doubtful})
        return Runs(further=[by_position(run) for run in made.further], same=[by_position(run) for run in made.same])

    exact, again, nudged, before = map(by_position, (reference.exact, reference.second, reference.nudged, reference.before))
    known = Noise(exact=exact, again=again, nudged=nudged, before=before, tf32=reference.tf32)
    return known if reference.nudges is None else replace(known, runs=runs)


def status_of(judged: Judged) -> str:
    """PASS, WRONG or DTYPE_CHANGED."""
    if not judged.differences:
        return "PASS"
    return "DTYPE_CHANGED" if judged.differences[0].kind == "dtype" else "WRONG"


def detail_of(judged: Judged) -> str:
    """How it is wrong, in words; or what else there is to say."""
    if not judged.differences:
        return judged.detail
    first = judged.differences[0]
    eager, here = (text.removeprefix("torch.") for text in (first.eager, first.compiled))
    words = {"dtype": f"{eager} in eager, {here} here", "shape": f"shape {eager} in eager, {here} here"}
    missing = "eager has no such value" if eager == _NO_SUCH_VALUE else "missing"
    return words.get(first.kind) or (missing if first.kind == "missing" else judged.detail)


def weight_of(judged: Judged) -> float:
    """What the worst is chosen by."""
    if not judged.differences:
        return -1.0
    if judged.error is None or judged.allowed is None or not math.isfinite(judged.error):
        return math.inf
    return judged.error / max(judged.allowed, 1e-30)


def why_vacuous(first: Mapping[str, Any], snapshot: Snapshot) -> str:
    """Why a comparison would prove nothing; empty when it would."""
    outputs = {name: value for name, value in first.items() if name.startswith("output")}
    changed = [name for name, copy in snapshot.copies.items() if name in first and not same_bits(first[name], copy)]
    gradients = {name: value for name, value in first.items() if name.startswith("gradient of ")}
    from dynadiag.compare.rounding import on_fastest

    if gradients and not any(bool(on_fastest(value).count_nonzero()) for value in gradients.values()):
        return "no gradient reaches the parameters: all are zero"
    if not outputs and not changed and not gradients:
        return "the step returns nothing and changes nothing"
    counted = {name for name, held in snapshot.state.held.items() if held.kind in ("scaler", "setting")}
    made = [first[name] for name in (*outputs, *gradients, *(name for name in changed if name not in counted))]
    made = [value for value in made if value.numel() and (value.is_floating_point() or value.is_complex())]
    if made and not any(bool(on_fastest(value).isfinite().any()) for value in made):
        return "everything that the step computes is NaN or infinite in eager"
    if outputs and not changed and not gradients and all(_constant(value) for value in outputs.values()):
        return "all outputs are constant"
    optimized = {
        id(parameter)
        for optimizer in snapshot.state.optimizers.values()
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    reached = {name for name in gradients if id(snapshot.state.held[name.removeprefix("gradient of ")].tensor) in optimized}
    if optimized and not reached and not any(snapshot.state.held[name].kind in ("parameter", "optimizer") for name in changed):
        return "no gradient reaches the parameters of the optimizer"
    return ""


def same_bits(value: Any, other: Any) -> bool:
    """Whether two tensors have the same values, shape and dtype."""
    import torch

    from dynadiag.compare.rounding import on_fastest

    return value.shape == other.shape and value.dtype == other.dtype and torch.equal(on_fastest(value), on_fastest(other))


def _constant(value: Any) -> bool:
    if value.numel() <= 1:
        return not bool(value.count_nonzero())
    return bool((value == value.flatten()[0]).all())
