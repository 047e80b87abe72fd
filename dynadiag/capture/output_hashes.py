"""Hashes of what each compiled graph is given and gives, in the script's own process: two runs that are compared by them need no values.

A hash is a sum of integers that depends on each bit and its place, added up on the tensor's own device, so in any order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dynadiag.files import extended
from dynadiag.import_watcher import ImportWatcher

VARIABLE = "DYNADIAG_HASHES"
HASHES = "hashes-{}.jsonl"
"""By process: a line for each call of a graph, in order."""
_PIECE = 1 << 22
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)


@dataclass(frozen=True)
class HashSettings:
    """Where to write, and how many calls of each graph are hashed."""

    directory: str
    calls: int

    def dumps(self) -> str:
        """The value of the environment variable."""
        return json.dumps(asdict(self))


def from_environment(environment: Mapping[str, str] = os.environ) -> HashSettings | None:
    """The settings of the parent; None when nobody asks or the value is not ours."""
    try:
        return HashSettings(**json.loads(environment[VARIABLE]))
    except (KeyError, ValueError, TypeError):
        return None


def start() -> None:
    """Watch graphs from the moment that Dynamo is imported; nothing when nobody asked for it."""
    if (wanted := from_environment()) is not None:
        ImportWatcher({"torch._dynamo.output_graph": lambda module: _watch(module, wanted)}).install()


def _watch(output_graph: ModuleType, wanted: HashSettings) -> None:
    from dynadiag.torch_compat.dynamo.user_compiler import watch_calls, watch_compiler

    count = 0

    def begin(graph: Any, module: Any, inputs: Callable[[], Sequence[Any]]) -> tuple[int, list[Any]]:
        nonlocal count
        number, count = count, count + 1
        code = graph.root_tx.f_code if hasattr(graph, "root_tx") else None
        return number, [] if code is None else [code.co_name, code.co_filename, code.co_firstlineno]

    def end(begun: tuple[int, list[Any]], compiled: Any) -> Any:
        number, place = begun

        def before(call: int, args: tuple[Any, ...]) -> dict[str, Any] | None:
            if call > wanted.calls:
                return None
            return {"graph": number, "call": call, "function": place, "inputs": hashes(args)}

        def after(begun: dict[str, Any], args: tuple[Any, ...], results: Any) -> None:
            given = results if isinstance(results, (tuple, list)) else (results,)
            line = {**begun, "outputs": hashes(given), "after": hashes(args)}
            with os.fdopen(extended(str(Path(wanted.directory, HASHES.format(os.getpid())))), "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

        return watch_calls(compiled, before, after=after, failed=lambda begun, error: None)

    watch_compiler(output_graph, begin, end=end)


def hashes(values: Sequence[Any]) -> list[str | None]:
    """The hash of each value; None of a tensor that has no plain memory, such as a sparse one."""
    return [_hash(value) for value in values]


def _hash(value: Any) -> str | None:
    import torch

    if not isinstance(value, torch.Tensor):
        return repr(value)[:100]
    try:
        with torch.no_grad():
            return _of_bits(value.detach())
    except (RuntimeError, NotImplementedError, TypeError):  # no strides, no memory, a dtype that cannot be viewed
        return None


def _of_bits(tensor: Any) -> str:
    """A sum over the bytes as integers, each mixed with its place; it wraps around at 64 bits."""
    import torch

    flat = tensor.contiguous().flatten().view(torch.uint8)
    numbers = flat.view(torch.int32) if flat.numel() % 4 == 0 and flat.storage_offset() % 4 == 0 else flat
    total = numbers.numel() * 31
    for begin in range(0, numbers.numel(), _PIECE):
        piece = numbers[begin : begin + _PIECE].to(torch.int64)
        places = torch.arange(begin + 1, begin + 1 + piece.numel(), device=piece.device)
        mixed = (piece + places) * _ODD
        mixed = (mixed ^ (mixed >> 29)) * (2 * places + 1)
        total += int(mixed.sum())
    return f"{tensor.dtype}{list(tensor.shape)} {total % (1 << 64):016x}".removeprefix("torch.")
