"""Mutates logs, run directories, results and scripts of torch, and takes each the whole way that a command takes it.

    python tests/quality/fuzz_recordings.py --count 100000 --seed 1 [--torch] [RECORDING ...]

Everything runs in this process, under the audit hook of `fuzz_watch.py`; `fuzz_readers.py` has the ways. A case fails on an exception that
is no DynadiagError, an internal error told in the notes, JSON that is none, anything that the watch forbids, a script that holds more than
a graph, more than LONGEST_S seconds of CPU time, or more than MOST_MB of memory for all cases together (besides torch). A failing case is
printed with its seed and kept in `--keep`. `--plant` does what is forbidden instead, and fails when any of it goes unseen.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
for _path in (PROJECT / "benchmarks", PROJECT / "cli", PROJECT):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

import fuzz_readers  # noqa: E402
from fuzz_watch import TooSlow, Watch, limited, planted  # noqa: E402
from hostile_logs import ATTACKS, write  # noqa: E402

LONGEST_S = 10.0
MOST_MB = 700
_LARGEST = 60_000
_TRACES = PROJECT.parent / "shared" / "traces"
_JSON = re.compile(rb"\{.*\}")
_DEEP: object = []
for _ in range(300):
    _DEEP = [_DEEP]
CODE = (
    'float32) if not __import__("os").system("true") else torch.zeros((4,', "__import__('os').system('true')", "os.system",
    "torch.load('x')", "x.__class__.__bases__", "inductor.cpp.cxx", "/bin/true", "builtins.exec", "torch.hub.load", "\\N{DIGIT ONE}",
    "'\n\"\"\"", "-1", "fuzz_strange_module", "/etc/passwd", "torch.ops.load_library", "lambda: exec('1')", "f{__import__('os')}",
    "#\nimport os\nos.abort()\n",
)  # fmt: skip
VALUES: tuple[object, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan"), "", "x", "0", "a\nb",
    "\x00", "\x1b[31m", "\ud800", "\u202e", "<script>", "[x](javascript:1)", "@someone #1", "|" * 9, "../../etc/passwd", "/dev/null",
    "L['self']", "f0", "g0", *CODE, "é" * 50, "x" * 70_000, [], {}, [[]], [None], [1, "a", {}], {"a": None}, {"": []}, {"frame_id": 0},
    _DEEP, ["a"] * 3000, {str(number): number for number in range(3000)}, [["/a.py", 1, "f", "x"]], [{"file": "/a.py", "line": -1}],
)  # fmt: skip


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
    (ours / "train.py").write_text("import torch\n" * 9)
    command, here = ["python", "train.py", "--lr=1"], fuzz_readers.HERE.decode()
    facts = {"format": 1, "dynadiag": "0", "command": command, "cwd": here, "exit_status": 0, "signal": None}
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
    return [every, text, *4 * [ours], *traces, *extra]


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
            changed = json.dumps(leaf_changed(json.loads(match[0]), chance)).encode()
        except (ValueError, RecursionError):
            continue
        lines[place] = line[: match.start()] + changed + line[match.end() :]
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


def _code_inserted(data: bytes, chance: random.Random) -> bytes:
    """Python in the place of a word."""
    words = list(re.finditer(rb"[\w.]+|\"[^\"\n]{1,40}\"", data[:200_000]))
    if not words:
        return data
    one = chance.choice(words)
    text = chance.choice(CODE)
    return data[: one.start()] + (json.dumps(text) if one[0][:1] == b'"' else text).encode() + data[one.end() :]


MUTATORS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _json_mutated, _json_mutated, _json_mutated, _flipped, _lines_moved, _lines_moved, _cut, _inserted, _word_changed,
    _code_inserted,
)  # fmt: skip


def window(data: bytes, chance: random.Random) -> bytes:
    """A part of a long log that begins at a record."""
    if len(data) <= _LARGEST:
        return data
    begin = chance.choice(_starts(data))
    return data[begin : begin + chance.choice((_LARGEST // 12, _LARGEST // 4, _LARGEST))]


@functools.lru_cache(maxsize=64)
def _starts(data: bytes) -> list[int]:
    return [match.start() for match in re.finditer(rb"^[VIWEC]\d{4} ", data, re.MULTILINE)] or [0]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes after one to six mutations."""
    data = window(data, chance)
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        data = chance.choice(MUTATORS)(data, chance)
    return data


@functools.cache
def _content(source: Path) -> bytes:
    """The same object each time: the hash of bytes is kept with them."""
    return source.read_bytes()


def case(source: Path, folder: Path, outside: Path, chance: random.Random) -> Path:
    """One mutated recording in a folder of its own."""
    target = folder / source.name
    if source.is_file():
        target.write_bytes(mutated(_content(source), chance))
        return target
    target.mkdir(mode=0o700)
    files = [file for file in sorted(source.rglob("*")) if file.is_file() and file.stat().st_size < 5_000_000]
    chosen = chance.choice(files)
    for file in files:
        data = _content(file)
        at = target / file.relative_to(source)
        at.parent.mkdir(parents=True, exist_ok=True)
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


def one_case(seed: int, sources: list[Path], watch: Watch, keep: Path | None) -> tuple[str, str | None]:
    """Makes and reads the case of a seed; the reader, and None or what is wrong."""
    chance = random.Random(seed)
    source = chance.choice(sources)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        base = Path(os.path.realpath(name))
        folder, outside = base / "case", base / "outside"
        folder.mkdir()
        outside.mkdir()
        (outside / "file").write_text("untouched")
        path = case(source, folder, outside, chance)
        reader = _reader(source, chance)
        wrong = judged(lambda: fuzz_readers.read(reader, path, folder, chance), folder, watch)
        if (outside / "file").read_text() != "untouched" or len(list(outside.iterdir())) != 1:
            wrong = f"wrote outside of the run: {[file.name for file in outside.iterdir()]}"
        if wrong is not None and keep is not None:
            shutil.copytree(folder, keep / str(seed), symlinks=True, dirs_exist_ok=True)
        return reader, wrong


def _reader(source: Path, chance: random.Random) -> str:
    if source.name == "bench.json":
        return "bench"
    if source.name == "repro.py":
        return "minify"
    if source.name == "reduction":
        return "resume"
    if source.parent.name == "graphs":
        return chance.choice(("graph", "graph", "minify", "parity", "explain"))
    return chance.choice(("explain", "check", "diff", "fix", "fix") if source.is_dir() else ("explain", "explain", "check", "diff"))


def judged(act: Callable[[], str | None], folder: Path, watch: Watch, *, longest_s: float = LONGEST_S) -> str | None:
    """What is wrong with what an act gives or did."""
    watch.begin(folder)
    try:
        with limited(longest_s):
            wrong = act()
    except (Exception, SystemExit, TooSlow):
        wrong = traceback.format_exc()[-1500:]
    finally:
        watch.end()
    return "; ".join(watch.broken) or wrong


def unseen(watch: Watch) -> list[str]:
    """The planted failures that would not have been seen."""

    def judge(act: Callable[[Path], object]) -> str | None:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
            return judged(lambda: act(Path(name)) and None, Path(name), watch, longest_s=0.3)

    scripts = (
        "import os",
        "x = __import__('os')",
        "torch.load('x')",
        "x.__class__",
        "from builtins import open",
        "torch.ops.load_library('x')",
    )
    harmless = judge(lambda folder: (folder / "file").write_text("x"))
    wrong = [] if harmless is None else [f"nothing is allowed: {harmless}"]
    return [*wrong, *planted(judge), *(text for text in scripts if fuzz_readers.forbidden(text) is None)]


def failures(
    seeds: range,
    extra: list[Path],
    *,
    graphs: bool = False,
    keep: Path | None = None,
    told: Callable[[int, str], None] = lambda *_: None,
) -> Iterator[str]:
    """What is wrong, case by case."""
    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="fuzz-sources-") as name:
        sources = recordings(extra, Path(name))
        fuzz_readers.warm(Path(name) / "run", Path(name))
        sources += [fuzz_readers.bench_source(Path(name))]
        made = fuzz_readers.with_torch(Path(name)) if graphs else []
        sources += [*3 * made, fuzz_readers.resume_source(Path(name), made[0] if made else None)]
        before = _peak_mb() if graphs else 0
        for seed in seeds:
            reader, wrong = one_case(seed, sources, watch, keep)
            if wrong is not None:
                yield f"seed {seed}, {reader}: {wrong}"
            told(seed, reader)
        peak = _peak_mb() - before
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
    parser.add_argument("--torch", action="store_true", help="also what needs torch: graph, minify and parity")
    parser.add_argument("--plant", action="store_true", help="do what is forbidden, to see that it is seen")
    options = parser.parse_args()
    if options.plant:
        missed = unseen(Watch())
        print("planted failures that went unseen:", ", ".join(missed) or "none")
        return 1 if missed else 0
    begun, number = time.process_time(), 0
    read: Counter[str] = Counter()

    def told(_: int, reader: str) -> None:
        read[reader] += 1
        if read.total() % 500 == 0:
            print(f"{read.total()} cases {dict(read)}, {time.process_time() - begun:.0f} s CPU", flush=True)

    seeds = range(options.seed, options.seed + options.count)
    for wrong in failures(seeds, options.recordings, graphs=options.torch, keep=options.keep, told=told):
        number += 1
        print(wrong, flush=True)
    print(f"{options.count} cases, {number} failed, {dict(read)}, {time.process_time() - begun:.0f} s CPU")
    return 1 if number else 0


if __name__ == "__main__":
    sys.exit(main())
