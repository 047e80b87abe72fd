"""What Dynamo did with a frame beyond what its trace says: recompile limit, suppressed errors, frames without a graph."""

from __future__ import annotations

import logging
import sys
from types import CodeType, FrameType, ModuleType
from typing import Any

from dynadiag.torch_compat.trace import stacks, structured
from dynadiag.torch_compat.trace.hooks import Hooks

_NO_TENSOR = "no tensor-related objects found in frame"
_NOT_TOLD = (
    _NO_TENSOR,
    "skipfiles",
    "already started",
    "already Dynamo-generated",
    "an error was suppressed",
    "exception-directed",
    "namedtuple",
)


def watch_frames(convert_frame: ModuleType, hooks: Hooks) -> None:
    """Put hooks on small functions of `torch._dynamo.convert_frame` that it calls only when such a thing happens."""
    told: set[CodeType] = set()
    file = convert_frame.__file__
    limit = "exceeds_recompile_limit" if hasattr(convert_frame, "exceeds_recompile_limit") else "exceeds_cache_size_limit"  # up to 2.6
    hooks.install("recompile_limit", lambda: hooks.watch(convert_frame, limit, after=_limit(hooks), file=file))
    hooks.install("suppressed_error", lambda: hooks.watch(convert_frame, "format_error_msg", after=_suppressed(hooks, told), file=file))
    hooks.install("no_tensor", lambda: hooks.watch(convert_frame, "has_tensor_in_frame", after=_no_tensor(hooks, told), file=file))
    if hasattr(convert_frame, "add_skip_reason"):
        hooks.install("skip_reason", lambda: hooks.watch(convert_frame, "add_skip_reason", after=_skipped(hooks, told), file=file))


def _limit(hooks: Hooks) -> Any:
    """After `exceeds_recompile_limit(cache_size, compile_id) -> (exceeded, name of the limit)`, called by `_compile(code, ...)`."""

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        exceeded, limit = result
        if not exceeded:
            return
        code = _local_of_caller("_compile", "code")
        value = getattr(sys.modules["torch._dynamo.config"], limit, None)
        name = stacks.qualified_name(code) if code is not None else "a frame"
        text = f"{name} hit torch._dynamo.config.{limit} = {value}: new inputs run eagerly from now on"
        problem: dict[str, Any] = {"kind": "recompile_limit", "text": text, "limit": limit, "value": value}
        if code is not None:
            problem["stack"] = [stacks.place_of(code)]
        hooks.sink.artifact(
            "dynadiag_problem", problem, compile_ids=structured.compile_ids(args[1] if len(args) > 1 else kwargs.get("compile_id"))
        )

    return after


def _local_of_caller(function: str, name: str) -> CodeType | None:
    """A local variable of the nearest calling frame with that function name, read only."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    found = frame.f_locals.get(name) if frame is not None else None
    return found if isinstance(found, CodeType) else None


def _suppressed(hooks: Hooks, told: set[CodeType]) -> Any:
    """After `format_error_msg(error, code, record_filename, frame)`, called where errors are suppressed (soft ones are graph breaks)."""

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        error, code = args[0], args[1]
        exceptions = sys.modules["torch._dynamo.exc"]
        soft = tuple(kind for name in ("Unsupported", "UserError") if (kind := getattr(exceptions, name, None)))
        if isinstance(error, soft):
            _say_what_torch_does_not(hooks, told, error, code)
            return
        kind = "backend_error" if type(error).__name__ == "BackendCompilerFailed" else "suppressed_error"
        text = f"{type(error).__name__}: {_first_lines(str(error))}"
        problem = {"kind": kind, "text": text, "stack": [stacks.place_of(code)]}
        compile_id = getattr(error, "compile_id", None)
        hooks.sink.artifact("dynadiag_problem", problem, compile_ids=structured.compile_ids(compile_id) if compile_id is not None else None)

    return after


def _say_what_torch_does_not(hooks: Hooks, told: set[CodeType], error: BaseException, code: CodeType) -> None:
    """A frame left because of a graph break is reported by torch only while its log of graph breaks is on (`ConvertFrame.__call__`), and
    never where it is left before it has a compile id, as a generator is (2.11 and 2.15).
    """
    log = getattr(sys.modules["torch._dynamo.convert_frame"], "graph_break_log", None)
    compile_id = getattr(error, "compile_id", None)
    if compile_id is None:
        if not _began_to_compile(error):
            _tell(hooks, told, code, _first_lines(str(error)))
        return
    if log is None or log.isEnabledFor(logging.DEBUG):
        return
    problem = {"kind": "unlogged_skip", "text": _first_lines(str(error)), "stack": [stacks.place_of(code)]}
    hooks.sink.artifact("dynadiag_problem", problem, compile_ids=structured.compile_ids(compile_id))


def _began_to_compile(error: BaseException) -> bool:
    """Whether the error comes from inside `_compile`, which gives the frame its id: the trace has it, the recompile limit too."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_name != "_compile":
        place = place.tb_next
    return place is not None


def _first_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[:20])[:4000]


def _no_tensor(hooks: Hooks, told: set[CodeType]) -> Any:
    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if result is False:
            _tell(hooks, told, args[0].f_code, _NO_TENSOR)

    return after


def _skipped(hooks: Hooks, told: set[CodeType]) -> Any:
    """After `add_skip_reason(reason, frame)` (2.15); reasons that the trace tells, or that every library frame has, are left out."""

    def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        reason, frame = str(args[0]), args[1]
        if not any(part in reason for part in _NOT_TOLD):
            _tell(hooks, told, frame.f_code, reason)

    return after


def _tell(hooks: Hooks, told: set[CodeType], code: CodeType, reason: str) -> None:
    if code in told or stacks.is_library(code.co_filename):
        return
    told.add(code)
    text = f"{stacks.qualified_name(code)}: {reason}"
    hooks.sink.artifact("dynadiag_problem", {"kind": "no_graph", "text": text, "stack": [stacks.place_of(code)]}, compile_ids={})
