"""The commands that README.md and docs/ show, and a project in which they run.

`documented.py FOLDER [WORD...]` runs them there, all or those with one of some words. That takes half an
hour of CPU time, so it is done by hand. Each command may end with 0 or 1 (something was found) and must print no traceback of ours.
"""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
READERS = ("explain", "graph", "check", "diff", "bug", "rule", "runs")
NOT_HERE = {
    "sweep": "needs its extra, and runs many models",
    "mcp": "a server: `tests/with_torch/test_mcp.py`",
    "--old-python": "a second torch: `tests/older_torch`",
    "~/train/.venv/bin/python": "a second environment",
    "o0": "needs Inductor's compiler",
    "analysis.ipynb": "`tests/with_torch/notebook`",
    "--diff": "a copied recording was not recorded where it lies: `tests/with_torch/fix`",
    "minified": "the folder of an earlier command",
    "--resume": "a reduction that was interrupted: `tests/with_torch/reduce`",
    "--install-completion": "changes the shell's start-up files",
}
TRAIN = """import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--variant")
args = parser.parse_args()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))


def loss_of(x):
    hidden = model(x)
    if hidden.sum() > 100:
        hidden = hidden * 2
    return (hidden**2).mean()


step = torch.compile(loss_of, backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for _ in range(4 if args.variant is None else 100_000):  # `bench --variants` ends it
    loss = step(torch.randn(args.batch_size, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
STEPS = """import dynadiag
import torch


@dynadiag.benchmark
def train_step():
    x = torch.randn(64, 64)
    return lambda: (x @ x).relu().sum()
"""


def commands() -> list[tuple[str, list[str]]]:
    """Page and words of every line that begins with `$` in a block of a console."""
    return [
        (str(page.relative_to(ROOT)), shlex.split(re.split(r"\s#", line)[0]))
        for page in PAGES
        for block in blocks(str(page.relative_to(ROOT)), "console")
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    ]


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in a language, as they stand there."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def reads(words: list[str]) -> bool:
    """Whether the command only reads: a recording, a table."""
    target = words[-1] if words[1] != "graph" else words[2]
    files = target.startswith("dynadiag-runs/") or target.endswith((".log", "logs/", ".txt")) or words[1] in ("rule", "runs")
    return words[0] == "dynadiag" and words[1] in READERS and files and not NOT_HERE.keys() & set(words)


def project(folder: Path) -> None:
    """A git project with a program, a module, a log and a recording of it, under the names that the pages use."""
    (folder / "mypackage").mkdir(parents=True)
    (folder / "mypackage/__init__.py").touch()
    shutil.copytree(folder / "mypackage", folder / "package")
    for name in ("train.py", "script.py", "mypackage/train.py", "package/train.py"):
        (folder / name).write_text(TRAIN)
    for name in ("steps.py", "fixed.py", "mypackage/steps.py"):
        (folder / name).write_text(STEPS)
    (folder / "my_operators.py").touch()
    (folder / "repro.py").write_text("import torch\n\nprint(torch.compile(lambda x: x + 1, backend='aot_eager')(torch.ones(3)))\n")
    shutil.copy(ROOT / "samples/text_classification.py", folder)
    for words in (["init", "-qb", "main"], ["add", "."], ["commit", "-qm", "x"], ["commit", "-qm", "y", "--allow-empty"]):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words], cwd=folder, check=True)
    run(["explain", "-q", "--no-probe", "train.py"], folder, check=True)
    recorded = folder / "dynadiag-runs/0001-train"
    for name in ("0002-train", "0001-text-classification"):
        shutil.copytree(recorded, folder / "dynadiag-runs" / name)
    (log,) = recorded.glob("*.log")
    (folder / "logs").mkdir()
    for name in ("torch_trace.log", "trace.log", "rank0.log", "rank1.log", "logs/rank_0.log"):
        shutil.copy(log, folder / name)
    (folder / "issue.txt").write_text(
        "torch._dynamo hit config.recompile_limit (8)\n   function: 'f' (train.py:9)\n   last reason: 0/7: k == 7\n"
    )


def run(words, folder, **options):
    """The program from this checkout, in the folder."""
    places = [str(ROOT), str(ROOT / "cli")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", "BROWSER": "true"}
    command = [sys.executable, "-m", "dynadiag", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)


def main(folder: Path, chosen: list[str]) -> int:
    project(folder / "made")
    run(["check", "--update-baseline", "dynadiag-runs/latest"], folder / "made")
    run(["bench", "--max-time", "1", "--max-rounds", "20", "--out", "base", "train.py"], folder / "made")

    def one(number, page, words):
        place = folder / str(number)
        shutil.copytree(folder / "made", place, symlinks=True)
        began = time.monotonic()
        try:
            done = run(words[1:], place, timeout=280)
            status, said = done.returncode, done.stderr[-400:]
        except subprocess.TimeoutExpired:
            status, said = None, ""
        bad = status not in (0, 1) or "dynadiag/" in said and "Traceback" in said
        return {"page": page, "command": words, "status": status, "bad": bad, "wall_s": round(time.monotonic() - began), "said": said}

    wanted = [(page, words) for page, words in commands() if words[0] == "dynadiag" and not NOT_HERE.keys() & set(words)]
    wanted = [one for one in wanted if not chosen or set(chosen) & set(one[1])]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda at: one(at, *wanted[at]), range(len(wanted))):
            print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
