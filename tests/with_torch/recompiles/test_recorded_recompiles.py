"""Recompiles of a recorded script: what is said about values without a name in the program."""

import pytest

from dynadiag.passes.find_recompiles import find_recompiles
from dynadiag.trace import load
from tests.recorded_here import recorded_here

LIBRARY = """
import torch


def wrapped(function):
    def wrapper(self, *args, **kwargs):
        return function(self, *args, **kwargs)
    return wrapper


class Model(torch.nn.Module):
    @wrapped
    def forward(self, input_ids=None, labels=None):
        return input_ids.sin() * labels
"""
SCRIPT = """
import torch
from kit import Model


@torch.compiler.disable
def outside(x):
    return x[: int(x[0, 0])]


def printing(x):
    h = x.relu()
    print("norm", h.sum().item())
    return h + 1


def calling(x):
    y = outside(x * 2).sin()
    return y + 1


def counting(x, n):
    for k in range(2):
        print(n, x.sum().item())
    return x * n


def outer(x):
    return inner(x) + 1


def inner(ids):
    torch._dynamo.graph_break()
    return ids.sin()


nested = torch.compile(outer, backend="eager")
for size in (8, 12):
    batch = {"x": torch.ones(2, size)}
    nested(**batch)


def remembering(seen, x):
    seen.append(x.detach())
    return x + 1


remember = torch.compile(remembering, backend="eager")
seen = []
for _ in range(3):
    y = remember(seen, torch.ones(2))

COUNT = {"calls": 0}


def counting_calls(x):
    COUNT["calls"] += 1
    return x + 1


count = torch.compile(counting_calls, backend="eager")
for _ in range(3):
    y = count(torch.ones(2))


def joining(parts):
    return torch.stack(parts).sum(0)


join = torch.compile(joining, backend="eager")
for n in (2, 3):
    pieces = [torch.ones(2)] * n
    y = join(pieces)

for each in (printing, calling, counting):
    compiled = torch.compile(each, backend="eager")
    for size in (3, 4):
        compiled(torch.full((8, 2), float(size)) / 2, *((size,) if each is counting else ()))

for marked in (False, True):
    torch._dynamo.reset()
    model = Model()
    model.forward = torch.compile(model.forward, backend="eager")
    for size in (8, 10):
        ids, target = torch.ones(2, size), torch.ones(2, 1)
        if marked:
            torch._dynamo.maybe_mark_dynamic(ids, 1)
        loss = model(input_ids=ids, labels=target).sum()
"""
LINES = {name: number for number, line in enumerate(SCRIPT.splitlines(), 3) for name in ("h.sum().item()", "outside(x *") if name in line}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recompiles")
    (folder / "train.py").write_text(f"import sys\nsys.path.append({str(folder / 'site-packages')!r})\n{SCRIPT}")
    (folder / "site-packages").mkdir()
    (folder / "site-packages" / "kit.py").write_text(LIBRARY)
    recorded_here(folder / "train.py", folder / "run")
    return find_recompiles(load(folder / "run"))


def test_a_value_of_the_stack_is_named_by_the_call_that_made_it(found):
    titles = " ".join(finding.title for finding in found.findings)
    assert f"`h.sum().item()` computed before the break at line {LINES['h.sum().item()']}" in titles
    assert f"`size(0)` of the value of `outside(x * 2)` computed before the break at line {LINES['outside(x *']}" in titles
    assert "the value of `x.sum().item()`" not in " ".join(finding.why for finding in found.findings)
    assert "___stack" not in repr((found.findings, found.transitions))
    assert any(change.source.startswith("___stack") for one in found.recompiles for change in one.changed)


def test_an_argument_of_a_librarys_model_is_marked_by_its_name_in_the_script(found):
    # One finding: with the mark there is no recompile.
    (finding,) = (one for one in found.findings if "kwargs['input_ids'].size(1)" in one.title)
    fix = next(advice for advice in finding.fix if advice.slug == "mark-dynamic")
    line = "loss = model(input_ids=ids, labels=target).sum()"
    assert (fix.before, fix.after) == (line, f"torch._dynamo.maybe_mark_dynamic(ids, 1)\n{line}")
    assert finding.where.code == line
    assert finding.cost.value == 1.0


def test_one_size_that_is_passed_on_is_one_finding_and_named_as_the_script_writes_it(found):
    (finding,) = [finding for finding in found.findings if "`outer`" in finding.title]
    assert finding.title.startswith("`outer` and 1 function that it calls were recompiled, 3 times in all,")
    assert "`inner` (`ids.size(1)`: 8 -> 12" in finding.why
    assert finding.fix[0].after == 'torch._dynamo.maybe_mark_dynamic(batch["x"], 1)\nnested(**batch)'
    assert not any("`inner`" in other.title for other in found.findings)


def test_a_list_that_the_compiled_code_lengthens_itself_is_appended_to_outside(found):
    (finding,) = [finding for finding in found.findings if "`remembering`" in finding.title]
    assert finding.title == "`remembering` was recompiled 2 times because of `len(seen)`"
    (fix,) = finding.fix
    assert (fix.before, fix.after) == (
        "y = remember(seen, torch.ones(2))",
        "y, appended = remember(seen, torch.ones(2))\nseen.append(appended)",
    )
    assert "write `return x + 1, x.detach()` for `return x + 1`" in fix.text and "This ends both recompiles" in fix.words


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("counting_calls", 'y = count(torch.ones(2))\nCOUNT["calls"] += 1'),
        (
            "joining",
            "parts_joined = torch.stack(pieces)\ntorch._dynamo.maybe_mark_dynamic(parts_joined, 0)\ny = join(parts_joined)",
        ),
    ],
)
def test_what_the_function_need_not_do_is_done_at_the_call(found, name, after):
    (finding,) = [finding for finding in found.findings if f"`{name}`" in finding.title]
    assert [fix.after for fix in finding.fix] == [after]
