"""What mutations cost on a GPU, and whether the CUDA graphs that are skipped are those that the report predicts.

    python benchmarks/mutation_costs.py [--rounds 30] [--max-s 140] [--only cudagraphs|costs] [-o FILE.md] [--device cuda|cpu]

Costs: each program runs in blocks of calls between two CUDA events, the arms of a row by turns. The table has the median per call with its
95 % interval, and the time over that of the row's last arm (the cure) of the same round. The last column is what dynadiag's report says of
the arm's own compilation. CUDA graphs: for each kind of input the report of a recording on the CPU with `aot_eager` predicts, the report of
the very run on the GPU says, and torch's counter tells what was done. Whatever fails is a row that says so; what the time does not allow is
named. With `--device cpu` everything runs small and is timed by the process clock: a trial of the script, no measurement.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from cudagraph_cases import CASES, predicted, reported, seen
from mutation_programs import ROWS, Program, Row

import dynadiag
from dynadiag.bench.statistics import Interval, median_interval, paired_ratio
from dynadiag.model.report import Mutation

BLOCK_MS = 8.0
WARM_CALLS = 5
MOST_CALLS = 400
CPU_ELEMENTS = 1 << 12


def main() -> int:
    """Measure what the time allows, print the tables, and write them with -o."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--max-s", type=float, default=140.0)
    parser.add_argument("--only", choices=("cudagraphs", "costs"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("-o", type=Path)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("there is no CUDA device; --device cpu tries the script only", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    until = time.monotonic() + options.max_s
    lines = [f"# What mutations cost\n\n{about(options)}\n"]
    for part, write in (("cudagraphs", cudagraph_lines), ("costs", cost_lines)):
        if options.only in (None, part):
            for line in write(options, until):
                print(line, flush=True)
                lines.append(line)
            if options.o is not None:  # what is finished is kept when the next part is cut short
                options.o.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def about(options: argparse.Namespace) -> str:
    """Device, versions and date."""
    device = torch.cuda.get_device_name() if options.device == "cuda" else "CPU (a trial, no measurement)"
    return f"{device}, torch {torch.__version__}, {options.rounds} rounds, {time.strftime('%Y-%m-%d')}."


def cudagraph_lines(options: argparse.Namespace, until: float) -> Iterator[str]:
    """Predicted, reported and seen skips as a Markdown table."""
    yield "## CUDA graphs skipped\n"
    yield "| written input | predicted on CPU | report of the run | seen by torch | CUDA graphs kept | agree |"
    yield "|---|---|---|---|---|---|"
    agree = done = 0
    for name, case in CASES.items():
        if time.monotonic() > until:
            yield f"| {name} | no time left | | | | |"
            continue
        with quiet() as folder:
            try:
                foreseen = predicted(case, folder / "predicted")
                found = seen(case, folder / "seen", options.device)
            except Exception as error:  # noqa: BLE001 - the other rows go on
                yield f"| {name} | {problem(error)} | | | | |"
                continue
        done += 1
        same = found.reported == (found.skips > 0) and (foreseen == found.reported or case.warmed_by is not None)
        agree += same
        cells = [name, yes(foreseen), yes(found.reported), yes(found.skips > 0), "?" if found.graphs is None else str(found.graphs)]
        yield "| " + " | ".join([*cells, "yes" if same else "NO"]) + " |"
    yield f"\n{agree} of {done} agree.\n"


def yes(skipped: bool) -> str:
    """The word for a cell."""
    return "skip" if skipped else "no skip"


def cost_lines(options: argparse.Namespace, until: float) -> Iterator[str]:
    """Time per call of each arm as a Markdown table."""
    yield "## Costs\n"
    yield "| mutation | arm | us per call [95 %] | times the last arm's [95 %] | the report says |"
    yield "|---|---|---|---|---|"
    for row in ROWS:
        if time.monotonic() > until:
            yield f"| {row.name} | no time left | | | |"
            continue
        try:
            yield from row_lines(row, options)
        except Exception as error:  # noqa: BLE001 - the other rows go on
            yield f"| {row.name} | {problem(error)} | | | |"
        if options.device == "cuda":
            torch.cuda.empty_cache()


def row_lines(row: Row, options: argparse.Namespace) -> Iterator[str]:
    """The lines of one row; arms that fail are said and left out."""
    torch._dynamo.reset()
    ready: dict[str, Callable[[int], float]] = {}
    says: dict[str, str] = {}
    elements = row.elements if options.device == "cuda" else min(row.elements, CPU_ELEMENTS)
    for name, program in row.arms(options.device, elements).items():
        try:
            ready[name], says[name] = prepared(program, options.device)
        except Exception as error:  # noqa: BLE001 - the other arms go on
            yield f"| {row.name} | {name} | {problem(error)} | | |"
    samples = by_turns(ready, options.rounds)
    last = list(samples)[-1] if samples else None
    for name, values in samples.items():
        ratio = "" if name == last or last is None else shown(paired_ratio(values, samples[last]), 2)
        yield f"| {row.name} | {name} | {shown(median_interval([1000 * one for one in values]), 1)} | {ratio} | {says[name]} |"


def prepared(program: Program, device: str) -> tuple[Callable[[int], float], str]:
    """A timer of blocks (calls -> ms per call), and what the report says of the compilation."""
    function = own_copy(program.function)
    compiled = function if program.compile is None else program.compile(function)
    program.fresh()
    says = "not compiled"
    if program.compile is not None:
        with quiet() as folder:
            # A cached graph of another arm would bring that arm's skipped CUDA graph along (seen on 2.11).
            with dynadiag.observe(folder / "run"), torch.compiler.config.patch(force_disable_caches=True):
                compiled(*program.arguments())
            says = verdict(folder / "run")
    for _ in range(WARM_CALLS):
        compiled(*program.arguments())

    def block(calls: int) -> float:
        program.fresh()
        return timed(lambda: compiled(*program.arguments()), calls, device)

    return block, says


def own_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a code object of its own: Dynamo keeps what it compiled, and what it gave up, with the code object."""
    return types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)  # type: ignore[attr-defined]


def timed(call: Callable[[], Any], calls: int, device: str) -> float:
    """Milliseconds per call of one block, by CUDA events."""
    if device == "cpu":
        began = time.process_time()
        for _ in range(calls):
            call()
        return max(1000 * (time.process_time() - began) / calls, 1e-6)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def by_turns(blocks: dict[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """Samples of each arm, one block an arm and round."""
    calls = {}
    for name, block in blocks.items():
        one = statistics.median(block(3) for _ in range(3))
        calls[name] = max(1, min(MOST_CALLS, int(BLOCK_MS / one)))
        block(calls[name])
    samples: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(rounds):
        for name, block in blocks.items():
            samples[name].append(block(calls[name]))
    return samples


def verdict(folder: Path) -> str:
    """Code and effects of each mutation that costs something."""
    costly = [one for one in reported(folder) if one.worst not in (None, "free")]
    return ", ".join(dict.fromkeys(f"{one.code} {effects(one)}" for one in costly)) or "nothing that costs"


def effects(mutation: Mutation) -> str:
    """The kinds that hold without a condition."""
    kinds = dict.fromkeys(str(one["kind"]) for one in mutation.effects if "condition" not in one and one["kind"] != "free")
    return " and ".join(kinds) or "only under a condition"


def shown(interval: Interval, digits: int) -> str:
    """An estimate with its interval."""
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def problem(error: Exception) -> str:
    """One line of an error, for a cell; the whole of it goes to stderr."""
    traceback.print_exception(error, file=sys.stderr)
    lines: Sequence[str] = str(error).strip().splitlines()
    return f"failed: {type(error).__name__} {lines[0] if lines else ''}".replace("|", "/")[:120]


@contextlib.contextmanager
def quiet() -> Iterator[Path]:
    """A scratch folder, and torch's warnings kept from the table."""
    with tempfile.TemporaryDirectory(prefix="dynadiag-costs-") as name, contextlib.redirect_stdout(io.StringIO()):
        yield Path(name)


if __name__ == "__main__":
    sys.exit(main())
