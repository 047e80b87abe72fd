"""Coordinates of a DOT text from Graphviz: the libraries that pygraphviz carries, or the `dot` program; in a child with limits."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import dynadiag
from dynadiag.children.worker import Worker, WorkerEndedError
from dynadiag.errors import DynadiagError
from dynadiag.json_lines import parsed

Engine = Literal["graphviz", "dot"]
ENGINES: tuple[Engine, ...] = ("graphviz", "dot")
TIMEOUT_S = 25.0
"""How long the layouts of one picture may take; each may take `graphviz_worker.LAYOUT_CPU_S` of CPU time."""

_WORKER = "dynadiag.graphs.graphviz_worker"
_Point = tuple[float, float]


class LayoutError(DynadiagError):
    """Graphviz gave no layout: it is missing, took too long, or failed."""

    slug = "no-layout"


@dataclass(frozen=True, slots=True)
class Rectangle:
    """The upper left corner and the size, in points, from the top of the picture downwards."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Curve:
    """An edge as a Bézier curve, whose points are the first and then three a piece; `tip` is the point of its arrow."""

    tail: str
    head: str
    points: tuple[_Point, ...]
    tip: _Point


@dataclass(frozen=True, slots=True)
class Coordinates:
    """A layout; boxes and clusters by their names in the DOT text."""

    width: float
    height: float
    boxes: dict[str, Rectangle]
    clusters: dict[str, Rectangle]
    curves: tuple[Curve, ...]


def can_write_dot() -> bool:
    """Whether the package graphviz is there, which writes DOT text: dynadiag also reads logs with hardly a package."""
    return importlib.util.find_spec("graphviz") is not None


def why_missing(engine: Engine) -> str | None:
    """Why an engine is not there, None where it is."""
    if not can_write_dot():
        return "the package graphviz is not installed"
    if engine == "graphviz":
        return None if importlib.util.find_spec("pygraphviz") is not None else "pygraphviz is not installed"
    return None if shutil.which("dot") is not None else "no dot program is on PATH"


class _Process:
    """The child of one engine, started at the first question and again after one that it did not answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._worker: Worker | None = None
        self._lock = threading.Lock()

    def ask(self, text: str, until: float) -> str:
        with self._lock:
            try:
                if self._worker is None:
                    self._worker = self._started()
                answer = self._worker.ask({"dot": text}, max(0.0, until - time.monotonic()))
            except OSError as error:
                raise LayoutError(f"Graphviz cannot be started: {error.strerror or error}") from None
            except WorkerEndedError:
                self.end()
                raise LayoutError("Graphviz ended without a layout: it crashed, or took too much time or memory") from None
            if answer is None:
                self.end()
                raise LayoutError(f"Graphviz did not end within {TIMEOUT_S:.0f} s")
            if "layout" not in answer:
                raise LayoutError(f"Graphviz failed: {answer.get('error', 'it gave no layout')}")
            return str(answer["layout"])

    def _started(self) -> Worker:
        program = [shutil.which("dot") or "dot"] if self._engine == "dot" else []
        root = str(Path(dynadiag.__file__).resolve().parents[1])
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), root]))
        with Path(os.devnull).open("wb") as log:
            words = [sys.executable, "-P", "-m", _WORKER, *program]
            return Worker(words, log=log, environment={**os.environ, "PYTHONPATH": path}, alone_in="group")

    def end(self) -> None:
        """End the child now; the next question starts another."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.close(0.0)


_processes = {engine: _Process(engine) for engine in ENGINES}


@atexit.register
def _end_all() -> None:
    for process in _processes.values():
        process.end()


def lay_out(text: str, engine: Engine, *, until: float) -> Coordinates:
    """The layout of a DOT text that gives sizes and no words, by that time (of `time.monotonic`). Raises `LayoutError`."""
    if (missing := why_missing(engine)) is not None:
        raise LayoutError(missing)
    found = parsed(_processes[engine].ask(text, until))
    with contextlib.suppress(KeyError, TypeError, ValueError, IndexError):
        return _coordinates(found or {})
    raise LayoutError("Graphviz gave a layout that cannot be read")


def _coordinates(found: dict[str, Any]) -> Coordinates:
    left, bottom, right, top = _numbers(found["bb"])
    boxes: dict[str, Rectangle] = {}
    clusters: dict[str, Rectangle] = {}
    names: dict[int, str] = {}
    for item in found.get("objects", ()):
        name = names[item["_gvid"]] = str(item["name"])
        if "bb" in item:
            x1, y1, x2, y2 = _numbers(item["bb"])
            clusters[name] = Rectangle(x1 - left, top - y2, x2 - x1, y2 - y1)
        elif "pos" in item:
            x, y = _numbers(item["pos"])
            width, height = 72 * float(item["width"]), 72 * float(item["height"])
            boxes[name] = Rectangle(x - width / 2 - left, top - y - height / 2, width, height)
    curves = [_curve(item, names, left, top) for item in found.get("edges", ()) if "pos" in item and item.get("style") != "invis"]
    return Coordinates(right - left, top - bottom, boxes, clusters, tuple(curves))


def _curve(item: dict[str, Any], names: dict[int, str], left: float, top: float) -> Curve:
    """An edge's `pos` such as `e,96,103 96,116 96,116 96,115 96,114`: the tip first, where it has one."""
    points = [part for part in str(item["pos"]).split(";")[0].split() if not part.startswith("s,")]
    tips = [part.removeprefix("e,") for part in points if part.startswith("e,")]
    made = [(x - left, top - y) for x, y in (_numbers(part) for part in points if not part.startswith("e,"))]
    tip = [(x - left, top - y) for x, y in map(_numbers, tips)]
    return Curve(names[item["tail"]], names[item["head"]], tuple(made), tip[0] if tip else made[-1])


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))
