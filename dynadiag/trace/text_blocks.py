"""What spans several lines of a text log (tracebacks, with the exception of torch.compile's that ended them, and explanations); counters.

Read in torch 2.6.0 to 2.15.0: `torch/_dynamo/exc.py` (`augment_exc_message` writes "from user code:"), `torch/_inductor/exc.py`,
`torch/_inductor/cudagraph_trees.py` (`check_memory_pool`, "Stack trace:").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from dynadiag.model.location import Location
from dynadiag.trace.break_text import without_tail
from dynadiag.trace.stacks import is_stack_line, printed_stack

TRACEBACK = "Traceback (most recent call last)"
_CHAIN = ("The above exception was the direct cause of", "During handling of the above exception")
_NAME = r"(?:\w+\.)*[A-Za-z_]\w*"
_RAISED = re.compile(rf"^({_NAME})(?:: (.*)|:?)$", re.DOTALL)
# Exceptions of torch's compiler by the modules that define them, and by their names where a notebook prints no module.
NAMES = (
    "Unsupported|BackendCompilerFailed|InductorError|LoweringException|CppCompileError|InvalidCxxCompiler|TorchRuntimeError|"
    "InternalTorchDynamoError|RecompileError|RecompileLimitExceeded|FailOnRecompileLimitHit|FailOnCacheLimitHit|CacheLimitExceeded|"
    "UserError|UncapturedHigherOrderOpError|GuardOnDataDependentSymNode|ConstraintViolationError|TritonMissing|InvalidBackend|PTXASError"
)
OF_COMPILER = re.compile(
    r"^(?:torch\._?dynamo\.exc\.|torchdynamo\.exc\.|torch\._inductor\.(?:\w+\.)*|torch\._functorch\.(?:\w+\.)*|triton\.compiler\.errors\.|"
    r"triton\.runtime\.errors\.|torch\.fx\.experimental\.symbolic_shapes\.|torch\._subclasses\.fake_tensor\.)[A-Z]\w*|^(?:" + NAMES + r")$"
)
# What compiles, not what only calls compiled code.
_COMPILING = re.compile(
    r"/torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph|repro/\w+|backends/\w+|variables/\w+)\.py$"
    r"|/torch/_inductor/(?:compile_fx|graph|scheduler|codecache|cpp_builder|lowering|ir|codegen/[\w/]+)\.py$"
    r"|/torch/_functorch/_aot_autograd/(?:graph_compile|jit_compile_runtime_wrappers|graph_capture\w*)\.py$"
)
_MACHINERY = re.compile(r"/torch/(?:_dynamo|_inductor|_functorch)/")
_RUNNING = re.compile(_MACHINERY.pattern + r"|/torchinductor_[^/]+/|/(?P<two>[a-z2-7]{2})/c(?P=two)[a-z2-7]{40,60}\.py$")
_OVERWRITTEN = re.compile(r"accessing tensor output of CUDAGraphs that has been overwritten")
_CAUSE = re.compile(r"^Caused by: .*?\(?(\S+):(\d{1,9}) in \w+\)?$", re.MULTILINE)
_MADE_AT = re.compile(r"Stack trace: *(File .*?)(?:\. To prevent overwriting|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Raised:
    """One exception of a printed chain: its class with the module, its message, what called it, and the lines under "from user code:"."""

    name: str
    message: str
    stack: tuple[Location, ...]
    user_stack: tuple[Location, ...]

    @property
    def short(self) -> str:
        """The class without its module."""
        return self.name.rpartition(".")[2]

    @property
    def by_compiler(self) -> bool:
        """Whether torch's compiler raised it, by its class or because code that compiles was running."""
        return OF_COMPILER.match(self.name) is not None or any(_COMPILING.search(_slashed(place.file)) for place in self.stack)

    @property
    def in_compiled_code(self) -> bool:
        """Whether code that runs only under torch.compile raised it."""
        return bool(self.stack) and _RUNNING.search(_slashed(self.stack[-1].file)) is not None

    @property
    def through_compiler(self) -> bool:
        """Whether it came through torch.compile at all, whoever raised it."""
        return any(_MACHINERY.search(_slashed(place.file)) for place in self.stack)

    @property
    def callers(self) -> tuple[Location, ...]:
        """What called the compiled code: the stack up to torch's compiler."""
        at = next((number for number, place in enumerate(self.stack) if _MACHINERY.search(_slashed(place.file))), len(self.stack))
        return self.stack[:at]

    @property
    def overwritten(self) -> bool:
        """Whether an output of a CUDA graph was read after a later run had written over it."""
        return _OVERWRITTEN.search(self.message) is not None


def _slashed(file: str) -> str:
    return file.replace("\\", "/")


def read_traceback(lines: Sequence[str]) -> tuple[Raised, ...]:
    """The exceptions of a printed chain, the one that ended it last; what is no exception is left out."""
    found = []
    begin = 0
    for position in (*(number for number, line in enumerate(lines) if number and line.startswith(TRACEBACK)), len(lines)):
        raised = _read_one(lines[begin:position])
        if raised is not None:
            found.append(raised)
        begin = position
    return tuple(found)


def _read_one(lines: Sequence[str]) -> Raised | None:
    start = 1 if lines and lines[0].startswith(TRACEBACK) else 0
    at = next((number for number in range(start, len(lines)) if _ends_stack(lines[number])), None)
    if at is None:
        return None
    match = _RAISED.match(lines[at])
    if match is None:
        return None
    end = next((number for number in range(at + 1, len(lines)) if lines[number].startswith(_CHAIN)), len(lines))
    said = "\n".join([match[2] or "", *lines[at + 1 : end]]).rstrip()
    stack = printed_stack(lines[start:at])
    return Raised(match[1], without_tail(said), stack, _user_stack(lines[at:end], said) or _caused_by(said, stack))


def _ends_stack(line: str) -> bool:
    return bool(line) and not line[0].isspace() and not is_stack_line(line) and not line.startswith("[Previous line repeated")


def _user_stack(lines: Sequence[str], said: str) -> tuple[Location, ...]:
    """The lines that torch names as the user's: those that were traced, or the one that made an output."""
    at = next((number for number, line in enumerate(lines) if line.strip() == "from user code:"), None)
    if at is None:
        made = _MADE_AT.search(said)
        return printed_stack(made[1].split("\n")) if made is not None else ()
    end = next((number for number in range(at + 1, len(lines)) if lines[number].strip() and not _in_stack(lines[number])), len(lines))
    return printed_stack(lines[at + 1 : end])


def _caused_by(said: str, stack: Sequence[Location]) -> tuple[Location, ...]:
    """The entry of the stack that torch names as the cause, with the end of its path (`symbolic_shapes.py`)."""
    found = _CAUSE.search(said)
    if found is None:
        return ()
    same = (place for place in reversed(stack) if place.line == int(found[2]) and _slashed(place.file).endswith(_slashed(found[1])))
    return tuple(islice(same, 1))


def _in_stack(line: str) -> bool:
    return line[0].isspace() or is_stack_line(line)


def goes_on_with_traceback(lines: Sequence[str], text: str) -> bool:
    """Whether a line belongs to the traceback that these lines begin: its exception, or the next one of the chain."""
    if text.startswith(TRACEBACK):
        return any(line.startswith(_CHAIN) for line in lines[-3:])
    if OF_COMPILER.match(text.partition(":")[0]) is None and _OVERWRITTEN.search(text) is None:
        return False
    if lines[-1].endswith(" raised:"):  # "backend='inductor' raised:", and then the exception of the back end
        return True
    last = next((line for line in reversed(lines) if line.startswith(TRACEBACK) or _ends_stack(line)), "")
    return last.startswith(TRACEBACK)


_REASON = re.compile(r"^\s*Reason: ?(.*)$")
_PLACE = re.compile(r"^\s*<FrameSummary file (.*), line (\d{1,9}) in (.*)>\s*$")
_GRAPH = re.compile(r"^\s*Ops \d+:\s*$")
_OPERATOR = re.compile(r"^\s*<(?:built-in (?:function|method) |function |method ')?([\w.]+)")
_SECTION = re.compile(r"^(?:Out Guards|Compile Times|Ops per Graph|Break Reasons):")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The breaks with their places, and the names of the operators of each graph."""

    breaks: tuple[tuple[str, Location | None], ...]
    graphs: tuple[tuple[str, ...], ...]


def read_explanation(lines: Sequence[str]) -> Explanation:
    """What the lines say; a part that was cut off is missing."""
    breaks: list[tuple[list[str], Location | None]] = []
    graphs: list[list[str]] = []
    section, in_reason = "", False
    for line in lines:
        if (found := _SECTION.match(line)) is not None:
            section, in_reason = found[0], False
        elif section == "Break Reasons:":
            in_reason = _add_to_breaks(line, breaks, in_reason=in_reason)
        elif section == "Ops per Graph:":
            if _GRAPH.match(line):
                graphs.append([])
            elif graphs and line.strip():
                operator = _OPERATOR.match(line)
                graphs[-1].append(operator[1] if operator is not None else line.strip())
    told = tuple(("\n".join(reason).strip(), place) for reason, place in breaks)
    return Explanation(told, tuple(map(tuple, graphs)))


def _add_to_breaks(line: str, breaks: list[tuple[list[str], Location | None]], *, in_reason: bool) -> bool:
    """Takes a line of the reasons; whether the next one may go on with a reason."""
    if (found := _REASON.match(line)) is not None:
        breaks.append(([found[1]], None))
        return True
    if line.strip() == "User Stack:" or line.startswith("  Break Reason"):
        return False
    if (place := _PLACE.match(line)) is not None and breaks:
        breaks[-1] = breaks[-1][0], Location(place[1], int(place[2]), place[3])  # the innermost is the last
        return False
    if in_reason:
        breaks[-1][0].append(line)
    return in_reason


_GROUP = re.compile(r"(?:'(\w{1,60})': )?Counter\(\{|^(\w{1,60}) \[")
_NUMBER_OF = re.compile(r"""(?:'((?:[^'\\]|\\.){1,300}+)'|"((?:[^"\\]|\\.){1,300}+)")(?:: |, )(\d{1,9})(?=[,)}])""")
_MOST_COUNTED = 200
_LONGEST_COUNTERS = 20_000


def read_counters(line: str) -> dict[str, Mapping[str, int]]:
    """Dynamo's counters by group, as Python prints them; a group without a name is the one of graphs, `stats`."""
    found: dict[str, Mapping[str, int]] = {}
    line = line[:_LONGEST_COUNTERS]
    starts = list(islice(_GROUP.finditer(line), _MOST_COUNTED))
    for number, start in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(line)
        counted = islice(_NUMBER_OF.finditer(line, start.end(), end), _MOST_COUNTED)
        found[start[1] or start[2] or "stats"] = {entry[1] or entry[2]: int(entry[3]) for entry in counted}
    return found
