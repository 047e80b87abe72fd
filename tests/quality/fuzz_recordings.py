"""Mutates logs and run directories and takes each the whole way: load, passes, report, text, Markdown, JSON, pictures.

    python tests/quality/fuzz_recordings.py --count 100000 --seed 1 [RECORDING ...]

Everything runs in this process under `sys.addaudithook`. A case fails on an exception that is no DynadiagError, an internal error told in
the notes, JSON that is none, a write outside of the case's folder, a started program, a socket, more than LONGEST_S seconds of CPU time, or
more than MOST_MB of memory for all cases together. A failing case is printed with its seed and kept in `--keep`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
for _path in (PROJECT / "benchmarks", PROJECT / "cli", PROJECT):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

from hostile_logs import ATTACKS, write  # noqa: E402

from dynadiag.errors import DynadiagError  # noqa: E402
from dynadiag_cli import showing  # noqa: E402

LONGEST_S = 10.0
MOST_MB = 700
_LARGEST = 60_000
_TRACES = PROJECT.parent / "shared" / "traces"
_JSON = re.compile(rb"\{.*\}")
_DEEP: object = []
for _ in range(300):
    _DEEP = [_DEEP]
VALUES: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan"), "", "x", "0", "a\nb",
    "\x00", "\x1b[31m", "\ud800", "\u202e", "<script>", "[x](javascript:1)", "@someone #1", "|" * 9, "../../etc/passwd", "/dev/null",
    "L['self']", "f0", "g0", "é" * 50, "x" * 70_000, [], {}, [[]], [None], [1, "a", {}], {"a": None}, {"": []}, {"frame_id": 0}, _DEEP,
    ["a"] * 3000, {str(number): number for number in range(3000)}, [["/a.py", 1, "f", "x"]], [{"file": "/a.py", "line": -1}],
)  # fmt: skip


_STARTS = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn", "ctypes.dlopen"))


class TooSlow(BaseException):
    """A case that needed too much CPU time."""


class Watch:
    """The audit hook: what is opened for writing, made, moved or removed must lie in `folder`; nothing is started, no socket opened."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.broken: list[str] = []
        sys.addaudithook(self._event)

    def _event(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.folder is None:
            return
        if event == "open" and self._writes(arguments):
            self._path(event, arguments[0])
        elif event in ("os.rename", "os.link", "os.symlink", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.utime"):
            for one in arguments[:2]:
                self._path(event, one)
        elif event in _STARTS or event.startswith("socket."):
            self.broken.append(f"{event} {arguments!r:.300}")

    def _writes(self, arguments: tuple[object, ...]) -> bool:
        mode, flags = arguments[1], arguments[2]
        asked = isinstance(mode, str) and set(mode) & set("wax+")
        return bool(asked) or (isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)))

    def _path(self, event: str, path: object) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)) or self.folder is None:
            return
        name = os.fsdecode(path)
        if not os.path.isabs(name):  # relative to a folder that was opened: `dir_fd` is no part of the event
            outside = "/" in name or name in ("..", ".")
        else:
            outside = not f"{os.path.realpath(name)}/".startswith(f"{self.folder}/") and not name.startswith("/dev/null")
        if outside and "__pycache__" not in name:
            self.broken.append(f"{event} {name}")


def recordings(extra: list[Path], folder: Path) -> list[Path]:
    """The honest logs and run directories to mutate: one log with a record of every kind, the traces of others, and those named."""
    every = folder / "dedicated_log_torch_trace_1_.log"
    parts = []
    for number, name in enumerate(ATTACKS):
        if not name.startswith(("text", "json", "one", "short", "newline", "tab", "tiny", "graph_40", "graph_one", "interned_huge")):
            path = write(name, folder, 0.004)
            parts.append(b"\n".join(path.read_bytes().split(b"\n")[: 40 + number % 30]))
            path.unlink()
    every.write_bytes(b"\n".join(parts) + b"\n")
    text = folder / "text.log"
    parts = []
    for name in ATTACKS:
        if name.startswith("text_") and name not in ("text_backtrack", "text_escapes", "text_plain"):
            path = write(name, folder, 0.002)
            parts.append(path.read_bytes())
            path.unlink()
    text.write_bytes(b"\n".join(parts))
    ours = folder / "run"
    ours.mkdir()
    shutil.copy(every, ours / every.name)
    facts = {"format": 1, "dynadiag": "0", "command": ["x.py", "--token=secret"], "cwd": "/home/u", "exit_status": 0, "signal": None}
    (ours / "dynadiag-run.json").write_text(json.dumps(facts | {"started_at": "2026-01-01T00:00:00", "running": False, "timed_out": False}))
    finding = {
        "code": "DM30",
        "title": "t",
        "would": "w",
        "graph": "g0",
        "layer": "x",
        "tensor": {"where": "input", "name": "x"},
        "others": 1,
    }
    parity = {"schema_version": 1, "torch": "2.15", "summary": {"graphs": 1, "compared": 1}, "findings": [finding]}
    (ours / "parity.json").write_text(json.dumps(parity))
    (ours / "report.json").write_text("{}")
    traces = sorted(_TRACES.rglob("*.log")) if _TRACES.is_dir() else []
    return [every, text, ours, ours, *traces, *extra]


def leaf_changed(value: object, chance: random.Random) -> object:
    """A JSON value with one leaf, or one part, replaced by a hostile one."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.05:
            return {
                **{name: one for name, one in value.items() if name != key},
                chance.choice(("", "x" * 500, "\x1b", key + "2")): value[key],
            }
        return {**value, key: leaf_changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        return [*value[:place], leaf_changed(value[place], chance), *value[place + 1 :]]
    return chance.choice(VALUES)


def _json_mutated(data: bytes, chance: random.Random) -> bytes:
    for _ in range(20):
        lines = data.split(b"\n")
        place = chance.randrange(len(lines))
        line = lines[place]
        begin = line.find(b"{")
        match = _JSON.search(line, begin) if begin >= 0 else None
        if match is None:
            continue
        try:
            value = json.loads(match[0])
        except ValueError:
            continue
        lines[place] = line[: match.start()] + json.dumps(leaf_changed(value, chance)).encode() + line[match.end() :]
        return b"\n".join(lines)
    return data


def _flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 3, 30))):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _lines_moved(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    begin = chance.randrange(len(lines))
    end = min(len(lines), begin + chance.choice((1, 1, 5, 50)))
    part, way = lines[begin:end], chance.randrange(4)
    rest = [*lines[:begin], *lines[end:]]
    to = chance.randrange(len(rest) + 1)
    if way == 0:
        return b"\n".join(rest)
    if way == 1:
        return b"\n".join([*lines[:to], *(part * chance.choice((1, 2, 40))), *lines[to:]])
    if way == 2:
        return b"\n".join([*rest[:to], *part, *rest[to:]])
    return b"\n".join(line.lstrip(b"\t") if begin <= number < end else line for number, line in enumerate(lines))


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _inserted(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data) + 1)
    what = (b"\x00", b"\n", b"\r\n", b"\t", b"\xff\xfe", b"{" * 200, b"[" * 5000, b"9" * 6000, b"\x1b[2J", b"NaN", b"1e999", b"\n" * 999)
    return data[:place] + chance.choice(what) + data[place:]


def _word_changed(data: bytes, chance: random.Random) -> bytes:
    words = list(re.finditer(rb"[\w.]+", data[:200_000]))
    if not words:
        return data
    one, other = chance.choice(words), chance.choice(words)
    return data[: one.start()] + other[0] + data[one.end() :]


MUTATORS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _json_mutated, _json_mutated, _json_mutated, _flipped, _lines_moved, _lines_moved, _cut, _inserted, _word_changed,
)  # fmt: skip


def window(data: bytes, chance: random.Random) -> bytes:
    """A part of a long log that begins at a record."""
    if len(data) <= _LARGEST:
        return data
    starts = [match.start() for match in re.finditer(rb"^[VIWEC]\d{4} ", data, re.MULTILINE)] or [0]
    begin = chance.choice(starts)
    return data[begin : begin + chance.choice((_LARGEST // 4, _LARGEST))]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes after one to six mutations."""
    data = window(data, chance)
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        data = chance.choice(MUTATORS)(data, chance)
    return data


def case(source: Path, folder: Path, outside: Path, chance: random.Random) -> Path:
    """One mutated recording in a folder of its own."""
    target = folder / source.name
    if source.is_file():
        target.write_bytes(mutated(source.read_bytes(), chance))
        return target
    target.mkdir(mode=0o700)
    files = [file for file in sorted(source.rglob("*")) if file.is_file() and file.stat().st_size < 5_000_000]
    chosen = chance.choice(files)
    for file in files:
        data = file.read_bytes()
        at = target / file.relative_to(source)
        at.parent.mkdir(exist_ok=True)
        at.write_bytes(mutated(data, chance) if file == chosen else window(data, chance))
    if chance.random() < 0.4:
        _files_changed(target, outside, chance)
    return target


def _files_changed(run: Path, outside: Path, chance: random.Random) -> None:
    """Files swapped, linked, renamed, removed, or made folders."""
    files = [file for file in sorted(run.rglob("*")) if file.is_file()]
    one, other = chance.choice(files), chance.choice(files)
    names = ("report.json", "report.md", ".report.md.part", ".report.json.part", "graphs", "dynadiag-run.json.tmp", "parity.json", one.name)
    way, name = chance.randrange(6), chance.choice(names)
    if way == 0:
        one.unlink()
    elif way == 1:
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif way == 2:
        one.rename(run / name) if not (run / name).is_dir() else None
    else:
        place = run / name
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)
            if way == 3:
                place.mkdir()
            elif way == 4:
                place.symlink_to(chance.choice((outside, outside / "file", outside / "nothing", Path("/dev/zero"), place)))
            else:
                place.write_bytes(chance.choice((b"", b"[]", b"{", b"null", b'{"schema_version": 1}', b"[" * 9000)))


def read(path: Path, chance: random.Random) -> str | None:
    """Takes a recording the whole way; None, or what is wrong with it."""
    form = chance.choice(("text", "text", "json", "json", "md"))
    options = showing.ShowOptions(
        format=form,
        output="-",
        limit=chance.choice((0, 10)),
        renderer=chance.choice((None, None, None, "plain")),
        show_free=chance.random() < 0.5,
    )
    told, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(errors):
            report = showing.explain_recording(path, out=None, force=False, options=options)
    except DynadiagError as error:
        return None if "\n" not in error.message.strip() else f"an error of several lines: {error.message!r:.400}"
    if form == "json":
        json.loads(told.getvalue(), parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    told.getvalue().encode("utf-8")
    said = [*report.notes, errors.getvalue()]
    return next((f"{note}" for note in said if "internal error" in note or "please report this" in note), None)


def one_case(seed: int, sources: list[Path], watch: Watch, keep: Path | None) -> str | None:
    """Makes and reads the case of a seed; None, or what is wrong."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        base = Path(os.path.realpath(name))
        folder, outside = base / "case", base / "outside"
        folder.mkdir()
        outside.mkdir()
        (outside / "file").write_text("untouched")
        path = case(chance.choice(sources), folder, outside, chance)
        watch.folder, watch.broken = str(folder), []
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
        try:
            wrong = read(path, chance)
        except (Exception, TooSlow):
            wrong = traceback.format_exc()[-1500:]
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            watch.folder = None
        wrong = "; ".join(watch.broken) or wrong
        if (outside / "file").read_text() != "untouched" or len(list(outside.iterdir())) != 1:
            wrong = f"wrote outside of the run: {[file.name for file in outside.iterdir()]}"
        if wrong is not None and keep is not None:
            shutil.copytree(folder, keep / str(seed), symlinks=True, dirs_exist_ok=True)
        return wrong


def _stop(*_: object) -> None:
    raise TooSlow


def failures(seeds: range, extra: list[Path], *, keep: Path | None = None, told: Callable[[int], None] = lambda _: None) -> Iterator[str]:
    """What is wrong, case by case."""
    watch = Watch()
    signal.signal(signal.SIGVTALRM, _stop)
    with tempfile.TemporaryDirectory(prefix="fuzz-sources-") as name:
        sources = recordings(extra, Path(name))
        for seed in seeds:
            wrong = one_case(seed, sources, watch, keep)
            if wrong is not None:
                yield f"seed {seed}: {wrong}"
            told(seed)
        peak = _peak_mb()
        if peak > MOST_MB:
            yield f"{peak:.0f} MB of memory were needed"


def _peak_mb() -> float:
    """The most memory since this program began; `ru_maxrss` would count what the process had before it became this program, too."""
    said = re.search(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert said is not None
    return int(said[1]) / 1024


def main() -> int:
    """Runs the cases and prints those that fail."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recordings", nargs="*", type=Path, help="further logs and run directories to mutate")
    parser.add_argument("--count", type=int, default=1000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first case")
    parser.add_argument("--keep", type=Path, help="folder for the cases that fail")
    options = parser.parse_args()
    begun, number = time.process_time(), 0

    def told(seed: int) -> None:
        done = seed - options.seed + 1
        if done % 500 == 0:
            print(f"{done} cases, {time.process_time() - begun:.0f} s CPU", flush=True)

    for wrong in failures(range(options.seed, options.seed + options.count), options.recordings, keep=options.keep, told=told):
        number += 1
        print(wrong, flush=True)
    print(f"{options.count} cases, {number} failed, {time.process_time() - begun:.0f} s CPU")
    return 1 if number else 0


if __name__ == "__main__":
    sys.exit(main())
