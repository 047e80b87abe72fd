"""Advice and passes have one opinion on whose line a break is on, also for paths of other machines."""

import pytest

from dynadiag.advice import imports
from dynadiag.advice.imports import with_imports
from dynadiag.changes.break_context import break_context_of
from dynadiag.facts.user_frames import is_own_file
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import BreakEvent, CompileKey, Frame, Run, RunInfo

CALL = Location("/home/me/proj/train.py", 3, "f", "y = helper(x)")
RUN = Run(
    info=RunInfo(),
    frames=(Frame(id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="f", file=CALL.file, line=1, outcome="broke"),),
    site_prefixes=("/opt/env",),
)


def context(file):
    inner = Location(file, 7, "helper", "if mask.all():")
    event = BreakEvent(
        frame="f0", attempt=0, gb_id="GB0170", gb_type="?", explanation="", hints=(), context="", stack=(CALL, inner), torch_frame=inner
    )
    return break_context_of(event, RUN)


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        ("/home/me/proj/net.py", "own"),
        ("C:\\Users\\me\\proj\\net.py", "own"),
        ("<doctest net.helper[0]>", "own"),
        ("<input>", "own"),
        ("<ipython-input-3-abc>", "own"),
        ("/opt/environment/net.py", "own"),  # only its name begins like the recorded prefix
        ("/home/me/torch/net.py", "own"),
        ("/opt/env/share/net.py", "package"),
        ("C:\\venv\\Lib\\site-packages\\net.py", "package"),
        ("C:\\Python312\\Lib\\site-packages\\net.py", "package"),
        ("/usr/lib/python3/dist-packages/net.py", "package"),
        ("/env/lib/python3.12/site-packages/engine/torch/net.py", "package"),
        ("/home/me/tools/dynadiag/compare/calls.py", "package"),
        ("/tmp/torchinductor_me/ab/cabcabc.py", "package"),  # noqa: S108
        ("<string_helper>", "package"),
        ("<eval_with_key>.3", "package"),
        ("/data/pytorch/torch/nn/functional.py", "torch"),
        ("/data/pytorch/torch/__init__.py", "torch"),
        ("/opt/torch-src/torch/__init__.py", "torch"),
        ("/home/me/backends/torch/__init__.py", "own"),
        ("D:\\src\\pytorch\\torch\\nn\\functional.py", "torch"),
        ("C:\\venv\\Lib\\site-packages\\torch\\nn\\functional.py", "torch"),
        ("C:\\Python312\\Lib\\contextlib.py", "standard library"),
        ("/usr/lib/python3.12/contextlib.py", "standard library"),
        ("/usr/lib/python3.13t/contextlib.py", "standard library"),
        ("/usr/lib/python312.zip/contextlib.py", "standard library"),
        ("<frozen runpy>", "standard library"),
    ],
)
def test_whose_line_it_is_has_one_answer(file, whose):
    found = context(file)
    assert is_own_file(file, RUN) is found.editable is (whose == "own")
    assert (found.direct, found.library) == (whose == "standard library", whose == "package")


@pytest.mark.parametrize(
    ("block", "needed"),
    [
        ("import torch\nfrom torch import nn", ()),
        ("import os, torch", ()),
        ("x = torch.ones(2)", ()),
        ("import torch.nn as nn", ("import torch",)),
        ("import torch as t", ("import torch",)),
        ("import torchvision", ("import torch",)),
    ],
)
def test_an_import_is_only_asked_for_where_the_file_does_not_have_it(block, needed):
    """`+ import torch` stood above a script that begins with `import torch`."""
    where = Location("/home/me/train.py", 9, "f", "y = x.item()")
    run = Run(info=RunInfo(), blocks={(where.file, 1): block})
    advice = with_imports(Advice(slug="a", text="b", after="torch._dynamo.config.x = True"), where, run)
    assert advice.imports == needed


def test_what_is_recorded_of_a_file_is_looked_through_once(monkeypatch):
    """Of 5,000 breaks in one file each went through all of it (a text log of 10 MB: 20 s of CPU time)."""
    looked = []
    names = imports._names
    monkeypatch.setattr(imports, "_names", lambda text: looked.append(len(text)) or names(text))
    run = Run(info=RunInfo(), blocks={("/home/me/train.py", number): "y = torch.sin(x)" for number in range(200)})
    for number in range(200):
        where = Location("/home/me/train.py", number, "f", "y = x.item()")
        assert with_imports(Advice(slug="a", text="b", after="torch.x = True"), where, run).imports == ()
    assert max(looked) == 200 * len("y = torch.sin(x)") + 199 and sum(looked) == max(looked)
