"""A function of the source ladder while evidence is collected, and what became of its lines: on all ranks together, and on each."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dynadiag.facts.user_frames import resume_line
from dynadiag.model.digest import rank_numbers
from dynadiag.model.report import GraphBreak
from dynadiag.model.run import Frame
from dynadiag.render.ladder import State

MOST_BARS = 3
CALLED = re.compile(r"(?<![\w.])(?:self\.)?([A-Za-z_]\w*)\(")
# What Dynamo often breaks at (`torch/_dynamo/graph_break_registry.json`, 2.11 to 2.15); looked for in lines that it did not reach.
_MAY_BREAK = re.compile(
    r"\.(?:item|tolist|numpy|nonzero|masked_select|unique|backward|bincount)\(|(?<![\w.])(?:print|open|input|breakpoint)\("
)


@dataclass(slots=True, eq=False)
class Draft:
    """A function while evidence is collected: by line graphs, sites, codes, marks, notes and states."""

    name: str
    file: str
    line: int | None
    text: str | None = None
    parent: Draft | None = None
    graphs: dict[int, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    breaks: dict[int, dict[str, GraphBreak]] = field(default_factory=lambda: defaultdict(dict))
    inside: dict[int, dict[str, GraphBreak]] = field(default_factory=lambda: defaultdict(dict))
    notes: dict[int, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    codes: dict[int, str] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    entered: dict[int, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    calls: dict[int, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    _statements: list[int] | None = None

    @property
    def statements(self) -> list[int]:
        """The lines with statements."""
        if self._statements is None:
            self._statements = _statement_lines(self.line, self.text)
        return self._statements

    def python_lines(self, frames: Sequence[Frame]) -> dict[int, State]:
        """The lines with statements that ran in Python, because every version of the frame that they belong to was skipped."""
        states: dict[int, State] = {}
        by_code: dict[str | None, list[Frame]] = defaultdict(list)
        for frame in frames:
            by_code[frame.name].append(frame)
        reached = max((*self.graphs, *self.breaks, *self.inside), default=0)
        ended = self._ended()
        for name, versions in by_code.items():
            stopped = bool(set[str].intersection(*(ended.get(frame.id, set()) for frame in versions)))
            skipped = all(frame.outcome == "skipped" for frame in versions)
            begin = resume_line(name) or self.line or 0
            for line in self.statements:
                if stopped and line > reached:
                    states[line] = "unseen"
                elif skipped and line >= begin:
                    states.setdefault(line, "eager")
        return states

    def _ended(self) -> dict[str, set[str]]:
        """For each frame the breaks of the function at which Dynamo went no further in it: it skipped the frame, or raised an error."""
        found: dict[str, set[str]] = defaultdict(set)
        for sites in (*self.breaks.values(), *self.inside.values()):
            for site in sites.values():
                for frame in (*site.skipped_frames, *(site.frames if site.fullgraph else ())):
                    found[frame].add(site.id)
        return found

    def by_rank(self, ranks: Mapping[int, int], process_of: Mapping[str, int]) -> dict[int, dict[int, State]]:
        """What became of each line on each rank. `ranks` gives the rank of a process, `process_of` the process of a graph."""
        frames: dict[int, list[Frame]] = defaultdict(list)
        for frame in self.frames:
            if frame.key.process in ranks:
                frames[ranks[frame.key.process]].append(frame)
        states = {rank: self.python_lines(some) for rank, some in frames.items()}
        for line, graphs in self.graphs.items():
            for rank in {ranks[process_of[name]] for name in graphs if process_of.get(name) in ranks}:
                states.setdefault(rank, {})[line] = "graph"
        for sites in (self.breaks, self.inside):
            for line, found in sites.items():
                for rank in {ranks[process] for site in found.values() for process in site.processes if process in ranks}:
                    states.setdefault(rank, {})[line] = "break"
        return states


@dataclass(frozen=True, slots=True)
class RankBars:
    """The ranks by what became of the lines on them: those of the first group are most, the others get a bar each; `left` got none."""

    groups: tuple[tuple[int, ...], ...] = ()
    left: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Each group in words: `rank 1`, `ranks 0, 2-7`."""
        return tuple(f"rank{'s' if len(group) > 1 else ''} {rank_numbers(group)}" for group in self.groups)


def rank_bars(states: Sequence[Mapping[int, Mapping[int, State]]], ranks: Mapping[int, int]) -> RankBars:
    """Groups of ranks on which the same became of every line, of `states` by function; nothing where it is the same on all.

    `ranks` gives for each rank the one that `states` has: itself, or the one that it is alike to.
    """
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    patterns = {
        rank: tuple((at, tuple(sorted(mapping[rank].items()))) for at, mapping in enumerate(states) if mapping.get(rank))
        for rank in set(ranks.values())
    }
    for rank, read in sorted(ranks.items()):
        groups[patterns[read]].append(rank)
    if len(groups) < 2:
        return RankBars()
    ordered = sorted(map(tuple, groups.values()), key=lambda pair: (-len(pair), pair))
    kept = ordered[: 1 + MOST_BARS]
    return RankBars((kept[0], *sorted(kept[1:])), sum(map(len, ordered[1 + MOST_BARS :])))


def may_break(code: str) -> list[str]:
    """The calls of a line at which Dynamo often breaks; nothing of a comment."""
    return [f"{item})" for item in dict.fromkeys(_MAY_BREAK.findall(code.partition("  #")[0]))] if not code.lstrip().startswith("#") else []


def _tree(text: str | None) -> ast.Module | None:
    try:
        return ast.parse(text) if text and "\0" not in text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _statement_lines(first: int | None, text: str | None) -> list[int]:
    """The lines of the function's body on which statements stand: of a compound one its head, no docstring, no comment."""
    if first is None or (tree := _tree(text)) is None or not tree.body:
        return []
    found: set[int] = set()
    waiting: list[ast.AST] = [*getattr(tree.body[0], "body", ())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ExceptHandler | ast.match_case):
            waiting += node.body
        if not isinstance(node, ast.stmt) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        parts = [part for name in ("body", "orelse", "finalbody", "handlers", "cases") for part in getattr(node, name, ())]
        inner = [part.lineno for part in parts if isinstance(part, ast.stmt)]
        last = min(inner) - 1 if inner else node.end_lineno or node.lineno
        found.update(range(node.lineno, max(node.lineno, last) + 1))
        waiting += [] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else parts
    return sorted(first - 1 + line for line in found)
