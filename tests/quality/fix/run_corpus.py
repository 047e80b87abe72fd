"""Runs `dynadiag fix` on programs in a process that has imported torch once; run by a test: OUT.json FOLDER FILE...

Every program is patched, and the patched file is run beside the original, in eager, on the program's own data and on more (other seeds):
what it prints, sums of its results among it, has to be the same. That check shares nothing with the proof but the program.
"""

import ast
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import torch

from dynadiag.changes import legality
from dynadiag.changes.change import Candidate
from dynadiag.changes.edits import Edit, placed
from dynadiag.changes.kinds import kind_of
from dynadiag.children.forked import keep_for_children, run_forked
from dynadiag.fix import session, worker
from dynadiag.fix.baseline import Baseline, job_of
from dynadiag.fix.candidates import has_branch
from dynadiag.fix.inside.running import RunJob
from dynadiag.fix.proof import NotProvableError, Prover
from dynadiag.fix.runs import Runner, report_on
from dynadiag.fix.sources import Sources
from tests.huge_pages import in_huge_pages

SEEDS = (0, 1, 2)
PROVEN = "PROVEN"


class Runs:
    """The runs of one program, none of which is made twice: the fix and the judgement of a trap ask for the same ones.

    A run that is meant to be made again (to see whether it does the same) is the second one of its kind, and made again once.
    """

    def __init__(self, script: Path, folder: Path) -> None:
        self.script, self.folder = script, folder
        self._known: dict[tuple[str, int], tuple[dict, str]] = {}
        self._asked: Counter[str] = Counter()
        self._own = None
        directory = folder / "baseline"
        directory.mkdir()
        places = {"output": str(directory), "values": str(directory / "values"), "log": str(directory / "run")}
        job = RunJob(script=str(script), arguments=[], folder=str(folder), eager=False, **places)
        told = self.answer({"do": "run", "job": job.to_json(), "timeout_s": 120})
        assert told["ended"], told["why"]
        self._own = told["backends"][0] if len(told["backends"]) == 1 else None
        self._known = {(self._kind(job.to_json()), 1): (told, str(directory))}
        self.baseline = Baseline(directory=directory / "run", script=script, arguments=(), folder=folder, cpu_s=told["cpu_s"])

    def answer(self, message: dict) -> dict:
        if message["do"] != "run":
            return worker.answer(message)
        job = message["job"]
        kind = self._kind(job)
        self._asked[kind] += 1
        key = kind, 1 if job["log"] else self._asked[kind]
        if key in self._known:
            told, made = self._known[key]
            shutil.copytree(made, job["output"], copy_function=os.link, dirs_exist_ok=True)
            return told
        told = worker.answer(message)
        self._known[key] = told, job["output"]
        return told

    def runner(self, name: str) -> Runner:
        """For one more question about the program; its runs go into a folder of this name."""
        self._asked.clear()
        folder = self.folder / name
        folder.mkdir()
        return Runner(folder, job_of(self.baseline, folder), self.answer, timeout_s=120, fresh=False)

    def _kind(self, job: dict) -> str:
        """Whatever decides what a run does: not where it is written. The back end of an eager run is never called."""
        backend = None if job["eager"] else job["backend"] or self._own
        return json.dumps({**job, "output": "", "values": "", "log": bool(job["log"]), "backend": backend, "cap_bytes": 0}, sort_keys=True)


def fixed(runs: Runs, options: session.FixOptions) -> session.FixResult:
    return session.fix_with(runs.baseline, options, lambda text: None, lambda: runs.runner("runs"))


def same_words(one: list[str], other: list[str]) -> bool:
    """Whether two outputs are the same word by word, numbers but for rounding."""
    words = " \n ".join(one).split(" "), " \n ".join(other).split(" ")
    return len(words[0]) == len(words[1]) and all(map(same_word, *words))


def same_word(one: str, other: str) -> bool:
    try:
        return one == other or math.isclose(float(one), float(other), rel_tol=1e-5, abs_tol=1e-5)
    except ValueError:
        return False


def printed(*texts: str) -> list[list[list[str]]]:
    """What each program prints in eager with each seed; the programs themselves, not observed by anybody."""

    def work(tell):
        torch.compiler.set_stance("force_eager")
        for text, seed in itertools.product(texts, SEEDS):
            tree = ast.parse(text.replace("torch.manual_seed(0)", f"torch.manual_seed({seed})", 1))
            said = []
            names = {"__name__": "__main__", "print": lambda *words, said=said, **_: said.append(" ".join(map(str, words)))}
            torch.manual_seed(0)
            try:
                exec(compile(tree, "program.py", "exec"), names)
            except (Exception, SystemExit) as error:
                said.append(f"{type(error).__name__}")
            tell({"said": said})

    said = [one["said"] for one in run_forked(work, timeout_s=60).messages]
    return [said[at : at + len(SEEDS)] for at in range(0, len(texts) * len(SEEDS), len(SEEDS))]


def one(runs: Runs, source: str, unsafe: bool) -> dict:
    folder, script, baseline = runs.folder, runs.script, runs.baseline
    before = time.process_time()
    result = fixed(runs, session.FixOptions(unsafe=unsafe))
    told = result.to_json("test")
    told["fork_cpu_s"] = baseline.cpu_s
    told["own_cpu_s"] = time.process_time() - before
    told["patch_text"] = result.patch
    told["advised"] = [
        one.after
        for finding in report_on(baseline.directory).findings
        for one in finding.fix
        if kind_of(one.slug).gives_up is None and one.how_sure != "idea"  # an idea names what is to be checked
    ]
    told["same"] = True
    if result.patch:
        subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
        done = subprocess.run(
            ["git", "apply", "--verbose", str(baseline.directory / "fixes.patch")], cwd=folder, capture_output=True, text=True
        )
        told["applies"] = done.returncode == 0
        new = script.read_text()
        before, after = printed(source, new)
        told["same"] = len(before) == len(after) == len(SEEDS) and all(map(same_words, before, after))
    return told


def natural(source: str, runs: Runs) -> str | None:
    """What comes of the wrong rewrite that a trap names when nothing but the proof judges it; None where the trap names none."""
    rows = [row[2:] for row in source.splitlines() if row.startswith(("# - ", "# + "))]
    old, new = ([row[2:] for row in rows if row.startswith(mark)] for mark in "-+")
    if not old:
        return None
    script = runs.script
    script.write_text(source)
    report = report_on(runs.baseline.directory)
    sources = Sources(report, script)
    path, text = sources.text(str(script))
    edit = Edit(file=path, old=tuple(old), new=tuple(new))
    span = placed(text, edit)
    cures = tuple(one.fingerprint for one in report.findings if one.where is not None and one.where.line in range(span.begin, span.end))
    prover = Prover(runner=runs.runner("natural"), originals=sources.texts, backend="eager")
    change = Candidate(id="x1", slug="trap", text="", edits=(edit,), spans=(span,), cures=cures, branch=has_branch(edit))
    try:
        prover.refer([change])
        verdict = prover.prove([change], [change], prover.first)
    except NotProvableError as error:
        return str(error)
    return PROVEN if verdict.proven else str(verdict.why)


def legal(source: str) -> str | None:
    """Why the wrong rewrite of a trap may not even be tried; None where it may, or the trap names none."""
    new = "\n".join(row[4:] for row in source.splitlines() if row.startswith("# + "))
    old = "\n".join(row[4:] for row in source.splitlines() if row.startswith("# - "))
    if "torch.where" in new:
        return legality.why_not_selected(new, gradients="requires_grad" in source)
    tree = ast.parse(source)
    rows = [one.lineno for one in ast.walk(tree) if isinstance(one, ast.stmt) and ast.unparse(one) == old]
    function = next(one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef))
    return legality.why_not_kept(function, range(rows[0], rows[0] + 1)) if rows and ".item()" in old else None


def main(out: str, folder: str, *files: str) -> None:
    torch.set_num_threads(1)
    worker.warm_up(training=True)
    keep_for_children()
    in_huge_pages()
    found = {}
    for file in map(Path, files):
        try:
            source, place = file.read_text(), Path(folder) / file.stem
            place.mkdir()
            (place / file.name).write_text(source)
            runs = Runs(place / file.name, place)
            told = found[file.stem] = one(runs, source, unsafe="unsafe" in file.parts)
            told["legal"] = legal(source)
            told["wrong"] = "\n".join(row[4:] for row in source.splitlines() if row.startswith("# + "))
            told["natural"] = natural(source, runs)
        except Exception:
            found[file.stem] = {"error": traceback.format_exc()}
        Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
