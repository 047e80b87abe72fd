"""What to change when something ran eager without being asked to: one table by kind of fallback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dynadiag.advice.source import parse_line
from dynadiag.model.report import Advice, Fallback
from dynadiag.model.run import Run

_Rule = Callable[[Fallback, Run], tuple[Advice, ...]]


def fallback_advice(fallback: Fallback, run: Run) -> tuple[Advice, ...]:
    """The changes that end this fallback; empty for one that follows from a graph break, whose own advice says what to do."""
    rule = _RULES.get(fallback.kind)
    return () if rule is None or fallback.breaks else rule(fallback, run)


def _skipped(fallback: Fallback, run: Run) -> tuple[Advice, ...]:
    return (
        Advice(
            slug="see-the-error",
            text="Compile this function alone with `fullgraph=True`: torch then raises the error with the user stack instead of leaving "
            "the frame eager.",
        ),
    )


def _limit(fallback: Fallback, run: Run) -> tuple[Advice, ...]:
    return (
        Advice(
            slug="end-the-recompiles",
            text="Cure what changes from call to call (see the recompiles of this frame) instead of raising the limit: every entry is "
            "compiled, kept in "
            "memory and checked on each call.",
        ),
    )


def _suppressed(fallback: Fallback, run: Run) -> tuple[Advice, ...]:
    return (
        Advice(
            slug="stop-suppressing",
            text="Do not suppress compile errors while you look for this one: set the option to False and torch raises it with its stack.",
            after="torch._dynamo.config.suppress_errors = False",
            options=("torch._dynamo.config.suppress_errors",),
        ),
    )


def _environment(fallback: Fallback, run: Run) -> tuple[Advice, ...]:
    name = fallback.reason.split(" ")[0].partition("=")[0]
    if name.startswith("torch."):
        text = f"Remove the assignment to {name}: with it torch.compile returns code that runs eager."
    else:
        text = f"Unset {name} in the environment that starts the program: with it torch.compile returns code that runs eager."
    return (Advice(slug="switch-compile-on", text=text),)


def _stance(fallback: Fallback, run: Run) -> tuple[Advice, ...]:
    code = "" if fallback.own_frame is None else parse_line(fallback.own_frame.code).code
    if code.startswith(("with ", "@", "async with ")):
        text = f"The stance ends with `{code}`: if the calls under it are meant to run eager, change nothing, else move them out of it."
    else:
        text = (
            'Set the stance back after the part that must run eager with `torch.compiler.set_stance("default")`, or put that part in '
            f"`with {code or 'torch.compiler.set_stance(...)'}:`."
        )
    return (Advice(slug="reset-stance", text=text, options=("torch.compiler.set_stance",)),)


def _disabled(fallback: Fallback, run: Run) -> tuple[Advice, ...]:
    return (
        Advice(
            slug="remove-disable",
            text="Remove torch.compiler.disable if this function may be compiled, or call it outside the compiled function, where it "
            "breaks no graph.",
            options=("torch.compiler.disable",),
        ),
    )


def _no_graph(fallback: Fallback, run: Run) -> tuple[Advice, ...]:
    return (
        Advice(
            slug="compile-the-tensor-code",
            text="Apply torch.compile to the function that does the tensor work; here Dynamo found nothing to capture.",
        ),
    )


def _aot_rejected(fallback: Fallback, run: Run) -> tuple[Advice, ...]:
    if "2022" in fallback.reason:
        return (
            Advice(
                slug="run-on-current-torch",
                text="Run the program on a current torch and look at that run: since torch 2.0 AOTAutograd functionalizes mutated inputs "
                "and copies the new "
                "values back after the graph (runtime epilogue), so this warning and its fallback no longer exist. What may be left is "
                "that copy.",
            ),
        )
    return (
        Advice(
            slug="try-aot-eager",
            text='Compile with `backend="aot_eager"`: the same error there is AOTAutograd\'s, none there means the back end raised it.',
        ),
    )


_RULES: Final[Mapping[str, _Rule]] = {
    "skipped_frame": _skipped,
    "recompile_limit": _limit,
    "suppressed_error": _suppressed,
    "env_disabled": _environment,
    "stance": _stance,
    "disabled": _disabled,
    "no_graph": _no_graph,
    "aot_rejected": _aot_rejected,
}
