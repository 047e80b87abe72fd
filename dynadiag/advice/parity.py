"""What to change when a compiled call was seen to be wrong: one rule a code of `passes/find_parity.py`."""

from __future__ import annotations

from dynadiag.model.report import Advice

_NARROW = Advice(
    slug="find-the-layer",
    text="`dynadiag minify` finds the smallest graph that shows it and the layer it comes from. Until it is cured, take the function out "
    "with torch.compiler.disable: eager's results are right.",
    options=("torch.compiler.disable",),
)


_STRIDES = Advice(
    slug="ask-for-the-layout",
    text="Values are eager's. Where code after the call needs the layout (view, as_strided, a kernel of yours), call .contiguous() there. "
    "With a custom operator: give its fake implementation the strides of the real one.",
)


_REFUSED = Advice(
    slug="as-eager-asks",
    text="Change the call so that eager accepts it: its exception says what is wrong (clone one of two tensors that overlap, write into "
    "memory of its own). What compiled code makes of such a call is not defined, and changes with the back end.",
)


def parity_advice(code: str, name: str | None, shared: bool, undeclared: str | None, *, strides: bool = False) -> tuple[Advice, ...]:
    """The ways out: the code's own, then how to find the layer that is to blame.

    `shared`: inputs of the wrong call shared memory. `undeclared` is an operator that hides its write. `strides`: nothing else differs.
    """
    if strides:
        return (_STRIDES,)
    if code == "DM47":
        return (_REFUSED,)
    return (*_own(code, name, shared, undeclared), _NARROW)


def undeclared_write(operator: str, name: str) -> Advice:
    """The way out of a write that an operator does not declare."""
    text = f"{operator} writes {name} and does not say so: name the argument in mutates_args, or mark it (a!) in the schema."
    return Advice(slug="declare-the-write", text=text)


_REPLAYED = {
    "DM30": (
        "no-shared-memory",
        "Never pass overlapping tensors where disjoint ones were passed before: clone one, or pass the base.",
    ),
    "DM31": ("one-layout", "Keep to one way of sharing memory for one compiled function, or compile one function for each."),
    "DM32": ("pass-a-clone", "Pass a clone of the second one."),
    "DM33": (
        "no-cache",
        "Do not mix such calls under one cache on disk, or set torch._functorch.config.enable_autograd_cache = False.",
    ),
    "DM35": ("fake-like-real", "Declare the alias in the operator's schema, or return a clone; its fake must give the real one's sizes."),
}


def replay_advice(code: str) -> tuple[Advice, ...]:
    """The ways out of what `dynadiag parity` found on calls that were not recorded."""
    known = _REPLAYED.get(code)
    return (_NARROW,) if known is None else (Advice(slug=known[0], text=known[1]), _NARROW)


def _own(code: str, name: str | None, shared: bool, undeclared: str | None) -> tuple[Advice, ...]:
    if undeclared is not None:
        return (undeclared_write(undeclared, str(name)),)
    if code in ("DM40", "DM44") and name is not None and shared:
        text = f"Never pass {name} overlapping another argument: clone one of the two, or pass their base and slice inside."
        return (Advice(slug="no-shared-memory", text=text),)
    if code == "DM40":
        text = f"Return the new value instead of writing {name} in place. A custom operator that returns its argument must return a clone."
        return (Advice(slug="out-of-place", text=text),)
    if code == "DM45":
        text = (
            "Clone what you keep: y = compiled(x).clone(). Under mode='reduce-overhead' an output lives in the memory of a CUDA graph, "
            "which the next call fills again; torch.compiler.cudagraph_mark_step_begin() says where a step begins."
        )
        return (Advice(slug="clone-what-is-kept", text=text, options=("torch.compiler.cudagraph_mark_step_begin",)),)
    if code in ("DM42", "DM43"):
        text = (
            "With a custom operator: give its fake implementation the sizes, strides, dtype and aliases of the real one. "
            "Check a back end of yours likewise."
        )
        return (Advice(slug="fake-like-real", text=text),)
    return ()
