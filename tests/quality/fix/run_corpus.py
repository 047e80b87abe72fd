"""Runs `dynadiag fix` on programs in a process that has imported torch once; run by a test: OUT.json FOLDER FILE...

Every program is patched, and the patched file is run beside the original, in eager, on the program's own data and on more (other seeds):
what it prints, sums of its results among it, has to be the same. That check shares nothing with the proof but the program.
"""

import ast
import json
import math
import subprocess
import sys
import time
import traceback
from pathlib import Path

import torch

from dynadiag.advice import legality
from dynadiag.fix import session, worker
from dynadiag.fix.baseline import Baseline, job_of
from dynadiag.fix.candidates import UNSAFE, has_branch
from dynadiag.fix.change import Candidate
from dynadiag.fix.edits import Edit, Span, applied
from dynadiag.fix.inside.running import RunJob
from dynadiag.fix.proof import NotProvableError, Prover
from dynadiag.fix.runs import Runner, report_on
from dynadiag.fix.sources import Sources
from dynadiag.reduce.core.isolation import keep_for_children, run_forked

SEEDS = (0, 1, 2)
PROVEN = "PROVEN"


def baseline_of(script: Path, folder: Path) -> Baseline:
    output = folder / "baseline"
    output.mkdir()
    job = RunJob(script=str(script), arguments=[], folder=str(folder), output=str(output), eager=False, log=str(folder / "run"))
    told = worker.forked({"job": job.to_json(), "timeout_s": 120})
    assert told["ended"], told["why"]
    return Baseline(directory=folder / "run", script=script, arguments=(), folder=folder, cpu_s=told["cpu_s"])


def fixed(script: Path, folder: Path, options: session.FixOptions) -> tuple[session.FixResult, Baseline]:
    baseline = baseline_of(script, folder)
    runs = folder / "runs"
    runs.mkdir()
    base = job_of(baseline, runs)
    result = session.fix_with(baseline, options, lambda text: None, lambda: Runner(runs, base, worker.answer, timeout_s=120, fresh=False))
    return result, baseline


def same_words(one: list[str], other: list[str]) -> bool:
    """Whether two outputs are the same word by word, numbers but for rounding."""
    words = " \n ".join(one).split(" "), " \n ".join(other).split(" ")
    return len(words[0]) == len(words[1]) and all(map(same_word, *words))


def same_word(one: str, other: str) -> bool:
    try:
        return one == other or math.isclose(float(one), float(other), rel_tol=1e-5, abs_tol=1e-5)
    except ValueError:
        return False


def printed(text: str) -> list[list[str]]:
    """What a program prints in eager with each seed; the program itself, not observed by anybody."""

    def work(tell):
        torch.compiler.set_stance("force_eager")
        for seed in SEEDS:
            tree = ast.parse(text.replace("torch.manual_seed(0)", f"torch.manual_seed({seed})", 1))
            said = []
            names = {"__name__": "__main__", "print": lambda *words, said=said, **_: said.append(" ".join(map(str, words)))}
            torch.manual_seed(0)
            try:
                exec(compile(tree, "program.py", "exec"), names)
            except (Exception, SystemExit) as error:
                said.append(f"{type(error).__name__}")
            tell({"said": said})

    return [one["said"] for one in run_forked(work, timeout_s=60).messages]


def one(name: str, source: str, folder: Path, unsafe: bool) -> dict:
    folder.mkdir()
    script = folder / f"{name}.py"
    script.write_text(source)
    before = time.process_time()
    result, baseline = fixed(script, folder, session.FixOptions(unsafe=unsafe))
    told = result.to_json("test")
    told["fork_cpu_s"] = baseline.cpu_s
    told["own_cpu_s"] = time.process_time() - before
    told["patch_text"] = result.patch
    told["advised"] = [one.after for finding in report_on(baseline.directory).findings for one in finding.fix if one.slug not in UNSAFE]
    told["same"] = True
    if result.patch:
        subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
        done = subprocess.run(
            ["git", "apply", "--verbose", str(folder / "run" / "fixes.patch")], cwd=folder, capture_output=True, text=True
        )
        told["applies"] = done.returncode == 0
        new = script.read_text()
        before, after = printed(source), printed(new)
        told["same"] = len(before) == len(after) == len(SEEDS) and all(map(same_words, before, after))
    return told


def natural(source: str, script: Path, folder: Path) -> str | None:
    """What comes of the wrong rewrite that a trap names when nothing but the proof judges it; None where the trap names none."""
    rows = [row[2:] for row in source.splitlines() if row.startswith(("# - ", "# + "))]
    old, new = ([row[2:] for row in rows if row.startswith(mark)] for mark in "-+")
    if not old:
        return None
    script = folder / script.name
    script.write_text(source)
    baseline = baseline_of(script, folder)
    report = report_on(baseline.directory)
    sources = Sources(report, script)
    path, text = sources.text(str(script))
    edit = Edit(file=path, old=tuple(old), new=tuple(new))
    now = applied(text, edit)[1]
    span = Span(now.begin, now.begin + len(old))
    cures = tuple(one.fingerprint for one in report.findings if one.where is not None and one.where.line in range(span.begin, span.end))
    runs = folder / "runs"
    runs.mkdir()
    runner = Runner(runs, job_of(baseline, runs), worker.answer, timeout_s=120, fresh=False)
    prover = Prover(runner=runner, originals=sources.texts, backend="eager")
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
    worker.warm_up()
    keep_for_children()
    found = {}
    for file in map(Path, files):
        try:
            told = found[file.stem] = one(file.stem, file.read_text(), Path(folder) / file.stem, unsafe="unsafe" in file.parts)
            again = Path(folder) / f"{file.stem}-natural"
            again.mkdir()
            told["legal"] = legal(file.read_text())
            told["wrong"] = "\n".join(row[4:] for row in file.read_text().splitlines() if row.startswith("# + "))
            told["natural"] = natural(file.read_text(), Path(folder) / file.stem / file.name, again)
        except Exception:
            found[file.stem] = {"error": traceback.format_exc()}
        Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
