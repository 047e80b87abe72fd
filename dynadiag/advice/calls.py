"""Advice for calls that Dynamo does not enter: the standard library, files, C extensions, libraries, functions that somebody disabled."""

from __future__ import annotations

import ast
import builtins as python
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from dynadiag.advice import printing, training, values
from dynadiag.advice.branches import random_numbers
from dynadiag.advice.outside import outside, reads_numbers
from dynadiag.advice.situation import CHANGES, Rule, Situation, guarded, line_name, quoted, rewrite, say
from dynadiag.advice.source import dotted
from dynadiag.model.report import Advice


@dataclass(frozen=True, slots=True)
class Called:
    """What to say of skipped functions whose `module.qualname` (or own line) matches."""

    pattern: re.Pattern[str]
    rule: Rule


def skipped(situation: Situation) -> Iterator[Advice]:
    """`GB0007` and `GB0008`: by the function that Dynamo refused to enter, else by the kind of the user's line."""
    name = called_name(situation)
    rule = next((entry.rule for entry in SKIPPED if entry.pattern.search(name)), None)
    if rule is None and training.in_optimizer(situation):
        rule = training.train_step
    given = tuple(rule(situation)) if rule is not None else ()
    yield from given
    if not given:
        yield from opaque_call(situation)


def called_name(situation: Situation) -> str:
    """The refused function as `module.qualname`, from torch's context."""
    module = re.search(r"module: (<unknown module>|[\w.]*)", situation.context)
    name = re.search(r"qualname: ([\w.<>]+)", situation.context)
    file = re.search(r"filename: `[^`]*(?:site-packages|dist-packages|python\d[\d.]*)[/\\]([^`]+)\.py`", situation.context)
    start = module[1] if module else re.sub(r"[/\\]", ".", file[1]) if file else ""
    start = "" if start.startswith("<") else start
    return f"{start}.{name[1]}".lstrip(".") if name else start


def opaque_call(situation: Situation) -> Iterator[Advice]:
    """A call that nothing is known of: skip it in compiled code, do it outside, or make it an operator."""
    name = called_name(situation) or _own_call(situation)
    shown = quoted(name, 60) if name else line_name(situation)
    computes = re.match(r"(torch\.)?(_C\.)?_?Tensor(Base)?\.", name) is not None
    if not computes and not any(True for _ in situation.line.methods("append", "extend", "add", "insert", "update", "put", "setdefault")):
        yield from guarded(situation, "call-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}")
    yield from say("call-outside", outside(situation, _own_call(situation)))
    numbers = reads_numbers(situation.line, _own_call(situation))
    if situation.options.known("compiler", "disable") != "no" and name and not (numbers or computes or _has_no_operators(name)):
        text = f"If {shown} computes on tensors inside: wrap it with `torch.library.custom_op` and give it a `register_fake`"
        yield from say("call-custom-op", text)


def _has_no_operators(name: str) -> bool:
    """Whether the function is torch's own, a class, or Python's own, which computes on no tensors (torch 2.11 names no module of these)."""
    first, _, last = name.partition(".")
    if first == "torch" or hasattr(python, first) or last.endswith("__new__"):
        return True
    return first in sys.stdlib_module_names or first.lstrip("_") in sys.stdlib_module_names


def files(situation: Situation) -> Iterator[Advice]:
    """Files, pickles, sockets, processes: the outside world."""
    text = f"Or, if it is for debugging only, leave {line_name(situation)} out of compiled code: {CHANGES}"
    yield from guarded(situation, "io-guard", text)
    yield from say(
        "io-outside",
        f"Move {line_name(situation)} out of the compiled function: a graph cannot touch files or processes",
    )


def collections_gc(situation: Situation) -> Iterator[Advice]:
    """`gc.collect()`, `torch.cuda.empty_cache()`, `set_num_threads`: settings of the process."""
    yield from guarded(situation, "setting-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}")
    yield from say("setting-outside", f"Call {line_name(situation)} once outside the compiled function")


def classes(situation: Situation) -> Iterator[Advice]:
    """A class statement inside the compiled function."""
    yield from say("class-module-level", "Define the class at module level, not inside the compiled function")


def disable_call(situation: Situation) -> Iterator[Advice]:
    """`torch.compiler.disable(fn)` called inside."""
    text = "Apply `torch.compiler.disable` once, outside the compiled function (as a decorator); its call still breaks the graph, as asked"
    yield from say("disable-outside", text)


def disabled(situation: Situation) -> Iterator[Advice]:
    """A call of a function that somebody disabled: deliberate."""
    name = re.search(r"<function ([\w.<>]+) at", situation.context)
    shown = f"`{name[1]}`" if name else "The function"
    if training.in_optimizer(situation):
        yield from training.train_step(situation)
        return
    text = f"{shown} carries `torch.compiler.disable`: remove it if torch can trace the function today"
    yield from say("disable-remove", text)
    text = f"If it must stay eager, call {shown} before or after the compiled part; the break is deliberate and stays"
    yield from say("disable-apart", text)


def user_break(situation: Situation) -> Iterator[Advice]:
    """`torch._dynamo.graph_break()` in user code, or the one in torch.optim."""
    if training.in_optimizer(situation):
        yield from training.train_step(situation)
        return
    yield from rewrite(situation, "graph-break-remove", "", "Remove the line: it asks for the break")


def builtins(situation: Situation) -> Iterator[Advice]:
    """`GB0059`: a builtin that Dynamo cannot trace with these arguments."""
    name = re.search(r"builtin (?:operator )?`?(\w+)", situation.context) or re.search(r"builtin operator `(\w+)`", situation.explanation)
    rule = _BUILTINS.get(name[1] if name else "", opaque_call)
    given = tuple(rule(situation))
    yield from given or opaque_call(situation)


def debuggers(situation: Situation) -> Iterator[Advice]:
    """`breakpoint()` and `input()`."""
    yield from guarded(situation, "debug-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}")
    yield from say("debug-outside", f"Remove {line_name(situation)} from the compiled function")


def set_attributes(situation: Situation) -> Iterator[Advice]:
    """Setting an attribute of a class or of another object that Dynamo does not track."""
    if any(True for _ in situation.line.methods("state_dict")):
        text = f"Call {line_name(situation)} outside the compiled function"
        yield from say("state-dict-outside", text)
    elif any(True for _ in situation.line.methods("register_forward_hook", "register_forward_pre_hook", "register_hook", "remove")):
        yield from training.forward_hooks(situation)
    elif "optim" in situation.context or "optim." in situation.line.code:
        yield from training.train_step(situation)
    else:
        yield from say(
            "setattr-outside",
            f"Set it outside the compiled function: {line_name(situation)} changes an object that Dynamo cannot track",
        )


def methods(situation: Situation) -> Iterator[Advice]:
    """`GB0156` and its kin: a method that Dynamo does not know of an object it does not model."""
    if "LoggingLoggerVariable" in situation.context or printing.in_logging(situation):
        yield from printing.logging_functions(situation)
    elif any(True for _ in situation.line.calls("sys.stdout.write")):
        yield from printing.streams(situation)
    elif re.search(r"_json|Encoder", situation.context):
        yield from say("call-outside", outside(situation, _own_call(situation)))
    elif isinstance(situation.line.statement, ast.With):
        yield from contexts(situation)
    elif re.search(r"StringIO|BytesIO|TextIO|Buffered|FileIO", situation.context):
        yield from files(situation)
    elif re.search(r"UntypedStorage|TypedStorage", situation.context):
        yield from values.storages(situation)
    elif re.search(r"\(R?lock\)|RLock|Condition|_thread|Generator\) manual_seed", situation.context):
        yield from training.generators(situation) if "Generator" in situation.context else locks(situation)
    elif "datetime" in situation.context:
        yield from printing.clocks(situation)
    else:
        yield from opaque_call(situation)


def locks(situation: Situation) -> Iterator[Advice]:
    """Locks, queues and threads."""
    yield from say(
        "thread-outside",
        f"Move {line_name(situation)} out of the compiled function: a graph knows no threads, locks or queues",
    )


def contexts(situation: Situation) -> Iterator[Advice]:
    """`GB0142`: a context manager that Dynamo cannot enter."""
    expression = _with_expression(situation)
    call = dotted(expression.func) if isinstance(expression, ast.Call) else None
    if call == "open" or "TextIO" in situation.context or "Buffered" in situation.context:
        yield from files(situation)
    elif call == "torch.device" or "device(" in situation.context:
        text = 'Pass `device=` to each factory call in the block (`torch.ones(3, device="cpu")`) instead of the `with`'
        yield from say("device-argument", text)
    elif re.search(r"\((?:RLock|lock|Condition|Semaphore)\)", situation.context):
        yield from locks(situation)
    elif re.search(r"anomaly|saved_tensors|save_on_cpu", situation.context + situation.line.code):
        yield from training.anomaly(situation)
    elif "fork_rng" in situation.line.code:
        yield from training.random_state(situation)
    elif any(True for node in situation.line.nodes if printing._is_bar(node)):
        yield from printing.progress_bars(situation)
    else:
        shown = quoted(situation.line.text(expression)) if expression is not None else line_name(situation)
        yield from say("with-around", f"Enter {shown} around the call of the compiled function, not inside it")


def exceptions(situation: Situation) -> Iterator[Advice]:
    """`GB0088`: the code raised while it was traced."""
    raised = re.search(r"raised exception (\w+)", situation.context)
    name = f"`{raised[1]}`" if raised else "an exception"
    if re.search(r"unsupported operand|data_ptr", situation.context + situation.line.code) and "data_ptr" in situation.line.code:
        yield from values.storages(situation)
        return
    text = f"{line_name(situation)} raises {name}: a raise ends the frame. Check before the compiled call instead"
    yield from say("raise-outside", text)


def rebuilt(situation: Situation) -> Iterator[Advice]:
    """`GB0092`: an object that must live across the break and cannot be rebuilt."""
    if "warnings." in situation.line.code:
        yield from warning_filters(situation)
        return
    text = f"{line_name(situation)} breaks while an object is alive that Dynamo cannot rebuild: do this outside the compiled function"
    yield from say("rebuild-outside", text)


def warning_filters(situation: Situation) -> Iterator[Advice]:
    """`warnings.catch_warnings()`, `simplefilter`."""
    yield from say("filters-outside", f"Set warning filters outside the compiled function, not by {line_name(situation)}")


def decimals(situation: Situation) -> Iterator[Advice]:
    """Objects of C types such as `decimal.Decimal`."""
    yield from opaque_call(situation)


def _own_call(situation: Situation) -> str:
    call = situation.line.outer_call()
    return "" if call is None else dotted(call.func) or ""


def _with_expression(situation: Situation) -> ast.expr | None:
    statement = situation.line.statement
    return statement.items[0].context_expr if isinstance(statement, ast.With) else None


def _entry(pattern: str, rule: Rule) -> Called:
    return Called(re.compile(pattern), rule)


_BUILTINS: dict[str, Rule] = {
    "print": printing.prints,
    "open": files,
    "breakpoint": debuggers,
    "input": debuggers,
    "sorted": values.sorting,
    "eval": values.evaluated,
    "exec": values.evaluated,
    "globals": values.evaluated,
    "locals": values.evaluated,
    "str": values.texts,
    "repr": values.texts,
    "range": values.ranges,
    "hash": values.hashes,
    "id": values.hashes,
    "setattr": set_attributes,
    "delattr": set_attributes,
    "mod": values.storages,
}

SKIPPED: tuple[Called, ...] = (
    _entry(r"^torch\.autograd\.backward$", training.autograd_backward),
    _entry(r"LRScheduler\.|GradScaler\.|lr_scheduler\.", training.schedulers),
    _entry(r"^torch\.optim\.|\bOptimizer\.", training.train_step),
    _entry(r"^torch\.autograd\.grad_mode\..*__enter__$", training.grad_modes),
    _entry(r"detect_anomaly|set_detect_anomaly|saved_tensors_hooks|save_on_cpu", training.anomaly),
    _entry(r"^_?warnings\.warn", printing.warn),
    _entry(r"^_?warnings\._?(filters|simplefilter|catch)", warning_filters),
    _entry(r"^time\.|datetime\.now|datetime\.utcnow", printing.clocks),
    _entry(r"^random\.|\.?Random\.|^numpy\.random", random_numbers),
    _entry(r"^torch\.(cuda\.)?random\.|manual_seed|rng_state", training.random_state),
    _entry(r"Generator\.__new__", training.generators),
    _entry(r"tqdm\.", printing.progress_bars),
    _entry(r"^sys\._getframe|^inspect\.|^traceback\.", printing.frames),
    _entry(r"^torch\.nn\.utils\.rnn\.", training.packed),
    _entry(r"sparse_coo_tensor|sparse_csr_tensor|\.to_sparse", training.sparse),
    _entry(r"_CachedForward|torch\.jit\.", training.script),
    _entry(r"__build_class__", classes),
    _entry(r"^copy\.copy$", training.shallow_copy),
    _entry(r"^copy\.deepcopy$", training.deepcopy),
    _entry(r"^torch\.compiler\.disable$|^torch\._dynamo\..*disable$", disable_call),
    _entry(r"^gc\.|set_num_threads|empty_cache|^torch\.set_|^torch\.backends", collections_gc),
    _entry(r"^_thread\.|^threading\.|^queue\.|^_queue\.", locks),
    _entry(r"^posix\.|^nt\.|^os\.|^_?io\.|IO\.__new__|^_?pickle\.|^torch\.serialization\.", files),
    _entry(r"^_posixsubprocess\.|^subprocess\.|^_?socket\.|^shutil\.|^tempfile\.|^_?signal\.|^_asyncio\.", files),
)


CALLS: dict[str, tuple[Rule, ...]] = {
    "GB0007": (skipped,),
    "GB0008": (skipped,),
    "GB0009": (skipped,),
    "GB0025": (user_break,),
    "GB4297": (user_break,),
    "GB4636": (user_break,),
    "GB0275": (user_break,),
    "GB0045": (values.inference_checks,),
    "GB0046": (values.inference_checks,),
    "GB0055": (values.arguments,),
    "GB0059": (builtins,),
    "GB0088": (exceptions,),
    "GB0090": (values.no_fake,),
    "GB3069": (values.no_fake,),
    "GB4315": (values.no_fake,),
    "GB0092": (rebuilt,),
    "GB0098": (disabled,),
    "GB0099": (disabled,),
    "GB0105": (values.numpy_off,),
    "GB0117": (training.share_memory,),
    "GB0142": (contexts,),
    "GB0147": (skipped,),
    "GB0156": (methods,),
    "GB0175": (values.type_checks,),
    "GB0194": (values.type_checks,),
    "GB0208": (values.not_a_tensor,),
    "GB0231": (values.numpy_off,),
    "GB0240": (values.out_arguments,),
    "GB0247": (values.out_arguments,),
    "GB0262": (contexts,),
    "GB0293": (values.numpy_off,),
    "GB0294": (values.numpy_calls,),
    "GB0376": (disable_call,),
    "GB0377": (disable_call,),
    "GB0467": (set_attributes,),
    "GB0569": (values.texts,),
    "GB2736": (values.type_checks,),
    "GB4841": (methods,),
    "GB8335": (values.generator_objects,),
    "GB8977": (classes,),
    "GB9493": (skipped,),
    "GB9522": (values.type_checks,),
}
