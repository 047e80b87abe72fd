"""Where the program sets something: the line that calls the function or sets the attribute, found in its text, which is never run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dynadiag.diff.compare import source_line
from dynadiag.diff.result import SourceLine
from dynadiag.model.run import CompileCall, Run

_MODES = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning", "triton.cudagraphs")
"""Options that modes of `torch.compile` set (`torch._inductor.list_mode_options`, 2.11 to 2.15)."""


@dataclass(frozen=True)
class Source:
    """A file of the program as it was when it ran: its name in the project, its text, and where it is, if it is there."""

    name: str
    text: str
    path: Path | None = None


@dataclass
class SettingLines:
    """Looks for lines in the sources of the second program; `calls` are its calls of `torch.compile`, `old_calls` those of the first."""

    sources: Sequence[Source] = ()
    run: Run | None = None
    calls: Sequence[CompileCall] = ()
    old_calls: Sequence[CompileCall] = ()
    _trees: list[tuple[Source, ast.Module]] | None = field(default=None)

    def line_of(self, names: Iterable[str]) -> SourceLine | None:
        """The first line that sets one of these: `name(...)`, `x.name = ...` or setattr, `name=...` in a call, `{"name": ...}`."""
        wanted = frozenset(names)
        return next((line for line in self._lines(wanted, None)), None)

    def line_of_option(self, option: str) -> SourceLine | None:
        """The call of `torch.compile` that has this option or a mode that sets it, else the line that sets it."""
        before = [(call.target, dict(call.options)) for call in self.old_calls]
        for call in self.calls:
            if (call.target, dict(call.options)) in before or call.location is None or self.run is None:
                continue
            named = {name.replace("-", "_") for name in call.options}
            if option in named or (option in _MODES and "mode" in named):
                return source_line(call.location, self.run)
        last = option.rpartition(".")[2]
        return next((line for line in self._lines(frozenset({last}), option)), None)

    def trees(self) -> list[ast.Module]:
        """The sources, parsed."""
        return [tree for _, tree in self._parsed()]

    def _lines(self, names: frozenset[str], option: str | None) -> Iterator[SourceLine]:
        for source, tree in self._parsed():
            found = sorted({line for node in ast.walk(tree) if (line := _sets(node, names, option)) is not None})
            lines = source.text.split("\n")
            for line in found:
                yield SourceLine(file=source.name, line=line, source=lines[line - 1].strip()[:400])

    def _parsed(self) -> list[tuple[Source, ast.Module]]:
        if self._trees is None:
            self._trees = []
            for source in self.sources:
                try:
                    self._trees.append((source, ast.parse(source.text)))
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    continue
        return self._trees


def _sets(node: ast.AST, names: frozenset[str], option: str | None) -> int | None:
    """The line of a node that sets one of the names."""
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else None
        named = node.args[1] if called == "setattr" and len(node.args) == 3 else None
        by_name = isinstance(named, ast.Constant) and named.value in names
        if called in names or by_name or any(keyword.arg in names for keyword in node.keywords):
            return node.lineno
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Attribute) and target.attr in names for target in targets):
            return node.lineno
    elif isinstance(node, ast.Dict):
        keys = [key for key in node.keys if isinstance(key, ast.Constant)]
        found = next((key for key in keys if key.value in names or (option is not None and key.value == option)), None)
        return None if found is None else found.lineno
    return None
