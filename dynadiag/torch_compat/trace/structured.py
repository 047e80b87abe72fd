"""Listening to torch's structured trace with a logger that cannot be silenced and never hurts the program; what runs now, in its words."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.trace import stacks
from dynadiag.torch_compat.trace.hooks import Hooks, callback_switch, disguise, holders

OnRecord = Callable[[logging.LogRecord], None]
_FRAMES_OF_OURS = 2


def listen(internal: ModuleType, on_record: OnRecord, hooks: Hooks) -> None:
    """Pass every record of torch's trace to `on_record`; `internal` is `torch._logging._internal`.

    The handler stands at index 0 (`addHandler` would lose the first record: torch's lazy handler removes itself while the list is walked)
    and survives `dictConfig`, `handlers.clear()` and, on 2.11, `logging.disable` (DESIGN, facts).
    """
    handler = _Forwarder(on_record)
    hooks.install("trace_handler", lambda: _make_unsilenceable(internal.trace_log, handler, hooks))
    hooks.install("trace_structured", lambda: _guard_payloads(internal, hooks))


class _Forwarder(logging.Handler):
    """A handler that only forwards; it keeps no file, so closing it loses nothing."""

    def __init__(self, on_record: OnRecord) -> None:
        super().__init__(logging.DEBUG)
        self.on_record = on_record

    def emit(self, record: logging.LogRecord) -> None:
        self.on_record(record)


def _make_unsilenceable(log: logging.Logger, handler: logging.Handler, hooks: Hooks) -> None:
    plain_class = type(log)
    attributes = vars(log)

    def get_handlers(self: logging.Logger) -> list[logging.Handler]:
        present: list[logging.Handler] = vars(self)["handlers"]
        if not present or present[0] is not handler:
            if handler in present:
                present.remove(handler)
            present.insert(0, handler)
        return present

    def debug(self: Any, msg: object, *args: Any, stacklevel: int = 1, **kwargs: Any) -> None:
        plain_class.debug(self, msg, *args, stacklevel=stacklevel + _FRAMES_OF_OURS, **kwargs)

    body = {
        "handlers": property(get_handlers, lambda self, value: vars(self).__setitem__("handlers", value)),
        "disabled": property(lambda self: False, lambda self, value: None),
        "isEnabledFor": property(lambda self: lambda level: True, lambda self, value: None),
        "debug": debug,
    }

    def restore() -> None:
        log.__class__ = plain_class
        log.disabled = False
        if handler in log.handlers:
            log.handlers.remove(handler)

    attributes.pop("disabled", None)
    log.__class__ = type("DynadiagTraceLogger", (plain_class,), body)
    hooks.on_undo(restore)


def _guard_payloads(internal: ModuleType, hooks: Hooks) -> None:
    """Replace `trace_structured` everywhere in torch by one whose payloads cannot raise and that Dynamo does not see."""
    original = internal.trace_structured
    switch_box: list[Callable[[Any], Any]] = []

    def trace_structured(name: str, metadata_fn: Any = dict, *, payload_fn: Any = lambda: None, **kwargs: Any) -> None:
        if not switch_box:
            switch_box.append(callback_switch())
        prior = switch_box[0](None)
        try:
            original(name, _safe(metadata_fn, dict), payload_fn=_safe(payload_fn, str), **kwargs)
        except Exception as error:  # noqa: BLE001 - border: torch makes JSON of the record only because we listen
            hooks.sink.failed(f"trace_structured {name}", error)
        finally:
            switch_box[0](prior)

    def _safe(function: Callable[[], Any], kind: type) -> Callable[[], Any]:
        def safe() -> Any:
            try:
                return _encodable(function())
            except Exception as error:  # noqa: BLE001 - border: torch evaluates this only because we listen
                hooks.sink.failed("payload", error)
                text = f"dynadiag: torch could not build this record: {error!r}"
                return text if kind is str else {"dynadiag_failed": text}

        # Torch puts the stack into some records (`create_symbol`), and a file of ours there would be one more in its table of strings.
        return disguise(safe, internal.__file__)  # type: ignore[no-any-return]

    replacement = functools.wraps(original)(disguise(trace_structured, internal.__file__))
    for owner in holders("trace_structured", original):
        hooks.replace(owner, "trace_structured", replacement)


def _encodable(value: Any) -> Any:
    """Text that UTF-8 can hold: torch hashes and writes payloads as UTF-8, and a file name need not be."""
    if not isinstance(value, str):
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def interned_strings() -> dict[str, int]:
    """Torch's table of interned strings, which a file that starts late must repeat first (`torch._logging.structured.INTERN_TABLE`)."""
    return dict(getattr(sys.modules.get("torch._logging.structured"), "INTERN_TABLE", {}))


_COMPILE_KEYS = ("compiled_autograd_id", "frame_id", "frame_compile_id")


def current_rank() -> int | None:
    """The rank in the default process group, or the one that a launcher announced in `RANK`; None outside distributed runs."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank())
    except Exception:  # noqa: BLE001 - border: a half-destroyed process group must not stop the user's program
        return None
    announced = os.environ.get("RANK", "")
    return int(announced) if announced.isdigit() and os.environ.get("WORLD_SIZE", "").isdigit() else None


def compile_ids(compile_id: Any, attempt: int | None = None) -> dict[str, Any]:
    """The keys that `torch._logging._internal.trace_structured` writes for a `torch._guards.CompileId` (2.11 to 2.15)."""
    keys = {key: value for key in _COMPILE_KEYS if (value := getattr(compile_id, key, None)) is not None}
    if attempt is not None:
        keys["attempt"] = attempt
    return keys


def current_compile_ids() -> dict[str, Any]:
    """The keys of the compilation that is running in this thread; empty outside one."""
    guards = sys.modules.get("torch._guards")
    trace_id = guards.CompileContext.current_trace_id() if guards is not None else None
    return {} if trace_id is None else compile_ids(trace_id.compile_id, trace_id.attempt)


def region_name(ids: dict[str, Any]) -> str:
    """The compile id as torch writes it in the event: "0/1", or "!2/0/1" under compiled autograd."""
    own = f"{ids.get('frame_id', '-')}/{ids.get('frame_compile_id', '-')}"
    autograd = ids.get("compiled_autograd_id")
    return own if autograd is None else f"!{autograd}/{own}"


_LONGEST = 4000
_NAME = "log_export_usage"


def watch_export(trace: ModuleType, hooks: Hooks) -> None:
    """Record each export that ends, with the stack of its error and the source of the user's functions on it.

    `torch/export/_trace.py` reports its usage to a function that does nothing outside Meta, also while it handles an error (2.11 and 2.15):
    a hook there leaves no frame in the program's tracebacks.
    """
    told: list[BaseException] = []  # the innermost of nested exports comes first, with the same error

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        event, error = str(kwargs.get("event")), sys.exc_info()[1]
        if event == "export.time":
            hooks.sink.artifact("dynadiag_problem", {"kind": "exported", "text": "", "stack": stacks.calling_stack()}, compile_ids={})
        if not event.startswith("export.error") or error is None or error in told:
            return
        told[:] = [error]
        stack = [*stacks.calling_stack(), *stacks.stack_of(error.__traceback__)]
        named = "\n".join(f'  File "{place["file"]}", line {place["line"]}, in f' for place in stack)
        text = f"{type(error).__name__}: {str(error).strip()}"[:_LONGEST]
        for record in stacks.functions_named_in((named, text)):
            hooks.sink.artifact("dynadiag_function", record, compile_ids={})
        hooks.sink.artifact("dynadiag_problem", {"kind": "export_failed", "text": text, "stack": stack}, compile_ids={})

    hooks.install("export", lambda: hooks.watch(trace, _NAME, before=before, file=trace.__file__))
