"""What torch's records of look-ups in its compile caches add to a run; the parts of a key stay in the log (`cache_keys` reads them)."""

from __future__ import annotations

import re
from collections.abc import Callable

from dynadiag.model.compiled import CacheEvent
from dynadiag.model.location import PayloadRef
from dynadiag.trace.builders import ProcessBuilder, RunBuilder
from dynadiag.trace.records import Record
from dynadiag.trace.values import BadRecordError, as_text, decode, parse_json

_LONGEST_REASON = 2000
# The record is one JSON object of 100 KB and more (`torch/_inductor/compile_fx.py`, `autograd_cache.py`, 2.11 to 2.15). Inside one of its
# strings every quote has a backslash before it, so that these find its own keys only.
_BYPASS = re.compile(rb'"cache_bypass_reason": ("(?:[^"\\]|\\.)*+")')
_KEY = re.compile(rb'"key": "([a-z0-9]{1,100})"')
_STATUS = re.compile(rb'"cache_status_detailed": "(\w{1,40})"')
_TOOK = re.compile(rb'"time_taken_ns": (\d{1,18})\b')
_SAVED = re.compile(rb'"time_saved_ns": (\d{1,18})\b')
_SAVED_MS = re.compile(rb'"time_saved_ms": (\d{1,15}(?:\.\d{1,10})?)\b')
_HAS_PARTS = re.compile(rb'"components": \[\s*"')


def cache_look_up(cache: str, result: str) -> Callable[[RunBuilder, ProcessBuilder, Record], None]:
    """The reader of `<cache>_cache_<result>`."""

    def read(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
        frame = run.known_frame(process, record.header)
        if not run.room.take("cache look-ups"):
            return
        payload = record.raw_payload()
        key, status = _text(_KEY, payload), _text(_STATUS, payload)
        saved = _seconds(_SAVED, payload, 1e-9)
        run.caches.append(
            CacheEvent(
                frame=frame.id if frame else None,
                cache=cache,
                result=result,
                why=run.share(_bypass_reason(payload)) if result == "bypass" else None,
                process=process.index,
                key=run.share(key),
                status=run.share(status),
                parts=_payload(process, record) if _HAS_PARTS.search(payload) else process.key_parts.get(key or ""),
                took_s=_seconds(_TOOK, payload, 1e-9),
                saved_s=_seconds(_SAVED_MS, payload, 1e-3) if saved is None else saved,
            )
        )

    return read


def key_parts(run: RunBuilder, process: ProcessBuilder, record: Record) -> None:
    """`dynadiag_key_parts`: what the key of the look-up that follows is made of."""
    key = _text(_KEY, record.raw_payload())
    if key is None:
        raise BadRecordError("key parts are mistyped")
    if key in process.key_parts or run.room.take("cache look-ups"):
        process.key_parts[key] = _payload(process, record)


def _payload(process: ProcessBuilder, record: Record) -> PayloadRef:
    return PayloadRef(process.log, record.payload_offset, record.payload_length)


def _text(pattern: re.Pattern[bytes], payload: bytes) -> str | None:
    found = pattern.search(payload)
    return found[1].decode("ascii", "replace") if found else None


def _seconds(pattern: re.Pattern[bytes], payload: bytes, unit: float) -> float | None:
    found = pattern.search(payload)
    return float(found[1]) * unit if found else None


def _bypass_reason(payload: bytes) -> str | None:
    found = _BYPASS.search(payload)
    reason = as_text(parse_json(decode(found[1]), "payload is not JSON")) if found else None
    return None if reason is None else reason[:_LONGEST_REASON]
