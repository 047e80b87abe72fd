"""Rows of the benchmark tables: kept in a JSON file as they are finished, so that `--continue` goes on, and written as Markdown."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from dynadiag.bench.arms import EAGER, ArmSpec
from dynadiag.bench.json_result import to_dict
from dynadiag.bench.session import BenchOptions, Session
from dynadiag.bench.verdict import Budget

HERE = Path(__file__).resolve().parent
TARGET = f"{HERE / 'table_models.py'}:step"


def arm(name: str, what: str, *, eager: bool = False, mode: str | None = None) -> ArmSpec:
    """An arm of the tables: `what` is the value of DYNADIAG_TABLE."""
    overrides = {"mode": mode} if mode else {}
    return ArmSpec(name=name, kind=EAGER if eager else "compiled", target=TARGET, overrides=overrides, environment={"DYNADIAG_TABLE": what})


class Rows:
    """Finished rows by name, in a file."""

    def __init__(self, path: Path, *, go_on: bool) -> None:
        self.path = path
        self.rows: dict[str, Any] = json.loads(path.read_text("utf-8")) if go_on and path.exists() else {}

    def run(self, wanted: Mapping[str, Sequence[ArmSpec]], *, max_s: float, together: int) -> None:
        """Measure the rows that are not there: `together` of them are compiled at the same time, and then timed one after the other."""
        missing = [name for name in wanted if name not in self.rows]
        for names in (missing[start : start + together] for start in range(0, len(missing), together)):
            turns = Turns(len(names))
            with ThreadPoolExecutor(len(names)) as pool:
                for done in [pool.submit(self._row, name, wanted[name], max_s, turns) for name in names]:
                    done.result()

    def _row(self, name: str, arms: Sequence[ArmSpec], max_s: float, turns: Turns) -> None:
        options = BenchOptions(budget=Budget(max_s=max_s), prepare_together=True, timeout_s=400)
        with turns.party() as turn:
            result = Session(arms, options, turn=turn).run_benchmark()
        self.rows[name] = {**to_dict(result), "target": f"benchmarks/{TARGET.rpartition('/')[2]}", "date": time.strftime("%Y-%m-%d")}
        self.path.write_text(text_of(self.rows), "utf-8")
        print(f"{name}: {' '.join(f'{phase} {seconds:.0f} s' for phase, seconds in result.time.phases_s.items())}", flush=True)
        for line in lines_of(self.rows[name]):
            print("   ", line, flush=True)


class Turns:
    """Lets so many parties through one at a time, the first of them when all are ready or gone."""

    def __init__(self, parties: int) -> None:
        self._missing = parties
        self._changed = threading.Condition()
        self._one = threading.Lock()

    @contextmanager
    def party(self) -> Iterator[AbstractContextManager[None]]:
        """One party, and what it enters for its turn; a party that ends without a turn holds nobody up."""
        ready = threading.Event()

        def arrive() -> None:
            with self._changed:
                self._missing -= not ready.is_set()
                ready.set()
                self._changed.notify_all()

        @contextmanager
        def turn() -> Iterator[None]:
            arrive()
            with self._changed:
                self._changed.wait_for(lambda: not self._missing)
            with self._one:
                yield

        try:
            yield turn()
        finally:
            arrive()


def text_of(rows: Mapping[str, Any]) -> str:
    """JSON with one line a row."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items()) + "\n}\n"


def lines_of(row: Mapping[str, Any]) -> list[str]:
    """One Markdown table line an arm: time with interval, speed-up with interval, verdict, results, device figures."""
    comparisons = {item["arm"]: item for item in row["comparisons"]}
    checks = {item["arm"]: item for item in row["correctness"]}
    lines = []
    for one in row["arms"]:
        comparison = comparisons.get(one["name"], {})
        check = checks.get(one["name"], {})
        speedup = comparison.get("speedup")
        cells = [
            one["name"],
            "-" if one["median_ms"] is None else f"{one['median_ms']:.2f} [{one['ci95_ms'][0]:.2f}, {one['ci95_ms'][1]:.2f}]",
            "" if speedup is None else f"{speedup:.3f} [{comparison['ci95'][0]:.3f}, {comparison['ci95'][1]:.3f}]",
            "" if speedup is None else f"{comparison['noise_ci95'][0]:.3f} to {comparison['noise_ci95'][1]:.3f}",
            comparison.get("verdict", "baseline") + (f" ({comparison['reason'][:120]})" if comparison.get("reason") else ""),
            f"{check.get('status') or 'not checked'}",
            *(("-" if one[key] is None else form.format(one[key])) for key, form in FIGURES),
        ]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return lines


FIGURES = (("graphs", "{}"), ("breaks", "{}"), ("kernels", "{:.0f}"), ("busy_share", "{:.0%}"), ("compile_cold_s", "{:.0f}"))
HEADINGS = "| arm | ms per step [95 %] | times as fast [95 %] | A/A | verdict | results | graphs | breaks | kernels | GPU busy | cold s |"


def markdown(rows: Mapping[str, Any], title: str, text: str) -> str:
    """The page: a section a row, with date, device and versions."""
    parts = [f"# {title}", "", text, ""]
    for name, row in rows.items():
        about = f"{row['date']}, {row['device']}, torch {row['torch']}, {row['rounds']} rounds."
        parts += [f"## {name}", "", about, "", HEADINGS, "|" + "---|" * (HEADINGS.count("|") - 1), *lines_of(row), ""]
        parts += [f"* {note}" for note in row["notes"]] + ([""] if row["notes"] else [])
    return "\n".join(parts).rstrip() + "\n"
