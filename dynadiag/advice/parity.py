"""What to change when a compiled call was seen to be wrong: one rule a code of `passes/find_parity.py`."""

from __future__ import annotations

from dynadiag.advice.cuda_graphs import CLONE_WHAT_IS_KEPT
from dynadiag.advice.whole_calls import KEEP_IT_EAGER
from dynadiag.facts.guard_sources import readable
from dynadiag.model import codes
from dynadiag.model.report import Advice

_KINDS = {
    codes.WRONG_INPUT: " --kind wrong_mutation",
    codes.WRONG_OUTPUT: " --kind wrong_result",
    codes.WRONG_GRADIENT: " --kind wrong_gradient",
    codes.RAISES_WHERE_EAGER_DOES_NOT: "",
}
"""What `dynadiag minify` has to look for; it reduces no other difference."""


def _narrow(code: str) -> Advice:
    kind = _KINDS.get(code)
    if kind is None:
        return KEEP_IT_EAGER
    return Advice(
        slug="find-the-layer",
        text=(
            f"`dynadiag minify{kind}` finds the smallest graph that shows it and the layer it comes from. Until it is fixed, exclude the "
            "function with torch.compiler.disable: eager's results are correct."
        ),
        options=("torch.compiler.disable",),
    )


_STRIDES = Advice(
    slug="ask-for-the-layout",
    text="Values are eager's. Where code after the call needs the layout (view, as_strided, your own kernel), call .contiguous() there. "
    "With a custom operator: give its fake implementation the strides of the real one.",
)


_REFUSED = Advice(
    slug="as-eager-asks",
    text=(
        "Change the call so that eager accepts it: its exception says what is wrong (clone one of two tensors that overlap, write into "
        "separate memory). What compiled code does with such a call is undefined, and depends on the back end."
    ),
)


def parity_advice(
    code: str, name: str | None, shared: bool, undeclared: str | None, *, custom: bool, strides: bool = False
) -> tuple[Advice, ...]:
    """The ways out: the code's own, then how to find the guilty layer.

    `shared`: inputs of the wrong call shared memory. `undeclared` is an operator that hides its write. `custom`: the graph has a custom
    operator. `strides`: nothing else differs.
    """
    if strides:
        return (_STRIDES,)
    if code == codes.DOES_WHAT_EAGER_REFUSES:
        return (_REFUSED,)
    return (*_own(code, name, shared, undeclared, custom=custom), _narrow(code))


def undeclared_write(operator: str, name: str) -> Advice:
    """The way out of a write that an operator does not declare."""
    text = f"{operator} writes {readable(name)} without declaring it: name the argument in mutates_args, or mark it (a!) in the schema."
    return Advice(slug="declare-the-write", text=text)


_REPLAYED = {
    codes.WRONG_WHEN_OVERLAPPING: (
        "no-shared-memory",
        "Never pass overlapping tensors where disjoint ones were passed before: clone one, or pass the base.",
    ),
    codes.RAISES_AFTER_OTHER_SHARING: (
        "one-layout",
        "Use a single aliasing pattern for each compiled function, or compile a separate function for each pattern.",
    ),
    codes.WRONG_WHEN_SAME_TENSOR: ("pass-a-clone", "Pass a clone of the second one."),
    codes.WRONG_FROM_DISK_CACHE: (
        "no-cache",
        "Do not mix such calls in one on-disk cache, or set torch._functorch.config.enable_autograd_cache = False.",
    ),
    codes.REPLAY_METADATA: (
        "fake-like-real",
        "Declare the alias in the operator's schema, or return a clone; its fake implementation must return the real one's sizes.",
    ),
}


def replay_advice(code: str) -> tuple[Advice, ...]:
    """The ways out of what `dynadiag parity` found on calls that were not recorded."""
    known = _REPLAYED.get(code)
    return (KEEP_IT_EAGER,) if known is None else (Advice(slug=known[0], text=known[1]), KEEP_IT_EAGER)


def _own(code: str, name: str | None, shared: bool, undeclared: str | None, *, custom: bool) -> tuple[Advice, ...]:
    if undeclared is not None:
        return (undeclared_write(undeclared, str(name)),)
    if code in (codes.WRONG_INPUT, codes.RAISES_WHERE_EAGER_DOES_NOT) and name is not None and shared:
        text = f"Never pass {readable(name)} overlapping another argument: clone one of the two, or pass their base and slice inside."
        return (Advice(slug="no-shared-memory", text=text),)
    if code == codes.WRONG_INPUT:
        written = readable(str(name))
        text = f"Return the new value instead of writing {written} in place."
        if custom:
            text += " A custom operator that returns its argument must return a clone."
        return (Advice(slug="out-of-place", text=text),)
    if code == codes.OVERWRITTEN_LATER:
        return (CLONE_WHAT_IS_KEPT,)
    if code in (codes.OTHER_METADATA, codes.OTHER_ALIASES) and custom:
        text = "Give the fake implementation of the custom operator the sizes, strides, dtype and aliases of the real one."
        return (Advice(slug="fake-like-real", text=text),)
    return ()
