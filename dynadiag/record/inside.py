"""The recorder in the user's process: torch's trace and our own artifacts go to the log of this process, and nothing else changes."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dynadiag.errors import TorchUnsupportedError
from dynadiag.import_watcher import ImportWatcher
from dynadiag.process_identity import STARTER
from dynadiag.record import environment, settings, writer
from dynadiag.rules.libraries.names import distribution_of, package_names
from dynadiag.torch_compat import versions
from dynadiag.torch_compat.aot import cache_key_parts
from dynadiag.torch_compat.dispatch import own_operators
from dynadiag.torch_compat.dynamo import compiled_calls, counters, frames, graphs, guard_timing, options, switches
from dynadiag.torch_compat.dynamo.unguarded import UnguardedState
from dynadiag.torch_compat.inductor import cudagraph_skips
from dynadiag.torch_compat.trace import stacks, structured
from dynadiag.torch_compat.trace.compiled_work import WorkMeter
from dynadiag.torch_compat.trace.cost import CostMeter
from dynadiag.torch_compat.trace.eager_methods import MethodMeter
from dynadiag.torch_compat.trace.hooks import Hooks

if TYPE_CHECKING:
    from dynadiag.compare.live.watch import LiveComparison
    from dynadiag.compare.live.whole_calls import WholeCalls

_active: Recorder | None = None


class Recorder:
    """Writes what torch and our hooks say to one or more run directories; `failed` keeps our own errors out of the user's program."""

    def __init__(
        self,
        supervisor_pid: int | None,
        dynadiag: str,
        *,
        cost: bool = False,
        parity: tuple[int, int] = (0, 0),
        project: str | None = None,
        key_parts: bool = False,
    ) -> None:
        self.writers: list[writer.TraceWriter] = []
        self.hooks = Hooks(self)
        self.work = WorkMeter(self, timed=cost)
        self.cost = CostMeter(self) if cost else None
        self.calls = compiled_calls.CallCounter(self.work, self.cost)
        self.methods = MethodMeter(self, lambda: self.calls.begun, lambda: self.work.call is not None)
        self._dynadiag = dynadiag
        self._project = project
        starters = (str(supervisor_pid), os.environ.get(STARTER))
        self._started_by = "main" if supervisor_pid is None or str(os.getppid()) in starters else "child"
        self._pid = os.getpid()
        self._epoch = 0
        self._errors: set[tuple[str, str]] = set()
        self._parity_calls, self._parity_cap_bytes = parity
        self._live: LiveComparison | None = None
        self._whole_calls: WholeCalls | None = None
        self._unguarded = UnguardedState(self.hooks)
        self._watcher = ImportWatcher(
            {
                "torch._logging._internal": self._on_trace_log,
                "torch.library": self._on_library,
                "torch": self._on_torch,
                "torch.export._trace": lambda module: structured.watch_export(module, self.hooks),
                "torch._dynamo.eval_frame": self._on_eval_frame,
                "torch._dynamo.decorators": lambda module: switches.watch_disable(module, self.hooks),
                "torch._dynamo.convert_frame": lambda module: frames.watch_frames(module, self.hooks),
                **({"torch._dynamo.guards": lambda module: guard_timing.watch_guard_parts(module, self.hooks)} if cost else {}),
                **(
                    {"torch._functorch._aot_autograd.autograd_cache": lambda module: cache_key_parts.watch_key_parts(module, self.hooks)}
                    if key_parts
                    else {}
                ),
                "torch._dynamo.package": lambda module: switches.watch_code_cache(module, self.hooks),
                "torch._dynamo.output_graph": self._on_output_graph,
                "torch._dynamo.symbolic_convert": self._unguarded.watch_generators,
                "torch.distributions.distribution": self._unguarded.watch_distributions,
                cudagraph_skips.MODULE: lambda module: cudagraph_skips.watch_skips(module, self.hooks),
                cudagraph_skips.PARTITIONS: lambda module: cudagraph_skips.watch_partitions(module, self.hooks),
                cudagraph_skips.TREES: lambda module: cudagraph_skips.watch_recordings(module, self.hooks),
                "torch._dynamo": self._on_dynamo,
            }
        )

    # -- what hooks call (the `Sink` of torch_compat.trace.hooks)

    def artifact(self, name: str, content: Any, *, context: bool = True, compile_ids: dict[str, Any] | None = None) -> None:
        """Write one artifact to every log, with the ids of the compilation that runs now or of the one given."""
        try:
            keys = self._keys(context, compile_ids)
            for log in self.writers:
                log.artifact(name, content, keys)
                if name == "dynadiag_graph":
                    self._functions(log, stacks.functions_named_in(content["strings"]))
        except Exception as error:  # noqa: BLE001 - border: in the user's process, where an import of torch may have called us
            self.failed(f"artifact {name}", error)

    def failed(self, hook: str, error: BaseException) -> None:
        """Write our own error into the log, once each."""
        text = f"{hook}: {type(error).__name__}: {error}"
        if (hook, text) not in self._errors:
            self._errors.add((hook, text))
            self.artifact("dynadiag_problem", {"kind": "recorder", "text": text})

    # -- life

    def start(self, directory: str, cap_bytes: int) -> writer.TraceWriter:
        """Record into `directory` from now on; the first call puts the hooks in."""
        log = writer.TraceWriter(directory, cap_bytes, structured.current_rank, self._introduce)
        self.writers.append(log)
        if len(self.writers) == 1:
            self._errors.clear()
            self._watcher.install()
        return log

    def compare_calls(self, calls: int, cap_bytes: int) -> None:
        """Compare the first calls of each graph with eager from the next `start` on, unless a recording is running."""
        if not self.writers:
            self._parity_calls, self._parity_cap_bytes = calls, cap_bytes

    def stop(self, log: writer.TraceWriter) -> None:
        """End the recording into one log, which says so even when nothing else was seen; the last one takes the hooks out."""
        if log.is_open or os.getpid() == self._pid:
            self._say_goodbye(log)
        log.close()
        self.writers.remove(log)
        if not self.writers:
            self._watcher.remove()
            self.hooks.undo()

    def finish(self) -> None:
        """At exit, once: Dynamo's counters and the health of the hooks; the main process is written even when it only imported torch."""
        if self.cost is not None and (self._role() == "main" or any(log.is_open for log in self.writers)):
            self.cost.finish()
        for log in self.writers:
            if (log.is_open or self._role() == "main") and log.once("finished"):
                if (raised := stacks.uncaught_exception()) is not None:
                    log.artifact("dynadiag_problem", raised, {}, beyond_cap=True)
                    self._functions(log, stacks.custom_functions_named_in(raised["text"]))
                self._say_goodbye(log)

    @property
    def is_main(self) -> bool:
        """Whether this is the process that the supervisor started."""
        return self._role() == "main"

    @property
    def watcher(self) -> ImportWatcher:
        """The finder that waits for torch's modules."""
        return self._watcher

    # -- records

    def on_record(self, record: logging.LogRecord) -> None:
        """One record of torch's trace: what must stand before it, then the record itself."""
        try:
            metadata, payload = vars(record).get("metadata"), vars(record).get("payload")
            for log in self.writers:
                if isinstance(metadata, dict):
                    self._precede(log, metadata, payload)
                log.record(metadata, payload, record.pathname, record.lineno)
            if isinstance(metadata, dict) and "dynamo_start" in metadata:
                self.work.compiles()
                self._entered(stacks.entry_stack())
        except Exception as error:  # noqa: BLE001 - border: our handler in the user's process
            self.failed("handler", error)

    def _precede(self, log: writer.TraceWriter, metadata: dict[str, Any], payload: Any) -> None:
        if "dynamo_start" in metadata or _is_artifact(metadata, "recompile_reasons"):
            call = self.calls.begun
            if call is not None and log.once(("call", call)):  # torch tells what failed before the new compilation begins
                log.artifact("dynadiag_call", {"call": call}, self._keys(False, None))
        if _is_artifact(metadata, "recompile_reasons") and isinstance(payload, str) and "GLOBAL_STATE changed" in payload:
            self._sources(log, stacks.lines_that_set_state(payload, stacks.entry_stack()))
        if "dynamo_start" in metadata:
            state = options.changes()
            if log.once(("config", repr(state))):
                first = log.once("option_names")
                log.artifact(
                    "dynadiag_config",
                    options.describe(state, names=first, device=environment.device_name()),
                    self._keys(True, None),
                )
            self._libraries(log)
            self._function_compiled(log, metadata["dynamo_start"], again=bool(metadata.get("frame_compile_id")))
            return
        if isinstance(payload, str) and ("artifact" in metadata or "compilation_metrics" in metadata):
            for entry in options.entries_named_in(payload):
                if log.once(entry["gb_id"]):
                    log.artifact("dynadiag_registry", entry, {})
                self._sources(log, stacks.statements_named_in(payload))
                self._functions(log, stacks.functions_called_after(payload))
                self._library_functions(log, payload)
        if isinstance(payload, str) and _is_artifact(metadata, "dynamo_error"):
            self._functions(log, stacks.functions_traced_in(payload))
            self._library_functions(log, payload)

    def _function_compiled(self, log: writer.TraceWriter, start: Any, *, again: bool) -> None:
        """The source of a function that is compiled, once; of one that is compiled again advice asks how it uses what changed."""
        stack = start.get("stack") if isinstance(start, dict) else None
        code = stack[-1] if stack else {}  # the frame itself (`log_dynamo_start`, torch/_dynamo/convert_frame.py, 2.6 to 2.15)
        number, line = code.get("filename"), code.get("line")
        if isinstance(number, int) and isinstance(line, int) and log.once(("function", number, line, again)):
            file = next((text for text, item in structured.interned_strings().items() if item == number), "")
            resumed = str(code.get("name")).startswith("torch_dynamo_resume_in_")  # its line is that of a break
            self._functions(log, () if resumed or (whole := stacks.whole_function(file, line)) is None else (whole,))
            if again and (text := stacks.function_at(file, line)):
                log.artifact("dynadiag_source", {"file": file, "line": line, "text": text}, {})
                self._sources(log, filter(None, (stacks.imports_of(file),)))

    def _libraries(self, log: writer.TraceWriter) -> None:
        """The versions of the packages of the atlas that are imported by now, once each."""
        for package in package_names():
            if package in sys.modules and log.once(("library", package)):
                version = environment.installed(distribution_of(package))
                if version is not None:
                    log.artifact("dynadiag_library", {"package": package, "version": version}, {})

    def _entered(self, stack: list[dict[str, Any]]) -> None:
        """The callers of the frame that is compiled, and the source of the innermost function or statement of the user's among them."""
        self.artifact("dynadiag_entry", {"stack": stack, "call": self.calls.begun})
        for log in self.writers:
            self._functions(log, stacks.innermost_own_function(stack))
            self._sources(log, stacks.innermost_own_statement(stack))

    def _sources(self, log: writer.TraceWriter, found: Iterable[dict[str, Any]]) -> None:
        for record in found:
            if log.once(("source", record["file"], record["line"])):
                log.artifact("dynadiag_source", record, {})

    def _library_functions(self, log: writer.TraceWriter, text: str) -> None:
        for record in stacks.library_functions_named_in(text):
            if log.once(("library function", record["file"], record["line"])):
                log.artifact("dynadiag_library_function", record, {})

    def _functions(self, log: writer.TraceWriter, found: Iterable[dict[str, Any]]) -> None:
        for record in found:
            if log.once(("whole function", record["file"], record["line"])):
                log.artifact("dynadiag_function", record, {})

    def _introduce(self, log: writer.TraceWriter) -> None:
        """The first records of a log: who we are, and torch's string table when it was not empty."""
        try:
            description = environment.describe_process(self._dynadiag, structured.current_rank(), self._role(), self._project)
            log.artifact("dynadiag_environment", description, self._keys(False, None))
        except Exception as error:  # noqa: BLE001 - border: whichever hook opened the log must not fail for it
            self.failed("environment", error)
        for text, number in structured.interned_strings().items():
            log.record({"str": [text, number]}, None, __file__, 0)
        _finish_with_worker()
        if self._epoch:
            log.artifact("dynadiag_reset", {"epoch": self._epoch}, {})

    def _say_goodbye(self, log: writer.TraceWriter) -> None:
        log.artifact("dynadiag_hooks", dict(self.hooks.health), {}, beyond_cap=True)
        for method in self.methods.found():
            log.artifact("dynadiag_eager_method", method, {}, beyond_cap=True)
        log.artifact(
            "dynadiag_exit",
            {
                "counters": counters.snapshot(),
                "device": environment.device_name(),
                "calls": self.calls.begun,
                "no_compiled_work": self.work.why_not(),
            },
            {},
            beyond_cap=True,
        )

    def _keys(self, with_context: bool, compile_ids: dict[str, Any] | None) -> dict[str, Any]:
        rank = structured.current_rank()
        keys: dict[str, Any] = {} if rank is None else {"rank": rank}
        if compile_ids is not None:
            return keys | compile_ids
        return keys | structured.current_compile_ids() if with_context else keys

    def _role(self) -> str:
        return self._started_by if os.getpid() == self._pid else "fork"

    # -- torch arrives

    def _on_trace_log(self, internal: ModuleType) -> None:
        structured.listen(internal, self.on_record, self.hooks)

    def _on_library(self, library: ModuleType) -> None:
        """Operators that come later are known by their code when calls are compared."""
        if self._parity_calls:
            own_operators.watch_library(library, self.hooks)

    def _on_output_graph(self, output_graph: ModuleType) -> None:
        graphs.watch_graphs(output_graph, self.hooks, self.cost, self.work, self._unguarded)
        if self._parity_calls:
            self.hooks.install("parity", lambda: self._compare_calls(output_graph))

    def _compare_calls(self, output_graph: ModuleType) -> None:
        """Comparing needs torch itself, which is there by now."""
        if (why := versions.too_old("--parity", str(sys.modules["torch"].__version__))) is not None:
            raise TorchUnsupportedError(why)
        from dynadiag.compare.live.regions import LiveOptions
        from dynadiag.compare.live.watch import LiveComparison

        options = LiveOptions(calls=self._parity_calls, cap_bytes=self._parity_cap_bytes)
        room = functools.partial(self.work.make_room, "the calls that could have been counted were compared with eager (--parity)")
        self._live = LiveComparison(self, options, lambda: self._epoch, room)
        if (whole := self._whole_calls) is not None:
            self._live.whole_call = lambda: whole.current
        self._live.watch(output_graph, self.hooks)

    def _on_torch(self, torch: ModuleType) -> None:
        switches.watch_compile(torch, self.hooks)
        self._unguarded.watch_hooks(sys.modules["torch.utils.hooks"])
        if self._parity_calls and versions.too_old("--parity", str(torch.__version__)) is None:
            self.hooks.install("whole_calls", self._compare_whole_calls)

    def _compare_whole_calls(self) -> None:
        from dynadiag.compare.live.regions import LiveOptions
        from dynadiag.compare.live.whole_calls import WholeCalls

        options = LiveOptions(calls=self._parity_calls, cap_bytes=self._parity_cap_bytes)
        graphs_begun = lambda: 0 if self._live is None else self._live.begun  # noqa: E731
        self._whole_calls = WholeCalls(self, options, graphs_begun, self._fall_silent, self._unguarded.check_distributions)
        self._whole_calls.watch(self.hooks)

    def _fall_silent(self) -> None:
        """In a copy of the process nothing is recorded."""
        self.writers = []
        if self._live is not None:
            self._live.asleep = True

    def _on_eval_frame(self, eval_frame: ModuleType) -> None:
        switches.watch_stance(eval_frame, self.hooks)
        self.work.watch(eval_frame, self.hooks)
        if self.cost is not None:
            self.cost.watch_calls(eval_frame, self.hooks)
        self.calls.watch(eval_frame, self.hooks)
        self.methods.watch(eval_frame, self.hooks)

    def _on_dynamo(self, dynamo: ModuleType) -> None:
        """Dynamo was imported: the process gets a log even when nothing compiles, so that this can be said."""
        switches.watch_reset(dynamo, self.hooks, self._on_reset)
        if self.cost is not None:
            self.hooks.install("cost", lambda: None)
        self.artifact("dynadiag_hooks", dict(self.hooks.health), context=False)

    def _on_reset(self) -> None:
        self._epoch += 1
        self._unguarded.forget()
        self.work.reset()
        self.artifact("dynadiag_reset", {"epoch": self._epoch}, context=False)


def start_from_environment() -> ImportWatcher | None:
    """Start recording as the supervisor asked; None when it did not ask, or in one of torch's own compile workers."""
    global _active
    wanted = settings.from_environment()
    if wanted is None or _is_compile_worker() or _active is not None:
        return None
    parity = wanted.parity_calls, wanted.parity_cap_bytes
    _active = Recorder(
        wanted.supervisor_pid, wanted.dynadiag, cost=wanted.cost, parity=parity, project=wanted.project, key_parts=wanted.key_parts
    )
    _active.start(wanted.directory, wanted.log_cap_bytes)
    atexit.register(_finish)
    return _active.watcher


def tell_of_early_end() -> None:
    """At the exit of a program that never looked for torch: write the exception that ended it, if the supervisor started this process."""
    if start_from_environment() is not None and _active is not None and _active.is_main:
        _finish()


def _is_artifact(metadata: dict[str, Any], name: str) -> bool:
    artifact = metadata.get("artifact")
    return isinstance(artifact, dict) and artifact.get("name") == name


def active(dynadiag: str) -> Recorder:
    """The recorder of this process, made when there is none yet."""
    global _active
    if _active is None:
        _active = Recorder(None, dynadiag)
        atexit.register(_finish)
    return _active


def _finish() -> None:
    if _active is None:
        return
    try:
        _active.finish()
    except Exception as error:  # noqa: BLE001 - border: our exit handler in the user's process
        _active.failed("exit", error)


def _finish_with_worker() -> None:
    """Forked workers of `multiprocessing` leave without `atexit`; they run its finalizers instead."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _finish, exitpriority=0)


def _is_compile_worker() -> bool:
    """Inductor's pool of compile workers (`torch/_inductor/compile_worker/__main__.py`, 2.11 to 2.15) is no user process."""
    arguments = getattr(sys, "orig_argv", [])
    return any("compile_worker" in argument and "torch" in argument for argument in arguments)
