"""The transition tables of a program whose recompiles are known, from recording to report."""

import json
from pathlib import Path

import pytest

from dynadiag.passes.find_recompiles import find_recompiles
from dynadiag.trace import load
from tests.recorded_here import recorded_here

STORY = """
import torch


def scaled(x, scale):
    return x * scale


def called(x, f):
    return f(x)


def sized(x, k):
    return x * k if x.shape[0] < 50 else x + k


def moded(x, mode):
    return x + len(mode)


def broken(x, k):
    x = x + 1
    torch._dynamo.graph_break()
    return x * k


class Stepper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step


def main():
    rows = [torch.ones(n, 3) for n in (4, 8, 9)]
    c = torch.compile(scaled, backend="eager", dynamic=False)
    for x in rows:
        c(x, 1.0)
    for scale in (2.0, 3.0):
        c(rows[0], scale)
    d = torch.compile(called, backend="eager")
    for name in ("sin", "cos", "tan"):
        d(rows[0], eval(f"lambda t: t.{name}()"))
    e = torch.compile(moded, backend="eager")
    for n in range(1, 12):
        e(rows[0], "m" * n)
    f = torch.compile(Stepper(), backend="eager")
    for _ in range(3):
        f(rows[0])
    g = torch.compile(broken, backend="eager")
    for mode in (False, True):
        g(rows[0], mode)
    i = torch.compile(sized, backend="eager")
    for n in (4, 8, 9, 60):
        i(torch.ones(n, 3), n)
    h = torch.compile(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout()), backend="eager")
    for training in (True, False, True, False):
        h.train(training)(rows[0])


main()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recompiles")
    script = folder / "story.py"
    script.write_text(STORY)
    recorded_here(script, folder / "run")
    return find_recompiles(load(folder / "run"))


def rows(found):
    return {(row.frame_name, row.source): row for row in found.transitions if row.kind != "condition"}


def test_every_source_and_nothing_else_is_blamed(found):
    assert set(rows(found)) == {
        ("scaled", "x.size(0)"),
        ("scaled", "scale"),
        ("called", "f"),
        ("sized", "x.size(0)"),
        ("sized", "k"),
        ("moded", "mode"),
        ("forward", "self.step"),
        ("torch_dynamo_resume_in_broken_at_23", "k"),
        ("inner", "module[1].training"),
    }


def test_values_in_order(found):
    table = rows(found)
    assert table["scaled", "x.size(0)"].values == ("4", "8", "9")
    assert table["scaled", "scale"].values == ("1.0", "2.0", "3.0")
    assert table["called", "f"].values[1:] == ("another object", "another object")
    assert table["moded", "mode"].values == tuple(repr("m" * n) for n in range(1, 9))
    assert table["forward", "self.step"].values == ("0", "1", "2")
    assert table["sized", "k"].values == ("4", "8")
    assert table["sized", "x.size(0)"].values == ("8",)  # hidden behind `k` in torch's reasons, known from its symbol
    assert table["torch_dynamo_resume_in_broken_at_23", "k"].values == ("False", "True")
    assert table["inner", "module[1].training"].values == ("True", "False")


def test_what_became_dynamic_and_with_which_compilation(found):
    dynamic = {(row.frame_name, row.source): row.why for row in found.transitions if row.became_dynamic}
    assert set(dynamic) == {("sized", "x.size(0)"), ("sized", "k")}
    assert all("became dynamic with [" in why and "/1]" in why for why in dynamic.values())
    assert dynamic["sized", "x.size(0)"].endswith("the first value is not in the log")


def test_a_branch_on_a_size_is_a_condition(found):
    (row,) = [row for row in found.transitions if row.kind == "condition"]
    assert (row.frame_name, row.source, row.values) == ("sized", "x.size(0)", ("2 <= x.size(0) <= 49",))


def test_recompiles_are_counted_once(found):
    counts = {key: len(row.recompiles) for key, row in rows(found).items()}
    assert counts == {
        ("scaled", "x.size(0)"): 2,
        ("scaled", "scale"): 2,
        ("called", "f"): 2,
        ("sized", "x.size(0)"): 1,
        ("sized", "k"): 1,
        ("moded", "mode"): 8,
        ("forward", "self.step"): 2,
        ("torch_dynamo_resume_in_broken_at_23", "k"): 1,
        ("inner", "module[1].training"): 1,
    }
    assert len(found.recompiles) == 20


def test_the_limit_and_how_far_it_is(found):
    table = rows(found)
    assert {(row.entries, row.limit) for row in found.transitions if row.frame_name == "scaled"} == {(5, 8)}
    assert (table["moded", "mode"].entries, table["moded", "mode"].limit, table["moded", "mode"].limit_hit) == (8, 8, True)
    assert [one for one in found.transitions if one.limit_hit] == [table["moded", "mode"]]


def test_each_code_object_has_one_finding_with_its_cure(found):
    cures = {finding.title.split()[0].strip("`"): [advice.slug for advice in finding.fix] for finding in found.findings}
    assert cures == {
        "scaled": [],  # a fraction changes beside the sizes: without `dynamic=False` torch may still make a constant of it
        "called": [],
        "sized": [],
        "moded": [],
        "forward": ["unspec-int-on-module"],
        "broken": [],
        "The": [],
    }
    severity = {finding.title.split()[0].strip("`"): (finding.code, finding.severity) for finding in found.findings}
    assert severity["moded"] == ("DR01", "error")
    assert severity["scaled"] == ("DR02", "warning")
    assert severity["The"] == ("DR03", "note")


def test_the_limit_finding_comes_first_and_says_what_runs_eager(found):
    first = min(found.findings, key=lambda finding: finding.rank)
    assert first.code == "DR01"
    assert "match none of the 8 compiled versions run eagerly from then on" in first.why


def test_places_are_the_users_own_lines(found):
    assert {Path(finding.where.file).name for finding in found.findings if finding.where} == {"story.py"}
    line = next(finding.where for finding in found.findings if finding.title.startswith("The compiled module or callable")).line
    assert STORY.split("\n")[line - 1].strip().startswith("h.train(training)")


def test_entries_are_plain_data(found):
    assert [one.id for one in found.recompiles] == [f"r{number}" for number in range(1, 21)]
    assert len({one.fingerprint for one in found.recompiles}) == 20
    json.dumps([one.reasons for one in found.recompiles])
