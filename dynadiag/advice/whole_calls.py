"""What to change when a whole call was seen to differ from eager: one way out for each cause of `passes/whole_call_causes.py`."""

from __future__ import annotations

from dynadiag.model.report import Advice

KEEP_IT_EAGER = Advice(
    slug="keep-it-eager",
    text="Keep the function out of the graph with torch.compiler.disable until torch is right: eager's results are those to trust.",
    options=("torch.compiler.disable",),
)
_REDUCE = Advice(
    slug="reduce-the-script",
    text="`dynadiag minify --kind wrong_call SCRIPT` finds the smallest program whose compiled call differs like this.",
)
GENERATOR_OUTSIDE = Advice(
    slug="generator-outside",
    text="Return a list or a tuple, or make the generator outside of the compiled function and compile what it calls.",
)
CHECK_ARGUMENTS = Advice(
    slug="check-arguments",
    text="Pass validate_args=True where eager code builds it. For all: torch.distributions.Distribution.set_default_validate_args(True), "
    "called after the first torch.compile.",
)
_HOOKS = (
    Advice(slug="hook-before-first-call", text="Register the hook before the first compiled call."),
    Advice(
        slug="guard-the-hooks",
        text=("Set torch._dynamo.config.skip_nnmodule_hook_guards = False before the first compiled call: a later hook is then seen."),
        options=("torch._dynamo.config.skip_nnmodule_hook_guards",),
    ),
)
_CACHE = Advice(
    slug="no-cache",
    text=(
        "Set torch._inductor.config.force_disable_caches = True, or clone one of the inputs that share memory: the cache of compiled "
        "graphs does not tell such calls apart."
    ),
    options=("torch._inductor.config.force_disable_caches",),
)
_RESET = Advice(
    slug="forget-what-was-compiled",
    text="Call torch.compiler.reset() after the change: what is called next is compiled anew. Compiled anew, it gave eager's result.",
)


def whole_call_advice(kind: str, names: str, *, reducible: bool = False) -> tuple[Advice, ...]:
    """The ways out; `names` is what changed. `reducible`: a reduced script can show the difference with torch alone."""
    if kind == "hooks":
        return (*_HOOKS, _RESET)
    if kind == "shadowed name":
        text = f"Assign {names} as an attribute (`module.name = value`) instead of into `__dict__`."
        return (Advice(slug="assign-the-attribute", text=text), _RESET)
    if kind == "identity":
        text = f"Choose the branch by a flag (a bool or an int) that is kept beside {names}, not by `is`: flags are guarded."
        return (Advice(slug="flag-not-identity", text=text), _RESET)
    if kind == "shared memory":
        text = f"Clone one of {names} before the call, or pass their base and slice inside: no guard tells such calls apart."
        return (Advice(slug="no-shared-memory", text=text),)
    if kind == "cache":
        return (_CACHE,)
    if kind == "stale":
        return (_RESET,)
    if kind == "full deque":
        text = f"Build it anew: `{names} = deque([*{names}, value], maxlen=n)`. In a graph an append drops nothing."
        return (Advice(slug="rebuild-the-deque", text=text), KEEP_IT_EAGER)
    return (KEEP_IT_EAGER, _REDUCE) if reducible else (KEEP_IT_EAGER,)
