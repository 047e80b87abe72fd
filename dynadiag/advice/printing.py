"""Advice for prints, logging, warnings, progress bars, clocks and other things that are only looked at by a person."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.advice.situation import Rule, Situation, guarded, line_name, option, quoted, rewrite, say
from dynadiag.advice.source import dotted
from dynadiag.model.report import Advice

# `DebuggingVariable.can_reorder_logs` (torch/_dynamo/variables/misc.py, 2.11 and 2.15): only these, and no keyword arguments.
_REORDERABLE = frozenset({"ConstantVariable", "TensorVariable", "StringFormatVariable"})
_FORMATTED = _REORDERABLE | {"SizeVariable"}
_LOGGER_METHOD = re.compile(r"\.(debug|info|warning|warn|error|exception|critical|log|fatal|isEnabledFor)\b")


def prints(situation: Situation) -> Iterator[Advice]:
    """`print(...)`: let Dynamo print after the graph where it can, else format the arguments, else leave it out of compiled code."""
    call = next(situation.line.calls("print"), None)
    kinds = _argument_kinds(situation.context)
    has_keywords = situation.context.rstrip().endswith("True") if call is None else bool(call.keywords)
    if kinds <= _REORDERABLE and not has_keywords and not _reads(situation):
        yield from option(
            situation,
            "print-reorder",
            "reorderable_logging_functions",
            ".add(print)",
            f"Keep {line_name(situation)} and say once, before the first call, that Dynamo may print after the graph has run",
        )
    elif kinds <= _FORMATTED and not has_keywords:
        yield from print_formatted(situation)
    yield from quiet_print(situation)


def quiet_print(situation: Situation) -> Iterator[Advice]:
    """A print that Dynamo cannot move: skip it while compiling, or drop all prints in compiled code."""
    yield from guarded(
        situation,
        "print-guard",
        f"Remove {line_name(situation)}, or keep it for eager runs only (compiled code then prints nothing here)",
    )
    yield from option(
        situation,
        "print-ignore",
        "ignore_logging_functions",
        ".add(print)",
        "Drop every print inside compiled code without editing it",
    )


def print_formatted(situation: Situation) -> Iterator[Advice]:
    """`print("s", x.shape)`: one f-string is a constant for Dynamo, so the print can be moved behind the graph."""
    call = next(situation.line.calls("print"), None)
    text = None if call is None or call.keywords or _reads(situation) else _format_string(situation, call)
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
    """A print that was declared reorderable and is not (`GB0296`): format what it prints, or leave it out."""
    if not re.search(r"kwargs: \{.+\}", situation.context):
        yield from print_formatted(situation)
    yield from quiet_print(situation)


def loggers(situation: Situation) -> Iterator[Advice]:
    """`logger.info(...)`: torch 2.15 can log after the graph, every torch can leave the record out."""
    method = _logger_method(situation)
    kinds = set(re.findall(r"\b(\w+Variable)\(", situation.context.partition("args:")[2]))
    reorders = "reorderable" in situation.explanation
    if reorders and kinds <= _REORDERABLE and re.search(r"kwargs: \{\}", situation.context):
        yield from option(
            situation,
            "logger-reorder",
            "reorderable_logging_functions",
            f".add(logging.Logger.{method})",
            f"Keep {line_name(situation)} and let Dynamo log after the graph has run",
        )
    yield from option(
        situation,
        "logger-ignore",
        "ignore_logging_functions",
        f".add(logging.Logger.{method})",
        f"Leave `{method}` records out of compiled code (for all loggers) without editing it",
    )
    yield from guarded(situation, "logger-guard", f"Keep {line_name(situation)} for eager runs only")


def logging_functions(situation: Situation) -> Iterator[Advice]:
    """`logging.info(...)` of the module: Dynamo traces into it and meets the root logger; name the function itself instead."""
    call = next((call for call in situation.line.methods(*_names()) if dotted(call.func) is not None), None)
    name = None if call is None else dotted(call.func)
    if call is None or name is None or not name.startswith("logging."):
        yield from loggers(situation)
        return
    if not call.keywords and all(isinstance(argument, ast.Constant) for argument in call.args):
        yield from option(
            situation,
            "logging-reorder",
            "reorderable_logging_functions",
            f".add({name})",
            f"Keep {line_name(situation)} and let Dynamo log after the graph has run",
        )
    yield from option(
        situation, "logging-ignore", "ignore_logging_functions", f".add({name})", f"Leave `{name}` out of compiled code without editing it"
    )
    yield from guarded(situation, "logger-guard", f"Keep {line_name(situation)} for eager runs only")


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
    inside = f" (this one is in {situation.where}, where you cannot edit it)" if situation.where else ""
    yield from option(
        situation,
        "warn-ignore",
        "ignore_logging_functions",
        ".add(warnings.warn)",
        f"Leave warnings out of compiled code{inside}",
    )
    yield from guarded(situation, "warn-guard", f"Warn outside the compiled function, or keep {line_name(situation)} for eager runs only")


def clocks(situation: Situation) -> Iterator[Advice]:
    """`time.time()` and its like: a compiled region is asynchronous and cannot time itself."""
    name = _clock_name(situation)
    if situation.line.only_call() is not None:
        yield from guarded(situation, "clock-guard", f"Remove {line_name(situation)}, or keep it for eager runs only")
        return
    yield from say(
        "clock-outside",
        f"Take `{name}` out of the compiled function and time its call from outside (on a GPU after `torch.cuda.synchronize()`)",
        situation=situation,
    )


def progress_bars(situation: Situation) -> Iterator[Advice]:
    """`for x in tqdm(xs)`: the bar belongs around the call of the compiled function."""
    call = next((call for call in situation.line.nodes if _is_bar(call)), None)
    if isinstance(call, ast.Call) and call.args:
        after = situation.line.replaced(call, situation.line.text(call.args[0]))
        text = "Loop over the iterable itself; a progress bar belongs around the call of the compiled function"
        yield from rewrite(situation, "tqdm-outside", after, text)
        return
    yield from say("tqdm-outside", "Put the progress bar around the call of the compiled function, not inside it", situation=situation)


def frames(situation: Situation) -> Iterator[Advice]:
    """`inspect.stack()`, `sys._getframe()`, `traceback.print_stack()`: Dynamo has no Python frames to show."""
    yield from guarded(situation, "frames-guard", f"Remove {line_name(situation)}, or keep it for eager runs only")
    yield from say(
        "frames-outside",
        f"Compiled code has no Python frame to look at: take {line_name(situation)} out of the compiled function and pass in what it found",
        situation=situation,
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
    yield from guarded(situation, "write-guard", f"Remove {line_name(situation)}, or keep it for eager runs only")


def _argument_kinds(context: str) -> set[str]:
    return set(re.findall(r"\b(\w+Variable)\b", context))


def _reads(situation: Situation) -> bool:
    """Whether the line reads values out of tensors, which breaks by itself before anything is printed."""
    return next(situation.line.methods("item", "tolist"), None) is not None


def _names() -> tuple[str, ...]:
    return ("debug", "info", "warning", "error", "exception", "critical", "log")


def _logger_method(situation: Situation) -> str:
    found = _LOGGER_METHOD.search(situation.context) or _LOGGER_METHOD.search(situation.line.code)
    return "info" if found is None else found[1]


def _clock_name(situation: Situation) -> str:
    called = re.search(r"Called `([\w.]+\(\))`", situation.context)
    if called:
        return called[1]
    module, name = re.search(r"module: ([\w.]+)", situation.context), re.search(r"qualname: ([\w.]+)", situation.context)
    return quoted(f"{module[1]}.{name[1]}()").strip("`") if module and name else "the clock"


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
