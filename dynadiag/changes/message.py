"""Advice for prints, logging, warnings, progress bars, clocks and other things that are only looked at by a person."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dynadiag.changes.break_context import CHANGES, BreakContext, Rule, Said, guarded, leaves_out, option, quoted, rewrite, withhold
from dynadiag.changes.condition import as_number
from dynadiag.changes.kinds import SKIPS, Kind
from dynadiag.changes.replayed import THIS_LINE
from dynadiag.model.report import Advice
from dynadiag.source.effects import raises_behind, said_later_is_lost, written_later
from dynadiag.source.line import dotted
from dynadiag.source.tree import holds, nodes_of
from dynadiag.source.uses import scalar_calls

# `DebuggingVariable.can_reorder_logs` (torch/_dynamo/variables/misc.py, 2.11 and 2.15): only these, and no keyword arguments.
_REORDERABLE = frozenset({"ConstantVariable", "TensorVariable", "StringFormatVariable"})
# A logger formats later what it is given, in frames that Dynamo compiles when a tensor is among it: only finished text can be moved.
_TEXTS = frozenset({"ConstantVariable", "StringFormatVariable"})
_FORMATTED = _REORDERABLE | {"SizeVariable"}
_CONSTANTS = frozenset({"ConstantVariable", "SizeVariable", "BuiltinVariable"})
LOGGER_METHODS = ("debug", "info", "warning", "warn", "error", "exception", "critical", "log", "fatal")
LOGGER = re.compile(r"(?:^|[._])log(?:ger|ging)?$", re.IGNORECASE)
_LOOKS = ("traceback.print_stack", "traceback.print_exc", "inspect.stack", "inspect.currentframe", "sys._getframe")
_OTHER_LINE = "the line number of its record is then another one"
_SAYING = ("print", "warnings.warn", "warn")
_LOGGING = re.compile(r"[/\\]logging[/\\]__init__\.py$")
_LOGGER = re.compile(r"method: <(?P<class>\w+) [^\n]*? \(\w+\)>\.(?P<method>\w+), args")


def prints(context: BreakContext) -> Iterator[Said]:
    """`print(...)`: let Dynamo print after the graph where it can, else format the arguments, else leave it out of compiled code."""
    call = next(context.caller.calls("print"), None)
    kinds = _argument_kinds(context.all_contexts)
    has_keywords = context.gb_context.rstrip().endswith("True") if call is None else bool(call.keywords)
    if _unheard(context, "print") is not None or _is_other_later(context, constant=kinds <= _CONSTANTS) or _formats_in_a_loop(context):
        pass
    elif _reads(context):
        yield from _printed(context)
    elif kinds <= _REORDERABLE and not has_keywords and not _reads_a_clock(context):
        yield from option(
            context,
            "print-reorder",
            "reorderable_logging_functions",
            ".add(print)",
            f"Keep {context.called} and allow Dynamo, once before the first call, to print after the graph has run",
        )
    elif kinds <= _FORMATTED and not has_keywords:
        yield from print_formatted(context)
    yield from quiet_print(context)


def _formats_in_a_loop(context: BreakContext) -> bool:
    """Whether the line formats what a comprehension goes through: a tensor among it breaks before the print does (seen on 2.15)."""
    loops = [node for node in context.caller.nodes if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp)]
    return any(holds(loop, ast.FormattedValue) for loop in loops)


def quiet_print(context: BreakContext) -> Iterator[Said]:
    """A print that Dynamo cannot move: skip it while compiling, or drop all prints in compiled code where the line is a library's."""
    guard = tuple(_guarded(context, "print-guard", "print"))
    yield from guard
    if not guard and (_unheard(context, "print") or not (context.editable or context.direct)):
        text = f"Drop every print inside compiled code without editing it: {CHANGES}"
        yield from _not_later(context, "print", ignored(context, "print-ignore", "print", text))
    if context.place is not None and raises_behind(context.place):
        yield from withhold("a graph cannot print, and the function may raise an exception behind this print")
    if not context.line.code:
        yield from withhold("a graph cannot print, and the line was not recorded")
    yield from withhold("a graph cannot print, and this print is part of a longer line")


def _is_other_later(context: BreakContext, *, constant: bool) -> bool:
    """Whether a message may be lost, go elsewhere or tell other values where it is given after the graph; so if the source is not known."""
    place = context.place
    return place is None or said_later_is_lost(place) or (not constant and written_later(place))


def _printed(context: BreakContext) -> Iterator[Advice]:
    """`print("loss", loss.item())`, `print(f"{loss.item():.4f}")`: text of a tensor can be made after the graph."""
    line, call = context.line, next(context.line.calls("print"), None)
    has = context.options.known("dynamo", "reorderable_logging_functions")
    if call is None or call.keywords or has == "no" or any(True for _ in line.methods("tolist")):
        return
    changes = []
    for read in scalar_calls(line):
        inner, parent = as_number(line, context.place, read), line.parent(read)
        if inner is None:
            return
        if isinstance(parent, ast.FormattedValue) and parent.conversion == -1:
            changes.append((read, inner))
        elif parent is call and not ('"' in inner and "'" in inner) and "\\" not in inner:
            quote = "'" if '"' in inner else '"'
            changes.append((read, f"f{quote}{{{inner}}}{quote}"))
        else:
            return
    shown = [node.value for node in nodes_of(ast.FormattedValue, call)]
    shown += [argument for argument in call.args if not isinstance(argument, ast.JoinedStr)]
    # A number that changes is a symbol among the arguments, at which the print breaks as before, and in a text a constant, compiled for
    # each value; `{meter.avg:.4f}` ended the compilation with a ValueError (2.15).
    if not all(isinstance(expression, ast.Constant) or any(expression is read for read, _ in changes) for expression in shown):
        return
    text = (
        "Print text made from the tensor, after the graph (call `torch._dynamo.config.reorderable_logging_functions.add(print)` once "
        "before)"
    )
    doubt = " (if your torch has it)" if has == "unknown" else ""
    options = ("torch._dynamo.config.reorderable_logging_functions",)
    yield from rewrite(context, "item-print", line.replaced_all(changes), f"{text}{doubt}", options=options)


def ignored(context: BreakContext, slug: str, function: str, text: str) -> Iterator[Advice]:
    """Advice to add a function to `ignore_logging_functions`.

    torch 2.11 turns its options into JSON after each compilation and logs an error when it meets a function there
    (`_get_dynamo_config_for_logging`, torch/_dynamo/utils.py); 2.15 leaves the option out. What is computed stays the same.
    """
    noise = " (torch 2.11 then logs `Unexpected exception logging compilation metrics` at each compilation; results stay the same)"
    doubt = noise if context.torch is None or context.torch < (2, 15) else ""
    yield from option(context, slug, "ignore_logging_functions", f".add({function})", f"{text}{doubt}")


def print_formatted(context: BreakContext) -> Iterator[Advice]:
    """`print("s", x.shape)`: one f-string is a constant for Dynamo, so the print can be moved behind the graph."""
    call = next(context.line.calls("print"), None)
    text = None if call is None or call.keywords or _reads_a_clock(context) or _reads(context) else _format_string(context, call)
    has = context.options.known("dynamo", "reorderable_logging_functions")
    if call is None or text is None or has == "no" or context.sizes_vary:  # a size that varies is a symbol, at which the print breaks
        return
    full = "torch._dynamo.config.reorderable_logging_functions"
    doubt = " (if your torch has it)" if has == "unknown" else ""
    yield from rewrite(
        context,
        "print-format",
        context.line.replaced(call, f"print({text})"),
        f"A shape cannot be printed later, but its text can: print one f-string, and call `{full}.add(print)` once before the first "
        f"call{doubt}",
        options=(full,),
    )


def reordered_print(context: BreakContext) -> Iterator[Said]:
    """A print or log record that was declared reorderable and is not (`GB0296`): format what it says, or leave it out."""
    if "Logger" in context.gb_context:
        yield from loggers(context)
        return
    kept = _unheard(context, "print") is None and not _is_other_later(context, constant=True)
    if kept and not re.search(r"kwargs: \{.+\}", context.gb_context):
        yield from print_formatted(context)
    yield from quiet_print(context)


def loggers(context: BreakContext) -> Iterator[Said]:
    """`logger.info(...)`: torch 2.15 can log after the graph, every torch can leave the record out."""
    if _compiled_alone(context):
        text = (
            "the function around the line runs eagerly, so Dynamo compiles `logging`'s own functions: the break that makes it run eagerly"
        )
        yield from withhold(f"{text} comes first")
        return
    guard = tuple(_guarded(context, "logger-guard", _logged_by(context)))
    found = () if (context.editable or context.direct) and _reads(context) else tuple(_configured(context))
    yield from (advice for advice in found if not (guard and leaves_out(advice)))  # one line rather than every logger of the program
    yield from guard
    yield from withhold("Dynamo does not trace into loggers, and this call is part of a longer line")


def _configured(context: BreakContext) -> Iterator[Advice]:
    target = _logger_function(context)
    if not target:
        return
    texts_only = _logged_kinds(context.gb_context) <= _TEXTS and re.search(r"kwargs: \{\}", context.gb_context) and _logs_words(context)
    constant = _logged_kinds(context.gb_context) <= _CONSTANTS
    kept = _unheard(context, _logged_by(context)) is None and not _is_other_later(context, constant=constant)
    if texts_only and _logs_later(context) and kept:
        yield from option(
            context,
            "logger-reorder",
            "reorderable_logging_functions",
            f".add({target})",
            f"Keep {context.called} and let Dynamo log after the graph has run{_needs_import(context, target)}: {_OTHER_LINE}",
        )
        return
    whose = "all loggers" if target.startswith("logging.Logger.") else "this logger"
    text = f"Let compiled code skip `{target}` (for {whose}){_needs_import(context, target)}: what it writes is then missing, which changes"
    text += " the program"
    yield from ignored(context, "logger-ignore", target, text)


def _logs_words(context: BreakContext) -> bool:
    """Whether the line gives the logger words alone: a number may be a symbol in the next version, at which the call breaks as before."""
    found = _LOGGER.search(context.gb_context)
    call = next(context.caller.methods(*LOGGER_METHODS, *([found["method"]] if found is not None else [])), None)
    return call is not None and all(isinstance(argument, ast.Constant) for argument in call.args)


def _compiled_alone(context: BreakContext) -> bool:
    """Whether Dynamo compiled a function of logging by itself: options and guards in the compiled caller then reach nothing."""
    return _LOGGING.search(context.entered) is not None


def _logged_kinds(context: str) -> set[str]:
    """What torch says that the arguments are; one that it has not looked at yet counts as what its class says."""
    said = context.partition("args:")[2].partition("kwargs:")[0]
    said = re.sub(r"LazyVariableTracker\(unrealized: <class '(?:str|NoneType)'>\)", "ConstantVariable()", said)
    return set(re.findall(r"\b(\w+Variable|LazyVariableTracker)\(", said))


def _needs_import(context: BreakContext, target: str) -> str:
    """Words for an option that names `logging` in a program that may not import it: a library logs there."""
    return ", set after the imports of the libraries" if target.startswith("logging.") and not (context.editable or context.direct) else ""


def _logs_later(context: BreakContext) -> bool:
    """Whether this torch can log after the graph: 2.15 says so in its explanation, 2.11 has no such thing."""
    return "reorderable" in context.explanation and not in_logging(context)


def logging_functions(context: BreakContext) -> Iterator[Said]:
    """`logging.info(...)` of the module: Dynamo traces into it and meets the root logger; name the function itself instead."""
    call = next((call for call in context.caller.methods(*LOGGER_METHODS) if dotted(call.func) is not None), None)
    name = None if call is None else dotted(call.func)
    if call is None or name is None or not name.startswith("logging.") or _compiled_alone(context):
        yield from loggers(context)
        return
    moves = not call.keywords and all(isinstance(argument, ast.Constant) for argument in call.args)
    if moves and _unheard(context, name.rpartition(".")[2]) is None and not _is_other_later(context, constant=True):
        yield from option(
            context,
            "logging-reorder",
            "reorderable_logging_functions",
            f".add({name})",
            f"Keep {context.called} and let Dynamo log after the graph has run: {_OTHER_LINE}",
        )
    guard = tuple(_guarded(context, "logger-guard", name.rpartition(".")[2]))
    if not guard:
        yield from ignored(context, "logging-ignore", name, f"Exclude `{name}` from compiled code without editing it: {CHANGES}")
    yield from guard


def warn(context: BreakContext) -> Iterator[Said]:
    """`warnings.warn(...)`: with one text it can come after the graph, otherwise it has to be left out of compiled code."""
    if context.ends:
        yield from withhold("the code behind this warning never ran, so a filter may make an exception of it, which a graph would lose")
        return
    call = next(context.line.calls("warnings.warn", "warn"), None)
    moves = call is not None and context.editable and len(call.args) == 1 and not call.keywords
    if moves and _unheard(context, "warn") is None and not _is_other_later(context, constant=True):
        yield from option(
            context,
            "warn-reorder",
            "reorderable_logging_functions",
            ".add(warnings.warn)",
            f"Keep {context.called} and let Dynamo warn after the graph has run: the warning then names another line of the function",
        )
    guard = tuple(_guarded(context, "warn-guard", "warn"))
    yield from guard
    if not guard:
        inside = f" (this one is in {context.where}, where you cannot edit it)" if context.where and not context.direct else ""
        yield from ignored(context, "warn-ignore", "warnings.warn", f"Exclude warnings from compiled code{inside}: {CHANGES}")


def clocks(context: BreakContext) -> Iterator[Said]:
    """`time.time()` and its like: a compiled region is asynchronous and cannot time itself."""
    yield from withhold("a graph has no clock: what it runs can only be timed outside the compiled function")


def progress_bars(context: BreakContext) -> Iterator[Said]:
    """`for x in tqdm(range(n))`: the loop over the range itself; what else a bar goes through may break by itself."""
    call = next((call for call in context.line.nodes if _is_bar(call)), None)
    if isinstance(call, ast.Call) and len(call.args) == 1 and isinstance(context.line.statement, ast.For):
        name, given = (dotted(call.func) or "").rpartition(".")[2], call.args[0]
        plain = isinstance(given, ast.Call) and dotted(given.func) == "range"
        if name == "trange" or plain:
            after = context.line.replaced(call, f"range({context.line.text(given)})" if name == "trange" else context.line.text(given))
            yield from rewrite(context, "tqdm-outside", after, "Loop over the range itself: compiled code cannot show a progress bar")
    yield from withhold("a progress bar is shown by Python while the loop runs, so a loop that is compiled as a whole cannot have one")


def frames(context: BreakContext) -> Iterator[Said]:
    """`inspect.stack()`, `sys._getframe()`, `traceback.print_stack()`: Dynamo has no Python frames to show."""
    yield from guarded(context, "frames-guard", *_LOOKS)
    yield from withhold("compiled code has no Python frame to look at")


def streams(context: BreakContext) -> Iterator[Said]:
    """`sys.stdout.write(text)` of a whole line: a print of the same text can be moved behind the graph."""
    call = next(context.line.calls("sys.stdout.write"), None)
    text = context.line.text(call.args[0]) if call is not None and len(call.args) == 1 and not _reads(context) else ""
    ending = re.fullmatch(r"""(f?(['"])[^'"]*)\\n\2""", text)
    full = "torch._dynamo.config.reorderable_logging_functions"
    heard = _unheard(context, "print") is None and not _is_other_later(context, constant=False)
    if heard and call is not None and ending is not None and context.options.known("dynamo", "reorderable_logging_functions") != "no":
        said = f"Print instead, and call `{full}.add(print)` once before the first call: Dynamo then prints after the graph has run"
        after = context.line.replaced(call, f"print({ending[1]}{ending[2]})")
        for advice in rewrite(context, "write-print", after, said, options=(full,)):
            yield replace(advice, before=_with_flush(context) or advice.before)
    yield from guarded(context, "write-guard", "sys.stdout.write", "sys.stderr.write")
    yield from withhold("a graph cannot write to a stream")


def _with_flush(context: BreakContext) -> str | None:
    """The line and a `sys.stdout.flush()` behind it, which breaks as the line does."""
    place = context.place
    first = None if place is None else place.statement()
    second = None if place is None or first is None else place.next_statement(first)
    flushes = isinstance(second, ast.Expr) and ast.unparse(second) == "sys.stdout.flush()"
    return place.written(first, second) if place is not None and first is not None and second is not None and flushes else None


def _unheard(context: BreakContext, name: str) -> str | None:
    """The inlined function in which `name` (`print`, `warn`, a logger's method) says something; None where Dynamo can say it later."""
    return context.unheard.get(THIS_LINE, context.unheard.get(name))


def _guarded(context: BreakContext, slug: str, name: str) -> Iterator[Advice]:
    return _not_later(context, name, guarded(context, slug, *_SAYING, *_methods(context)))


def _methods(context: BreakContext) -> tuple[str, ...]:
    """The call of the line, where it is a method of what is surely a logger."""
    call = context.line.only_call()
    name = "" if call is None else dotted(call.func) or ""
    owner, _, method = name.rpartition(".")
    if (found := _LOGGER.search(context.gb_context)) is not None and found["method"] == method:
        return (name,)
    logs = method in LOGGER_METHODS and (LOGGER.search(owner) is not None or "Logger" in context.gb_context or in_logging(context))
    return (name,) if logs else ()


def _not_later(context: BreakContext, name: str, found: Iterator[Advice]) -> Iterator[Advice]:
    """The advice with the reason why the option that torch names is none, where Dynamo would take these arguments."""
    kinds = _argument_kinds(context.all_contexts) if name in ("print", "warn") else _logged_kinds(context.gb_context)
    takes = kinds <= _REORDERABLE and (name in ("print", "warn") or _logs_later(context))
    function = _unheard(context, name) if takes else None
    # Seen on 2.11 and 2.15: what an inlined function keeps for later is dropped unless that function breaks by itself.
    why = f". `reorderable_logging_functions` loses it once Dynamo inlines {quoted(function)}" if function else ""
    yield from (replace(advice, text=f"{advice.text}{why}") for advice in found)


def _logged_by(context: BreakContext) -> str:
    return (_logger_function(context) or "").rpartition(".")[2]


def _argument_kinds(context: str) -> set[str]:
    return set(re.findall(r"\b(\w+Variable)\b", context))


def _reads_a_clock(context: BreakContext) -> bool:
    calls = (dotted(node.func) or "" for node in context.caller.nodes if isinstance(node, ast.Call))
    return any(name.startswith(("time.", "datetime.")) for name in calls)


def _reads(context: BreakContext) -> bool:
    """Whether the line reads values out of tensors, which breaks by itself before anything is printed."""
    return context.reads_here or next(context.caller.methods("item", "tolist"), None) is not None


def _logger_function(context: BreakContext) -> str | None:
    """The object to name in an option for the logger call that broke: what the program calls, not what logging calls inside."""
    found = _LOGGER.search(context.gb_context)
    method = None if found is None or in_logging(context) else found["method"]
    call = next((call for call in context.caller.methods(*((method,) if method else LOGGER_METHODS))), None)
    if call is not None and method is None and isinstance(call.func, ast.Attribute):
        method = call.func.attr
    if method in LOGGER_METHODS or (method and found is not None and found["class"] in ("Logger", "RootLogger")):
        return f"logging.Logger.{method}"
    return dotted(call.func) if call is not None and context.editable else None


def loggers_of_libraries(context: BreakContext) -> Iterator[Advice]:
    """A line that calls a logger of another package (`loguru`) and nothing else, as `loggers`."""
    call = context.line.only_call()
    owner, _, method = ("" if call is None else dotted(call.func) or "").rpartition(".")
    if method in (*LOGGER_METHODS, "success", "trace") and LOGGER.search(owner) is not None:
        yield from guarded(context, "logger-guard", f"{owner}.{method}", in_library=True)


def in_logging(context: BreakContext) -> bool:
    """Whether Dynamo stopped inside the logging package, below the logger call of the program."""
    file = context.torch_frame.file if context.torch_frame is not None else ""
    return not context.editable and _LOGGING.search(file) is not None


def _is_bar(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] in ("tqdm", "trange", "track")


def _format_string(context: BreakContext, call: ast.Call) -> str | None:
    """The arguments of a print as one f-string, joined by spaces as print does; None if that cannot be written simply."""
    parts = []
    for argument in call.args:
        text = context.line.text(argument)
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


_PRINTS_LATER = "what is printed is printed after the graph"
KINDS = (
    Kind(slugs=("item-print", "print-format", "write-print"), applied="rewrite", does=_PRINTS_LATER, prints=True),
    Kind(slugs=("print-reorder",), applied="option", does=_PRINTS_LATER),
    Kind(slugs=("print-guard", "logger-guard", "warn-guard", "frames-guard"), applied="rewrite", gives_up=SKIPS, leaves_out=True),
    Kind(slugs=("write-guard", "print-ignore", "logger-ignore", "logging-ignore", "warn-ignore"), leaves_out=True),
)
