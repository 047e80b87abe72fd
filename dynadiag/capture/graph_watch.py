"""Watching each graph that Dynamo hands to a backend: what is compiled or called now, what it raised, and one graph with its real inputs.

The state of each process is a few bytes of mapped memory in a file, so that it survives a segmentation fault, a hang and `kill -9`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import mmap
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from dynadiag.capture.graph_capture import ALWAYS, CALLING, COMPILING, EVERY, IDLE, LATER_INPUTS, NONE, STATE
from dynadiag.files import extended, new_file, write_inside
from dynadiag.torch_compat.causes import chain_of
from dynadiag.torch_compat.dispatch.saved_values import EarlierCalls, save_values, to_saved
from dynadiag.torch_compat.dynamo import options
from dynadiag.torch_compat.dynamo.backend import describe_backend, describe_option
from dynadiag.torch_compat.dynamo.graphs import input_source
from dynadiag.torch_compat.dynamo.user_compiler import watch_calls, watch_compiler

_TEXT_LIMIT = 20_000
_MESSAGE_LIMIT = 8 << 20  # a C++ compiler can say its one error before megabytes of warnings
_MOST_KEPT = 50
_SMALL_BYTES = 16 << 20


class GraphWatch:
    """Writes `state-<pid>`, `failures-<pid>.jsonl` and `graph-<n>/` into a folder; our own errors go to `problems.txt` there."""

    def __init__(self, directory: str, *, graph: int, call: int, region: Sequence[int] = (), calls: int = 1) -> None:
        self._directory = directory
        self._wanted = graph
        self._call = call
        self._calls = calls
        self._earlier = EarlierCalls(directory, only=None if graph in (EVERY, ALWAYS) else region)
        self._numbers = itertools.count()
        self._settled: set[int] = set()
        self._texts: dict[int, tuple[str, dict[str, Any]]] = {}
        self._kept = 0
        self._folders: dict[tuple[int, int], str] = {}
        self._state: mmap.mmap | None = None
        self._pid = -1

    def attach(self, output_graph: ModuleType) -> None:
        """Watch every graph that goes to a backend from now on."""
        watch_compiler(output_graph, self._begin, end=self._end, failed=self._raised, restarted=self._done_with)

    def _begin(self, graph: Any, module: Any, inputs: Callable[[], Sequence[Any]]) -> tuple[int, Any, Any]:
        number, given = next(self._numbers), inputs()
        self._quietly(lambda: self._before_compile(number, graph, module, given))
        return number, graph, given

    def _raised(self, begun: tuple[int, Any, Any], error: Exception) -> None:
        number, graph, given = begun
        self._quietly(lambda: self._failed(number, "compile", 0, error))
        self._quietly(lambda: self._keep_failed(number, graph, given))

    def _done_with(self, begun: tuple[int, Any, Any]) -> None:
        """The graph is done with: it did not fail, or Dynamo traces its frame again and makes another."""
        number, *_ = begun
        self._texts.clear()
        self._quietly(lambda: self._note(IDLE, number, 0))
        if self._wanted == NONE:
            self._quietly(lambda: self._forget(number))

    def _end(self, begun: tuple[int, Any, Any], compiled: Any) -> Any:
        number, *_ = begun
        self._done_with(begun)
        return self._watched(compiled, number)

    def _watched(self, compiled: Any, number: int) -> Any:
        """The compiled graph, each call noted before it is made."""

        def before(call: int, args: tuple[Any, ...]) -> int:
            self._quietly(lambda: self._before_call(number, call, args))
            return call

        def after(call: int, args: tuple[Any, ...], results: Any) -> None:
            self._settle()
            self._quietly(lambda: self._note(IDLE, number, call))

        def failed(call: int, error: Exception) -> None:
            self._quietly(lambda: self._failed(number, "call", call, error))

        return watch_calls(compiled, before, after=after, failed=failed)

    def _settle(self) -> None:
        """Wait for the GPU, so that an error of a kernel is told of the graph that started it and not of whichever call comes later."""
        cuda = sys.modules["torch"].cuda
        if cuda.is_initialized() and not cuda.is_current_stream_capturing():
            cuda.synchronize()

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 - border: our hooks in the user's process
            with contextlib.suppress(OSError), os.fdopen(extended(self._path("problems.txt")), "a", encoding="utf-8") as file:
                file.write(traceback.format_exc() + "\n")

    def _before_compile(self, number: int, graph: Any, module: Any, inputs: Any) -> None:
        self._note(COMPILING, number, 0)
        self._earlier.compiling(number, graph, module)
        if self._wanted in (number, EVERY, ALWAYS):
            folder = self._folder(number)
            self._save_graph(folder, graph, module)
            self._save_inputs(folder, inputs, number, 0)
        elif self._wanted == NONE:
            # A backend may change the graph, so its text is taken now. Written only if the backend raises; before, where that is cheap: it
            # may end the process, or not end.
            attributes = _attributes(sys.modules["torch"], module)
            self._texts[number] = _text_of(module), attributes
            if self._kept < _MOST_KEPT and _is_small([*inputs, *(attribute["value"] for attribute in attributes.values())]):
                self._kept += 1
                self._keep_failed(number, graph, inputs)

    def _keep_failed(self, number: int, graph: Any, inputs: Any) -> None:
        """The graph whose compiler raised, so that the script need not run again: nothing has written its inputs yet."""
        if number not in self._texts:
            return
        folder = self._folder(number)
        self._save_captured(folder, graph, *self._texts.pop(number))
        self._save_inputs(folder, inputs, number, 0)

    def _forget(self, number: int) -> None:
        """Delete what was kept of a graph that was compiled."""
        if (folder := self._folders.pop((os.getpid(), number), None)) is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _before_call(self, number: int, call: int, args: tuple[Any, ...]) -> None:
        self._note(CALLING, number, call)
        always = self._wanted == ALWAYS and number not in self._settled
        if (self._wanted == number and self._call == call) or (self._wanted == EVERY and call == 1) or always:
            self._save_inputs(self._folder(number), args, number, call)
        if self._wanted == EVERY and 1 < call <= self._calls:
            self._save_inputs(self._folder(number), args, number, call, LATER_INPUTS.format(call))
        if number not in self._settled and not (self._wanted == number and call >= self._call):
            self._earlier.keep(number, call, args, just_before=self._wanted == number and call == self._call - 1)

    def _save_graph(self, folder: str, graph: Any, module: Any) -> None:
        self._save_captured(folder, graph, _text_of(module), _attributes(sys.modules["torch"], module))
        write_inside(Path(folder), "origins.json", json.dumps(_origins(module)))

    def _save_captured(self, folder: str, graph: Any, text: str, attributes: dict[str, Any]) -> None:
        torch = sys.modules["torch"]
        described, trouble = describe_backend(graph.compiler_fn)
        configs, lost = _described_configs()
        state = {
            "pid": os.getpid(),
            **described,
            "trouble": trouble,
            "grad": bool(torch.is_grad_enabled()),
            "inference": bool(torch.is_inference_mode_enabled()),
            "autocast": _autocast(torch),
            "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
            "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
            "matmul_precision": torch.get_float32_matmul_precision(),
            "configs": configs,
            "configs_lost": lost,
        }
        _save_text(folder, text, attributes)
        write_inside(Path(folder), "setting.json", json.dumps(state))

    def _save_inputs(self, folder: str, values: Any, number: int, call: int, name: str = "inputs.pt") -> None:
        save_values(os.path.join(folder, name), values, self._earlier.facts(number, call))  # noqa: PTH118

    def _failed(self, number: int, phase: str, call: int, error: BaseException) -> None:
        self._settled.add(number)
        text = "".join(traceback.format_exception(error))[-_TEXT_LIMIT:]
        root = chain_of(error)[-1]
        line = {"graph": number, "phase": phase, "call": call, "title": f"{type(error).__name__}: {error}"[:500], "text": text}
        line |= {"exception": type(root).__qualname__, "message": str(root)[:_MESSAGE_LIMIT]}
        with os.fdopen(extended(self._path(f"failures-{os.getpid()}.jsonl")), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._note(IDLE, number, call)

    def _note(self, state: int, number: int, call: int) -> None:
        if self._pid != os.getpid() or self._state is None:
            self._pid = os.getpid()
            with os.fdopen(extended(self._path(f"state-{self._pid}"), keep_bytes=0), "w+b") as file:
                file.write(STATE.pack(IDLE, -1, 0))
                file.flush()
                self._state = mmap.mmap(file.fileno(), STATE.size)
        STATE.pack_into(self._state, 0, state, number, call)

    def _folder(self, number: int) -> str:
        """The folder of a graph. Processes count their graphs each for itself: the second to come adds its own number."""
        mine = (os.getpid(), number)
        if mine not in self._folders:
            self._folders[mine] = self._path(f"graph-{number}")
            try:
                os.mkdir(self._folders[mine])  # noqa: PTH102
            except FileExistsError:
                if _pid_of(self._folders[mine]) != os.getpid():
                    self._folders[mine] += f".{os.getpid()}"
                    os.makedirs(self._folders[mine], exist_ok=True)  # noqa: PTH103
        return self._folders[mine]

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)  # noqa: PTH118


def _is_small(inputs: Sequence[Any]) -> bool:
    """Whether the inputs are written in milliseconds, and without waiting for a GPU."""
    tensors = [input_ for input_ in inputs if isinstance(input_, sys.modules["torch"].Tensor)]
    try:
        return (
            all(tensor.device.type == "cpu" for tensor in tensors)
            and sum(item.untyped_storage().nbytes() for item in tensors) <= _SMALL_BYTES
        )
    except RuntimeError:  # of a tensor without a memory, such as a sparse one
        return False


def save_graph_files(folder: str, module: Any, values: Any) -> None:
    """Write a graph with its inputs and the tensors that it holds, as `dynadiag.reduce.graphs.loading` reads them."""
    _save_text(folder, _text_of(module), _attributes(sys.modules["torch"], module))
    save_values(os.path.join(folder, "inputs.pt"), values, {})  # noqa: PTH118


def _text_of(module: Any) -> str:
    return str(module.print_readable(print_output=False, include_stride=True, include_device=True))


def _save_text(folder: str, text: str, attributes: dict[str, Any]) -> None:
    torch = sys.modules["torch"]
    write_inside(Path(folder), "graph.txt", text)
    with new_file(folder, "attributes.pt") as stream:
        torch.save(to_saved(torch, attributes), stream)


def _pid_of(folder: str) -> int | None:
    """The process that captured the graph in a folder, None where that is not written yet."""
    try:
        with open(os.path.join(folder, "setting.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            return json.load(file).get("pid")  # type: ignore[no-any-return]
    except (OSError, ValueError):
        return None


def _attributes(torch: Any, module: Any) -> dict[str, Any]:
    """The tensors that the graph reads from its module."""
    found = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = functools.reduce(getattr, str(node.target).split("."), module)
            if isinstance(value, torch.Tensor):
                found[str(node.target)] = {"value": value.detach(), "home": str(value.device)}
    return found


def _origins(module: Any) -> dict[str, list[str]]:
    """By the name of a node the innermost module of the program's that it is in, its whole stack, of which the text has one line, and
    of an input Dynamo's name of its source.
    """
    found = {}
    for node in module.graph.nodes:
        stack = node.meta.get("nn_module_stack")
        found[node.name] = [str([*stack.values()][-1][0]) if stack else "", str(node.meta.get("stack_trace") or "")]
        found[node.name].append(input_source(node) or "")
    return found


def _autocast(torch: Any) -> tuple[str, str] | None:
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return device, str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return None


def _described_configs() -> tuple[list[tuple[str, Any]], list[str]]:
    """Options that are not at their default, as plain data; and the names of those that a script cannot spell."""
    found = {f"{area}.{name}": value for area, options in options.changes().items() for name, value in options.items()}
    described = {name: describe_option(value) for name, value in found.items() if value is not None}
    described |= {name: None for name, value in found.items() if value is None}
    lost = [name for name, value in described.items() if value is None and found[name] is not None]
    return [(name, value) for name, value in described.items() if name not in lost], lost
