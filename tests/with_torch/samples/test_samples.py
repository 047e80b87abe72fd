"""Each sample runs, and its first comment says what dynadiag finds in it: the comment is read and compared with a recorded run.

The comments speak of what Dynamo does, for which the back end does not matter.
"""

from __future__ import annotations

import html
import io
import re
import runpy
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

import dynadiag
from dynadiag.render.terminal import print_summary
from tests.recorded_here import recorded_here

pytestmark = pytest.mark.models
SAMPLES = Path(__file__).parents[3] / "samples"
PICTURE = SAMPLES.parent / "docs" / "images" / "demo.svg"
HEADLINE = re.compile(
    r"(?:With (?P<options>--[^:]+)|dynadiag finds): "
    r"(?P<sites>\d+) graph break sites? \((?P<events>\d+) events?\), (?P<recompiles>\d+) recompiles?\."
)


@dataclass(frozen=True)
class Claim:
    """What a comment says of one way to run a sample."""

    script: str
    options: tuple[str, ...]
    counts: tuple[int, int, int]
    breaks: tuple[tuple[str, str], ...]
    recompiles: tuple[str, ...]


def first_comment(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    end = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return [line.removeprefix("#").strip() for line in lines[:end]]


def claims_of(path: Path) -> list[Claim]:
    found: list[Claim] = []
    for line in first_comment(path):
        if head := HEADLINE.fullmatch(line):
            counts = (int(head["sites"]), int(head["events"]), int(head["recompiles"]))
            found.append(Claim(path.name, tuple((head["options"] or "").split()), counts, (), ()))
        elif site := re.match(r"(GB\d{4}) at `(.+?)`", line):
            found[-1] = replace(found[-1], breaks=(*found[-1].breaks, (site[1], site[2])))
        elif line.startswith("recompile: "):
            found[-1] = replace(found[-1], recompiles=(*found[-1].recompiles, line.removeprefix("recompile: ")))
        else:
            raise AssertionError(f"{path.name}: this line of the first comment is checked by nobody: {line}")
    return found


CLAIMS = [claim for path in sorted(SAMPLES.glob("*.py")) for claim in claims_of(path)]


def test_every_sample_makes_a_claim():
    assert {claim.script for claim in CLAIMS} == {path.name for path in SAMPLES.glob("*.py")}
    assert len(CLAIMS) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS, ids=[" ".join([claim.script, *claim.options]) for claim in CLAIMS])
def test_the_first_comment_is_true(claim, tmp_path):
    recorded_here(SAMPLES / claim.script, tmp_path / "run", "--backend", "eager", *claim.options)
    report = dynadiag.load(tmp_path / "run")
    summary = report.summary
    assert (summary.graph_break_sites, summary.graph_break_events, summary.recompiles) == claim.counts
    if claim.breaks or not claim.counts[0]:
        assert sorted((site.gb_id, site.own_frame.code) for site in report.graph_breaks) == sorted(claim.breaks)
    reasons = [reason for recompile in report.recompiles for reason in recompile.reasons]
    assert [said for said in claim.recompiles if not any(said in reason for reason in reasons)] == []
    if (claim.script, claim.options) == ("bert_train_step.py", ()):
        picture = words_of(PICTURE.read_text("utf-8"))
        assert [part for part in summary_of(report, SAMPLES.parent) if part not in picture] == []  # else `make readme-picture`


def summary_of(report, base):
    """The ladder and the first finding, which the README's picture shows too, without blanks; they do not depend on the back end."""
    out = io.StringIO()
    print_summary(report, Console(file=out, width=90), base=base)
    opening, ladder, count, finding, *_ = out.getvalue().split("\n\n")
    return re.sub(r"\s", "", ladder), re.sub(r"\s", "", finding)


def words_of(picture):
    """The text of a picture of a terminal in the order in which it is read, without blanks."""
    texts = re.findall(r'<text class="dynadiag-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', picture)
    ordered = sorted((float(y), float(x), text) for x, y, text in texts)
    return re.sub(r"\s", "", html.unescape("".join(text for _, _, text in ordered)))


VARIANTS = ["optimize_model", "optimize_forward", "train_step", "dynamic", "dynamic_optimized"]
SMALL = ["--backend", "eager", "--steps", "2", "--sequence-length", "128", "--batch-size", "2", "--device", "cpu"]


@pytest.mark.slow
def test_bert_trains_in_every_variant_and_precision(monkeypatch, capsys):
    ways = [["--variant", variant] for variant in VARIANTS] + [
        ["--precision", name, "--variant", "base"] for name in ("tf32", "bf16", "fp16")
    ]
    script, losses, precision = str(SAMPLES / "bert_train_step.py"), [], torch.get_float32_matmul_precision()
    for way in ways:
        torch.compiler.reset()
        monkeypatch.setattr(sys, "argv", [script, *SMALL, *way])
        with torch.random.fork_rng(devices=[]):
            runpy.run_path(script, run_name="__main__")
        torch.set_float32_matmul_precision(precision)
        losses.append(re.findall(r"loss (\d+\.\d+)", capsys.readouterr().out))
    torch.compiler.reset()
    assert [len(each) for each in losses] == [2] * len(ways)
    # The same first batch and weights: what is compiled does not change the first loss, and half precision changes it little.
    assert max(float(each[0]) for each in losses) - min(float(each[0]) for each in losses) < 0.05
