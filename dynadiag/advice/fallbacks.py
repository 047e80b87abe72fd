"""What to change when something ran eager: by kind of fallback, and for a part of a compiled module that is called by itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Fallback
from dynadiag.source.line import dotted, parse_line
from dynadiag.source.torch_names import is_of_torch

_Rule = Callable[[Fallback], tuple[Advice, ...]]


def fallback_advice(fallback: Fallback, setting: str = "") -> tuple[Advice, ...]:
    """The changes that end this fallback; empty for one that follows from a graph break, and where none is certain (`why_nothing`).

    `setting` is what switched compilation off, where something did.
    """
    if fallback.breaks:
        return ()
    if fallback.kind == "env_disabled":
        return _switched_on(setting)
    rule = _RULES.get(fallback.kind)
    return () if rule is None else rule(fallback)


def why_nothing(fallback: Fallback) -> str | None:
    """Why there is no advice about this fallback; None where there is some."""
    reason = _REASONS.get(fallback.kind, "dynadiag knows no change that removes this")
    return None if fallback.advice or fallback.breaks else reason


def _switched_on(setting: str) -> tuple[Advice, ...]:
    if is_of_torch(setting):
        text = f"Remove the assignment to {setting}: with it, torch.compile returns code that runs eagerly."
    else:
        text = f"Unset {setting} in the environment that starts the program: with it, torch.compile returns code that runs eagerly."
    return (Advice(slug="switch-compile-on", text=text),)


def _stance(fallback: Fallback) -> tuple[Advice, ...]:
    code = "" if fallback.own_frame is None else parse_line(fallback.own_frame.code).code
    if code.startswith(("with ", "@", "async with ")):
        return ()
    text = (
        'Reset the stance after the part that must run eagerly with `torch.compiler.set_stance("default")`, or put that part in '
        f"`with {code or 'torch.compiler.set_stance(...)'}:`."
    )
    return (Advice(slug="reset-stance", text=text, options=("torch.compiler.set_stance",)),)


def _aot_rejected(fallback: Fallback) -> tuple[Advice, ...]:
    if "2022" not in fallback.reason:
        return ()
    return (
        Advice(
            slug="run-on-current-torch",
            text="Run the program with a current torch and look at that run: since torch 2.0 AOTAutograd functionalizes mutated inputs "
            "and copies the new values back after the graph (runtime epilogue), so this warning and its fallback no longer exist. Only "
            "that copy may remain.",
        ),
    )


_RULES: Final[Mapping[str, _Rule]] = {
    "stance": _stance,
    "aot_rejected": _aot_rejected,
}
_REASONS: Final[Mapping[str, str]] = {
    "skipped_frame": "torch left the frame in eager mode without an error to fix",
    "recompile_limit": "what changes from call to call is reported with this frame's recompiles, if it was recorded",
    "suppressed_error": "the error comes from the compiler, and `torch._dynamo.config.suppress_errors` kept it from being raised",
    "disabled": "`torch.compiler.disable` was put there, so it is intended",
    "no_graph": "whether this function has work for a graph is not recorded",
    "aot_rejected": "the back end raised the error",
    "stance": "the stance is set for a part of the program, so it is intended",
}


# What to change where a method or a submodule of a compiled module is called by itself.


def compile_part(part: str, *, is_module: bool, where: Location | None, compiled: Sequence[Location | None] = ()) -> tuple[Advice, ...]:
    """Compile it as well, by the name that the line gives the module; a method need not be called in another way then.

    `compiled` are the lines that compile the module: what they all give `torch.compile` beside it is given here too.
    """
    given = {_given(line) for line in compiled}
    options = given.pop() if len(given) == 1 else None
    same = "" if options is not None else " with what `torch.compile` is given for the module"
    found = re.search(rf"([A-Za-z_][\w.]*)\.{re.escape(part)}\(", "" if where is None else where.code or "")
    module = found[1] if found else "module"
    if is_module:
        name = part if part.isidentifier() and part != module else f"compiled_{part}"
        change = f"{name} = torch.compile({module}.{part}{options or ''})"
        text = (
            f"Compile it as well, once: `{change}`{same}, and call `{name}(...)` where the program calls `{module}.{part}(...)`. "
            "It has the same parameters."
        )
        return (Advice(slug="compile-submodule", text=text, after=change),)
    change = f"{module}.{part} = torch.compile({module}.{part}{options or ''})"
    text = (
        f"Compile the method as well: `{change}`, once behind the line that compiles the module{same}. "
        "The calls stay as they are. Or let `forward` do this work, and call the module itself."
    )
    return (Advice(slug="compile-method", text=text, after=change),)


def _given(line: Location | None) -> str | None:
    """`, backend="aot_eager"` of a line that compiles a module, empty without any; None where the line does not tell."""
    source = parse_line(None if line is None else line.code)
    calls = [node for node in source.nodes if isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] == "compile"]
    if not source.complete or len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return None
    return "".join(f", {source.text(keyword)}" for keyword in calls[0].keywords if keyword.arg != "model")
