"""Several changes in one finding: which are alternatives, none twice, and the imports that code to copy needs."""

from dataclasses import replace

import pytest

from dynadiag import report
from dynadiag.advice.imports import with_imports
from dynadiag.model import PassResult
from dynadiag.model.report import Advice, Fallback
from dynadiag.passes.find_fallbacks import _of_all
from dynadiag.passes.find_graph_breaks import merged_fixes
from dynadiag.render import markdown
from tests.gold import sample_report as samples

LINE = samples.OWN_SCALE


def advice(slug, after=None, **fields):
    return Advice(slug=slug, text=f"do {slug}", after=after, **fields)


def site(name, *fixes):
    return replace(samples.break_site(name, "GB0059", LINE, LINE, 1, ("f0",)), advice=fixes)


def test_another_change_for_the_same_break_is_an_alternative_and_one_for_another_break_is_needed_too():
    a, b, c = advice("a", "x = 1"), advice("b", "y = 1"), advice("c", "z = 1")
    assert [(one.slug, one.follows) for one in merged_fixes([site("b0", a, b)])] == [("a", False), ("b", False)]
    assert [(one.slug, one.follows) for one in merged_fixes([site("b0", a), site("b1", c)])] == [("a", False), ("c", True)]
    assert [(one.slug, one.follows) for one in merged_fixes([site("b0", a), site("b1", a, c)])] == [("a", False), ("c", False)]


def test_each_switch_has_to_go():
    entry = Fallback(
        id="x1", fingerprint="p", kind="env_disabled", frame=None, reason="r", own_frame=None, advice=(advice("a"), advice("b"))
    )
    assert [(one.slug, one.follows) for one in _of_all((entry, replace(entry, advice=(advice("c"),))))] == [
        ("a", False),
        ("b", False),
        ("c", True),
    ]


@pytest.mark.parametrize(
    ("before", "after", "source", "imports"),
    [
        (None, "torch._dynamo.config.capture_scalar_outputs = True", "", ("import torch",)),
        (None, "torch._dynamo.config.capture_scalar_outputs = True", "y = torch.sin(x)", ()),
        (None, "torch._dynamo.config.x = True", "y = my.torch.sin(x)", ("import torch",)),
        ("y = torch.f(x)", "y = torch.g(x)", "", ()),
        ("y = f(x)", "y = math.exp(x)", "", ("import math",)),
        (None, "c.add(logging.Logger.info)", "torch.sin(x)", ("import logging",)),
        (None, "aot_autograd(fw_compiler=...)", "", ("from torch._dynamo.backends.common import aot_autograd",)),
        ("a", None, "", ()),
    ],
)
def test_the_import_that_a_line_needs_stands_with_it_unless_the_source_shows_it(before, after, source, imports):
    run = replace(samples.sample_run(), blocks={(LINE.file, 1): source})
    assert with_imports(Advice(slug="a", text="t", before=before, after=after), LINE, run).imports == imports


def test_no_change_stands_twice_in_a_finding(show):
    finding = replace(samples.sample_report().findings[0], where=LINE)
    twice = (advice("a", "torch.f()", follows=True), advice("b", "torch.f()"), advice("c", "g()"), advice("d"), advice("d", follows=True))

    def one(run):
        return PassResult(findings=(replace(finding, fix=twice),))

    built = report.build(replace(samples.sample_run(), blocks={}), (one,))
    assert [(one.slug, one.follows, one.imports) for one in built.findings[0].fix] == [
        ("a", False, ("import torch",)),
        ("c", False, ()),
        ("d", False, ()),
    ]


@pytest.mark.parametrize("summary", [False, True])
def test_alternatives_and_steps_are_told_apart(show, summary):
    finding = replace(
        samples.sample_report().findings[0], fix=(advice("a", "x", imports=("import torch",)), advice("b"), advice("c", follows=True))
    )
    made = replace(samples.sample_report(), findings=(finding,))
    text = show(made, summary=summary)
    assert "   fix   do a\n needs   + import torch\n         + x\n    or   do b\n  then   do c\n" in text
    assert "**Fix:** do a\n\nNeeds `import torch`.\n" in markdown.render(made) and "**Or:** do b\n\n**Then:** do c" in markdown.render(made)
