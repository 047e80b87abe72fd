"""Advice for prints, logging, warnings, progress bars, clocks and other things that are only looked at by a person."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.advice.conditions import tensor_of
from dynadiag.advice.reads import scalar_calls
from dynadiag.advice.situation import CHANGES, Rule, Said, Situation, guarded, option, rewrite, withhold
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


def prints(situation: Situation) -> Iterator[Said]:
    """`print(...)`: let Dynamo print after the graph where it can, else format the arguments, else leave it out of compiled code."""
    call = next(situation.caller.calls("print"), None)
    kinds = _argument_kinds(situation.context)
    has_keywords = situation.context.rstrip().endswith("True") if call is None else bool(call.keywords)
    if _reads(situation):
        yield from _printed(situation)
    elif kinds <= _REORDERABLE and not has_keywords and not _reads_a_clock(situation):
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


def quiet_print(situation: Situation) -> Iterator[Said]:
    """A print that Dynamo cannot move: skip it while compiling, or drop all prints in compiled code where the line is a library's."""
    yield from guarded(situation, "print-guard")
    if not (situation.editable or situation.direct):
        text = f"Drop every print inside compiled code without editing it: {CHANGES}"
        yield from ignored(situation, "print-ignore", "print", text)
    yield from withhold("a graph cannot print, and this print is a part of a longer line")


def _printed(situation: Situation) -> Iterator[Advice]:
    """`print("loss", loss.item())`, `print(f"{loss.item():.4f}")`: text of a tensor can be made after the graph."""
    line, call = situation.line, next(situation.line.calls("print"), None)
    has = situation.options.known("dynamo", "reorderable_logging_functions")
    if call is None or call.keywords or has == "no" or any(True for _ in line.methods("tolist")):
        return
    changes = []
    for read in scalar_calls(line):
        inner, parent = tensor_of(line, read), line.parent(read)
        if isinstance(parent, ast.FormattedValue):
            changes.append((read, inner))
        elif parent is call and not ('"' in inner and "'" in inner) and "\\" not in inner:
            quote = "'" if '"' in inner else '"'
            changes.append((read, f"f{quote}{{{inner}}}{quote}"))
        else:
            return
    text = (
        "Print text made of the tensor, after the graph (say `torch._dynamo.config.reorderable_logging_functions.add(print)` once before)"
    )
    doubt = " (if your torch has it)" if has == "unknown" else ""
    options = ("torch._dynamo.config.reorderable_logging_functions",)
    yield from rewrite(situation, "item-print", line.replaced_all(changes), f"{text}{doubt}", options=options)


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
    text = None if call is None or call.keywords or _reads_a_clock(situation) or _reads(situation) else _format_string(situation, call)
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


def reordered_print(situation: Situation) -> Iterator[Said]:
    """A print or log record that was declared reorderable and is not (`GB0296`): format what it says, or leave it out."""
    if "Logger" in situation.context:
        yield from loggers(situation)
        return
    if not re.search(r"kwargs: \{.+\}", situation.context):
        yield from print_formatted(situation)
    yield from quiet_print(situation)


def loggers(situation: Situation) -> Iterator[Said]:
    """`logger.info(...)`: torch 2.15 can log after the graph, every torch can leave the record out."""
    if _compiled_alone(situation):
        text = "the function around the line runs eager, so Dynamo compiles `logging`'s own functions: the break that makes it run eager"
        yield from withhold(f"{text} comes first")
        return
    if not ((situation.editable or situation.direct) and _reads(situation)):
        yield from _configured(situation)
    yield from guarded(situation, "logger-guard")
    yield from withhold("Dynamo does not trace into loggers, and this call is a part of a longer line")


def _configured(situation: Situation) -> Iterator[Advice]:
    target = _logger_function(situation)
    if not target:
        return
    texts_only = _logged_kinds(situation.context) <= _TEXTS and re.search(r"kwargs: \{\}", situation.context)
    if texts_only and _logs_later(situation):
        yield from option(
            situation,
            "logger-reorder",
            "reorderable_logging_functions",
            f".add({target})",
            f"Keep {situation.called} and let Dynamo log after the graph has run{_needs_import(situation, target)}",
        )
        return
    whose = "all loggers" if target.startswith("logging.Logger.") else "this logger"
    text = f"Leave what `{target}` writes out of compiled code (for {whose}) without editing {situation.called}"
    text += f"{_needs_import(situation, target)}: {CHANGES}"
    yield from ignored(situation, "logger-ignore", target, text)


def _compiled_alone(situation: Situation) -> bool:
    """Whether Dynamo compiled a function of logging by itself: options and guards in the compiled caller then reach nothing."""
    return _LOGGING.search(situation.entered) is not None


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


def logging_functions(situation: Situation) -> Iterator[Said]:
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
    yield from guarded(situation, "logger-guard")


def warn(situation: Situation) -> Iterator[Said]:
    """`warnings.warn(...)`: with one text it can come after the graph, otherwise it has to be left out of compiled code."""
    call = next(situation.line.calls("warnings.warn", "warn"), None)
    if call is not None and situation.editable and len(call.args) == 1 and not call.keywords:
        yield from option(
            situation,
            "warn-reorder",
            "reorderable_logging_functions",
            ".add(warnings.warn)",
            f"Keep {situation.called} and let Dynamo warn after the graph has run",
        )
    inside = f" (this one is in {situation.where}, where you cannot edit it)" if situation.where and not situation.direct else ""
    yield from ignored(situation, "warn-ignore", "warnings.warn", f"Leave warnings out of compiled code{inside}: {CHANGES}")
    yield from guarded(situation, "warn-guard")


def clocks(situation: Situation) -> Iterator[Said]:
    """`time.time()` and its like: a compiled region is asynchronous and cannot time itself."""
    yield from withhold("a graph has no clock: what it runs can only be timed from outside of the compiled function")


def progress_bars(situation: Situation) -> Iterator[Said]:
    """`for x in tqdm(xs)`: the bar belongs around the call of the compiled function."""
    call = next((call for call in situation.line.nodes if _is_bar(call)), None)
    if isinstance(call, ast.Call) and len(call.args) == 1 and isinstance(situation.line.statement, ast.For):
        name = (dotted(call.func) or "").rpartition(".")[2]
        iterable = situation.line.text(call.args[0])
        after = situation.line.replaced(call, f"range({iterable})" if name == "trange" else iterable)
        yield from rewrite(situation, "tqdm-outside", after, "Loop over the iterable itself: compiled code can show no progress bar")
    yield from withhold("compiled code can show no progress bar")


def frames(situation: Situation) -> Iterator[Said]:
    """`inspect.stack()`, `sys._getframe()`, `traceback.print_stack()`: Dynamo has no Python frames to show."""
    yield from guarded(situation, "frames-guard")
    yield from withhold("compiled code has no Python frame to look at")


def streams(situation: Situation) -> Iterator[Said]:
    """`sys.stdout.write(text)` of a whole line: a print of the same text can be moved behind the graph."""
    call = next(situation.line.calls("sys.stdout.write"), None)
    text = situation.line.text(call.args[0]) if call is not None and len(call.args) == 1 and not _reads(situation) else ""
    ending = re.fullmatch(r"""(f?(['"])[^'"]*)\\n\2""", text)
    full = "torch._dynamo.config.reorderable_logging_functions"
    if call is not None and ending is not None and situation.options.known("dynamo", "reorderable_logging_functions") != "no":
        yield from rewrite(
            situation,
            "write-print",
            situation.line.replaced(call, f"print({ending[1]}{ending[2]})"),
            f"Print instead, and say `{full}.add(print)` once before the first call: Dynamo then prints after the graph has run",
            options=(full,),
        )
    yield from guarded(situation, "write-guard")
    yield from withhold("a graph cannot write to a stream")


def _argument_kinds(context: str) -> set[str]:
    return set(re.findall(r"\b(\w+Variable)\b", context))


def _reads_a_clock(situation: Situation) -> bool:
    calls = (dotted(node.func) or "" for node in situation.caller.nodes if isinstance(node, ast.Call))
    return any(name.startswith(("time.", "datetime.")) for name in calls)


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
