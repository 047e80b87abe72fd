"""The options of dynamo, functorch and inductor, and the graph-break ids, as the torch that runs has them."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

_MODULES = {"dynamo": "torch._dynamo.config", "functorch": "torch._functorch.config", "inductor": "torch._inductor.config"}


def changes() -> dict[str, dict[str, Any]]:
    """Every option whose value is not its default, by module; options of modules that are not imported are missing."""
    return {name: _changed(sys.modules[module]) for name, module in _MODULES.items() if module in sys.modules}


def describe(state: dict[str, dict[str, Any]], *, names: bool, device: str | None) -> dict[str, Any]:
    """The payload of `dynadiag_config`; with `names` also the names of all options and of what `torch.compiler` offers."""
    torch = sys.modules["torch"]
    description: dict[str, Any] = {module: _recordable(state.get(module, {})) for module in _MODULES}
    description |= {"grad_mode": bool(torch.is_grad_enabled()), "device": device}
    if names:
        options = {name: sorted(_entries(sys.modules[module])) for name, module in _MODULES.items() if module in sys.modules}
        compiler = sys.modules.get("torch.compiler")
        description["options"] = options | {"compiler": sorted(name for name in vars(compiler or sys) if not name.startswith("_"))}
    return description


def _entries(config: Any) -> dict[str, Any]:
    """The option table of a `torch.utils._config_module.ConfigModule` (2.6 to 2.15; an entry has no alias before 2.7)."""
    entries: dict[str, Any] = vars(config).get("_config", {})
    return entries


def _changed(config: Any) -> dict[str, Any]:
    """Options whose value differs from the default, looked at without reading attributes: reading may mark the module dirty."""
    found = {}
    for name, entry in _entries(config).items():
        override = entry.user_override
        if type(override) is ContextVar:
            override = override.get()
        value = _first_set(entry.env_value_force, override, entry.env_value_default)
        if type(value) is not object and getattr(entry, "alias", None) is None and not _equal(value, entry.default):
            found[name] = value
    return found


def _first_set(forced: Any, override: Any, default: Any) -> Any:
    """The value by the precedence of `ConfigModule.__getattr__`; torch marks what is not set by a bare `object()`."""
    if type(forced) is not object:
        return forced
    return override if type(override) is not object else default


def _equal(item: Any, other: Any) -> bool:
    try:
        return bool(item == other)
    except Exception:  # noqa: BLE001 - border: an option may hold anything
        return item is other


def _recordable(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)[:500] for name, value in options.items()}


# What the torch that runs says of its graph-break ids (`torch/_dynamo/graph_break_registry.json`: 421 ids in 2.11, 592 in 2.15).

_ID_IN_MESSAGE = re.compile(r"\bgb(\d{4,6})\.html")


def entries_named_in(text: str) -> Iterator[dict[str, Any]]:
    """The entry {gb_id, gb_type, explanation, hints} of each id that a message of torch links to."""
    if ".html" not in text:
        return
    for number in dict.fromkeys(_ID_IN_MESSAGE.findall(text)):
        entry = _registry().get(f"GB{number}")
        if entry:
            yield _row_of(f"GB{number}", entry[0])


@functools.cache
def _registry() -> dict[str, Any]:
    """The registry as torch ships it; its lists hold the newest wording first."""
    package = getattr(sys.modules.get("torch._dynamo"), "__file__", None)
    if package is None:
        return {}
    try:
        registry: dict[str, Any] = json.loads((Path(package).parent / "graph_break_registry.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return registry


def _row_of(gb_id: str, entry: dict[str, Any]) -> dict[str, Any]:
    hints = entry.get("Hints") or []
    return {
        "gb_id": gb_id,
        "gb_type": str(entry.get("Gb_type", "")),
        "explanation": str(entry.get("Explanation", "")),
        "hints": [str(hint) for hint in hints],
    }
