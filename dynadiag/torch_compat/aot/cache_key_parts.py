"""The components of AOTAutograd's cache key, which torch 2.15 lists only where its own debug log is on."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from dynadiag.torch_compat.trace.hooks import Hooks

_LISTING = "_get_debug_lines_for_cache_key"


def watch_key_parts(module: ModuleType, hooks: Hooks) -> None:
    """Record what each key of `torch._functorch._aot_autograd.autograd_cache` is made of; torch that lists it anyway is left alone.

    The list is a pure function of what the key was made from, and torch makes it after the key (2.15); 2.11 has it in its own record.
    """
    if not hasattr(module, _LISTING):
        return

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], listed: Any) -> None:
        named = dict(zip(("pickler", "details", "key"), args)) | kwargs
        if not listed:
            parts = named["pickler"].debug_lines(named["details"])
            hooks.sink.artifact("dynadiag_key_parts", {"key": named["key"], "components": [str(part) for part in parts]})

    hooks.install("aotautograd key parts", lambda: hooks.watch(module, _LISTING, after=after))
