"""`dynadiag prove`: right edits are proven, also where the compiled part has moved; wrong ones are not, with what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from dynadiag.fix.edit_proof import _Proof
from dynadiag.fix.inside.running import RunJob
from dynadiag.fix.proof import Prover
from dynadiag.fix.runs import Runner, RunServer

ROOT = Path(__file__).parents[3]
SCRIPT = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.dropout = nn.Dropout(0.25)
        self.register_buffer("mean", torch.zeros(16))
        self.seen = 0

    def forward(self, x):
        h = self.first(x).relu()
        self.seen += 1
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        if h.sum() > 20:
            h = h * 0.5
        return self.second(self.dropout(h))


def train_step(model, optimizer, x, y, log):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    log.append(loss.item())
    return loss


def main():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    log = []
    step = torch.compile(train_step, backend="aot_eager")
    for number in range(4):
        x, y = torch.randn(6, 8) * (1 + number), torch.randint(4, (6,))
        try:
            step(model, optimizer, x, y, log)
            if number == 3:
                raise KeyError("done")
        except KeyError:
            print("caught", len(log))
        print(f"{log[-1]:.4f}")


main()
"""
BRANCH = ("        if h.sum() > 20:\n            h = h * 0.5\n", "        h = torch.where(h.sum() > 20, h * 0.5, h)\n")
MODEL = (
    ('    step = torch.compile(train_step, backend="aot_eager")\n', '    model.compile(backend="aot_eager")\n'),
    ("            step(model", "            train_step(model"),
)
RIGHT = {
    "a branch as a selection": (BRANCH,),
    "the model is compiled instead": MODEL,
    "the model is compiled instead, without a break": (*MODEL, BRANCH),
    "the number is read outside": (
        ("    log.append(loss.item())\n    return loss\n", "    return loss\n"),
        ("            step(model, optimizer, x, y, log)\n", "            log.append(step(model, optimizer, x, y, log).item())\n"),
    ),
    "a count as a buffer": (("        self.seen = 0\n", '        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))\n'),),
}
WRONG = {
    "an effect lost": ("        self.seen += 1\n", ""),
    "an effect done twice": ("        self.seen += 1\n", "        self.seen += 2\n"),
    "a side of the branch wrong": (BRANCH[0], "        h = torch.where(h.sum() > 20, h * 0.6, h)\n"),
    "the sides changed over": (BRANCH[0], "        h = torch.where(h.sum() > 20, h, h * 0.5)\n"),
    "a gradient cut": ("        return self.second(self.dropout(h))", "        return self.second(self.dropout(h.detach()))"),
    "a stale buffer": ("        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)\n", ""),
    "a buffer replaced by its value of before": ("self.mean.mul_(0.9).add_(", "self.mean.clone().mul_(0.9).add_("),
    "other random numbers": ("self.second(self.dropout(h))", "self.second(h)"),
    "random numbers drawn twice": ("self.second(self.dropout(h))", "self.second((self.dropout(h), self.dropout(h))[0])"),
    "another rate": ("lr=1e-2", "lr=2e-2"),
    "gradients that are not cleared": ("    optimizer.zero_grad()\n", ""),
    "an effect reordered": (
        "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n",
        "    optimizer.step()\n    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
    ),
    "a line not printed": ('        print(f"{log[-1]:.4f}")\n', '        if number:\n            print(f"{log[-1]:.4f}")\n'),
    "an exception not raised": ('                raise KeyError("done")\n', "                pass\n"),
    "an exception swallowed too early": (
        "        except KeyError:\n            print",
        "        except KeyError:\n            continue\n            print",
    ),
    "trained in eval mode": ("    model = Net()\n", "    model = Net().eval()\n"),
    "another precision": ("        h = self.first(x).relu()\n", "        h = self.first(x).relu().bfloat16().float()\n"),
    "an effect on one side only": ("        self.seen += 1\n", "        self.seen += int(h.sum() > 20)\n"),
    "a logged value changed": ("log.append(loss.item())", "log.append(loss.item() * 1.001)"),
    "a log replaced": ("    log.append(loss.item())\n", "    log[:] = [loss.item()]\n"),
    "a log entry lost": ("    log.append(loss.item())\n", "    if log:\n        log.append(loss.item())\n"),
    "a gradient of another sign": ("    loss.backward()\n", "    (-loss).backward()\n"),
    "a gradient added twice": ("    loss.backward()\n", "    loss.backward(retain_graph=True)\n    loss.backward()\n"),
    "gradients that are not clipped": ("    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", ""),
    "gradients cleared before the step": (
        "    optimizer.zero_grad()\n    loss.backward()\n",
        "    loss.backward()\n    optimizer.zero_grad()\n",
    ),
    "other betas": ("lr=1e-2", "lr=1e-2, betas=(0.8, 0.999)"),
    "no weight decay": ("lr=1e-2", "lr=1e-2, weight_decay=0.0"),
    "a buffer with another weight": ("alpha=0.1", "alpha=0.11"),
    "a buffer of some rows": ("h.detach().mean(0)", "h.detach()[:3].mean(0)"),
    "a buffer of an earlier value": ("h.detach().mean(0)", "self.first(x).detach().mean(0)"),
    "a condition the other way": (BRANCH[0], "        h = torch.where(h.sum() < 20, h * 0.5, h)\n"),
    "a condition of each element": (BRANCH[0], "        h = torch.where(h > 20, h * 0.5, h)\n"),
    "a side that is never taken": (BRANCH[0], ""),
    "a side that is always taken": (BRANCH[0], "        h = h * 0.5\n"),
    "random numbers of another rate": ("Dropout(0.25)", "Dropout(0.3)"),
    "a random number more": ("        h = self.first(x).relu()\n", "        torch.rand(1)\n        h = self.first(x).relu()\n"),
    "the same random numbers in each call": (
        "        h = self.first(x).relu()\n",
        "        torch.manual_seed(1)\n        h = self.first(x).relu()\n",
    ),
    "another seed": ("torch.manual_seed(0)", "torch.manual_seed(1)"),
    "an exception of another class": ('KeyError("done")', 'ValueError("done")'),
    "a call less": ("range(4)", "range(3)"),
    "other labels": ("(model(x), y)", "(model(x), y.flip(0))"),
    "a parameter that is frozen": (
        "        self.seen = 0\n",
        "        self.seen = 0\n        self.first.bias.requires_grad_(False)\n",
    ),
    "a sum instead of a mean": ("(model(x), y)", '(model(x), y, reduction="sum")'),
    "nothing compiled": ('torch.compile(train_step, backend="aot_eager")', "train_step"),
}


OFTEN = frozenset(
    (
        "the model is compiled instead, without a break",
        "the number is read outside",
        "an effect lost",
        "a side of the branch wrong",
        "a gradient cut",
        "other random numbers",
        "an exception not raised",
    )
)


def edited(pairs, text=SCRIPT):
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def proving(tmp_path_factory):
    """What is known of the program before any edit, made once: a prover with its reference runs."""
    folder = tmp_path_factory.mktemp("prove")
    script = folder / "train.py"
    script.write_text(SCRIPT)
    job = RunJob(script=str(script), arguments=[], folder=str(folder), output=str(folder), whole=True)
    server = RunServer(folder, training=True)  # a process of its own: no backward runs in a child of one that has run one
    runner = Runner(folder, job, server.ask, timeout_s=120, fresh=False, edited=True)
    prover = Prover(runner=runner, originals={str(script): SCRIPT}, backend="aot_eager", recorded_status=0, edited=True)
    prover.refer(())
    yield prover, str(script)
    server.close()


def proof(proving, text):
    prover, script = proving
    return _Proof(runner=prover.runner, prover=prover, after={script: text})


def asked(request, name):
    """Whether an edit is tried in each run, and not only with --whole-corpus."""
    if name not in OFTEN and not request.config.getoption("--whole-corpus"):
        pytest.skip("tried with --whole-corpus")


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_edit_is_proven(request, name):
    asked(request, name)
    proving = request.getfixturevalue("proving")
    made = proof(proving, edited(RIGHT[name]))
    assert made.why_not(lambda words: None) is None
    assert "other random seeds, compiled" in made.compared
    assert made.evidence.values["parameter"] == 4 and made.evidence.values["optimizer"] > 12


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_edit_is_not_proven(request, name):
    asked(request, name)
    proving = request.getfixturevalue("proving")
    assert proof(proving, edited([WRONG[name]])).why_not(lambda words: None) is not None


def test_a_patch_from_the_command_line(tmp_path):
    script, patch = tmp_path / "train.py", tmp_path / "faster.patch"
    script.write_text(SCRIPT)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "new.py").write_text(edited((*MODEL, BRANCH)))
    done = subprocess.run(["git", "diff", "--no-index", "train.py", "new.py"], cwd=tmp_path, capture_output=True, text=True)
    patch.write_text(done.stdout.replace("b/new.py", "b/train.py"))
    command = [sys.executable, "-m", "dynadiag", "prove", "--patch", "faster.patch", "--out", "out", "train.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    told = json.loads((tmp_path / "out" / "prove.json").read_text())
    jsonschema.validate(told, json.loads((ROOT / "docs" / "prove.schema.json").read_text()))
    assert (run.returncode, told["verdict"]) == (0, "PROVEN"), run.stdout + run.stderr
    assert script.read_text() == SCRIPT and "nothing" not in run.stderr
    assert told["before"]["graph_break_sites"] > 0 == told["after"]["graph_break_sites"]
    assert told["cured"] and {finding["code"] for finding in told["new"]} <= {"DR03"}  # the count of calls is a number of the module
