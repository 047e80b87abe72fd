"""How fast and how small: `dynadiag explain LOG --format json` against tlparse, on the same log in the same run.

    python benchmarks/trace_reader.py --mb 200 [LOG ...]

Two kinds of logs are measured: those named (default: the real ones beside the project), and recordings of our own, made now from the
samples. Each big log is made of whole copies under new process ids. Both programs are started as a user starts them, in turns; the first
start of ours is not counted (it writes Python's byte code, which an installed package has). Printed are CPU seconds (user and system, of
the whole process with its children), the peak of resident memory, the ratio of the sums, and the median of the ratios of wall times, pair
by pair. Exit status 1 when ours has less than five times the speed in CPU seconds or needs more than 300 MB on any of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WANTED_RATIO = 5.0
WANTED_MB = 300.0
PROJECT = Path(__file__).resolve().parents[1]
SAMPLES = (
    ("bert_train_step.py", "inductor"),
    ("causal_lm.py", "inductor"),
    ("bert_train_step.py", "aot_eager"),
    ("causal_lm.py", "aot_eager"),
)
_PID = re.compile(rb"^([VIWEC]\d{4} [\d:.]+) (\d+) ", re.MULTILINE)
_PROBE = re.compile(rb'^([^\n]*"dynadiag_probe"[^\n]*"has_payload": ")[0-9a-f]{32}("[^\n]*\n)((?:\t[^\n]*\n)+)', re.MULTILINE)
_OFFSET = re.compile(rb'("text_offset": )(\d+)')


@dataclass(frozen=True)
class Cost:
    """What a process used, with its children: CPU seconds, seconds by the clock and the peak of resident memory in MB."""

    cpu_s: float
    wall_s: float
    peak_mb: float


def build_log(path: Path, sources: list[Path], *, megabytes: int) -> int:
    """Writes a log of the wanted size out of whole copies of the sources, each under its own process id; returns its bytes."""
    texts = [source.read_bytes().rstrip(b"\n") + b"\n" for source in sources]
    written = number = 0
    with path.open("wb") as stream:
        while written < megabytes * 1_000_000:
            for text in texts:
                number += 1
                copy = copy_of(text, number, written)
                stream.write(copy)
                written += len(copy)
    return written


def copy_of(text: bytes, number: int, begin: int) -> bytes:
    """A log under another process id of the same length; its probe records name places in the log, which begins at `begin` now."""

    def renamed(match: re.Match[bytes]) -> bytes:
        width = len(match[2])
        return b"%s %0*d " % (match[1], width, (int(match[2]) + number) % 10**width or 1)

    def moved(match: re.Match[bytes]) -> bytes:
        payload = _OFFSET.sub(lambda found: b"%s%d" % (found[1], int(found[2]) + begin), match[3], count=1)
        digest = hashlib.md5(payload[1:].replace(b"\n\t", b"\n").removesuffix(b"\n"), usedforsecurity=False).hexdigest()
        return match[1] + digest.encode() + match[2] + payload

    return _PROBE.sub(moved, _PID.sub(renamed, text))


def measure(command: list[str]) -> Cost:
    """Runs a command to its end and asks the kernel what it used."""
    with tempfile.TemporaryFile() as output:
        begun = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=_environment())
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            sys.exit(f"{command[0]} failed with {process.returncode}: {output.read()[-2000:].decode(errors='replace')}")
    return Cost(usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / 1024)


def find_tlparse() -> str:
    """The tlparse program beside this interpreter or on PATH."""
    beside = Path(sys.executable).parent / "tlparse"
    found = str(beside) if beside.is_file() else shutil.which("tlparse")
    return found or sys.exit("tlparse is not installed: pip install tlparse")


def default_sources() -> list[Path]:
    """The real logs that lie beside the project, if they do."""
    folder = PROJECT.parent / "shared" / "traces"
    return sorted([*folder.glob("*.log"), *folder.glob("*/*.log")])


def recordings(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Records the samples, each into a run directory; their names and logs."""
    for sample, backend in SAMPLES:
        run = folder / f"{sample.removesuffix('.py')}_{backend}"
        command = ["explain", "--out", str(run), "--no-pictures", str(PROJECT / "samples" / sample), "--backend", backend]
        subprocess.run([*OURS, *command], check=True, capture_output=True, env=_environment())
        yield f"own recording of {sample} --backend {backend}", sorted(run.glob("dedicated_log_torch_trace_*.log"))


def _environment() -> dict[str, str]:
    """That of a user: Python may keep its byte code."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


OURS = [sys.executable, "-m", "dynadiag"]


def main() -> int:
    """Measures both on all logs and says whether the goals are met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("logs", nargs="*", type=Path, help="real logs of TORCH_TRACE to build the big one from")
    parser.add_argument("--mb", type=int, default=200, help="size of each log in MB")
    parser.add_argument("--repeats", type=int, default=3, help="how often each program reads each log")
    parser.add_argument("--no-own", action="store_true", help="measure no recordings of our own (they need torch and transformers)")
    parser.add_argument("--keep", type=Path, help="folder to work in (default: a temporary one)")
    options = parser.parse_args()
    sources = options.logs or default_sources()
    if not sources and options.no_own:
        parser.error("name at least one log")
    with tempfile.TemporaryDirectory(dir=options.keep) as name:
        folder = Path(name)
        kinds = [("foreign logs", sources)] if sources else []
        kinds += [] if options.no_own else recordings(folder)
        met = [compare(folder, title, logs, megabytes=options.mb, repeats=options.repeats) for title, logs in kinds]
    return 0 if all(met) else 1


def compare(folder: Path, title: str, sources: list[Path], *, megabytes: int, repeats: int) -> bool:
    """Builds one big log, runs both on it in turns and prints the table."""
    log, report, pages = folder / "dedicated_log_torch_trace_big.log", folder / "report.json", folder / "tlparse"
    size = build_log(log, sources, megabytes=megabytes)
    command = [*OURS, "explain", "--format", "json", "-o", str(report), str(log)]
    measure([*OURS, "explain", "--format", "json", "-o", str(report), str(sources[0])])
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(measure(command))
        theirs.append(measure([find_tlparse(), str(log), "-o", str(pages), "--overwrite", "--no-browser"]))
    summary = json.loads(report.read_text(encoding="utf-8"))["summary"]
    ratio = sum(one.cpu_s for one in theirs) / sum(one.cpu_s for one in ours)
    counts = ", ".join(f"{summary[name]} {name.replace('_', ' ')}" for name in ("frames", "graphs", "graph_break_events"))
    print(f"{title}: {size / 1e6:.0f} MB, {counts}")
    for name, costs, what in (("dynadiag", ours, "to report.json"), ("tlparse", theirs, "to its pages")):
        cpu_s, peak_mb = sum(one.cpu_s for one in costs) / repeats, max(one.peak_mb for one in costs)
        print(f"  {name:9}{cpu_s:8.2f} s CPU  {size / 1e6 / cpu_s:6.0f} MB/s  {peak_mb:6.0f} MB peak  ({what})")
    met = ratio >= WANTED_RATIO and max(one.peak_mb for one in ours) <= WANTED_MB
    wall = statistics.median(other.wall_s / own.wall_s for own, other in zip(ours, theirs, strict=True))
    verdict = f"wanted {WANTED_RATIO:.0f} and at most {WANTED_MB:.0f} MB: {'met' if met else 'NOT MET'}"
    print(f"  ratio    {ratio:8.2f}  (wall {wall:.2f})  {verdict}", flush=True)
    return met


if __name__ == "__main__":
    sys.exit(main())
