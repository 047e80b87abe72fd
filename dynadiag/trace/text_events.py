"""What single messages of a text log say: breaks, recompiles, guards, graphs, limits, errors, CUDA graphs, and the warnings of 2022.

Texts read in torch 2.11.0 and 2.15.0 (`symbolic_convert.py`, `guards.py`, `convert_frame.py`, `output_graph.py` under `torch/_dynamo`); the
older ones are those of torch 2.0 to 2.6, and of torchdynamo and torch 1.13 (`torch/_dynamo/optimizations/training.py`) for `Run.legacy`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from dynadiag.model.graph import Graph
from dynadiag.model.location import Location, PayloadRef
from dynadiag.model.run import LIMIT_ERRORS, BreakEvent, CompileKey, Problem, RecompileEvent
from dynadiag.model.sentences import excerpt
from dynadiag.trace.break_text import BreakText, last_exception, parse_break, parse_reason
from dynadiag.trace.builders import FrameBuilder, ProcessBuilder, RunBuilder
from dynadiag.trace.graph_text import count_graph
from dynadiag.trace.guards import read_guards
from dynadiag.trace.pasted_text import Prefix
from dynadiag.trace.room import MOST_PROCESSES, LeftOutError
from dynadiag.trace.stacks import printed_stack
from dynadiag.trace.text_blocks import OF_COMPILER, Raised, read_counters, read_explanation, read_traceback
from dynadiag.trace.torch_records import LONGEST_ERROR

_ID = re.compile(r"^(?:!(\d{1,9})(?:/|$))?(?:(\d{1,9}|-)/(\d{1,9}|-))?(?:_(\d{1,4}))?$")
_DUPLICATE = re.compile(r"^Graph break \(user stack suppressed due to duplicate graph break\) in user code at (.*):(\d{1,9})$")
_OLD_BREAK = re.compile(r"^Graph break: (?!from user code)(?!torch\.compile cannot)(.*?)(?: from user code at\s*(.*))?$")
_RECOMPILE = re.compile(r"^Recompiling function (\S+) in (.*?)(?::(\d{1,9}))?$")
_LIMIT = re.compile(r"^torch\._?dynamo hit (?:config\.|recompilation )?(\w*(?:limit|cache limit))")
_LIMIT_CODE = re.compile(r"^\s*function: '([^']+)' \((.*):(\d{1,9})\)")
_LIMIT_WHY = re.compile(r"^\s*(?:last reason|reasons?): (.*)$")
_WONT = re.compile(r"^(?:WON'T CONVERT|won't convert) (\S+) (.*) line (\d{1,9})\s*$", re.IGNORECASE)
_START = re.compile(r"^torchdynamo start compiling (\S+) (.*):(\d{1,9})(?:, stack \(elided \d+ frames\):)?$")
_RAISED = re.compile(rf"^(?:{OF_COMPILER.pattern.replace('$', '')})(?:: |:?$)")
_OVERWRITTEN = re.compile(r"^RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten")
_SKIPPED_CUDA_GRAPH = re.compile(r"^skipping cudagraphs? due to ")
_ITEM = re.compile(r"^Graph break from `(Tensor\.\w+\(\))`, consider setting")
_CONTINUED = re.compile(r"^Graph break: from user code at")
_OLD_REASONS = re.compile(r"^\['(.*)'\]$|^\[\"(.*)\"\]$")  # torch 2.0 printed a list
_SIZES = re.compile(r"^CUDAGraph supports dynamic shapes by recording a new graph .*? observed (\d{1,9}) distinct sizes")
_WARNED = re.compile(r"^\S.{0,400}[/\\]torch[/\\]_(?:dynamo|inductor|functorch)[/\\]\S{1,200}:\d{1,7}: \w*Warning: (.+)$")
_LONGEST_WARNING = 300
_EXPLAINED = re.compile(r"^Graph Count: (\d{1,9})\s*$")
_COUNTED = re.compile(r"^(?:Counter\(\{|defaultdict\(<class 'collections\.Counter'>, \{|stats \[\()(?=.{0,20000}'unique_graphs)")
_GRAPH = re.compile(r"^(?:TRACED GRAPH|__compiled_fn_\S+ <eval_with_key>)")
_GUARDS = re.compile(r"^(?:TREE_GUARD_MANAGER:|\s*TREE_GUARD_MANAGER:)")
_LEGACY = re.compile(
    r"Unable to use AOT ?Autograd because (?:of presence of \w+|graph has mutation)|AOT ?Autograd is not safe to run", re.IGNORECASE
)
OLD_WARNING = re.compile(_LEGACY.pattern.encode(), re.IGNORECASE)
_ENTRY = re.compile(r"^(\d{1,9})/(\d{1,9}): ")
_NUMBERED = re.compile(r"^!?\d+(?:/\d+)*: ")
if TYPE_CHECKING:
    Place = tuple[int, int] | None
    _Handler = Callable[["TextEvents", Prefix, list[str], re.Match[str], Place], None]
# So that a log of a million tiny lines costs no more than one of as many bytes: honest lines have 60 bytes and more.
_BYTES_A_LINE = 16
_FEWEST_LINES = 40
_MOST_LOOKED_AT = 50
_MOST_LEFT = 100_000


def starts_message(text: str, *, bare: bool) -> bool:
    """Whether this line begins something that we know, so that the message before it is over; `bare`: no logger's prefix before it."""
    for find in (_BARE_STARTS if bare else _STARTS).get(text[:1], _ANYWHERE):  # noqa: SIM110 - half the time of any()
        if find(text):
            return True
    return False


class TextEvents:
    """Turns messages into facts; frames without a compile id are told apart by their code."""

    def __init__(self, run: RunBuilder, log: str) -> None:
        self.run = run
        self.log = log
        self.processes: dict[tuple[int | None, int | None], ProcessBuilder] = {}
        self.by_code: dict[tuple[int, str, str], FrameBuilder] = {}
        self.first_seen: dict[tuple[str, int | None], BreakEvent] = {}
        self.by_rank: dict[int | None, list[ProcessBuilder]] = {}
        self.announced: dict[tuple[str, int | None], tuple[FrameBuilder, int]] = {}
        self.item: str | None = None
        self.allowance = 0
        self.left: set[tuple[int | None, int | None]] = set()

    def allow(self, size: int) -> None:
        """So many more bytes of text came: messages may have a line for each 16 of them."""
        self.allowance += size // _BYTES_A_LINE

    def take(self, prefix: Prefix, lines: list[str], place: Place) -> None:
        """One whole message; what is not known is passed over."""
        for find, handler, kind in _BY_FIRST.get(lines[0][:1], _LEGACY_HANDLERS):
            match = find(lines[0])
            if match:
                self.allowance -= len(lines)
                if self.allowance < 0 and handler not in _LONG:
                    lines = lines[:_FEWEST_LINES]
                if kind is not None and not self.run.room.take(kind):
                    return
                try:
                    handler(self, prefix, lines, match, place)
                except LeftOutError:
                    if kind is not None:
                        self.run.room.kept[kind] -= 1
                        self.run.room.left[kind] += 1
                return

    def only_counts(self, prefix: Prefix, text: str) -> bool:
        """Whether this begins a message of a process for which there is no room: it is counted and no more."""
        if len(self.run.processes) < MOST_PROCESSES or (prefix.rank, prefix.pid) in self.processes:
            return False
        for find, _, kind in _BY_FIRST.get(text[:1], _LEGACY_HANDLERS):
            if find(text):
                if kind is None:
                    return False
                self._leave_out(prefix)
                self.run.room.left[kind] += 1
                return True
        return False

    def process(self, prefix: Prefix) -> ProcessBuilder:
        """The process that wrote a message."""
        writer = (prefix.rank, prefix.pid)
        if writer not in self.processes:
            builder = self._same_process(prefix)
            if builder is None:
                if len(self.run.processes) >= MOST_PROCESSES:
                    self._leave_out(prefix)
                    raise LeftOutError
                self.run.room.take("processes")
                builder = ProcessBuilder(len(self.run.processes), self.log, prefix.pid or 0, facts={"from_text": True})
                self.run.processes.append(builder)
                self.by_rank.setdefault(prefix.rank, []).append(builder)
            builder.facts.update({name: value for name, value in (("pid", prefix.pid), ("rank", prefix.rank)) if value is not None})
            self.processes[writer] = builder
        return self.processes[writer]

    def _same_process(self, prefix: Prefix) -> ProcessBuilder | None:
        """The process of a line with a pid where the others of its rank have none, or the other way round: a traceback has no pid."""
        known = self.by_rank.get(prefix.rank, ())
        if len(known) != 1:
            return None
        return known[0] if prefix.pid is None or "pid" not in known[0].facts else None

    def _leave_out(self, prefix: Prefix) -> None:
        writer = (prefix.rank, prefix.pid)
        if len(self.left) < _MOST_LEFT and writer not in self.left:
            self.left.add(writer)
            self.run.room.left["processes"] += 1

    def record(self, prefix: Prefix) -> ProcessBuilder:
        """The process, with one more message counted."""
        process = self.process(prefix)
        process.records += 1
        return process

    def frame(self, prefix: Prefix, code: Location | None, *, is_code: bool) -> FrameBuilder:
        """The frame of a message: by its compile id, else by its code (`is_code`) or by the function that broke."""
        process = self.process(prefix)
        key, attempt = _key(process, prefix.compile_id)
        if key is None:
            return self._nameless(process, code, is_code=is_code)
        frame = process.frames.get(key)
        if frame is not None and is_code and code is not None and _is_other(frame, code):
            process.epoch += 1
            return self.frame(prefix, code, is_code=is_code)
        frame = frame or self.run.new_frame(process, key)
        frame.attempts = max(frame.attempts, attempt + 1)
        if is_code and code is not None:
            frame.name, frame.file, frame.line = code.function, code.file, code.line
            self.by_code[process.index, code.file, code.function or ""] = frame
        return frame

    def _nameless(self, process: ProcessBuilder, code: Location | None, *, is_code: bool) -> FrameBuilder:
        place = (process.index, code.file if code else "", (code.function if code else None) or "")
        frame = self.by_code.get(place)
        if frame is None or (is_code and code is not None and _is_other(frame, code)):
            if not self.run.room.take("frames"):
                raise LeftOutError
            frame = FrameBuilder(f"f{len(self.run.frames)}", CompileKey(process.index, process.epoch, None, None))
            self.run.frames.append(frame)
            self.by_code[place] = frame
            frame.name, frame.file = (code.function, code.file) if code else (None, None)
            frame.line = code.line if code and is_code else None
        return frame

    def start(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """`torchdynamo start compiling`: a frame with its stack (TORCH_LOGS=+dynamo)."""
        process = self.record(prefix)
        code = Location(match.group(2), int(match.group(3)), match.group(1))
        key, _ = _key(process, prefix.compile_id)
        seen = process.frames.get(key) if key is not None else None
        if seen is not None and seen.stack:
            process.epoch += 1
        self.frame(prefix, code, is_code=True).stack = self.run.share(printed_stack(lines[1:]))

    def graph_break(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """A graph break as TORCH_LOGS=graph_breaks prints it."""
        text = parse_break("\n".join(lines))
        self._add_break(prefix, text, text.stack)

    def duplicate(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """A break whose stack torch left out because the same line broke before: the stack is that of the first time."""
        text = parse_break("\n".join([f"Graph break in user code at {match.group(1)}:{match.group(2)}", *lines[1:]]))
        first = self.first_seen.get((match.group(1), int(match.group(2))))
        self._add_break(prefix, text, first.stack if first else ())

    def old_break(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """A break of torch 2.0: "Graph break: REASON from user code at", then the stack."""
        raised = last_exception("\n".join(lines))
        end = next((number for number, line in enumerate(lines) if line.startswith("Traceback (")), len(lines))
        stack = printed_stack([f"  {match.group(2) or ''}", *lines[1:end]])
        said = match.group(1)
        reason, _ = parse_reason(said if raised is None or said.strip(": ") not in ("", "skip") else raised[1])
        skips = said.strip() == "skip:"  # `ConvertFrame.__call__` of torch 2.1 to 2.5: "the whole frame is falling back to eager"
        text = BreakText(reason, None, None, skips, stack, stack[-1] if stack else None, None, warning=False)
        frame = self._add_break(prefix, text, stack)
        if skips and stack and frame.name is None:  # its stack begins at the frame
            frame.name, frame.file = stack[0].function, stack[0].file

    def announced_break(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """The warning that a scalar is read out of a tensor; its stack follows as a message of its own."""
        self.item = f"Unsupported {match.group(1)} call with capture_scalar_outputs=False"

    def continued(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """The stack behind such a warning ("Graph break: from user code at:"), or one with the exception that says why."""
        item, self.item = self.item, None
        raised = last_exception("\n".join(lines))
        reason = item or (None if raised is None else raised[1])
        end = next((number for number, line in enumerate(lines) if line.startswith("Traceback (")), len(lines))
        stack = printed_stack(lines[1:end])
        if reason is None or not stack or (stack[-1].file, stack[-1].line) in self.first_seen:
            return
        found, _ = parse_reason(reason)
        frame = self._add_break(prefix, BreakText(found, None, None, False, stack, stack[-1], None, warning=False), stack)
        self.announced[stack[-1].file, stack[-1].line] = frame, frame.breaks[-1]

    def traceback(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """A traceback, or its last lines: the exception of torch.compile's that ended it, if there is one."""
        chain = read_traceback(lines)
        raised = next((item for item in reversed(chain) if item.by_compiler), None)
        if raised is None:
            last = chain[-1] if chain else None
            if last is not None and (last.in_compiled_code or last.overwritten):
                self.record(prefix)
                self._ended(prefix, last)
            elif last is not None and last.through_compiler:
                self.record(prefix)
        elif raised.short in LIMIT_ERRORS:
            self.record(prefix)
            self._refused(prefix, raised)
        elif raised.short == "RecompileError" and (found := _RECOMPILE.match(raised.message.partition("\n")[0])):
            frame = self._add_recompile(prefix, raised.message.split("\n"), found)
            frame.error_type, frame.error = raised.short, f"{raised.short}: {raised.message}"[:LONGEST_ERROR]
            frame.callers = self.run.share(raised.callers)
        elif raised.short == "Unsupported":
            self._raised_break(prefix, raised)
        else:
            self._failed(prefix, raised)

    def _raised_break(self, prefix: Prefix, raised: Raised) -> None:
        """A traceback that ends in `Unsupported`: a break under `fullgraph=True`."""
        reason, second = parse_reason(raised.message)
        stack = raised.user_stack
        if (stack and self._is_told(stack[-1])) or not self.run.room.take(_BREAKS):
            return
        at = stack[-1] if stack else None
        text = BreakText(reason, None, second.gb_type if second else None, False, stack or raised.callers, at, None, warning=False)
        frame = self._add_break(prefix, text, stack, raised=True)
        frame.callers = self.run.share(raised.callers)
        frame.error_type, frame.error = "Unsupported", f"Unsupported: {raised.message}"[:LONGEST_ERROR]

    def _is_told(self, place: Location) -> bool:
        """Whether torch told of a break at this line in full; a warning that announces one says less than what comes behind it."""
        return (place.file, place.line) in self.first_seen and (place.file, place.line) not in self.announced

    def _failed(self, prefix: Prefix, raised: Raised) -> None:
        """A compilation that raised something else than a break."""
        self.record(prefix)
        code = raised.user_stack[0] if raised.user_stack else None
        frame = self._failed_frame(prefix, code)
        frame.callers = self.run.share(raised.callers)
        frame.user_stack = self.run.share(raised.user_stack)
        frame.error_type, frame.error = raised.short, f"{raised.short}: {raised.message}"[:LONGEST_ERROR]

    def _failed_frame(self, prefix: Prefix, code: Location | None) -> FrameBuilder:
        """The frame of a compilation that failed: by its compile id, else one of its own."""
        if not self.run.room.take("frames"):
            raise LeftOutError
        process = self.process(prefix)
        key, _ = _key(process, prefix.compile_id)
        if key is not None and key in process.frames:
            return process.frames[key]
        frame = FrameBuilder(f"f{len(self.run.frames)}", key or CompileKey(process.index, process.epoch, None, None))
        self.run.frames.append(frame)
        frame.name, frame.file = (code.function, code.file) if code is not None else (None, None)
        return frame

    def _refused(self, prefix: Prefix, raised: Raised) -> None:
        """The recompile limit under `fullgraph=True`: the frame is that of the warning before it, where it was pasted too."""
        process = self.process(prefix)
        limited = [problem.frame for problem in self.run.problems if problem.kind == "recompile_limit" and problem.process == process.index]
        frame = next((frame_builder for frame_builder in reversed(self.run.frames) if frame_builder.id in limited), None)
        if frame is None:
            frame = self._failed_frame(prefix, None)
            frame.callers = self.run.share(raised.callers)
        frame.error_type, frame.error = "FailOnRecompileLimitHit", f"{raised.short}: {raised.message}"[:LONGEST_ERROR]

    def _ended(self, prefix: Prefix, raised: Raised) -> None:
        """An exception of code that runs only under torch.compile, after everything was compiled."""
        text = f"{raised.name}: {raised.message}"[:LONGEST_ERROR]
        stack = self.run.share(raised.stack)
        if self.run.room.take("problems"):
            self.run.problems.append(Problem(kind="uncaught", process=self.process(prefix).index, text=text, stack=stack))

    def skipped_cuda_graph(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """Torch's reason for a graph without a CUDA graph, with the line if torch has one."""
        self.record(prefix)
        end = next((number for number, line in enumerate(lines) if number and not line.strip()), len(lines))
        text = "\n".join(lines[:end])
        while (rest := match.re.sub("", text, count=1)) != text and match.re.match(rest):
            text = rest  # torch 2.11 says it twice
        self.run.problems.append(Problem(kind="cudagraph_skip", process=self.process(prefix).index, text=text[:LONGEST_ERROR]))

    def cuda_graph_sizes(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """Torch's warning that each size of an input is recorded on its own."""
        self.record(prefix)
        text = f"torch warned of {match.group(1)} sizes"
        self.run.problems.append(Problem(kind="cudagraph_warned", process=self.process(prefix).index, text=text))

    def warned(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """A warning of torch.compile's without a rule of its own: it is repeated, so that nobody takes the text for an empty one."""
        self.record(prefix)
        self.run.note(f"torch warns: {excerpt(match.group(1), _LONGEST_WARNING)}")

    def explained(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """What `torch._dynamo.explain()` returns, printed: graphs with their operators, and the breaks between them."""
        found = read_explanation(lines)
        self.record(prefix)
        frames = []
        for reason, at in found.breaks:
            text = BreakText(parse_reason(reason)[0], None, None, False, () if at is None else (at,), at, None, warning=False)
            if (at is not None and self._is_told(at)) or not self.run.room.take(_BREAKS):
                continue
            frames.append(self._add_break(prefix, text, text.stack))
            frames[-1].name = frames[-1].name or (None if at is None else at.function)
        in_order = len(frames) == len(found.breaks) == len(found.graphs) - 1  # each graph but the last ends at its break
        for number, ops in enumerate(found.graphs):
            if not self.run.room.take("graphs"):
                break
            frame = frames[number] if in_order and number < len(frames) else self.frame(prefix, None, is_code=False)
            counts = self.run.shared_counts(dict(Counter(ops)))
            why = "`torch._dynamo.explain` prints the operators of a graph, not the graph"
            name = f"g{len(self.run.graphs)}"
            frame.graphs.append(len(self.run.graphs))
            self.run.graphs.append(Graph(id=name, frame=frame.id, kind="dynamo", attempt=0, nodes=None, ops=counts, text=None, why_not=why))

    def counted(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """Dynamo's counters, printed (`print(torch._dynamo.utils.counters)`): the last ones of a process count what came before too."""
        counters = read_counters(lines[0])
        if "unique_graphs" not in counters.get("stats", {}):
            return  # somebody else's
        self.record(prefix).counters = counters
        if not any(self.run.breaks):
            for reason, number in counters.get("graph_break", {}).items():
                times = "once" if number == 1 else f"{number:,} times"
                self.run.note(f"torch counted a graph break {times}, without its line: {excerpt(reason, _LONGEST_WARNING)}")

    def _add_break(self, prefix: Prefix, text: BreakText, stack: tuple[Location, ...], *, raised: bool = False) -> FrameBuilder:
        self.record(prefix)
        place = stack[-1] if stack and (raised or text.torch_frame is None) else text.torch_frame
        if place is not None and place.code is None and stack and (stack[-1].file, stack[-1].line) == (place.file, place.line):
            place = stack[-1]
        if place is not None and (earlier := self.announced.pop((place.file, place.line), None)) is not None:
            earlier[0].breaks.remove(earlier[1])  # the warning was about this break
            self.run.breaks[earlier[1]] = None
            self.run.room.kept["graph break events"] -= 1
        self._notice_reset(prefix, place)
        frame = self.frame(prefix, place, is_code=False)
        _, attempt = _key(self.process(prefix), prefix.compile_id)
        found = replace(text, stack=stack, torch_frame=place)
        event = self.run.break_event(found, frame.id, attempt, source="exception" if raised else "text")
        frame.breaks.append(len(self.run.breaks))
        self.run.breaks.append(event)
        if place is not None:
            self.first_seen.setdefault((place.file, place.line), event)
        return frame

    def _notice_reset(self, prefix: Prefix, place: Location | None) -> None:
        """An attempt breaks at one line only: when its id comes with another one, compile ids have begun again (`torch._dynamo.reset`)."""
        process = self.process(prefix)
        key, attempt = _key(process, prefix.compile_id)
        seen = process.frames.get(key) if key is not None else None
        known = (
            []
            if seen is None
            else [event for position in seen.breaks[-_MOST_LOOKED_AT:] if (event := self.run.breaks[position]) is not None]
        )
        lines = {
            (break_event.torch_frame.file, break_event.torch_frame.line)
            for break_event in known
            if break_event.attempt == attempt and break_event.torch_frame is not None
        }
        if place is not None and lines and (place.file, place.line) not in lines:
            process.epoch += 1

    def recompile(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """TORCH_LOGS=recompiles: the guards that failed."""
        self._add_recompile(prefix, lines, match)

    def _add_recompile(self, prefix: Prefix, lines: list[str], match: re.Match[str]) -> FrameBuilder:
        self.record(prefix)
        name, file, line = match.groups()
        reasons = tuple(map(self.run.share, _reasons(lines[1:])))
        if prefix.compile_id is None:
            prefix = prefix._replace(compile_id=_next_compile_id(reasons))
        frame = self.frame(prefix, Location(file, int(line) if line else None, name), is_code=True)
        self.run.recompiles.append(RecompileEvent(frame=frame.id, reasons=reasons))
        return frame

    def limit(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """`torch._dynamo hit config.recompile_limit`: the frame runs eager from now on."""
        self.record(prefix)
        code = next(filter(None, map(_LIMIT_CODE.match, lines)), None)
        where = Location(code.group(2), int(code.group(3)), code.group(1)) if code else None
        frame = self.frame(prefix, where, is_code=True)
        if prefix.compile_id is not None:
            frame.error_type = "RecompileLimitExceeded"
        self._add_last_reason(frame, lines)
        text = "\n".join(line.strip() for line in lines if line.strip())[:LONGEST_ERROR]
        self._problem(prefix, "recompile_limit", text, frame, where)

    def _add_last_reason(self, frame: FrameBuilder, lines: list[str]) -> None:
        """The guard that failed last, which torch prints with the limit: a recompile, where TORCH_LOGS=recompiles has not shown it."""
        at = next((number for number, line in enumerate(lines) if _LIMIT_WHY.match(line)), None)
        if at is None or any(event.frame == frame.id for event in self.run.recompiles[-_MOST_LOOKED_AT:]):
            return
        end = next((number for number in range(at + 1, len(lines)) if lines[number].startswith("To ")), len(lines))
        first = _LIMIT_WHY.match(lines[at])
        said = _OLD_REASONS.sub(r"\1", first[1]) if first is not None else ""
        reason = "\n".join((said, *lines[at + 1 : end])).rstrip()
        if reason and self.run.room.take("recompiles"):
            self.run.recompiles.append(RecompileEvent(frame=frame.id, reasons=(self.run.share(reason[:LONGEST_ERROR]),)))

    def wont_convert(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """`WON'T CONVERT`: as a warning, an error was suppressed and the frame ran eager; below that torch tells of an ordinary break."""
        if prefix.level in ("I", "V", "D", "INFO", "DEBUG"):
            return
        self.record(prefix)
        code = Location(match.group(2), int(match.group(3)), match.group(1))
        frame = self.frame(prefix, code, is_code=True)
        if not self.run.room.take("problems"):
            return
        raised = last_exception("\n".join(lines))
        frame.error = ": ".join(raised)[:LONGEST_ERROR] if raised else "\n".join(lines[1:]).strip()[:LONGEST_ERROR]
        frame.error_type, frame.suppressed = "suppressed", True
        self._problem(prefix, "suppressed_error", frame.error, frame, code)

    def graph(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """TORCH_LOGS=graph_code: the text of a Dynamo graph."""
        if any("pre insert_deferred_runtime_asserts" in line for line in lines[:2]):  # torch 2.6 prints each graph before that and after it
            return
        self.record(prefix)
        frame = self.frame(prefix, None, is_code=False)
        _, attempt = _key(self.process(prefix), prefix.compile_id)
        count = count_graph("\n".join(["", *lines]).encode("utf-8", "replace"))
        if count is None:
            return
        text = PayloadRef(self.log, *place) if place else None
        why = None if place else "other lines are mixed into those of the graph"
        graph = Graph(
            id=f"g{len(self.run.graphs)}",
            frame=frame.id,
            kind="dynamo",
            attempt=attempt,
            nodes=count.nodes,
            ops=self.run.shared_counts(count.ops),
            text=text,
            why_not=why,
        )
        frame.graphs.append(len(self.run.graphs))
        self.run.graphs.append(graph)

    def guards(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """TORCH_LOGS=guards: the guards of a frame."""
        found, _ = read_guards("\n".join(lines))
        if found is not None:
            self.record(prefix)
            self.frame(prefix, None, is_code=False).guards = self.run.shared_guards(found)

    def legacy(self, prefix: Prefix, lines: list[str], match: re.Match[str], place: Place) -> None:
        """A warning of 2022 by which a captured graph ran eager."""
        process = self.record(prefix)
        text = lines[0][match.start() :].strip()[:LONGEST_ERROR]
        self.run.legacy.append(Problem(kind="aot_rejected", process=process.index, text=text))

    def _problem(self, prefix: Prefix, kind: str, text: str, frame: FrameBuilder, where: Location | None) -> None:
        problem = Problem(kind=kind, process=self.process(prefix).index, text=text, frame=frame.id, location=where)
        self.run.problems.append(problem)


def _is_other(frame: FrameBuilder, code: Location) -> bool:
    """True if a frame is known to be another function: by its name, or by the line at which its code begins."""
    return frame.name is not None and (frame.name != code.function or (frame.line is not None and frame.line != code.line))


def _key(process: ProcessBuilder, compile_id: str | None) -> tuple[CompileKey | None, int]:
    """The frame and the attempt that a printed compile id ("0/1_2", "!0/3/0") names."""
    found = _numbers(compile_id) if compile_id else None
    if found is None:
        return None, 0
    autograd, frame, again, attempt = found
    return CompileKey(process.index, process.epoch, frame, again, autograd), attempt or 0


@lru_cache(maxsize=64)  # several look-ups for one message
def _numbers(compile_id: str) -> tuple[int | None, ...] | None:
    match = _ID.match(compile_id)
    if match is None or match.group(2) in (None, "-"):
        return None
    return tuple(int(part) if part and part != "-" else None for part in match.groups())


def _behind(lines: list[str], start: str) -> list[str]:
    """The indented lines behind the line that begins so."""
    position = next((p for p, line in enumerate(lines) if line.startswith(start)), None)
    if position is None:
        return []
    found = []
    for line in lines[position + 1 :]:
        if line and not line.startswith(" "):
            break
        found.append(line)
    return found


def _next_compile_id(reasons: Sequence[str]) -> str | None:
    """The compile id behind those of the entries that failed; None where older torch named none."""
    named = [(int(match[1]), int(match[2])) for reason in reasons if (match := _ENTRY.match(reason)) is not None]
    return f"{named[0][0]}/{max(named)[1] + 1}" if named and len({frame for frame, _ in named}) == 1 else None


def _reasons(lines: list[str]) -> tuple[str, ...]:
    """The reasons under "triggered by the following guard failure(s)": each begins with a cache entry's id; older torch wrote none."""
    found: list[str] = []
    bare = []
    for line in lines:
        if line.strip() and not line.startswith(" "):
            break
        text = line.strip()
        if text and not text.startswith(("triggered by", "guard ")):
            bare.append(text.removeprefix("- ").removeprefix("- "))
    numbered = any(map(_NUMBERED.match, bare))
    for text in bare:
        if found and numbered and not _NUMBERED.match(text):
            found[-1] += f"\n{text}"
        else:
            found.append(text)
    return tuple(found)


_BREAKS = "graph break events"
_TRACEBACK = re.compile(r"^Traceback \(most recent")
_EXCEPTIONS = "tUBILCRFGPT"  # what the names of `OF_COMPILER` begin with
_Known = tuple[Callable[[str], "re.Match[str] | None"], "_Handler", "str | None"]
# With the characters that such a message begins with; a warning of 2022 may stand anywhere in a line.
_HANDLERS: tuple[tuple[str, _Known], ...] = (
    ("G", (_DUPLICATE.match, TextEvents.duplicate, _BREAKS)),
    ("G", (re.compile(r"^Graph break in user code at ").match, TextEvents.graph_break, _BREAKS)),
    ("G", (re.compile(r"^Graph break: torch\.compile cannot properly resume").match, TextEvents.graph_break, _BREAKS)),
    ("G", (_ITEM.match, TextEvents.announced_break, None)),
    ("G", (_CONTINUED.match, TextEvents.continued, _BREAKS)),
    ("G", (_EXPLAINED.match, TextEvents.explained, None)),
    ("Cds", (_COUNTED.match, TextEvents.counted, None)),
    ("G", (_OLD_BREAK.match, TextEvents.old_break, _BREAKS)),
    ("R", (_RECOMPILE.match, TextEvents.recompile, "recompiles")),
    ("t", (_LIMIT.match, TextEvents.limit, "problems")),
    ("wW", (_WONT.match, TextEvents.wont_convert, None)),
    ("t", (_START.match, TextEvents.start, None)),
    (_EXCEPTIONS, (_RAISED.match, TextEvents.traceback, None)),
    ("T", (_TRACEBACK.match, TextEvents.traceback, None)),
    ("R", (_OVERWRITTEN.match, TextEvents.traceback, None)),
    ("s", (_SKIPPED_CUDA_GRAPH.match, TextEvents.skipped_cuda_graph, "problems")),
    ("C", (_SIZES.match, TextEvents.cuda_graph_sizes, "problems")),
    ("/CDE", (_WARNED.match, TextEvents.warned, None)),
    ("T_", (_GRAPH.match, TextEvents.graph, "graphs")),
    ("T \t\r\f\v", (_GUARDS.match, TextEvents.guards, None)),
)
_LEGACY_HANDLERS: tuple[_Known, ...] = (  # each line is looked through for those; few hold the word
    (lambda text: _LEGACY.search(text) if "autograd" in text.lower() else None, TextEvents.legacy, "warnings of 2022"),
)
_BY_FIRST: dict[str, tuple[_Known, ...]] = {
    first: (*(known for firsts, known in _HANDLERS if first in firsts), *_LEGACY_HANDLERS)
    for first in {first for firsts, _ in _HANDLERS for first in firsts}
}
_LONG = frozenset((TextEvents.graph, TextEvents.guards))  # what torch prints in many lines, and what is read by patterns in one go
_ANYWHERE = (_LEGACY_HANDLERS[0][0],)
_STARTS = {
    first: tuple(find for find, handler, _ in known if handler is not TextEvents.traceback)
    for first, known in _BY_FIRST.items()
    if not first.isspace()
}
MAY_START = frozenset(_STARTS)
"""What a line with a logger's prefix begins with that begins a message, if it is no warning of 2022."""
_BARE_STARTS = {first: tuple(find for find, _, _ in known) for first, known in _BY_FIRST.items() if not first.isspace()}
