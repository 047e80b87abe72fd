"""Builds the source ladder of a report from its graphs, breaks, recompiles and mutations.

A line is in a graph if a node of the graph was traced at it. What was traced and left no node (`b, t = x.shape`) cannot be told from a
branch that was not taken, and is plain. A line ran in Python if the whole frame that it belongs to was skipped; where Dynamo stopped in
such a frame, the lines behind were not analysed.
"""

from __future__ import annotations

import ast
import re
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from dynadiag.errors import DynadiagError
from dynadiag.facts.lookups import kept_graphs, refused_frames
from dynadiag.facts.user_frames import is_generated, is_own_file, own_entry, resume_line, source_function
from dynadiag.facts.wording import short_place
from dynadiag.model import codes
from dynadiag.model.digest import rank_numbers
from dynadiag.model.graph import Graph
from dynadiag.model.location import Location
from dynadiag.model.report import GraphBreak, Report
from dynadiag.model.run import Frame, Run, SourceFunction
from dynadiag.render import wording
from dynadiag.render.ladder import Function, Ladder, Rung, State
from dynadiag.trace import NodeStacks, graph_details, read_payload

# A function of the source ladder while evidence is collected, and what became of its lines: on all ranks together, and on each.
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


DEEPEST = 3
_MOST_FUNCTIONS = 300
_MOST_RANKS = 256
_MOST_BYTES = 64 << 20
_PLACE_IN_TEXT = re.compile(r"^ *# *File: (.+?):(\d{1,9})(?: in (.+?))?(?:, code: (.*))?$", re.MULTILINE)

_last: list[tuple[weakref.ref[Run], tuple[GraphBreak, ...], Ladder]] = []


def ladder(report: Report) -> Ladder:
    """The ladder of a report. Reads the logs again for the lines of the graphs; what cannot be read is left out, and `notes` say so.

    The last one is kept, because each renderer asks for it.
    """
    if not _last or _last[0][0]() is not report.run or _last[0][1] is not report.graph_breaks:
        _last[:] = [(weakref.ref(report.run), report.graph_breaks, _Collector(report).collect())]
    return _last[0][2]


class _Collector:
    def __init__(self, report: Report) -> None:
        self.report = report
        self.run = report.run
        self.notes: list[str] = []
        self.drafts: dict[tuple[str, int | None, str], Draft] = {}
        self.by_file: dict[str, list[SourceFunction]] = defaultdict(list)
        for function in report.run.functions:
            self.by_file[function.file].append(function)
        self.frames = {frame.id: frame for frame in report.run.frames}
        self.graphs = {graph.id: graph for graph in report.run.graphs}

    def collect(self) -> Ladder:
        for frame in self.run.frames:
            self._frame(frame)
        self._graphs()
        for site in self.report.graph_breaks:
            self._site(site)
        self._versions()
        self._writes()
        for finding in self.report.findings:
            if finding.code == codes.COMPILATION_FAILED and finding.where is not None and (found := self._at(finding.where)) is not None:
                found.notes[finding.where.line or 0][f"{finding.code} compilation failed"] = None
        differences: dict[Location, list[str]] = defaultdict(list)
        for difference in self.report.ranks:
            if difference.location is not None:
                differences[difference.location].append(difference.id)
        for place, names in differences.items():
            if (found := self._at(place)) is not None:
                found.notes[place.line or 0][f"differs between ranks ({', '.join(names)})"] = None
        if self.drafts and not self.run.functions and not any(process.hooks for process in self.run.processes):
            self.notes.append("the source was not recorded: only lines that the log names are shown")
        ordered = list(_preorder(list(self.drafts.values())))
        if len(ordered) > _MOST_FUNCTIONS:
            self.notes.append(f"{_MOST_FUNCTIONS} of {len(ordered):,} functions are shown")
        shown = ordered[:_MOST_FUNCTIONS]
        bars, by_rank = self._ranks([draft for draft, _ in shown])
        functions = [
            self._finished(item, depth, [states.get(group[0], {}) for group in bars.groups])
            for (item, depth), states in zip(shown, by_rank, strict=True)
        ]
        return Ladder(tuple(functions), tuple(self.notes), bars.names)

    def _ranks(self, drafts: Sequence[Draft]) -> tuple[RankBars, list[dict[int, dict[int, State]]]]:
        """Which ranks differ, and for each function what became of its lines on each rank."""
        numbers = sorted({process.rank for process in self.run.processes if process.rank is not None})
        if len(numbers) < 2:
            return RankBars(), [{} for _ in drafts]
        read = sorted({item.rank for item in self.run.processes if item.rank is not None and item.alike is None})[:_MOST_RANKS]
        ranks = {element.index: element.rank for element in self.run.processes if element.rank in read and element.alike is None}
        process_of = {name: self.frames[graph.frame].key.process for name, graph in self.graphs.items() if graph.frame in self.frames}
        by_rank = [draft.by_rank(ranks, process_of) for draft in drafts]
        # Of equal ranks the lowest was read; the others are as it is.
        alike = {entry.rank: ranks[entry.alike] for entry in self.run.processes if entry.rank is not None and entry.alike in ranks}
        bars = rank_bars(by_rank, {**alike, **{rank: rank for rank in read}})
        if bars.left:
            self.notes.append(f"{wording.plural(bars.left, 'more rank')} {'differs' if bars.left == 1 else 'differ'}, without a bar")
        if (left := len(numbers) - len({*read, *alike})) > 0:
            self.notes.append(f"the bars compare {len(numbers) - left:,} of {len(numbers):,} ranks")
        return bars, by_rank

    # -- evidence

    def _at(self, place: Location | None, *, make: bool = False) -> Draft | None:
        """The function that a place of the user's own code is in; made where it is not known yet and `make` asks for it."""
        if place is None or place.line is None or place.line < 1 or not is_own_file(place.file, self.run) or is_generated(place):
            return None
        around = [item for item in self.by_file[place.file] if item.line <= place.line <= item.line + item.text.count("\n")]
        whole = max(around, key=lambda element: element.line, default=None)
        name = source_function(place.function) or "<module>"
        key = (place.file, None, name) if whole is None else (whole.file, whole.line, whole.name)
        if key not in self.drafts and make:
            self.drafts[key] = Draft(key[2], key[0], key[1], None if whole is None else whole.text)
        found = self.drafts.get(key)
        if found is not None and place.code and whole is None:
            found.codes.setdefault(place.line, place.code)
        return found

    def _frame(self, frame: Frame) -> None:
        """A frame of the user's own, below the innermost own caller that is in the ladder; of a library's the line that called it."""
        if frame.file is None or frame.line is None:
            return
        if not is_own_file(frame.file, self.run):
            entry = own_entry(frame, self.run)
            if entry is not None and (found := self._at(entry, make=True)) is not None:
                found.entered[entry.line or 0][frame.id] = None
            return
        found = self._at(Location(frame.file, self._begin(frame), frame.name), make=True)
        if found is None:
            return
        found.frames.append(frame)
        if found.parent is None and len(found.frames) == 1:
            for place in reversed(frame.callers or frame.stack[:-1]):
                above = self._at(place)
                if above is not None and above is not found:
                    self._adopt(found, above)
                    above.calls[place.line or 0][found.name] = None
                    break

    def _begin(self, frame: Frame) -> int:
        """A line inside the frame's function: a decorated function begins at its decorator."""
        line = resume_line(frame.name) or frame.line or 0
        behind = [source_function.line for source_function in self.by_file[frame.file or ""] if line <= source_function.line <= line + 50]
        known = any(item.line <= line <= item.line + item.text.count("\n") for item in self.by_file[frame.file or ""])
        return min(behind) if behind and (not known or line in behind) else line

    def _adopt(self, found: Draft, parent: Draft | None) -> None:
        above = parent
        while above is not None:
            if above is found:
                return
            above = above.parent
        found.parent = parent

    def _graphs(self) -> None:
        lines = {name: (draft, line) for draft in self.drafts.values() for line, names in draft.entered.items() for name in names}
        kept = {name for names in kept_graphs(self.run).values() for name in names}
        failed = {frame.id for frame in self.run.frames if frame.outcome in ("failed", "skipped")}  # such a graph never runs
        read, left = 0, 0
        for graph in self.run.graphs:
            if graph.kind != "dynamo" or graph.frame in failed or (kept and graph.id not in kept):
                continue
            if graph.frame in lines:
                draft, line = lines[graph.frame]
                draft.graphs[line][graph.id] = None
            ref = graph.details or graph.text
            read += ref.length if ref is not None else 0
            if read > _MOST_BYTES:
                left += 1
                continue
            for stack in _stacks(graph):
                self._traced(stack, graph)
        if left:
            self.notes.append(f"the lines of {wording.plural(left, 'graph')} were not read: the logs are too long")

    def _traced(self, stack: Sequence[Location], graph: Graph) -> None:
        above: Draft | None = None
        for place in stack:
            found = self._at(place, make=True)
            if found is None:
                continue
            found.graphs[place.line or 0][graph.id] = None
            if found.parent is None and above is not None and above is not found and not found.frames:
                self._adopt(found, above)
            above = found

    def _site(self, site: GraphBreak) -> None:
        """The line that broke, and the calls that led to it from the frame that Dynamo compiled."""
        entered = (self.frames[name] for name in site.frames if name in self.frames)
        compiled = {(frame.file, source_function(frame.name)) for frame in entered}
        begins = [at for at, location in enumerate(site.stack) if (location.file, source_function(location.function)) in compiled]
        stack = site.stack[begins[-1] :] if begins else ()
        own = site.own_frame
        for place in (*stack, *((own,) if own is not None else ())):
            found = self._at(place, make=place is own)
            if found is not None and place.line is not None:
                innermost = place.is_same_line(own)
                (found.breaks if innermost else found.inside)[place.line][site.id] = site

    def _versions(self) -> None:
        """Recompiles at the first line of the graph of the version that was compiled first."""
        limits = {fallback.frame for fallback in self.report.fallbacks if fallback.kind == "recompile_limit"}
        refused = refused_frames(self.run)
        again: dict[tuple[object, ...], list[Frame]] = defaultdict(list)
        for frame in self.run.frames:
            again[frame.key.process, frame.key.epoch, frame.key.frame, frame.file, frame.name].append(frame)
        recompiled = {recompile.frame for recompile in self.report.recompiles}
        first_graphs: dict[str, str] = {}
        begins: dict[Draft, dict[str, int]] = {}
        told: dict[tuple[Draft, int, str], int] = defaultdict(int)
        for graph in self.run.graphs:
            if graph.kind == "dynamo":
                first_graphs.setdefault(graph.frame, graph.id)
        for versions in again.values():
            count = sum(version.id in recompiled and version.id not in refused for version in versions)
            found = self._at(Location(versions[0].file or "", self._begin(versions[0]), versions[0].name))
            if found is None or not any(version.id in recompiled for version in versions):
                continue
            graph_id = first_graphs.get(versions[0].id)
            if found not in begins:
                begins[found] = {name: line for line in sorted(found.graphs, reverse=True) for name in found.graphs[line]}
            line = begins[found].get(graph_id or "") or resume_line(versions[0].name) or found.line or versions[0].line or 0
            hit = ""
            if any(item.id in limits for item in versions):
                hit = "limit hit: later calls run in Python"
            elif any(item.id in refused for item in versions):
                hit = "limit hit: the next version was refused"
            told[found, line, hit] += count
        for (found, line, hit), count in told.items():
            times = [f"recompiled {'once' if count == 1 else f'{count:,} times'}"] if count else []
            found.notes[line][", ".join([*times, *([hit] if hit else [])])] = None

    def _writes(self) -> None:
        for mutation in self.report.mutations:
            if not mutation.bytes_written_back:
                continue
            for site in mutation.sites[:4]:
                file, line = site.get("file"), site.get("line")
                if isinstance(file, str) and isinstance(line, int) and (found := self._at(Location(file, line))) is not None:
                    found.notes[line][f"{mutation.bytes_written_back:,} B copied back"] = None

    # -- rows

    def _finished(self, draft: Draft, depth: int, on_ranks: Sequence[Mapping[int, State]]) -> Function:
        states = draft.python_lines(draft.frames)
        texts = draft.text.split("\n") if draft.text is not None and draft.line is not None else []
        known = {draft.line + at: text for at, text in enumerate(texts)} if draft.line is not None and texts else dict(draft.codes)
        lines = sorted({*known, *draft.graphs, *draft.breaks, *draft.inside, *draft.entered})
        rungs, said_graphs = [], set[str]()
        own = {frame.id for frame in draft.frames} | {name for names in draft.entered.values() for name in names}
        for line in lines:
            rung = self._rung(draft, line, known.get(line, ""), states)
            if on_ranks:
                wide, *thin = [mapping.get(line, "plain") for mapping in on_ranks]
                rung = replace(rung, state=wide, bars=tuple(thin))
            new = [name for name in rung.graphs[:1] if name not in said_graphs] if rung.state == "graph" else []
            said_graphs.update(new)
            rungs.append(replace(rung, notes=(*self._sizes(new, own), *rung.notes)))
        return Function(
            name=draft.name,
            file=draft.file,
            line=draft.line,
            depth=min(depth, DEEPEST),
            rungs=tuple(rungs),
            said=self._function_words(draft, states),
            matters=bool(draft.frames or draft.breaks or (draft.entered and draft.graphs)),
        )

    def _rung(self, draft: Draft, line: int, code: str, states: Mapping[int, State]) -> Rung:
        sites = draft.breaks.get(line, {})
        inside = {name: site for name, site in draft.inside.get(line, {}).items() if name not in sites}
        graphs = tuple(draft.graphs.get(line, ()))
        marks = tuple(dict.fromkeys(site.gb_id or site.id for site in (*sites.values(), *inside.values())))
        notes = [f"{site.reason}{_library_place(site)}" for site in sites.values()] + [
            f"breaks in {_name_of(site.own_frame)}" for site in inside.values()
        ]
        measured = [wording.cost(site.cost) for site in sites.values() if site.cost and site.cost.is_time]
        calls = [f"calls {', '.join(names)}" for names in [draft.calls.get(line)] if names and not draft.frames]
        state: State = "break" if sites or inside else "graph" if graphs else states.get(line, "plain")
        return Rung(
            line=line,
            code=code,
            state=state,
            graphs=graphs,
            breaks=(*sites, *inside),
            marks=marks,
            notes=(*dict.fromkeys((*notes, *measured, *calls)), *draft.notes.get(line, ()), *self._suspects(draft, code, state)),
        )

    def _suspects(self, draft: Draft, code: str, state: State) -> Iterator[str]:
        """What often breaks a graph in a line that Dynamo did not reach, and in functions that it calls and Dynamo never entered.

        It is told as what it is: read in the source, not seen.
        """
        if state != "unseen":
            return
        if names := may_break(code):
            yield f"may break too: {', '.join(names)}"
        for name in dict.fromkeys(CALLED.findall(code)):
            inner = [source_function for source_function in self.by_file[draft.file] if source_function.name.rpartition(".")[2] == name]
            if len(inner) == 1 and (inner[0].file, inner[0].line, inner[0].name) not in self.drafts:
                rows = ((inner[0].line + at, may_break(row)) for at, row in enumerate(inner[0].text.split("\n")))
                if told := [f"{', '.join(found)} at {line}" for line, found in rows if found]:
                    yield f"{name}() may break: {', '.join(told[:3])}"

    def _sizes(self, names: Sequence[str], own: Set[str]) -> Iterator[str]:
        """What a graph holds, where the function that Dynamo entered (`own` are its frames) shows its first line."""
        for graph in (self.graphs[name] for name in names):
            count = graph.size
            yield f"{graph.id}, {wording.plural(count, 'operator')}" if graph.frame in own and count is not None else graph.id

    def _function_words(self, draft: Draft, states: Mapping[int, State]) -> str:
        graphs = {name for names in draft.graphs.values() for name in names}
        own = {frame.id for frame in draft.frames}
        entered = {name for names in draft.entered.values() for name in names}
        compiled = sum(self.graphs[name].frame in own for name in graphs)
        called = sum(self.graphs[name].frame in entered for name in graphs)
        breaks = {name for names in draft.breaks.values() for name in names}
        parts = [wording.plural(compiled, "graph")] if compiled else []
        parts += [f"calls {wording.plural(called, 'graph')} of libraries"] if called else []
        parts = parts or ([f"inlined into {', '.join(sorted(graphs)[:3])}"] if graphs else [])
        parts += [wording.plural(len(breaks), "graph break")] if breaks else []
        if draft.frames and all(frame.outcome == "skipped" for frame in draft.frames):
            parts = [*parts, "runs in Python"]
        return " · ".join(parts)


def _stacks(graph: Graph) -> Iterator[tuple[Location, ...]]:
    """The different stacks at which the nodes of a graph were traced, outermost first; of a foreign log the places in the graph's text."""
    try:
        if graph.details is not None:
            yield from NodeStacks(graph_details(graph.details)).all()
        elif graph.text is not None:
            for file, line, function, code in dict.fromkeys(_PLACE_IN_TEXT.findall(read_payload(graph.text))):
                yield (Location(file, int(line), function or None, code or None),)
    except DynadiagError:
        return


def _preorder(drafts: Sequence[Draft]) -> Iterator[tuple[Draft, int]]:
    """Callers before what they call, else in order of appearance, with the depth."""
    below: dict[int, list[Draft]] = defaultdict(list)
    for draft in drafts:
        below[id(draft.parent)].append(draft)
    waiting = [(item, 0) for item in reversed(below[id(None)])]
    while waiting:
        draft, depth = waiting.pop()
        yield draft, depth
        waiting += [(inner, depth + 1) for inner in reversed(below.get(id(draft), []))]


def _name_of(place: Location | None) -> str:
    return "a call" if place is None else wording.place(place, None) if not place.function else f"{source_function(place.function)}()"


def _library_place(site: GraphBreak) -> str:
    """Where Dynamo stopped, if that is not the own line itself."""
    own, inner = site.own_frame, site.torch_frame
    return f" in {short_place(inner)}" if inner is not None and own is not None and not own.is_same_line(inner) else ""
