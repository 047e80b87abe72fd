"""In the child: which lines of a script run, and what values its statements give, so that plain values can take their place."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from dynadiag.reduce.scripts.program import definition_text, loop_text

_MOST_PARTS = 16
_DEEPEST = 3
_LONGEST_TEXT = 200
_LARGEST_NUMBER = 1 << 20
_PLAIN = (bool, int, float, str, type(None))


class Tracer:
    """Follows the frames of one file; `lines` ran, `values` gives the text of what an assignment, a loop or a call bound, by its text."""

    def __init__(self, file: str, source: str) -> None:
        self.lines: set[int] = set()
        self.values: dict[str, str] = {}
        self._file = file
        self._wanted = _targets(source)
        self._last: dict[int, int] = {}

    def __enter__(self) -> Tracer:
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self._file or _is_hidden(frame.f_code):
            return None
        self._keep_arguments(frame)
        return self._on_line

    def _keep_arguments(self, frame: FrameType) -> None:
        """What a function was called with first, but for `self`."""
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        text = definition_text(frame.f_code.co_name, names)
        if names and text not in self.values:
            parts = [written(frame.f_locals[name]) for name in names if name != "self" and name in frame.f_locals]
            if parts and None not in parts:
                self.values[text] = ", ".join(map(str, parts))

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        before = self._last.pop(id(frame), None)
        if before is not None:
            self._keep(before, frame)
        if event == "line":
            self.lines.add(frame.f_lineno)
            self._last[id(frame)] = frame.f_lineno
        return self._on_line

    def _keep(self, line: int, frame: FrameType) -> None:
        """The names that the statement of this line has bound have their values now, once it is left; the first time counts."""
        for bound in self._wanted.get(line, ()):
            if bound.text in self.values or frame.f_lineno in bound.lines:
                continue
            parts = [written(frame.f_locals[name] if name in frame.f_locals else frame.f_globals.get(name, ...)) for name in bound.names]
            if None not in parts:
                self.values[bound.text] = str(parts[0]) if len(parts) == 1 else f"({', '.join(map(str, parts))})"


def written(value: Any, depth: int = 0) -> str | None:
    """An expression for a value like this one: tensors by shape and dtype, with random content; None for what has none."""
    if isinstance(value, _PLAIN):
        return _steady_text(value)
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return _tensor(value)
    if depth >= _DEEPEST or not isinstance(value, list | tuple | Mapping) or len(value) > _MOST_PARTS:
        return None
    parts = [written(item, depth + 1) for item in (value.values() if isinstance(value, Mapping) else value)]
    if any(part is None for part in parts) or not _is_builtin(value):
        return None
    texts = [str(part) for part in parts]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(value, texts, strict=True)) + "}"
    if isinstance(value, list):
        return f"[{', '.join(texts)}]"
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _steady_text(value: bool | int | float | str | None) -> str | None:
    """The value itself where the next run gives it too: no times, addresses or names of temporary files."""
    if isinstance(value, float):
        return "1.0"
    steady = (
        abs(value) <= _LARGEST_NUMBER if isinstance(value, int) else value is None or ("/" not in value and len(value) <= _LONGEST_TEXT)
    )
    return repr(value) if steady else None


def _is_builtin(value: Any) -> bool:
    plain_keys = not isinstance(value, Mapping) or all(isinstance(key, str | int) for key in value)
    return plain_keys and type(value) in (list, tuple, dict)


def _tensor(value: torch.Tensor) -> str | None:
    if value.layout is not torch.strided:
        return None
    where = "" if value.device.type == "cpu" else f", device={value.device.type!r}"
    shape = tuple(value.shape)
    if value.dtype is torch.bool:
        return f"torch.ones({shape}, dtype=torch.bool{where})"
    kind = "" if value.dtype in (torch.get_default_dtype(), torch.int64) else f", dtype={value.dtype}"
    if value.dtype.is_floating_point or value.dtype.is_complex:
        return f"torch.randn({shape}{kind}{where}{', requires_grad=True' if value.requires_grad else ''})"
    if not value.numel():
        return f"torch.zeros({shape}, dtype={value.dtype}{where})"
    return f"torch.randint({min(0, int(value.min()))}, {int(value.max()) + 1}, {shape}{kind}{where})"


@dataclass(frozen=True)
class _Bound:
    text: str
    names: tuple[str, ...]
    lines: range


def _targets(source: str) -> dict[int, list[_Bound]]:
    """The assignments and loops by their lines: the own text of each, and the names that it binds."""
    found: dict[int, list[_Bound]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, text, last = node.targets[0], ast.unparse(node), node.end_lineno
        elif isinstance(node, ast.For):
            target, text, last = node.target, loop_text(node), node.iter.end_lineno
        else:
            continue
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        names = tuple(part.id for part in parts if isinstance(part, ast.Name))
        lines = range(node.lineno, (last or node.lineno) + 1)
        if names and len(names) == len(parts):
            for line in lines:
                found.setdefault(line, []).append(_Bound(text, names, lines))
    return found


def _is_hidden(code: CodeType) -> bool:
    """Comprehensions bind nothing that lasts."""
    return code.co_name in ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>")
