"""Advice for prints, logging, warnings, progress bars, clocks and other things that are only looked at by a person."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.advice.situation import CHANGES, Rule, Situation, guarded, line_name, option, quoted, rewrite, say
from dynadiag.advice.source import dotted
from dynadiag.model.report import Advice

# `DebuggingVariable.can_reorder_logs` (torch/_dynamo/variables/misc.py, 2.11 and 2.15): only these, and no keyword arguments.
_REORDERABLE = frozenset({"ConstantVariable", "TensorVariable", "StringFormatVariable"})
# A logger formats later what it is given, in frames that Dynamo compiles when a tensor is among it: only finished text can be moved.
_TEXTS = frozenset({"ConstantVariable", "StringFormatVariable"})
_FORMATTED = _REORDERABLE | {"SizeVariable"}
LOGGER_METHODS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "log", "fatal")
_LOGGING = re.compile(r"[/\\]logging[/\\]__init__\.py$")
_LOGGER = re.compile(r"method: <(?P<class>\w+) [^\n]*? \(\w+\)>\.(?P<method>\w+), args")


def prints(situation: Situation) -> Iterator[Advice]:
    """`print(...)`: let Dynamo print after the graph where it can, else format the arguments, else leave it out of compiled code."""
    call = next(situation.caller.calls("print"), None)
    kinds = _argument_kinds(situation.context)
    has_keywords = situation.context.rstrip().endswith("True") if call is None else bool(call.keywords)
    if kinds <= _REORDERABLE and not has_keywords and not _breaks_before(situation):
        yield from option(
            situation,
            "print-reorder",
            "reorderable_logging_functions",
            ".add(print)",
            f"Keep {situation.called} and say once, before the first call, that Dynamo may print after the graph has run",
        )
    elif kinds <= _FORMATTED and not has_keywords:
        yield from print_formatted(situation)
    yield from quiet_print(situation)


def quiet_print(situation: Situation) -> Iterator[Advice]:
    """A print that Dynamo cannot move: print behind the call, else skip it while compiling, or drop all prints in compiled code."""
    if situation.editable or situation.direct:
        text = f"Return what {line_name(situation)} prints from the compiled function, and print it after the call"
        yield from say("print-outside", text)
    yield from guarded(
        situation,
        "print-guard",
        f"Or leave {line_name(situation)} out of compiled code: {CHANGES}",
    )
    if not _breaks_before(situation):
        yield from ignored(situation, "print-ignore", "print", f"Or drop every print inside compiled code without editing it: {CHANGES}")


def ignored(situation: Situation, slug: str, function: str, text: str) -> Iterator[Advice]:
    """Advice to add a function to `ignore_logging_functions`.

    torch 2.11 turns its options into JSON after each compilation and logs an error when it meets a function there
    (`_get_dynamo_config_for_logging`, torch/_dynamo/utils.py); 2.15 leaves the option out. What is computed stays the same.
    """
    noise = " (torch 2.11 then logs `Unexpected exception logging compilation metrics` at each compilation; results stay the same)"
    doubt = noise if situation.torch is None or situation.torch < (2, 15) else ""
    yield from option(situation, slug, "ignore_logging_functions", f".add({function})", f"{text}{doubt}")


def print_formatted(situation: Situation) -> Iterator[Advice]:
    """`print("s", x.shape)`: one f-string is a constant for Dynamo, so the print can be moved behind the graph."""
    call = next(situation.line.calls("print"), None)
    text = None if call is None or call.keywords or _breaks_before(situation) else _format_string(situation, call)
    has = situation.options.known("dynamo", "reorderable_logging_functions")
    if call is None or text is None or has == "no":
        return
    full = "torch._dynamo.config.reorderable_logging_functions"
    doubt = " (if your torch has it)" if has == "unknown" else ""
    yield from rewrite(
        situation,
        "print-format",
        situation.line.replaced(call, f"print({text})"),
        f"A shape cannot be printed later, its text can: print one f-string, and say `{full}.add(print)` once before the first call{doubt}",
        options=(full,),
    )


def reordered_print(situation: Situation) -> Iterator[Advice]:
    """A print or log record that was declared reorderable and is not (`GB0296`): format what it says, or leave it out."""
    if "Logger" in situation.context:
        yield from loggers(situation)
        return
    if not re.search(r"kwargs: \{.+\}", situation.context):
        yield from print_formatted(situation)
    yield from quiet_print(situation)


def loggers(situation: Situation) -> Iterator[Advice]:
    """`logger.info(...)`: torch 2.15 can log after the graph, every torch can leave the record out."""
    if _compiled_alone(situation):
        yield from _caller_first(situation)
        return
    if (situation.editable or situation.direct) and _reads(situation):
        text = f"Or leave {line_name(situation)}, which reads a tensor's value before anything is logged, out of compiled code: {CHANGES}"
        yield from guarded(situation, "logger-guard", text)
        yield from say("logger-outside", f"Return what {line_name(situation)} logs, and log it after the compiled call")
        return
    target = _logger_function(situation)
    kinds = _logged_kinds(situation.context)
    if target and _logs_later(situation) and kinds <= _TEXTS and re.search(r"kwargs: \{\}", situation.context):
        yield from option(
            situation,
            "logger-reorder",
            "reorderable_logging_functions",
            f".add({target})",
            f"Keep {situation.called} and let Dynamo log after the graph has run{_needs_import(situation, target)}",
        )
    guard = tuple(guarded(situation, "logger-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}"))
    noisy = situation.torch is None or situation.torch < (2, 15)
    yield from guard if noisy else ()
    if target:
        whose = "all loggers" if target.startswith("logging.Logger.") else "this logger"
        text = f"Leave what `{target}` writes out of compiled code (for {whose}) without editing {situation.called}"
        text += f"{_needs_import(situation, target)}: {CHANGES}"
        yield from ignored(situation, "logger-ignore", target, text)
    yield from () if noisy else guard
    if target and (situation.editable or situation.direct) and not kinds <= _TEXTS:
        yield from say("logger-outside", f"Return what {line_name(situation)} logs, and log it after the compiled call")
    if not target:
        yield from say("logger-outside", f"Take {situation.called} out of the compiled function: Dynamo does not trace into loggers")


def _compiled_alone(situation: Situation) -> bool:
    """Whether Dynamo compiled a function of logging by itself: options and guards in the compiled caller then reach nothing."""
    return _LOGGING.search(situation.entered) is not None


def _caller_first(situation: Situation) -> Iterator[Advice]:
    text = (
        f"The function around {line_name(situation)} runs eager, so Dynamo compiles `logging`'s own functions one by one: cure the break "
        "that makes it run eager first, or take this line out of it"
    )
    yield from say("logger-caller", text)


def _logged_kinds(context: str) -> set[str]:
    """What torch says that the arguments are; one that it has not looked at yet counts as what its class says."""
    said = context.partition("args:")[2].partition("kwargs:")[0]
    said = re.sub(r"LazyVariableTracker\(unrealized: <class '(?:str|int|float|bool|NoneType)'>\)", "ConstantVariable()", said)
    return set(re.findall(r"\b(\w+Variable|LazyVariableTracker)\(", said))


def _needs_import(situation: Situation, target: str) -> str:
    """Words for an option that names `logging` in a program that may not import it: a library logs there."""
    return (
        " (after the imports of the libraries and `import logging`)"
        if target.startswith("logging.") and not (situation.editable or situation.direct)
        else ""
    )


def _logs_later(situation: Situation) -> bool:
    """Whether this torch can log after the graph: 2.15 says so in its explanation, 2.11 has no such thing."""
    return "reorderable" in situation.explanation and not in_logging(situation)


def logging_functions(situation: Situation) -> Iterator[Advice]:
    """`logging.info(...)` of the module: Dynamo traces into it and meets the root logger; name the function itself instead."""
    call = next((call for call in situation.caller.methods(*LOGGER_METHODS) if dotted(call.func) is not None), None)
    name = None if call is None else dotted(call.func)
    if call is None or name is None or not name.startswith("logging.") or _compiled_alone(situation):
        yield from loggers(situation)
        return
    if not call.keywords and all(isinstance(argument, ast.Constant) for argument in call.args):
        yield from option(
            situation,
            "logging-reorder",
            "reorderable_logging_functions",
            f".add({name})",
            f"Keep {situation.called} and let Dynamo log after the graph has run",
        )
    yield from ignored(situation, "logging-ignore", name, f"Leave `{name}` out of compiled code without editing it: {CHANGES}")
    yield from guarded(situation, "logger-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}")


def warn(situation: Situation) -> Iterator[Advice]:
    """`warnings.warn(...)`: with one text it can come after the graph, otherwise it has to be left out of compiled code."""
    call = next(situation.line.calls("warnings.warn", "warn"), None)
    if call is not None and situation.editable and len(call.args) == 1 and not call.keywords:
        yield from option(
            situation,
            "warn-reorder",
            "reorderable_logging_functions",
            ".add(warnings.warn)",
            f"Keep {line_name(situation)} and let Dynamo warn after the graph has run",
        )
    inside = f" (this one is in {situation.where}, where you cannot edit it)" if situation.where and not situation.direct else ""
    yield from ignored(situation, "warn-ignore", "warnings.warn", f"Leave warnings out of compiled code{inside}: {CHANGES}")
    yield from guarded(situation, "warn-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}")


def clocks(situation: Situation) -> Iterator[Advice]:
    """`time.time()` and its like: a compiled region is asynchronous and cannot time itself."""
    yield from say(
        "clock-outside",
        f"Take {quoted(_clock_name(situation))} out of the compiled function and time its call from outside (on a GPU after "
        "`torch.cuda.synchronize()`)",
    )
    yield from guarded(situation, "clock-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}")


def progress_bars(situation: Situation) -> Iterator[Advice]:
    """`for x in tqdm(xs)`: the bar belongs around the call of the compiled function."""
    call = next((call for call in situation.line.nodes if _is_bar(call)), None)
    if isinstance(call, ast.Call) and call.args:
        after = situation.line.replaced(call, situation.line.text(call.args[0]))
        text = "Loop over the iterable itself; a progress bar belongs around the call of the compiled function"
        yield from rewrite(situation, "tqdm-outside", after, text)
        return
    yield from say("tqdm-outside", "Put the progress bar around the call of the compiled function, not inside it")


def frames(situation: Situation) -> Iterator[Advice]:
    """`inspect.stack()`, `sys._getframe()`, `traceback.print_stack()`: Dynamo has no Python frames to show."""
    yield from guarded(situation, "frames-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}")
    yield from say(
        "frames-outside",
        f"Compiled code has no Python frame to look at: take {line_name(situation)} out of the compiled function and pass in what it found",
    )


def streams(situation: Situation) -> Iterator[Advice]:
    """`sys.stdout.write(...)`: a print of the same text can be moved behind the graph."""
    call = next(situation.line.calls("sys.stdout.write"), None)
    text = situation.line.text(call.args[0]) if call is not None and len(call.args) == 1 else None
    full = "torch._dynamo.config.reorderable_logging_functions"
    if call is not None and text is not None and situation.options.known("dynamo", "reorderable_logging_functions") != "no":
        yield from rewrite(
            situation,
            "write-print",
            situation.line.replaced(call, f"print({text})"),
            f"Print instead (a print ends the line), and say `{full}.add(print)` once before the first call",
            options=(full,),
        )
    yield from guarded(situation, "write-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}")


def _argument_kinds(context: str) -> set[str]:
    return set(re.findall(r"\b(\w+Variable)\b", context))


def _breaks_before(situation: Situation) -> bool:
    """Whether the line breaks by itself before anything is printed: it reads values out of tensors, or a clock."""
    clock = any(
        (dotted(node.func) or "").startswith(("time.", "datetime.")) for node in situation.caller.nodes if isinstance(node, ast.Call)
    )
    return clock or _reads(situation)


def _reads(situation: Situation) -> bool:
    """Whether the line reads values out of tensors, which breaks by itself before anything is printed."""
    return next(situation.caller.methods("item", "tolist"), None) is not None


def _logger_function(situation: Situation) -> str | None:
    """The object to name in an option for the logger call that broke: what the program calls, not what logging calls inside."""
    found = _LOGGER.search(situation.context)
    method = None if found is None or in_logging(situation) else found["method"]
    call = next((call for call in situation.caller.methods(*((method,) if method else LOGGER_METHODS))), None)
    if call is not None and method is None and isinstance(call.func, ast.Attribute):
        method = call.func.attr
    if method in LOGGER_METHODS or (method and found is not None and found["class"] in ("Logger", "RootLogger")):
        return f"logging.Logger.{method}"
    return dotted(call.func) if call is not None and situation.editable else None


def in_logging(situation: Situation) -> bool:
    """Whether Dynamo stopped inside the logging package, below the logger call of the program."""
    file = situation.torch_frame.file if situation.torch_frame is not None else ""
    return not situation.editable and _LOGGING.search(file) is not None


def _clock_name(situation: Situation) -> str:
    called = re.search(r"Called `([\w.]+\(\))`", situation.context)
    if called:
        return called[1]
    call = re.search(r"<class '(datetime\.\w+)'>\) (\w+)", situation.context)
    if call:
        return f"{call[1]}.{call[2]}()"
    module, name = re.search(r"module: ([\w.]+)", situation.context), re.search(r"qualname: ([\w.]+)", situation.context)
    return quoted(f"{module[1]}.{name[1]}()").strip("`") if module and name else situation.line.code or "the clock"


def _is_bar(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] in ("tqdm", "trange", "track")


def _format_string(situation: Situation, call: ast.Call) -> str | None:
    """The arguments of a print as one f-string, joined by spaces as print does; None if that cannot be written simply."""
    parts = []
    for argument in call.args:
        text = situation.line.text(argument)
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            parts.append(argument.value.replace("{", "{{").replace("}", "}}"))
        elif isinstance(argument, ast.JoinedStr | ast.Starred) or any(character in text for character in "\"'\\{}:!="):
            return None
        else:
            parts.append(f"{{{text}}}")
    joined = " ".join(parts)
    return f'f"{joined}"' if parts and joined.isprintable() and '"' not in joined and "\\" not in joined else None


PRINTING: dict[str, tuple[Rule, ...]] = {
    "GB0291": (loggers,),
    "GB0296": (reordered_print,),
    "GB9193": (clocks,),
}
