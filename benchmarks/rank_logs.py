"""How many ranks `dynadiag explain FOLDER` compares, at what cost: logs of ranks made of one real log, and what is planted found again.

    python benchmarks/rank_logs.py LOG [--ranks 256 512 1024] [--copies 1] [--digests] [--cores 0,1] [--json FILE]

Each rank gets the log under its own process id, rank and times, `--copies` times over (as after `torch._dynamo.reset()`). Planted are, in
fixed ranks: a guard on another size, a graph break at another line, a rank without a log, a log cut in the middle. `--digests` puts beside
each log the digest that the recorder would have written with it. Printed for each number
of ranks: bytes, CPU seconds and seconds by the clock of the whole process tree, the largest sum of its resident memory (proportional set
sizes, sampled), and which of the four were named in the report. Exit status 1 when one was not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynadiag.digests.lines import DigestLines, digest_name
from dynadiag.trace.digest import is_cut
from dynadiag.trace.records import scan

_HEAD = re.compile(rb"^([VIWEC]\d{4} )(\d\d):(\d\d):(\d\d)(\.\d+ )\d+( [^\n]*\n)", re.MULTILINE)
_FRAME = re.compile(rb'(, )("frame_id": )')
_RANK = re.compile(rb'(\n\t"rank": )(?:null|\d+),')
_SIZE = re.compile(rb"size=\[(\d+)")
_PLACE = re.compile(rb"(Graph break in user code at [^\n]*:)(\d+)")
_RECORD = re.compile(rb'^([^\t\n][^\n]*"has_payload": ")[0-9a-f]{32}("[^\n]*\n)((?:\t[^\n]*\n)+)', re.MULTILINE)
_SAMPLED_S = 0.05
_APART_S = 0.001  # between the clocks of neighbouring ranks


def main() -> int:
    """Makes, measures and deletes each folder; the exit status says whether all that was planted was named."""
    options = _options()
    text = options.log.read_bytes().rstrip(b"\n") + b"\n"
    rows = []
    for number in options.ranks:
        folder = Path(tempfile.mkdtemp(prefix="dynadiag-ranks-"))
        try:
            planted = write_ranks(folder, text, ranks=number, copies=options.copies)
            if options.digests:
                for log in folder.iterdir():
                    write_digest(log)
            rows.append(measured(folder, number, planted, options.cores))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(rows[-1]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["named"] == row["planted"] for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--digests", action="store_true")
    parser.add_argument("--cores", default=None, help="processors, as taskset takes them")
    parser.add_argument("--json", type=Path, default=None)
    return parser.parse_args()


def write_ranks(folder: Path, text: bytes, *, ranks: int, copies: int = 1) -> dict[str, int]:
    """The logs of a job in a folder; returns which rank has which fault."""
    planted = {"guard": ranks // 2, "break": ranks // 3, "missing": ranks // 4 * 3, "cut": ranks // 5}
    for rank in range(ranks):
        if rank == planted["missing"]:
            continue
        own = text
        if rank == planted["guard"]:
            own = edited(
                text,
                b'"dynamo_cpp_guards_str"',
                lambda payload: _SIZE.sub(lambda found: b"size=[%d" % (int(found[1]) + 1), payload, count=1),
            )
        elif rank == planted["break"]:
            own = edited(
                text,
                b'"dynamo_graph_break_reason"',
                lambda payload: _PLACE.sub(lambda found: found[1] + b"%d" % (int(found[2]) + 1), payload, count=1),
            )
        data = of_rank(own, rank) * copies
        if rank == planted["cut"]:
            data = data[: data.rfind(b"\n\t", 0, len(data) * 3 // 5) + 2]
        (folder / f"dedicated_log_torch_trace_rank_{rank}_{rank}abc.log").write_bytes(data)
    return planted


def write_digest(log: Path) -> None:
    """The digest of a log beside it, by the code that the recorder runs."""
    lines, offset, found = DigestLines(log.name), 0, []
    with log.open("rb") as stream:
        for piece in scan(stream, lambda _: None):
            data = piece.line + b"\n" + (piece.payload() + b"\n" if piece.end > piece.match.end() else b"")
            if piece.last and piece.match[2] is not None and is_cut(piece):
                break
            found.append(lines.take(data, offset) or b"")
            offset += len(data)
    log.with_name(digest_name(log.name)).write_bytes(b"".join(found))


def of_rank(text: bytes, rank: int) -> bytes:
    """The log under another process id and rank, a little later."""
    shift = rank * _APART_S

    def head(found: re.Match[bytes]) -> bytes:
        total = int(found[2]) * 3600 + int(found[3]) * 60 + int(found[4]) + float(b"0" + found[5]) + shift
        hours, minutes, seconds = int(total // 3600), int(total % 3600 // 60), total % 60
        return b"%s%02d:%02d:%09.6f %d%s" % (
            found[1],
            hours % 24,
            minutes,
            seconds,
            10_000 + rank,
            _FRAME.sub(rb'\1"rank": %d, \2' % rank, found[6]),
        )

    if b'"dynadiag_environment"' in text:
        text = edited(text, b'"dynadiag_environment"', lambda payload: _RANK.sub(rb"\g<1>%d," % rank, payload))
    return bytes(_HEAD.sub(head, text))


def edited(text: bytes, kind: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The log with one payload changed, the first that the change applies to, and its checksum."""
    for record in _RECORD.finditer(text):
        if kind in record[1]:
            payload = change(record[3])
            if payload != record[3] or kind == b'"dynadiag_environment"':
                plain = payload.removesuffix(b"\n")[1:].replace(b"\n\t", b"\n")
                digest = hashlib.md5(plain, usedforsecurity=False).hexdigest().encode()
                return text[: record.start()] + record[1] + digest + record[2] + payload + text[record.end() :]
    raise SystemExit(f"the log has no record {kind.decode()} to change")


def measured(folder: Path, ranks: int, planted: dict[str, int], cores: str | None) -> dict[str, Any]:
    """One run of `dynadiag explain` on a folder, and what it cost."""
    command = [*(["taskset", "-c", cores] if cores else []), sys.executable, "-m", "dynadiag", "explain", str(folder), "--format", "json"]
    size = sum(file.stat().st_size for file in folder.glob("*.log"))
    digests = sum(file.stat().st_size for file in folder.glob("*.digest"))
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(map(_resident, _tree(process.pid))))
            time.sleep(_SAMPLED_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall = time.monotonic() - began
        output.seek(0)
        report = json.loads(output.read())
    groups = {tuple(group["ranks"]): group["first"] for group in report["rank_groups"]["groups"]}
    troubles = {(one["kind"], rank) for one in report["rank_groups"]["troubles"] for rank in one["ranks"]}
    kinds = {"guard": "guards", "break": "break"}
    named = {
        what: rank
        for what, rank in planted.items()
        if (what, rank) in troubles or (kinds.get(what) == (groups.get((rank,)) or {}).get("kind") is not None)
    }
    return {
        "ranks": ranks,
        "bytes": size,
        "digest_bytes": digests,
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "wall_s": round(wall, 2),
        "peak_mb": round(peak / 1e6, 1),
        "groups": len(groups),
        "planted": planted,
        "named": named,
        "firsts": [first for first in groups.values() if first is not None],
    }


def _tree(pid: int) -> list[int]:
    """A process and all that it started, as far as they still run."""
    found = [pid]
    for one in found:
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def _resident(pid: int) -> int:
    """Bytes of memory of a process, shared pages by their share."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
            return next((int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:")), 0)
    except OSError:
        return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
