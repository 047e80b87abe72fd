"""Listening to torch's structured trace: a logger that cannot be silenced, and a `trace_structured` that never hurts the program."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

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
