"""Cures for recompiles because of the value or the type of something: numbers, flags, strings, None."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from dynadiag.advice.recompile_cause import CONFIG, Cause, none
from dynadiag.advice.source import parse_line
from dynadiag.facts.guard_sources import is_global
from dynadiag.model.report import Advice

COMPILE_DYNAMIC = Advice(
    slug="compile-dynamic",
    text="Give `torch.compile` the argument `dynamic=True`: sizes and numbers that torch can make symbolic are so from the first call.",
)
_INTEGER = re.compile(r"-?\d+$")
_FLOAT = re.compile(r"-?(?:\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|inf|nan)$")
# A part of a compiled module of torch's own: `fn` of the function through which torch enters it (`inner` of `_dynamo/external_utils.py`).
_MODULE_PART = re.compile(r"module[.\[]")
_ENTERED = re.compile(r"(?:L\['fn'\]|fn)\._modules\b")


def value_advice(cause: Cause) -> Iterable[Advice]:
    """Cures for a constant that was compiled in: by what it is and where it comes from."""
    chosen = next((build for matches, build in _VALUE_TABLE if matches(cause)), None)
    return () if chosen is None else chosen(cause)


def _module_integer(cause: Cause) -> Iterable[Advice]:
    if _bounds_a_loop(cause):
        yield from variants(cause)  # a loop is unrolled: the number stays a constant whatever the option says
        return
    option = f"{CONFIG}allow_unspec_int_on_nn_module"
    yield Advice(
        slug="unspec-int-on-module",
        text=(
            f"`{cause.source}` is an integer attribute of an nn.Module, which torch treats as a constant. Let it become "
            "dynamic, before the first call."
        ),
        after=f"{option} = True",
        options=(option,),
    )
    if cause.conditioned or not _tensor_would_do(cause) or not re.fullmatch(r"self\.\w+", cause.source):
        return
    yield Advice(
        slug="module-int-as-buffer",
        text=(
            "Or keep it as a tensor: a buffer that is changed in place needs no recompile at all "
            f'(`self.register_buffer("{cause.source.rpartition(".")[2]}", torch.tensor({cause.values[0] if cause.values else 0}), '
            "persistent=False)` in `__init__`)."
        ),
    )


def _learning_rate(cause: Cause) -> Iterable[Advice]:
    if not cause.source.endswith(("['lr']", '["lr"]')):
        yield Advice(
            slug="scheduled-option",
            text=(
                f"`{cause.source}` is an option of the optimizer that changes between the calls. OneCycleLR and CyclicLR change betas and "
                "momentum unless they are made with `cycle_momentum=False`, which is another schedule. Without that, leave the optimizer's "
                "step uncompiled."
            ),
        )
        return
    yield Advice(
        slug="lr-as-tensor",
        text=(
            f"`{cause.source}` is a Python number that changes between the calls. Give the optimizer a tensor (`lr=torch.tensor(lr)`); the "
            "compiled step then reads its value."
        ),
    )


def _tensor_instead(slug: str) -> Callable[[Cause], Iterable[Advice]]:
    def build(cause: Cause) -> Iterable[Advice]:
        argument = slug == "number-as-tensor"
        if argument and cause.dynamic_false and all(_INTEGER.match(value) for value in cause.values):
            yield Advice(
                slug="drop-dynamic-false",
                text="`dynamic=False` compiles every value anew. Leave it out: an integer that changed then becomes dynamic.",
            )
        elif not cause.dynamic_false and (cause.dynamic is True or (argument and cause.dynamic is None)) and not _endless(cause):
            yield COMPILE_DYNAMIC
        settled = cause.dynamic is True or (argument and cause.dynamic is False)
        if argument and cause.dynamic is False and not cause.dynamic_false:
            yield from _as_operand(cause)  # torch made a constant of it although it had changed
        if cause.conditioned or settled or not _tensor_would_do(cause):
            if not argument and cause.dynamic is not True:  # what it is used for is not known, or needs a number
                yield from variants(cause)
            return
        yield Advice(
            slug=slug,
            text=(
                f"`{cause.source}` is a Python number that `{cause.frame_name or 'the function'}` only uses in arithmetic. Make it a "
                f"tensor wherever it is set: its value is then no part of the compiled code "
                f"(`torch.tensor({cause.values[0] if cause.values else 'number'})` instead)."
            ),
        )

    return build


def _endless(cause: Cause) -> bool:
    """Whether a value is infinite: torch keeps it constant (`wrap_symfloat`, `_dynamo/variables/builder.py`, 2.15)."""
    return not {"inf", "-inf"}.isdisjoint(cause.values)


def _bounds_a_loop(cause: Cause) -> bool:
    """Whether the line that asked for the guard is a loop over `range(...)` of the number."""
    line = parse_line(None if cause.origin is None else cause.origin.code)
    ranges = (node for node in line.nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range")
    return any(line.text(inner) == cause.source for node in ranges for inner in ast.walk(node) if isinstance(inner, ast.expr))


def _as_operand(cause: Cause) -> Iterable[Advice]:
    """A number that an operation takes as a plain one: a factor in arithmetic stays symbolic (`alpha=` makes a constant of it)."""
    if not cause.made_constant:
        yield from variants(cause)
        return
    yield Advice(
        slug="number-as-operand",
        text=(
            f"torch compiled each value of `{cause.source}` in as a constant, because an operation takes it as a plain number (such as "
            "`alpha=`). Multiply by it instead, as in `x.add_(y * number)` for `x.add_(y, alpha=number)`: it then becomes dynamic."
        ),
    )


def _in_closure(cause: Cause) -> Iterable[Advice]:
    """A number that a nested function captured, such as the slope of a `score_mod`."""
    if not all(_FLOAT.match(value) for value in cause.values):
        yield from variants(cause)
        return
    yield Advice(
        slug="closure-as-tensor",
        text=(
            f"`{cause.source}` is a Python number that the function captures. Where it is only used in arithmetic, capture a tensor "
            f"(`torch.tensor({cause.values[0]})`): its value is then no part of the compiled code."
        ),
    )


def _tensor_would_do(cause: Cause) -> bool:
    """Whether the whole function is known to use the number as a tensor can be used: else a tensor would break the graph, or fail."""
    return cause.function is not None and not cause.resumed and cause.function.tensor_would_do(cause.source)


def _flag(cause: Cause) -> Iterable[Advice]:
    yield from variants(cause)
    line = parse_line(None if cause.origin is None else cause.origin.code)
    for node in line.nodes:  # `a if flag else b` of two names: a branch over statements is no choice between two values
        if isinstance(node, ast.IfExp) and line.text(node.test) == cause.source and cause.source.isidentifier() and not cause.library:
            sides = (node.body, node.orelse)
            if cause.function is not None and cause.function.reads(cause.source) == 1 and all(map(_is_computed, sides)):
                chosen = f"torch.where({cause.source}, {line.text(node.body)}, {line.text(node.orelse)})"
                text = f"Or, for one version instead of two, pass `{cause.source}` as a tensor and choose so; both sides are then computed."
                yield Advice(slug="flag-where", text=text, before=line.code, after=line.replaced(node, chosen))


def _is_computed(node: ast.expr) -> bool:
    """Whether the side of a choice computes something: a name may be a module, a constant is no tensor."""
    return isinstance(node, ast.Call | ast.BinOp | ast.UnaryOp)


def _training(cause: Cause) -> Iterable[Advice]:
    yield Advice(
        slug="bounded-versions",
        text=(
            "Training and evaluation mode are two programs and get one compiled version each; after both are compiled "
            "nothing more happens. No change is needed."
        ),
    )


def another_module(cause: Cause) -> Iterable[Advice]:
    """Several compiled modules of torch's own classes."""
    yield Advice(
        slug="bounded-versions",
        text=(
            "Several modules are compiled, and torch enters all of its own classes (`nn.Sequential`) through one function: each module "
            "takes one of its versions. No change is needed while there are fewer modules than versions."
        ),
    )


def variants(cause: Cause) -> Iterable[Advice]:
    """A value that is guarded as it is, such as a mode or a flag."""
    text = (
        f"`{cause.source}` is guarded by its value: another value takes another compiled version. No change is needed while there are "
        "fewer values than versions."
    )
    if not is_number(cause):
        text += (
            " With more, write one function for each and choose outside (several `torch.compile` calls on one function share its versions)."
        )
    elif _counts_up(cause.values) and ("." in cause.source or is_global(cause.raw_source)):  # an argument may be any number
        text += " It counts up from call to call: keep the count out of what the compiled function reads, or the limit is reached."
    yield Advice(slug="split-by-value", text=text)


def _counts_up(values: Sequence[str]) -> bool:
    numbers = [int(value) for value in values if _INTEGER.match(value)]
    return len(numbers) == len(values) > 2 and all(one < other for one, other in pairwise(numbers))


def _offset(cause: Cause) -> Iterable[Advice]:
    if cause.dynamic is True:
        return  # it became dynamic with something else that changed
    yield Advice(
        slug="offset-clone",
        text=(
            "The compiled code depends on where in its storage the tensor begins. Clone the slice before the call, or "
            f"do not read the offset (`{cause.source.removesuffix('.storage_offset()')}.clone()`)."
        ),
    )


def type_advice(cause: Cause) -> Iterable[Advice]:
    """Something that comes with different types."""
    if "None" in cause.values:
        yield from absent(cause)
        return
    if _MODULE_PART.match(cause.source) and _ENTERED.match(cause.raw_source):
        yield Advice(
            slug="bounded-versions",
            text=(
                f"`{cause.source}` is of another class: either another compiled module came (torch enters all of its own classes, such "
                "as `nn.Sequential`, through one function; each module takes one of its versions, and no change is needed while there "
                "are fewer modules than versions), or a part of the module was replaced between its calls."
            ),
        )
        return
    types = {value for value in cause.values if value.startswith(("a ", "an "))}
    if types <= _CONVERTIBLE and not re.match(r"(?:self|module)\b", cause.source):
        yield Advice(
            slug="one-type",
            text=f"`{cause.source}` comes with different types. Convert it to one type before the call.",
        )


_CONVERTIBLE = frozenset(
    {"a float", "an int", "a bool", "a str", "a Tensor", "a list", "a tuple", "an ndarray", "a float64", "a float32", "an int64"}
)


def absent(cause: Cause) -> Iterable[Advice]:
    """Something that is sometimes None."""
    others = {value for value in cause.values if value not in ("None", "not None")}
    if re.match(r"(?:self|module)\b", cause.source) or is_global(cause.raw_source):
        if cause.values[:1] != ("None",):
            return
        line = "" if cause.origin is None else cause.origin.code or ""
        if re.search(rf"\bif [\w.]*\b{re.escape(cause.source.rpartition('.')[2])} is None:", line):
            yield Advice(
                slug="initialise-attribute",
                text=(
                    f"`{cause.source}` is None at first and a value later. Where `{line.strip()}` only creates it, create it before the "
                    "first call (in `__init__`, or by calling the method that does). It is one version more, not one a call."
                ),
            )
            return
        yield Advice(
            slug="bounded-versions",
            text=(
                f"`{cause.source}` is None in some calls: one compiled version without it and one with it, and no change is needed. Giving "
                "it a value earlier may change what the first calls compute."
            ),
        )
        return
    if others <= {"a Tensor"} and "." not in cause.source.partition("[")[0]:
        yield Advice(
            slug="always-a-tensor",
            text=(
                f"`{cause.source}` is sometimes None: one compiled version with it and one without, and no change is needed where both are "
                "meant. Else pass a tensor that means the same (a mask that masks nothing, a bias of zeros)."
            ),
        )


def _is_training(cause: Cause) -> bool:
    return cause.source.endswith(".training")


def _is_of_a_range(cause: Cause) -> bool:
    """Whether the number belongs to a range, a slice, or a default; `self.step` is an attribute that happens to be called so."""
    if "__defaults__" in cause.source:
        return True
    return re.search(r"\.(?:start|stop|step)$", cause.source) is not None and re.match(r"(?:self|module)\b", cause.source) is None


def _all(pattern: re.Pattern[str]) -> Callable[[Cause], bool]:
    return lambda cause: bool(cause.values) and all(pattern.match(value) for value in cause.values)


def is_number(cause: Cause) -> bool:
    """Whether all values that the source had are numbers."""
    return _all(_INTEGER)(cause) or (all(_FLOAT.match(value) or _INTEGER.match(value) for value in cause.values) and bool(cause.values))


_VALUE_TABLE: tuple[tuple[Callable[[Cause], bool], Callable[[Cause], Iterable[Advice]]], ...] = (
    (_is_training, _training),
    (lambda cause: cause.source.startswith("___"), none),  # a number that a graph break handed on has no name in the program
    (lambda cause: cause.source.endswith(".item()"), none),  # a value that the program reads from a tensor is not the program's to choose
    (lambda cause: cause.source.endswith(".storage_offset()"), _offset),
    (lambda cause: "allow_unspec_int_on_nn_module" in (cause.hint or ""), _module_integer),
    (lambda cause: ".param_groups[" in cause.source and is_number(cause), _learning_rate),
    (lambda cause: set(cause.values) == {"None"} or "None" in cause.values, absent),
    (lambda cause: bool(cause.values) and any(value.startswith(("a ", "an ")) for value in cause.values), type_advice),
    (lambda cause: "nan" in cause.values, none),
    (lambda cause: "(closure of " in cause.source and is_number(cause), _in_closure),
    (lambda cause: _is_of_a_range(cause) and is_number(cause), variants),
    (lambda cause: is_global(cause.raw_source) and is_number(cause), _tensor_instead("global-as-tensor")),
    (lambda cause: "." in cause.source and is_number(cause), _tensor_instead("attribute-as-tensor")),
    (is_number, _tensor_instead("number-as-tensor")),
    (_all(re.compile(r"True$|False$")), _flag),
    (lambda cause: bool(cause.values), variants),
)
