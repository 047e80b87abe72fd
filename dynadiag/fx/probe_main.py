"""The probe's process: `PYTHON probe_main.py RUN_DIRECTORY [--budget-s S]` in the interpreter of the recorded script.

Reads the run directory, follows each Dynamo graph on fake tensors, and appends one `dynadiag_probe` record a graph to the log that the
graph is in. Loaded by file location: dynadiag need not be installed in that interpreter, and nothing else of ours becomes importable there.

A record: {"format": 1, "graph": id, "text_offset": where the graph's text lies in its log, "runnable": true|false|null, "why_not": text or
null, "mutations": [...] or null, "error": text or null, "notes": [...], "refusal": {"text", "basis"} or null} with `mutations` and
`refusal` as `dynadiag.fx.mutation_records` has them. A graph that has such a record is not probed again.
"""

from __future__ import annotations

import sys

# The folder of this file holds modules named like the user's own (`inputs`, `script`): it must not be searched.
if sys.path and sys.path[0].rstrip("/").endswith("dynadiag/fx"):
    del sys.path[0]

import argparse
import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.model.graph import Graph
    from dynadiag.model.run import Run

PACKAGE = Path(__file__).resolve().parents[1]
_MARKER = "dynadiag-run.json"


def main(arguments: list[str], *, restart: Callable[[float], None] | None = None) -> int:
    """Probe the run; 0 when every graph has a record, 2 for no readable run directory of ours, 3 without torch.

    `restart` is called with the seconds that are left after a graph was stopped, to go on in a fresh process.
    """
    options = _options(arguments)
    if not (options.run / _MARKER).is_file():
        return _stop(f"{options.run} is not a dynadiag run directory: nothing is probed", 2)
    if importlib.util.find_spec("torch") is None:
        return _stop("mutations are not probed: this interpreter has no torch", 3)
    load_package()
    from dynadiag import trace
    from dynadiag.errors import DynadiagError

    try:
        run = trace.load(options.run)
    except DynadiagError as error:
        return _stop(error.message, 2)
    # A record under our own number would count as one more process of the run.
    pids = {frame.id: run.processes[frame.key.process].pid for frame in run.frames}
    _warm_up(run)
    until = time.monotonic() + options.budget_s
    for graph, record, stopped in records(run, until):
        _append(Path(graph.text.log), pids.get(graph.frame) or 0, record)  # type: ignore[union-attr]
        if stopped and restart is not None:
            restart(until - time.monotonic())
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="probe_main.py")
    parser.add_argument("run", type=Path)
    parser.add_argument("--budget-s", type=float, default=60.0)
    return parser.parse_args(arguments)


def _stop(text: str, status: int) -> int:
    print(f"dynadiag: {text}", file=sys.stderr)
    return status


def load_package() -> None:
    """Make `dynadiag` importable from where this file lies, unless it already is imported."""
    if "dynadiag" in sys.modules:
        return
    if sys.version_info < (3, 11):  # noqa: UP036 - the script's interpreter, not ours
        _understand_newer_patterns()
    if sys.version_info < (3, 10):  # noqa: UP036
        _understand_newer_python()
    spec = importlib.util.spec_from_file_location("dynadiag", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dynadiag"] = module
    spec.loader.exec_module(module)


def _understand_newer_patterns() -> None:
    """Before Python 3.11, in this process of ours alone: `a++` is read as `a+`, which is slower and matches the same."""
    import re

    plain_compile: Any = re.compile
    part = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|([*+?}])\+", re.DOTALL)

    def compile_without(pattern: Any, flags: Any = 0) -> Any:
        is_text = isinstance(pattern, str)
        if not is_text and not isinstance(pattern, bytes):
            return plain_compile(pattern, flags)
        text = pattern if is_text else pattern.decode("latin-1")
        plain = part.sub(lambda match: match[1] or match[0], text)
        return plain_compile(plain if is_text else plain.encode("latin-1"), flags)

    vars(re)["compile"] = compile_without


def _understand_newer_python() -> None:
    """On Python 3.9, in this process of ours alone: `dataclass(slots=, kw_only=)` and `zip(strict=)`, which our modules use."""
    import builtins
    import dataclasses

    plain_dataclass: Any = dataclasses.dataclass
    plain_zip: Any = builtins.zip

    def dataclass(cls: Any = None, *, slots: bool = False, kw_only: bool = False, **options: Any) -> Any:
        def decorate(cls: Any) -> Any:
            if kw_only:  # fields without a default may stand behind others, as nobody gives them by position
                notes = vars(cls).get("__annotations__", {})
                cls.__annotations__ = {**{name: note for name, note in notes.items() if name not in vars(cls)}, **notes}
            return plain_dataclass(cls, **options)

        return decorate if cls is None else decorate(cls)

    class LengthCheckingZip(plain_zip):  # type: ignore[misc]
        def __new__(cls, *iterables: Any, strict: bool = False) -> Any:
            if not strict:
                return plain_zip.__new__(cls, *iterables)
            lists = [list(iterable) for iterable in iterables]
            if len({len(group) for group in lists}) > 1:
                raise ValueError("zip() arguments have different lengths")
            return plain_zip.__new__(cls, *lists)

    vars(dataclasses)["dataclass"] = dataclass
    vars(builtins)["zip"] = LengthCheckingZip


def _unprobed(run: Run) -> list[Graph]:
    return [graph for graph in run.graphs if graph.text is not None and graph.probe is None]


def _warm_up(run: Run) -> None:
    """What every graph needs; on a slow machine it may take longer than all graphs may, and it is none of their time."""
    if any(graph.kind == "dynamo" for graph in _unprobed(run)):
        from dynadiag.fx.probe_graph import warm_up

        warm_up()


def records(run: Run, until: float) -> Iterator[tuple[Graph, dict[str, Any], bool]]:
    """A record for each graph that has none yet, and whether it was stopped; `until` is the end of the time (`time.monotonic`)."""
    for graph in _unprobed(run):
        stopped = False
        content: dict[str, Any] = {"runnable": None, "mutations": None, "error": None, "notes": [], "refusal": None}
        if graph.kind == "dynamo":
            from dynadiag.fx.probe_graph import probe_graph

            found, stopped = probe_graph(graph, run, seconds=until - time.monotonic())
            content |= found
        else:
            content["why_not"] = "only Dynamo's graphs are tried after a run; `dynadiag graph` tries this one"
        assert graph.text is not None
        yield graph, {"format": 1, "graph": graph.id, "text_offset": graph.text.offset, **content}, stopped


def _append(log: Path, pid: int, content: dict[str, Any]) -> None:
    """One record in torch's own trace format (`torch._logging._internal.TorchLogsFormatter`), in one write, after a whole line."""
    payload = json.dumps(content, default=str)
    digest = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
    header = json.dumps({"artifact": {"name": "dynadiag_probe", "encoding": "json"}, "has_payload": digest})
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime())
    text = f"V{stamp}.000000 {pid} dynadiag/fx/probe_main.py:1] {header}\n\t{payload}\n"
    try:
        descriptor = os.open(log, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb+", buffering=0) as stream:
            size = stream.seek(0, os.SEEK_END)
            if size:
                stream.seek(size - 1)
                text = text if stream.read(1) == b"\n" else f"\n{text}"
            stream.write(text.encode())
    except OSError as error:
        print(f"dynadiag: the probe cannot write {log}: {error.strerror}", file=sys.stderr)


def _start_again(left_s: float) -> None:
    os.execv(sys.executable, [sys.executable, __file__, str(_options(sys.argv[1:]).run), "--budget-s", str(max(left_s, 0.0))])


if __name__ == "__main__":
    status = main(sys.argv[1:], restart=_start_again)
    if "torch" in sys.modules:  # else there may be no dynadiag either
        from dynadiag.json_lines import leave

        leave(status)
    sys.exit(status)
