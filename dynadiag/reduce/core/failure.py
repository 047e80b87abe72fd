"""What went wrong, so that two failures can be compared: kind, phase, exception classes, normalised message, innermost functions."""

from __future__ import annotations

import errno
import re
import signal
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Literal, get_args

from dynadiag.render.sanitise import clean_block
from dynadiag.torch_compat.causes import chain_of

MESSAGE_LIMIT = 4000
_READ_LIMIT = 1 << 20
_COMPILER_LIMIT = 1000

# A number belongs to a name where a letter, a digit or an underscore stands beside it: `log10`, `float8_e4m3fn`, `conv1d` stay. What
# the compiler numbers anew for each graph goes with its number: variables, kernels and buffers of inductor
# (torch/_inductor/codegen/common.py, triton.py, cpp.py), inputs of AOTAutograd, sizes (torch/fx/experimental/symbolic_shapes.py),
# constants and bodies of higher order operators, functions of Dynamo; seen on 2.11 to 2.15.
_MADE_UP = (
    r"(?<![\w.])(?<!::)(?:(?:in_out|in|out|mut)_ptr|buf|arg|tmp|op(?!_)|primals|tangents|fwd_rng_state|bwd_rng_state|subgraph|partition|kernel|_tensor_constant"
    r"|_param_constant|_frozen_param|___stack|graph_out|zuf|ks|s|y|z|r|(?<!%)u(?!(?:8|16|32|64)\b)|x(?!86|64\b|32\b))_?\d+(?:_\d+)*"
)
_ACCIDENTAL = (
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "0xN"),
    (re.compile(r"(?<![\w)\]])(?:[A-Za-z]:)?(?:/[\w.+@~-]+){2,}/?"), "PATH"),
    (re.compile(r"\b__(compiled_fn|resume_at)_\w+"), r"__\1"),
    (re.compile(r"\b(?:triton_[a-z]+|cpp|pallas_[a-z]+|halide)_fused_\w*|\btriton_[a-z]{2,3}_fused\b"), "KERNEL"),
    (re.compile(r"\b[0-9a-f]{16,}\b|\bc[a-z2-7]{40,}\b"), "HASH"),
    (re.compile(rf"{_MADE_UP}\b"), "VARIABLE"),
    (re.compile(r"(?<=[\[(,])(\s*)%\w+"), r"\1%NODE"),
    # Nodes of one operator are numbered (`add`, `add_1`); what is qualified (`mylib.op_1`, `mylib::op_1`) is no node.
    (re.compile(r"(?<![\w.])(?<!::)(%?[A-Za-z_]\w*?)(?:_\d+)+\b(?!::|\.(?:default|out|[A-Z])\w*)"), r"\1"),
    (re.compile(r"(?<!\w)[-+]?\d+(?:\.\d+)*(?:e[-+]?\d+)?(?:[fFlLuU]{1,3}|[kKMGT]?i?B|[mun]?s|(?:x\d+)+)?(?!\w)"), "N"),
    (re.compile(r"N(?:\s*[,x*]\s*N)+,?"), "N"),
)


def without_accidents(text: str) -> str:
    """The text without numbers, addresses, paths and made-up names, nor colours and other control characters."""
    text = clean_block(text, limit=_READ_LIMIT, lines=_READ_LIMIT)
    for pattern, instead in _ACCIDENTAL:
        text = pattern.sub(instead, text)
    return text


def normalised(message: str) -> str:
    """The message without what changes while a graph shrinks.

    Of a compiler's output only the lines that say "error:" stay; of a message of Triton that shows the kernel only what stands behind it
    (triton/compiler/errors.py, 3.6), of one that prints the graph only what stands before it.
    """
    lines = [line.rstrip() for line in message.strip().splitlines()]
    errors = [re.sub(r"^\s*\S*?:\d+:\d+:\s*", "", line).strip() for line in lines if re.search(r"\b(?:fatal )?error:", line)]
    if errors:
        return without_accidents("\n".join(sorted(set(errors))))[:_COMPILER_LIMIT]
    return without_accidents("\n".join(_before_details(_behind_kernel(lines))))[:MESSAGE_LIMIT]


_DETAILS = ("While executing", "Original traceback", "args[", "from user code", "Set TORCH", "graph():", "Command:", "Use tlparse")


def _before_details(lines: list[str]) -> list[str]:
    kept = []
    for line in map(str.strip, lines):
        if line.startswith(_DETAILS):
            break
        if line:
            kept.append(line)
    return kept


def _behind_kernel(lines: list[str]) -> list[str]:
    if lines and re.match(r"at \d+:\d+:", lines[0]):
        carets = [number for number, line in enumerate(lines) if line.strip() == "^"]
        behind = lines[carets[-1] + 1 :] if carets else []
        return behind or lines
    return lines


def says(output: str, message: str) -> bool:
    """Whether the output of a process holds each line of a normalised message, as whole words."""
    text = without_accidents(output)
    return all(_holds(text, line) for line in message.splitlines())


def _holds(text: str, line: str) -> bool:
    before, behind = (r"(?<!\w)" if re.match(r"\w", line) else ""), (r"(?!\w)" if re.search(r"\w$", line) else "")
    return re.search(f"{before}{re.escape(line)}{behind}", text) is not None


Kind = Literal["compile_error", "runtime_error", "crash", "hang", "oom", "wrong_result", "wrong_gradient", "wrong_mutation", "nan"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CRASHES = ("SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGBUS", "SIGTRAP", "SIGSYS")
"""Signals that end a process by its own fault."""
COMPARED = ("wrong_result", "wrong_gradient", "wrong_mutation", "nan")
"""Kinds that a comparison with the uncompiled run shows: two faults of one kind look alike."""
SILENT = ("oom", *COMPARED)
"""Kinds that no exception tells: each graph is looked at."""
Said = tuple[str, str]
"""The class of an exception without its module, and its normalised message: the same wherever it was raised and caught."""
_INNERMOST = 3
_TITLES = {"nan": "NaN or infinity where the uncompiled run is finite", "oom": "Out of memory"}
_WHEN = {
    "trace": "while Dynamo traces it",
    "compile": "while the back end compiles it",
    "call": "when it is called",
    "backward": "in its backward",
    "guards": "when its guards are checked",
    "run": "while it runs",
}
_DETAIL_LIMIT = 20_000


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failure. `exceptions` are class names, the outermost first; `message` is that of the innermost, normalised.

    `phase` is "trace" (Dynamo), "compile" (the backend), "call" or "backward". `detail` is the whole text, for people.
    """

    kind: str
    phase: str
    exceptions: tuple[str, ...] = ()
    message: str = ""
    frames: tuple[str, ...] = ()
    detail: str = ""

    def same_as(self, other: Failure) -> bool:
        """Whether both are the same failure; `detail` may differ."""
        return self.signature() == other.signature()

    def like(self, other: Failure) -> bool:
        """Whether both are the same failure, shown perhaps by another layer of the compiler, so in another phase and other functions."""
        return (self.kind, self.exceptions[-1:], self.message) == (other.kind, other.exceptions[-1:], other.message)

    def said(self) -> Said | None:
        """What the innermost exception said; None of a failure that is no exception."""
        return (self.exceptions[-1].rsplit(".", 1)[-1], self.message) if self.exceptions else None

    def matches(self, pattern: str | None) -> bool:
        """Whether the regular expression is found in what it says; None is found in everything."""
        return pattern is None or bool(re.search(pattern, f"{self.title()}\n{self.message}\n{self.detail}"))

    def signature(self) -> tuple[Any, ...]:
        """What is compared."""
        return (self.kind, self.phase, self.exceptions, self.message, self.frames)

    def title(self) -> str:
        """One line for a person."""
        what = (
            self.exceptions[-1].rsplit(".", 1)[-1] if self.exceptions else _TITLES.get(self.kind, self.kind.replace("_", " ").capitalize())
        )
        return f"{what}: {self.message.splitlines()[0][:200]}" if self.message else what

    def when(self) -> str:
        """Its phase in words, such as "when it is called"."""
        return _WHEN.get(self.phase, f"in phase {self.phase}")

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def said_by(exception: str, message: str) -> Said | None:
    """What an exception said, from the name of its class and its whole message; None where memory ran out: each such message is another."""
    if exception.rsplit(".", 1)[-1] in _MEMORY_CLASSES or any(sign in message for sign in _MEMORY_SIGNS):
        return None
    fault = gpu_fault(message)
    return (_GPU_ERROR.rsplit(".", 1)[-1], fault) if fault is not None else (exception.rsplit(".", 1)[-1], normalised(message))


def from_json(data: Mapping[str, Any]) -> Failure:
    """The failure that `to_json` wrote."""
    return Failure(**{**data, "exceptions": tuple(data["exceptions"]), "frames": tuple(data["frames"])})


def from_exception(error: BaseException, phase: str) -> Failure:
    """The failure that an exception is."""
    chain = chain_of(error)
    root = chain[-1]
    fault = next(filter(None, (gpu_fault(str(item)) for item in chain)), None)
    if fault is not None:
        # Reported by whichever call comes after the kernel, of whatever library, in any phase: where it was raised says nothing.
        detail = "".join(traceback.format_exception(error))[-_DETAIL_LIMIT:]
        return Failure(kind="runtime_error", phase="call", exceptions=(_GPU_ERROR,), message=fault, detail=detail)
    return Failure(
        kind="runtime_error" if phase in ("call", "backward") else "compile_error",
        phase=phase,
        exceptions=tuple(_class_name(element) for element in chain),
        message=normalised(str(root)),
        frames=_innermost(root),
        detail="".join(traceback.format_exception(error))[-_DETAIL_LIMIT:],
    )


_GPU_ERROR = "torch.AcceleratorError"
_FAULTS = (
    *("device-side assert", "illegal memory access", "misaligned address", "illegal instruction", "unspecified launch failure"),
    *("invalid address space", "invalid program counter", "stack", "launch timed out", "lane user stack overflow"),
)
_FAULT = re.compile(r"(?:CUDA (?:driver |runtime )?error|Triton Error \[CUDA\])\s*:\s*([^\n.]*)")


def gpu_fault(text: str) -> str | None:
    """A fault of a kernel in the words of the CUDA runtime, whoever tells it (torch, the driver, Triton); None in a text without one."""
    for said in _FAULT.findall(text):
        if any(fault in said for fault in _FAULTS):
            return f"CUDA error: {said.strip()}"
    return None


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed (`torch.OutOfMemoryError`, the CPU allocator's RuntimeError, Python's MemoryError, CUDA's own error)."""
    return any(type(item).__name__ in _MEMORY_CLASSES or any(sign in str(item) for sign in _MEMORY_SIGNS) for item in chain_of(error))


_MEMORY_CLASSES = ("OutOfMemoryError", "MemoryError")
_MEMORY_SIGNS = ("DefaultCPUAllocator: can't allocate memory", "CUDA error: out of memory")


def out_of_memory(error: BaseException, phase: str) -> Failure:
    """The failure of an allocation: which one of many is the last straw says nothing, so only the phase is compared."""
    detail = "".join(traceback.format_exception(error))[-_DETAIL_LIMIT:]
    return Failure(kind="oom", phase=phase, message="memory ran out", detail=detail)


def _class_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _innermost(error: BaseException) -> tuple[str, ...]:
    """The innermost functions, without generated code, whose names say nothing."""
    return _named([(frame.filename, frame.name) for frame in traceback.extract_tb(error.__traceback__)])


def _named(frames: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The last of these (file, function). What called inductor's code is left out: it depends on whether a gradient is needed (2.15)."""
    compiled = max((at for at, (file, _) in enumerate(frames) if _COMPILED.search(file)), default=-1)
    named = [f"{_short(file)}:{name}" for file, name in frames[compiled + 1 :] if not _is_generated(file)]
    return tuple((["inductor's code"] if compiled >= 0 else []) + named)[-_INNERMOST:]


# What inductor writes: `<cache>/ab/c<hash>.py` (`torch/_inductor/codecache.py`, 2.11 to 2.15), wherever the cache is.
_COMPILED = re.compile(r"torchinductor|[\\/][a-z2-7]{2}[\\/]c[a-z2-7]{40,}\.py$")
_CRASH_FRAME = re.compile(r'^  File "([^"\n]*)", line \d+ in (.+)$', re.MULTILINE)


def crash_frames(output: str) -> tuple[str, ...]:
    """The innermost functions of a process that died by a signal, from what `faulthandler` printed of the current thread."""
    _, found, stack = output.rpartition("\nCurrent thread ")
    if not found:
        return ()
    return _named(_CRASH_FRAME.findall(stack.split("\n\n")[0])[::-1])


def _is_generated(file: str) -> bool:
    return file.startswith("<") or _COMPILED.search(file) is not None or ":codegen(" in file or "/dynadiag/" in file.replace("\\", "/")


def _short(file: str) -> str:
    parts = PurePath(file).parts
    return "/".join(parts[parts.index("site-packages") + 1 :]) if "site-packages" in parts else parts[-1]


_ENVIRONMENT_ERRORS = {
    "InvalidCxxCompiler": "there is no C++ compiler",
    "ModuleNotFoundError": "a package is missing",
    "ImportError": "a package cannot be imported",
    "MemoryError": "out of memory",
    "KeyboardInterrupt": "it was interrupted",
    "BrokenProcessPool": "a compiler worker was killed",
}
_ENVIRONMENT_NUMBERS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is exceeded",
    errno.EFBIG: "a file exceeded the file size limit",
    errno.EMFILE: "too many files are open",
    errno.EROFS: "the disk is read-only",
}
_ENVIRONMENT_SIGNS = {
    "No space left on device": "the disk is full",
    "Killed signal terminated program": "the C++ compiler ran out of memory",
    "virtual memory exhausted": "the C++ compiler ran out of memory",
    "Cannot allocate memory": "out of memory",
    "CUDA error: out of memory": "the GPU ran out of memory",
    "CUDA-capable devices are busy or unavailable": "the GPU is busy or unavailable",
    "CUDA error: no CUDA-capable device": "there is no GPU",
    "Cannot re-initialize CUDA in forked subprocess": "CUDA was initialised before the fork",
    "ptxas fatal   : Memory allocation failure": "ptxas ran out of memory",
    "File size limit exceeded": "a file exceeded the file size limit",
    "Python.h: No such file or directory": "the Python headers are missing",
    "cannot execute 'cc1plus'": "the C++ compiler is incomplete",
}


def environment_trouble(error: BaseException) -> str | None:
    """Why this exception is the machine's fault and never the bug; None when it may be the bug."""
    for item in chain_of(error):
        for kind in type(item).__mro__:
            if kind.__name__ in _ENVIRONMENT_ERRORS:
                return f"{_ENVIRONMENT_ERRORS[kind.__name__]}: {str(item).strip().splitlines()[0] if str(item).strip() else kind.__name__}"
        if isinstance(item, OSError) and item.errno in _ENVIRONMENT_NUMBERS:
            return f"{_ENVIRONMENT_NUMBERS[item.errno]}: {item}"
        if isinstance(item, FileNotFoundError) and item.filename and "/" not in str(item.filename):
            return f"the program {item.filename} is missing"
        for sign, reason in _ENVIRONMENT_SIGNS.items():
            if sign in str(item):
                return reason
    return None


def shows(failure: Failure, status: int | None, output: str) -> bool:
    """Whether a process that ended with this exit status (None: not in time) and this output shows the failure."""
    if failure.kind == "hang":
        return status is None or (status == 1 and "Timeout (" in output)
    if failure.kind == "crash":
        return status is not None and status == _crash_status(failure)
    if status != 1 and not (status == -signal.SIGABRT and "CUDA error:" in failure.message):
        # After an error of a kernel the interpreter may abort while it frees what lives on the GPU; the traceback stands before that.
        return False
    if failure.kind == "oom":
        return any(sign in output for sign in ("can't allocate memory", "OutOfMemoryError", "MemoryError", "CUDA error: out of memory"))
    if failure.kind in COMPARED:
        return "AssertionError: wrong result" in output
    if failure.message.startswith("CUDA error:"):
        return (gpu_fault(output) or "").startswith(failure.message)
    if not failure.exceptions or failure.exceptions[-1].rsplit(".", 1)[-1] not in output:
        return False
    return says(output, failure.message)


def _crash_status(failure: Failure) -> int:
    if failure.message.startswith("exit "):
        return int(failure.message.removeprefix("exit "))
    return -int(signal.Signals[failure.message])
