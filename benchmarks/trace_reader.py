"""How fast and how small: our way from a log to report.json against tlparse, on the same log in the same run.

    python benchmarks/trace_reader.py --mb 1000 LOG [LOG ...]

The log is made of real ones, repeated under new process ids (so that no frame is the same as another). Printed are CPU seconds (user and
system, of the whole process with its children), the peak of resident memory, and the ratio. Exit status 1 when ours is less than five times
as fast or needs more than 300 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

WANTED_RATIO = 5.0
WANTED_MB = 300.0
_PID = re.compile(rb"^([VIWEC]\d{4} [\d:.]+) \d+ ", re.MULTILINE)
_OURS = """
import sys
from dynadiag.render import json_report
from dynadiag.report import build
from dynadiag.trace import load
with open(sys.argv[2], "w", encoding="utf-8") as stream:
    stream.write(json_report.dumps(build(load(sys.argv[1]))))
"""


@dataclass(frozen=True)
class Cost:
    """What a process used, with its children: CPU seconds and the peak of resident memory in MB."""

    cpu_s: float
    peak_mb: float


def build_log(path: Path, sources: list[Path], *, megabytes: int) -> int:
    """Writes a log of the wanted size out of whole copies of the sources, each under its own process id; returns its bytes."""
    texts = [source.read_bytes() for source in sources]
    written, pid = 0, 1000
    with path.open("wb") as stream:
        while written < megabytes * 1_000_000:
            for text in texts:
                pid += 1
                copy = _PID.sub(rb"\g<1> %d " % pid, text).rstrip(b"\n") + b"\n"
                stream.write(copy)
                written += len(copy)
    return written


def measure(command: list[str]) -> Cost:
    """Runs a command to its end and asks the kernel what it used."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            sys.exit(f"{command[0]} failed with {process.returncode}: {output.read()[-2000:].decode(errors='replace')}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def find_tlparse() -> str:
    """The tlparse program beside this interpreter or on PATH."""
    beside = Path(sys.executable).parent / "tlparse"
    found = str(beside) if beside.is_file() else shutil.which("tlparse")
    return found or sys.exit("tlparse is not installed: pip install tlparse")


def default_sources() -> list[Path]:
    """The real logs that lie beside the project, if they do."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "traces"
    return sorted([*folder.glob("*.log"), *folder.glob("*/*.log")])


def main() -> int:
    """Measures both and says whether the goals are met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("logs", nargs="*", type=Path, help="real logs of TORCH_TRACE to build the big one from")
    parser.add_argument("--mb", type=int, default=200, help="size of the log in MB")
    parser.add_argument("--keep", type=Path, help="folder to work in (default: a temporary one)")
    options = parser.parse_args()
    sources = options.logs or default_sources()
    if not sources:
        parser.error("name at least one log")
    with tempfile.TemporaryDirectory(dir=options.keep) as folder:
        return compare(Path(folder), sources, megabytes=options.mb)


def compare(folder: Path, sources: list[Path], *, megabytes: int) -> int:
    """Builds the log, runs both on it and prints the table."""
    log, report, pages = folder / "dedicated_log_torch_trace_big.log", folder / "report.json", folder / "tlparse"
    size = build_log(log, sources, megabytes=megabytes)
    ours = measure([sys.executable, "-c", _OURS, str(log), str(report)])
    summary = json.loads(report.read_text(encoding="utf-8"))["summary"]
    theirs = measure([find_tlparse(), str(log), "-o", str(pages), "--overwrite", "--no-browser"])
    ratio = theirs.cpu_s / ours.cpu_s
    counts = ", ".join(f"{summary[name]} {name.replace('_', ' ')}" for name in ("frames", "graphs", "graph_break_events"))
    print(f"log        {size / 1e6:8.0f} MB  {counts}")
    print(f"dynadiag   {ours.cpu_s:8.2f} s CPU  {size / 1e6 / ours.cpu_s:6.0f} MB/s  {ours.peak_mb:6.0f} MB peak  (to report.json)")
    print(f"tlparse    {theirs.cpu_s:8.2f} s CPU  {size / 1e6 / theirs.cpu_s:6.0f} MB/s  {theirs.peak_mb:6.0f} MB peak  (to its pages)")
    met = ratio >= WANTED_RATIO and ours.peak_mb <= WANTED_MB
    print(f"ratio      {ratio:8.1f}        wanted {WANTED_RATIO:.0f} and at most {WANTED_MB:.0f} MB: {'met' if met else 'NOT MET'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
