"""Advice for calls that Dynamo does not enter: the standard library, files, C extensions, libraries, functions that somebody disabled."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.changes import copy, message, train_step
from dynadiag.changes.break_context import BreakContext, Rule, Said, guarded, line_name, quoted, rewrite, say, withhold
from dynadiag.changes.condition import DRAWN
from dynadiag.changes.kinds import SKIPS, Kind
from dynadiag.model.report import Advice


def skipped(context: BreakContext) -> Iterator[Said]:
    """A call that Dynamo refused to enter: by the function, else by the kind of the line."""
    name = called_name(context)
    rule = next((rule for pattern, rule in _SKIPPED if pattern.search(name)), None)
    if rule is None and train_step.in_optimizer(context):
        rule = train_step.train_step
    yield from (rule or opaque_call)(context)


def called_name(context: BreakContext) -> str:
    """The refused function as `module.qualname`, from torch's context."""
    return skipped_name(context.gb_context)


def skipped_name(text: str) -> str:
    """The function that a context of "marked as skipped" names: `zlib.crc32`; "" where it names none."""
    module = re.search(r"module: (<unknown module>|[\w.]*)", text)
    name = re.search(r"qualname: ([\w.<>]+)", text)
    file = re.search(r"filename: `[^`]*(?:site-packages|dist-packages|python\d[\d.]*)[/\\]([^`]+)\.py`", text)
    start = module[1] if module else re.sub(r"[/\\]", ".", file[1]) if file else ""
    start = "" if start.startswith("<") else start
    return f"{start}.{name[1]}".lstrip(".") if name else start


def opaque_call(context: BreakContext) -> Iterator[Said]:
    """A call that nothing is known of."""
    name = called_name(context)
    # Paths and the user's own names (`self.queue`, a folder `sparse`) say nothing of the call.
    said = f"{name} {_PATHS.sub('', context.gb_context)}{' open(' if any(True for _ in context.line.calls('open')) else ''}"
    reason = next((reason for pattern, reason in _REASONS if pattern.search(said)), None)
    shown = quoted(name, 60) if name else line_name(context)
    yield from withhold(reason or f"what {shown} does, and what depends on it, is not known")


def collections_gc(context: BreakContext) -> Iterator[Said]:
    """`gc.collect()`, `torch.cuda.empty_cache()`: no result depends on them."""
    yield from guarded(context, "setting-guard", "gc.collect", "torch.cuda.empty_cache")
    yield from withhold("the call acts on the process, which a graph cannot do")


def disabled(context: BreakContext) -> Iterator[Said]:
    """A call of a function that somebody disabled: deliberate."""
    if train_step.in_optimizer(context):
        yield from train_step.train_step(context)
        return
    name = re.search(r"<function ([\w.<>]+) at", context.gb_context)
    shown = f"`{name[1]}`" if name else "the function"
    if context.excluded is not None:
        yield from say(
            "exclude-no-more",
            f"{shown} is a function of yours that `torch.compiler.disable` excludes here, and the library calls it from compiled code. "
            "Remove that if Dynamo may trace it. Where a module calls it as a hook and it has to stay in Python, compile the module's "
            "`forward` instead (`net.forward = torch.compile(net.forward)`), around which hooks are called",
        )
    yield from withhold(f"`torch.compiler.disable` was put on {shown}, so the break is intended")


def user_break(context: BreakContext) -> Iterator[Said]:
    """`torch._dynamo.graph_break()` in user code, or the one in torch.optim."""
    if train_step.in_optimizer(context):
        yield from train_step.train_step(context)
        return
    place = context.place
    own = None if place is None else place.statement()
    around = None if place is None or own is None else place.parent(own)
    alone = around is not None and any(getattr(around, name, None) == [own] for name in ("body", "orelse", "finalbody"))
    found: tuple[Advice, ...] = ()
    if context.line.only_call() is not None:
        text = "Remove the line (`pass` where it is alone in its block): it requests the break"
        found = tuple(rewrite(context, "graph-break-remove", "pass" if alone else "", text))
    yield from found or withhold("a library requests the break")


def builtins(context: BreakContext) -> Iterator[Said]:
    """`GB0059`: a builtin that Dynamo cannot trace with these arguments."""
    name = (
        re.search(r"builtin (?:operator )?`?(\w+)", context.gb_context)
        or re.search(r"builtin operator `(\w+)`", context.explanation)
        or re.search(r"^(?:builtin: (\w+) |call_function BuiltinVariable\((\w+)\))", context.gb_type)  # torch 2.0 to 2.6
    )
    yield from _BUILTINS.get(name[name.lastindex or 0] if name else "", opaque_call)(context)


def debuggers(context: BreakContext) -> Iterator[Said]:
    """`breakpoint()` and `input()`."""
    yield from guarded(context, "debug-guard", "breakpoint", "pdb.set_trace")
    yield from withhold("a graph cannot wait for user input")


def methods(context: BreakContext) -> Iterator[Said]:
    """A method that Dynamo does not know, of an object that it does not model."""
    if "LoggingLoggerVariable" in context.gb_context or message.in_logging(context):
        yield from message.logging_functions(context)
    elif any(True for _ in context.line.calls("sys.stdout.write")):
        yield from message.streams(context)
    else:
        yield from opaque_call(context)


_BUILTINS: dict[str, Rule] = {"print": message.prints, "breakpoint": debuggers, "input": debuggers}

_SKIPPED: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"^torch\.autograd\.backward$", train_step.train_step),
        (r"^torch\.optim\.(?!lr_scheduler)|\bOptimizer\.", train_step.train_step),
        (r"^_?warnings\.warn", message.warn),
        (r"tqdm\.", message.progress_bars),
        (r"^sys\._getframe|^inspect\.|^traceback\.", message.frames),
        (r"^copy\.(?:deep)?copy$", copy.copies),
        (r"^gc\.|empty_cache", collections_gc),
    )
)

# Why nothing is advised about such a call: by its name, torch's context and the user's line.
_PATHS = re.compile(r"(?:skip reason|filename): .*")
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"\blr_scheduler\b|LRScheduler|\bGradScaler\b", "it has Python state that Dynamo does not trace"),
        (r"^time\.|\bdatetime\b", "a graph has no clock: what it runs can only be timed outside the compiled function"),
        (r"^random\.|\bRandom\.|\bnumpy\.random\b", DRAWN),
        (r"manual_seed|rng_state|\bfork_rng\b|\bGenerator\b", "the state of random generators is not part of a graph"),
        (r"\brnn\.(?:pack|pad_packed)|\bPackedSequence\b", "Dynamo does not trace packed sequences, whatever the options"),
        (r"sparse", "Dynamo does not trace sparse tensors"),
        (r"^_?warnings\.", "Dynamo does not trace warning filters"),
        (r"\b_?thread(?:ing)?\.|\bqueue\.|\bRLock\b|\block\)|\bCondition\b", "a graph has no threads, locks or queues"),
        (
            r"^posix|^nt\.|^os\.|\b_?io\.|\b(?:Bytes|Text|String)IO|^_?pickle|\btorch\.serialization\b|\b(?:subprocess|_?socket|shutil|tempfile)\b"
            r"|\bopen\(|builtin .?open",
            "a graph cannot touch files, streams or processes",
        ),
        (r"__build_class__", "Dynamo does not trace class statements"),
        (r"anomaly|saved_tensors|save_on_cpu", "the context manager works on eager autograd, which compiled code does not have"),
        (r"register_\w*hook|RemovableHandle", "Dynamo does not trace how hooks are registered or removed here"),
    )
)

CALLS: dict[str, tuple[Rule, ...]] = {
    "GB0007": (skipped,),
    "GB0008": (skipped,),
    "GB0009": (skipped,),
    "GB0025": (user_break,),
    "GB4297": (user_break,),
    "GB4636": (user_break,),
    "GB0275": (user_break,),
    "GB0059": (builtins,),
    "GB0098": (disabled,),
    "GB0099": (disabled,),
    "GB0147": (skipped,),
    "GB0156": (methods,),
    "GB4841": (methods,),
    "GB9493": (skipped,),
}


KINDS = (
    Kind(slugs=("graph-break-remove",), applied="rewrite", does="a requested break is deleted"),
    Kind(slugs=("setting-guard",), applied="rewrite", gives_up=SKIPS, leaves_out=True),
    Kind(slugs=("debug-guard",), leaves_out=True),
)
