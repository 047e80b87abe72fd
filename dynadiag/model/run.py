"""What was recorded: `Run` and its parts, as `trace` builds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dynadiag.model.compiled import CacheEvent, CompiledTime, CompiledWork, GuardCost, Listing, PhaseSpan, ShapeFact
from dynadiag.model.digest import RankComparison
from dynadiag.model.graph import Graph, MutationRecord, TracedInput
from dynadiag.model.location import Location, PayloadRef

if TYPE_CHECKING:
    from dynadiag.model.parity import ParityCall, WholeCall

UNFINISHED = "the log ends before this frame was finished"
Outcome = Literal["compiled", "broke", "skipped", "failed"]
# With these torch ends a compilation for a graph break or a limit and may run the frame eager (`torch/_dynamo/exc.py`, 2.6 to 2.15).
BREAK_ERRORS = frozenset({"Unsupported", "UserError", "UncapturedHigherOrderOpError", "StepUnsupported"})
LIMIT_ERRORS = frozenset({"RecompileLimitExceeded", "CacheLimitExceeded", "FailOnRecompileLimitHit", "FailOnCacheLimitHit"})
SOFT_ERRORS = BREAK_ERRORS | LIMIT_ERRORS | {"SkipFrame", "SkipCodeRecursiveException"}


class CompileKey(NamedTuple):
    """Names one compilation of one frame in one process.

    Its compile id ("0/1") repeats after `torch._dynamo.reset()` and in every process, so process and reset epoch are part of it.
    `frame` and `compile` are torch's frame_id and frame_compile_id, `autograd` the compiled-autograd id.
    """

    process: int
    epoch: int
    frame: int | None
    compile: int | None
    autograd: int | None = None

    @property
    def text(self) -> str:
        """Torch's own spelling: "0/1", or "!2/0/1" under compiled autograd (`torch._guards.CompileId`)."""
        own = f"{'-' if self.frame is None else self.frame}/{'-' if self.compile is None else self.compile}"
        if self.autograd is None:
            return own
        return f"!{self.autograd}" if self.frame is None else f"!{self.autograd}/{own}"


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """What the torch that ran says of one graph-break id (`torch/_dynamo/graph_break_registry.json`), recorded by us."""

    gb_id: str
    gb_type: str
    explanation: str
    hints: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One recorded process: how much of its log could be used, its `calls` of what was compiled, `no_work`: why none was looked into.

    `machine` is what PyTorch's bug form asks of the machine, by the names that `torch.utils.collect_env` gives it. `alike` is the index of
    the process that was read in its place, because the digests of both ranks are equal: nothing else in the run is of this process.
    `libraries` are the versions of the packages of the atlas that it had imported, by the names that they are imported by.
    `from_text`: it is known from lines that torch printed (a text log, a pasted warning), which do not show what was not printed.
    """

    index: int
    log: str
    pid: int | None = None
    parent_pid: int | None = None
    rank: int | None = None
    torch: str | None = None
    python: str | None = None
    device: str | None = None
    argv: tuple[str, ...] | None = None
    started_at: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    records: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    unknown_artifacts: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    option_names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    registry: Mapping[str, RegistryEntry] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, Mapping[str, int]] | None = None
    calls: int | None = None
    no_work: str | None = None
    finished: bool = False
    alike: int | None = None
    from_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileMetrics:
    """The fields of torch's `compilation_metrics` record that we use; absent ones are None (`torch._dynamo.utils.CompilationMetrics`)."""

    total_s: float | None = None
    dynamo_s: float | None = None
    aot_s: float | None = None
    inductor_s: float | None = None
    backward_s: float | None = None
    code_gen_s: float | None = None
    before_restart_s: float | None = None
    guard_count: int | None = None
    shape_guard_count: int | None = None
    guard_latency_us: float | None = None
    cache_size: int | None = None
    accumulated_cache_size: int | None = None
    recompile_limit: int | None = None
    graph_ops: int | None = None
    graph_nodes: int | None = None
    graph_inputs: int | None = None
    fail_type: str | None = None
    fail_reason: str | None = None
    fail_location: Location | None = None
    restart_reasons: tuple[str, ...] = ()
    recompile_reason: str | None = None
    has_guarded_code: bool | None = None
    cudagraph_skip_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard as torch printed it: its kind ("TENSOR_MATCH"), the source it looks at, its code and the line that asked for it."""

    kind: str
    source: str
    code: str
    origin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSet:
    """All guards of one compiled frame, summed up while reading; `examples` keeps the first of each kind and the longest sources.

    `watched` holds the guards on the sources that the frame's own `recompile_reasons` name: they tell the value that caused the recompile;
    and those on keys of dictionaries, since a later recompile may have another order of them.
    `on_modules` counts those that look at a submodule of an nn.Module or at something of it. `values` are, for a process with a rank, the
    codes of the guards on constants and lengths, by which ranks are compared.
    """

    count: int
    by_kind: Mapping[str, int]
    examples: tuple[Guard, ...] = ()
    watched: tuple[Guard, ...] = ()
    on_modules: int = 0
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEvent:
    """One record of a graph break, its text taken apart. `source` says where we read it: record, exception or plain log text."""

    frame: str
    attempt: int
    gb_id: str | None
    gb_type: str
    explanation: str | None
    hints: tuple[str, ...]
    context: str | None
    stack: tuple[Location, ...]
    torch_frame: Location | None
    prefix: str | None = None
    skip_reason: str | None = None
    skips_frame: bool = False
    cached: bool = False
    source: Literal["artifact", "exception", "metrics", "text"] = "artifact"
    cause: str | None = None
    record: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """One `create_symbol` record: a size, stride or number that was compiled as dynamic, with the value it had in that call.

    `source` is Dynamo's ("L['x'].size()[0]"), `value` and `range` ("[2, int_oo]") the texts that torch printed
    (`torch/fx/experimental/symbolic_shapes.py`). `specialized` if a `symbolic_shape_specialization` record made it a constant after all.
    """

    frame: str
    symbol: str
    source: str
    value: str | None
    range: str | None = None
    specialized: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecompileEvent:
    """One `recompile_reasons` record: the failed guards of the cache entries that were tried, newest first as torch lists them."""

    frame: str
    reasons: tuple[str, ...]
    stack: tuple[Location, ...] = ()
    record: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Time between a begin and an end event of torch's `dynamo_timed`; `self_s` leaves out phases inside it."""

    frame: str | None
    name: str
    total_s: float
    self_s: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that went wrong or was switched off in the recorded process, as recorded there.

    Kinds: `error` (a `dynamo_error`), `suppressed_error`, `recompile_limit`, `stance`, `disabled`, `no_graph`, `aot_rejected`,
    `recorder` (a hook of ours failed), `no_cost` (why `--cost` measured nothing), `log_limit`, `backend_error`, `env_disabled`,
    `backward_error` (a backward did not compile; its forward may have run), `cached_code` (it came from torch's code cache and was not
    traced), `cudagraph_skip` (torch's reason; told in the first call, or while compiling), `cudagraph_partition` (a part of a graph that is
    no CUDA graph), `cudagraph_recorded` and `cudagraph_rerecord` (the first CUDA graph of a graph, and each further one),
    `cudagraph_sizes` (a graph was called with sizes that it had not met), `unlogged_skip` (a frame was left because of a break
    that torch does not tell, since logging is off).
    Of an exception that another one caused, `text` is the cause and `raised` what ended the program.
    """

    kind: str
    process: int
    text: str
    raised: str | None = None
    frame: str | None = None
    location: Location | None = None
    stack: tuple[Location, ...] = ()
    record: int | None = None

    @property
    def subject(self) -> str:
        """What the text is about, before its first colon: the class of an exception, or the function that Dynamo left."""
        return self.text.partition(_COLON)[0]

    @property
    def message(self) -> str:
        """What the text says of its subject."""
        return self.text.partition(_COLON)[2]


_COLON = ": "
"""Between a class and its message, as Python prints an exception, and between a function and why it was left, as the recorder writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCost:
    """Run time of one compiled region over `calls` profiled steady calls (torch.profiler events, children subtracted).

    `step_us` is the time of all profiled calls of the step without a profiler, known where a device was timed.
    """

    process: int
    frame: str | None
    region: str
    calls: int
    region_us: float
    lookup_us: float | None
    pregraph_us: float | None
    between_us: float | None
    how: str
    step_us: float | None = None


@dataclass(frozen=True, slots=True)
class CallProfile:
    """What happened when in the calls that a process profiled, and what a call takes without one where that was timed later."""

    process: int
    timeline: PayloadRef
    period_ns: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCall:
    """One call of `torch.compile` seen by the recorder: where, with which backend and arguments, and whether it was switched off.

    `definition` is where the function that it compiles begins (`co_firstlineno`), None for what is no Python function; `epoch` counts the
    calls of `torch._dynamo.reset()` before it.
    """

    process: int
    location: Location | None
    target: str
    backend: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    disabled: bool = False
    definition: Location | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One compilation of one frame (code object): entered at `stack`, tried `attempts` times, ended in `outcome`.

    `callers` is the whole stack above it as we recorded it; torch's `stack` leaves the two innermost callers out.
    `call` is the number, from 1, of the call in its process of something compiled during which it was compiled.
    """

    id: str
    key: CompileKey
    attempts: int
    name: str | None
    file: str | None
    line: int | None
    outcome: Outcome
    stack: tuple[Location, ...] = ()
    callers: tuple[Location, ...] = ()
    call: int | None = None
    metrics: CompileMetrics | None = None
    guards: GuardSet | None = None
    error: str | None = None
    record: int | None = None

    @property
    def unfinished(self) -> bool:
        """True if the log ends while it was being compiled: it neither failed nor is it known to be compiled."""
        return self.outcome == "failed" and self.error == UNFINISHED

    @property
    def fail_type(self) -> str | None:
        """The class of the error that ended its compilation, without its module."""
        if self.metrics is not None and self.metrics.fail_type is not None:
            return self.metrics.fail_type
        named, colon, _ = (self.error or "").partition(": ")
        return named if colon and named.isidentifier() and not self.unfinished else None

    @property
    def broken_by_error(self) -> bool:
        """True if an error ended its compilation that is neither a graph break nor a limit; a break in the same frame is another thing."""
        return self.fail_type is not None and self.fail_type not in SOFT_ERRORS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What the supervisor knows of a run (`dynadiag-run.json`); all None for a foreign log.

    `running` says that the recording dynadiag runs at this moment on this machine, `killed` that it ended without writing how the script
    went, `unended` that it had not when the directory was copied or the machine restarted. `observed` says that the program recorded itself
    (`dynadiag.observe`). `stopped` has a line for each process whose recording ended before the process did. `own` are the folders that
    `[tool.dynadiag]` named as the user's code; `libraries` are folders and files with installed packages that were found in the project.
    """

    directory: str | None = None
    dynadiag: str | None = None
    command: tuple[str, ...] | None = None
    cwd: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    exit_status: int | None = None
    signal: str | None = None
    timed_out: bool = False
    interrupted: bool = False
    stopped_stable: bool = False
    running: bool = False
    killed: bool = False
    unended: bool = False
    observed: bool = False
    stopped: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceFunction:
    """The source of a function, from its `def` on, dedented, as it was when it was compiled; `name` is qualified.

    `environment`: names that a library sets from the environment, with the variable.
    """

    file: str
    line: int
    name: str
    text: str
    environment: tuple[tuple[str, str], ...] = ()


UNGUARDED = ("full deque", "late hook", "generator", "unchecked argument")


@dataclass(frozen=True, slots=True)
class UnguardedState:
    """One `dynadiag_unguarded` record: a "full deque" that has more elements in the trace than its `maxlen` allows; a "late hook", the
    first of its `kind` that a module of class `name` got after it was traced; a "generator" that left compiled code; an "unchecked
    argument" of a distribution, which does not satisfy the constraint `kind`.
    """

    process: int
    what: str
    name: str
    kind: str | None
    frame: str | None
    stack: tuple[Location, ...] = ()


@dataclass(frozen=True, kw_only=True)  # no slots: it is referred to weakly, for which they need Python 3.11
class Run:
    """Everything that could be read from a run directory, a log or a folder of logs.

    `left_out` tells by kind how many more there were than are kept here (`trace.room`); `ranks` is None for fewer than two ranks.
    `site_prefixes` are folders with the standard library, installed packages and torch; `libraries` packages that were found elsewhere.
    `project` says what folders (with all below them) and files are called in the program's project, `around` are roots of others; both are
    empty where that was not recorded.
    `blocks` holds the source from a line that broke down to the end of its block, as recorded, by file and line. `functions` are the
    user's, `library_functions` those of libraries through which a line of the user's led to a graph break.
    """

    info: RunInfo
    processes: tuple[Process, ...] = ()
    frames: tuple[Frame, ...] = ()
    graphs: tuple[Graph, ...] = ()
    breaks: tuple[BreakEvent, ...] = ()
    recompiles: tuple[RecompileEvent, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    phases: tuple[Phase, ...] = ()
    caches: tuple[CacheEvent, ...] = ()
    problems: tuple[Problem, ...] = ()
    costs: tuple[RegionCost, ...] = ()
    profiles: tuple[CallProfile, ...] = ()
    compile_calls: tuple[CompileCall, ...] = ()
    legacy: tuple[Problem, ...] = ()
    mutation_records: tuple[MutationRecord, ...] = ()
    traced_inputs: tuple[TracedInput, ...] = ()
    parity: tuple[ParityCall, ...] = ()
    whole_calls: tuple[WholeCall, ...] = ()
    unguarded: tuple[UnguardedState, ...] = ()
    notes: tuple[str, ...] = ()
    site_prefixes: tuple[str, ...] = ()
    project: Mapping[str, str] = field(default_factory=dict)
    around: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    ranks: RankComparison | None = None
    blocks: Mapping[tuple[str, int], str] = field(default_factory=dict)
    functions: tuple[SourceFunction, ...] = ()
    library_functions: tuple[SourceFunction, ...] = ()
    listings: tuple[Listing, ...] = ()
    spans: tuple[PhaseSpan, ...] = ()
    shape_facts: tuple[ShapeFact, ...] = ()
    work: tuple[CompiledWork, ...] = ()
    work_times: tuple[CompiledTime, ...] = ()
    guard_costs: tuple[GuardCost, ...] = ()

    @property
    def torch(self) -> str | None:
        """The version of torch in the first process that tells one."""
        return next((process.torch for process in self.processes if process.torch), None)

    def frame(self, frame_id: str) -> Frame | None:
        """The frame with this id, or None."""
        position = int(frame_id[1:]) if frame_id[1:].isdigit() else -1
        if 0 <= position < len(self.frames) and self.frames[position].id == frame_id:
            return self.frames[position]
        return next((frame for frame in self.frames if frame.id == frame_id), None)
