"""The table of codes: each kind of finding has one row here, one page in `dynadiag/rules/pages`, and the pass that gives it.

A code is a plain string in `report.json` and in the reports, and never changes its meaning. Breaks to which torch gave an id of its own
carry that (`GB0170`); all others are rows of this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.model.report import Severity

TABLE: dict[str, Code] = {}


@dataclass(frozen=True, slots=True)
class Code:
    """One row: `what` says when it is given, in the words of its `page` below `docs/`; `severity` is None where it depends on the case."""

    id: str
    title: str
    what: str
    severity: Severity | None
    page: str


def severity_of(code: str) -> Severity:
    """The severity of a code whose findings are all alike. KeyError for a code without a row, ValueError where it depends on the case."""
    severity = TABLE[code].severity
    if severity is None:
        raise ValueError(f"the severity of {code} depends on what was seen")
    return severity


def title_of(code: str) -> str:
    """The title of a row. KeyError for a code without one."""
    return TABLE[code].title


def _row(code: str, title: str, what: str, severity: Severity | None = None) -> str:
    page = "mutations/README.md" if code.startswith("DM") else "findings.md" if code.startswith(("DB", "DF")) else "recompiles.md"
    TABLE[code] = Code(code, title, what, severity, page)
    return code


# Graph breaks
BREAK_WITHOUT_ID = _row("DB01", "Graph break without an id", "a graph break to which torch gave no id")
TRAIN_STEP = _row(
    "DB02",
    "Whole train step compiled",
    "a whole training step is compiled: at least two of `zero_grad`, `backward` and the optimizer's `step` cause graph breaks in one "
    "function",
)

# Compile time and CUDA graphs
RESTARTS = _row(
    "DC01",
    "Restarts cost compile time",
    "restarts threw away at least 2 s and a fifth of the compile time; compilations that failed or fell back to eager do not count",
    "note",
)
SLOW_COMPILE = _row(
    "DC02", "One function takes most of the compile time", "one function took at least 30 s and a quarter of the compile time", "note"
)
UNCACHED = _row("DC03", "Compiled code that cannot be cached", "at least 10 s of compile time whose result cannot be cached", "note")
CUDA_GRAPH_SKIPPED = _row(
    "DC04",
    "CUDA graphs skipped",
    "CUDA graphs were skipped for a graph, with torch's reason; a skip because the graph writes an input is reported as a mutation (DM02)",
    "warning",
)
CUDA_GRAPH_CUT = _row(
    "DC05",
    "CUDA graph partitioned",
    "Inductor partitioned a graph, and part of it runs outside its CUDA graph; with the operators, torch's reason, the line, the "
    "inputs on the CPU",
    "warning",
)
CUDA_GRAPH_AGAIN = _row(
    "DC06",
    "CUDA graph re-recorded",
    "a CUDA graph was re-recorded for a different size, address or order; with the reason and the number of recordings",
    "warning",
)
CUDA_GRAPH_NEVER = _row(
    "DC07", "No CUDA graph was recorded", "a graph was called with several sizes, and torch recorded a CUDA graph for none of them", "note"
)
ONE_STREAM = _row(
    "DC08",
    "Compiled code ignores a CUDA stream",
    "work that the program puts on another CUDA stream runs on the current one, in order with the rest",
    "warning",
)

# Code that ran eager, or ended
NOTHING_COMPILED = _row(
    "DF01", "Nothing was compiled", "nothing was compiled at all; with the reason, as far as the records show it", "error"
)
SKIPPED_FRAME = _row(
    "DF02",
    "A frame runs eagerly",
    "Dynamo left a frame in eager mode; if a graph break caused it, it is reported with that break",
    "warning",
)
LIMIT_LEFT_EAGER = _row(
    "DF03",
    "A frame reached the recompile limit and runs eagerly for new inputs",
    "a frame reached the recompile limit: calls that match no cache entry run eagerly; reported with the recompiles where those were "
    "recorded",
    "warning",
)
SUPPRESSED_ERROR = _row(
    "DF04",
    "A compile error was suppressed: the frame runs eagerly",
    "an error of the back end or of Dynamo was suppressed, and the frame ran eagerly",
    "warning",
)
AOT_REJECTED = _row(
    "DF05",
    "A captured graph was refused by AOTAutograd and ran eagerly",
    "AOTAutograd refused a captured graph; also the warnings of 2022 in text logs, with their meaning",
    "warning",
)
NO_GRAPH = _row(
    "DF06",
    "Dynamo captured nothing of a function",
    "Dynamo traced no tensor operation in a compiled function, or none of its values is a tensor; helpers are not reported",
    "note",
)
DISABLED = _row(
    "DF07",
    "Compilation is disabled for a function",
    "compiled code called a function that is disabled; reported with its graph break. A function that is only marked is not reported",
    "note",
)
STANCE = _row("DF08", "A stance makes compiled functions run eagerly", "a stance makes compiled functions run eagerly", "note")
SWITCHED_OFF = _row(
    "DF09", "Compilation is switched off", "compilation is switched off by the environment or by `torch._dynamo.config.disable`", "warning"
)
COMPILATION_FAILED = _row(
    "DF10",
    "Compilation failed",
    "a compilation failed with an error that reached the program (not a fallback: nothing ran); this includes compiling a backward at "
    "its first call",
    "error",
)
UNCAUGHT = _row(
    "DF11",
    "Compiled code ended the program with an exception",
    "code that runs only under torch.compile raised the exception that ended the program, after compiling, or a backward did; eager was "
    "not tried",
    "error",
)
NUMPY_RANDOM = _row(
    "DF12",
    "Compiled code draws different random numbers than eager",
    "compiled code draws from torch's generator where the program calls `np.random`, so the numbers differ from those of eager, "
    "whatever the seed of NumPy is",
    "warning",
)
DRAWN_ONCE = _row(
    "DF13",
    "Compiled code repeats one random draw",
    "`random.sample` or `random.shuffle` of Python in compiled code: drawn once, while torch traced it, and the same in every call",
    "warning",
)
STALE_GRADIENT = _row(
    "DF14",
    "The backward reads a value that the forward has overwritten",
    "a compiled graph writes an input in place and keeps it for its backward, which needs the old value: gradients are silently wrong",
    "error",
)
EAGER_PART = _row(
    "DF15",
    "A part of a compiled module runs eagerly",
    "the program calls a method or a submodule of a compiled module by itself, and none of its operators is compiled",
)
COMPLEX_OPERATORS = _row(
    "DF16",
    "Operators on complex numbers are not compiled",
    "Inductor generates no code for operators on complex numbers: they are in a graph, and are called one by one as in eager",
    "warning",
)
EXPORT_FAILED = _row(
    "DF17",
    "torch.export failed",
    "`torch.export.export` raised an error: with the line at which tracing stopped, torch's words, and the advice of the same graph break",
    "error",
)

# Guards
SLOW_GUARDS = _row(
    "DG01",
    "Slow guards",
    "at least 200 guards, and cache lookups that took at least 5 % of the calls that `--cost` measured; without `--cost` only the "
    "table of guards",
    "note",
)

# Mutations, and results that differ from eager's
STATIC_INPUT = _row(
    "DM01",
    "Static input written in place",
    "A buffer, a parameter (under `no_grad`) or a tensor marked with `mark_static_address` is written.",
)
INPUT_WITHOUT_ADDRESS = _row(
    "DM02", "Written input without a fixed address", "An argument, a global or an attribute of a plain object is written in place."
)
COPIED_BACK = _row(
    "DM03", "Input that requires grad is copied back", "An in-place write on an input that requires grad, where autograd sees it."
)
WRITTEN_THROUGH_DATA = _row(
    "DM04",
    "Write through .data or .detach() is copied back",
    "A parameter is written through `.data` or `.detach()`, as old EMA code does.",
)
SIZES_CHANGED = _row(
    "DM05", "Sizes or strides of an input changed in place", "`t_()`, `unsqueeze_()`, `detach_()` or a similar call on an input."
)
STORAGE_REPLACED = _row("DM06", "Storage of an input replaced", "`x.set_(y)`, `x.data = y`, `x.resize_(...)`.")
REQUIRES_GRAD_CHANGED = _row("DM07", "requires_grad changed", "`requires_grad_()` on an input, or on a tensor that is returned.")
LEAF_WRITTEN = _row("DM08", "In-place write on a leaf that requires grad", "A parameter or another leaf is written while grad mode is on.")
AOT_REFUSED_WRITE = _row(
    "DM09",
    "AOTAutograd refuses the graph",
    "A mutation that AOTAutograd cannot functionalize: aliased inputs of different dtypes, aliases together with a tensor subclass, a "
    "replaced storage with a back end that does not keep input mutations.",
)
OVERLAPPING_INPUTS = _row(
    "DM10", "Overlapping inputs, one of them written", "Two arguments are views of the same memory, and one is written."
)
PYTHON_RECOMPILES = _row(
    "DM11",
    "Changed Python object causes recompiles",
    "A counter, a list, a dict or another object whose value, length or keys compiled code reads is changed, by "
    "compiled code or between calls.",
)
PYTHON_REPLAYED = _row(
    "DM12", "Changed Python object, replayed", "An attribute, a list or `.grad` is changed, and no guard on it failed in this run."
)
WRITTEN_IN_BODY = _row(
    "DM13",
    "Change inside the body of a higher-order operator",
    "A Python object of an outer function (a counter, a list) is changed in the body of `cond`, `while_loop`, "
    "`scan` or `checkpoint`, or a tensor from outside is written in the body of `cond`, `while_loop` or `scan`.",
)
MISSED_IN_PLACE = _row(
    "DM14",
    "Write that Inductor did not do in place",
    "A custom op or an index write on a tensor whose old value is still needed, or a write through a view of a bigger tensor.",
)
BACKEND_KEEPS_NO_WRITES = _row(
    "DM15", "Back end that does not keep input mutations", "A back end made with `aot_autograd()` without `keep_inference_input_mutations`."
)
OPTIMIZER_STEP = _row("DM16", "Optimizer step", "Parameters and the optimizer's state are written by a compiled `optimizer.step`.")
BATCHNORM_STATISTICS = _row("DM17", "BatchNorm statistics", "`running_mean`, `running_var` and `num_batches_tracked` in training.")
MADE_IN_GRAPH = _row("DM18", "In-place write on a tensor made in the graph", "`y.add_(1)` on an intermediate tensor.")
WRITTEN_BEHIND_BREAK = _row(
    "DM19",
    "Written after a graph break",
    "A tensor is made before a graph break and written in place after it, for example by `ReLU(inplace=True)`.",
)
OUT_RESIZED = _row("DM20", "out= of a different shape", "An operator is given an `out=` tensor whose shape must change.")
STATE_SET = _row(
    "DM21",
    "State set inside compiled code",
    "`torch.set_rng_state`, `torch.manual_seed`, `ContextVar.set`, methods of a `torch.Generator`, `Tensor.random_`.",
)
PARAMETER_REPLACED = _row("DM22", "Parameter replaced", "`self.weight = nn.Parameter(...)` in compiled code.")
AUTOGRAD_REFUSED_WRITE = _row(
    "DM23",
    "Mutation that autograd refuses",
    "A tensor that autograd saved is changed before the backward, an inference tensor is written outside inference "
    "mode, or a tensor whose elements share memory is written.",
)
UNDECLARED_WRITE = _row(
    "DM24",
    "Written by an operator that does not declare it",
    "A custom operator changed its argument, and its schema does not say so (`mutates_args=()`). `explain --parity` "
    "saw it: the input's values had changed after the call, and only such an operator can have changed them.",
)
WRONG_WHEN_OVERLAPPING = _row(
    "DM30",
    "Wrong when two inputs overlap",
    "The graph writes an input. Compiled, it gives different values from eager when another input overlaps that memory.",
    "warning",
)
RAISES_AFTER_OTHER_SHARING = _row(
    "DM31",
    "Raises after the aliasing of inputs has changed",
    "A call raises (`setStorage ... out of bounds`, an assertion on sizes) where eager runs without an error.",
    "warning",
)
WRONG_WHEN_SAME_TENSOR = _row(
    "DM32",
    "Wrong when one tensor is passed twice",
    "The graph gives different values from eager when two of its inputs are the same tensor.",
    "warning",
)
WRONG_FROM_DISK_CACHE = _row(
    "DM33",
    "Wrong with a graph from the on-disk cache",
    "A process that loads the compiled graph from the on-disk cache gives different values from one that compiles it.",
    "warning",
)
REPLAY_VALUES = _row(
    "DM34",
    "Compiled values differ from eager's",
    "On inputs like the recorded ones, the compiled graph gives different values from eager, beyond eager's own noise, or raises on a "
    "second call.",
    "warning",
)
REPLAY_METADATA = _row(
    "DM35",
    "Sizes, strides, dtype or aliasing differ from eager's",
    "An output, or an input after the call, has a different shape, stride, dtype or `requires_grad` than in eager, or aliases memory "
    "differently.",
    "warning",
)
REPLAY_GRADIENTS = _row(
    "DM36",
    "Gradients differ from eager's",
    "An input has a gradient in eager and none in compiled code, or vice versa, or a different one.",
    "warning",
)
WRONG_INPUT = _row(
    "DM40",
    "Written input that is silently wrong",
    "`explain --parity` saw a call after which an input is not what eager makes of it; or an output that is wrong because it reads "
    "memory that was written through an overlapping input.",
    "error",
)
WRONG_OUTPUT = _row(
    "DM41",
    "Values that are silently wrong",
    "`explain --parity` saw a call whose output differs from eager's beyond eager's own noise, and no written input explains it.",
    "error",
)
OTHER_METADATA = _row(
    "DM42",
    "Shape, stride, dtype or requires_grad differs from eager's",
    "`explain --parity` saw an output, or an input after the call, whose metadata differs from eager's.",
)
OTHER_ALIASES = _row(
    "DM43",
    "Memory is aliased differently than in eager",
    "`explain --parity` saw an output that is a copy where eager returns an alias of an input or of another output, or an alias where "
    "eager returns a copy.",
    "error",
)
RAISES_WHERE_EAGER_DOES_NOT = _row(
    "DM44",
    "The compiled call raises where eager does not",
    "`explain --parity` repeated a call that raised, and eager did not raise on copies of the same inputs.",
    "error",
)
OVERWRITTEN_LATER = _row(
    "DM45",
    "An output that a later call overwrites",
    "`explain --parity` saw an output that the program still held change, or lose its memory, while the same "
    "compiled function was called again.",
    "error",
)
WRONG_GRADIENT = _row(
    "DM46",
    "Gradients that are silently wrong",
    "`explain --parity` saw the program's own backward give a gradient that differs from eager's for the same inputs and the same "
    "incoming gradients; or none where eager gives one.",
    "error",
)
DOES_WHAT_EAGER_REFUSES = _row(
    "DM47",
    "The compiled call succeeds where eager raises",
    "`explain --parity` repeated a call in eager, where an operator of its graph raised; the compiled call returned.",
    "error",
)

WHOLE_CALL_DIFFERS = _row(
    "DM48",
    "A whole call that differs from eager",
    "`explain --parity` saw a call of a compiled callable that gave, left, raised or sent back another result than the original function "
    "does in eager.",
    "error",
)
USED_AGAIN_THOUGH_CHANGED = _row(
    "DM49",
    "A compiled version used again although what it was compiled for had changed",
    "`explain --parity` saw a call differ from eager, and no longer differ once it was compiled anew: no guard looks at what changed.",
    "error",
)

KNOWN_FAULT = _row(
    "DM50",
    "Compiled code that will differ from eager",
    "What was traced meets a known fault of torch: a full `deque` that is read after an append, a hook that a module gets after it was "
    "compiled, an `except` around an operator of a graph, a generator that leaves compiled code, arguments that torch.distributions no "
    "longer checks.",
    "warning",
)

# Recompiles, by what had changed
RECOMPILE_LIMIT = _row(
    "DR01",
    "Recompile limit reached",
    "the recompile limit was reached: what fits no compiled version runs eagerly from then on, or raises under `fullgraph=True`",
    "error",
)
SIZE = _row("DR02", "Different size", "a size of a tensor")
VALUE_OR_TYPE = _row("DR03", "Different value or type", "the value or type of a number, string, flag or argument, or None")
IDENTITY = _row("DR04", "Different function or object", "the identity of a function or object")
TENSOR_PROPERTY = _row(
    "DR05", "Different tensor property", "dtype, device, stride, number of dimensions, `requires_grad`, dispatch keys of a tensor"
)
GLOBAL_STATE = _row(
    "DR06", "Different global state", "global state: grad mode, autocast, default dtype, number of threads, torch function modes, ..."
)
CONTAINER = _row("DR07", "Different length, key or attribute", "the length or the keys of a container, or a missing attribute")
BACKEND = _row("DR08", "Different backend object", "the backend object")
CONDITION = _row(
    "DR09",
    "A condition no longer holds",
    "a condition that the compiled code relies on: a branch on a size, the sizes 0 and 1, sizes that were equal at first",
)
SAME_TENSOR = _row("DR10", "Two arguments are one tensor", "two arguments are the same tensor")
FREED_OBJECT = _row("DR11", "An object was freed", "an object was freed, and the version compiled for it serves no more calls")
RECOMPILE_REFUSED = _row(
    "DR13",
    "A recompile was refused",
    'the stance `fail_on_recompile` raised an error instead of compiling again; an "error" where a part of the call had run already',
)
DIM_MARKING = _row("DR12", "A dimension was marked", "the tensor was marked with `mark_dynamic` or a similar function")
UNKNOWN_REASON = _row("DR99", "Unknown reason", "a reason that dynadiag does not recognise")

# Ranks that differ
RANKS_BREAK = _row("DX01", "Ranks have different graph breaks", "ranks differ in graph breaks", "warning")
RANKS_RECOMPILE = _row("DX02", "Ranks recompile differently", "ranks differ in recompiles", "warning")
RANKS_GRAPHS = _row("DX03", "Ranks have different graphs", "ranks differ in graphs", "warning")
RANK_CUT_OFF = _row("DX04", "The log of a rank ends early", "the log of a rank ends early while another's is complete", "warning")
RANKS_SETTINGS = _row("DX05", "Ranks use different versions or options", "ranks differ in torch version, device or options", "warning")
RANKS_VALUES = _row(
    "DX06",
    "Ranks compiled the same code for different values",
    "ranks were compiled for different values of one source (guards on constants and lengths of each function's "
    "first compilation); where every rank has its own value, none is singled out",
    "warning",
)
RANKS_APART = _row(
    "DX07", "Ranks are not alike", "some ranks compiled something different from the largest group of equal ranks", "warning"
)
RANKS_COLLECTIVES = _row(
    "DX08", "Ranks have different collectives", "ranks have collectives in another order or of other shapes", "warning"
)
RANKS_SOURCE = _row(
    "DX10", "A rank ran other source", "a function of the program has another text on some ranks than on the others", "warning"
)
RANK_TROUBLE = _row(
    "DX09", "A rank is missing or out of step", "a rank is missing, recorded twice, cut short, late, or has another clock", "warning"
)
