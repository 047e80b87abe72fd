"""What the fixes of a finding on recompiles promise: how many are theirs, and nothing that fails when it is followed."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dynadiag.model.report import Advice
from dynadiag.passes.find_recompiles import find_recompiles
from dynadiag.passes.recompile_fixes import counted_fixes

GROWN = "Guard failed on a parameter, consider using torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism"


def equals(entry, source, value):
    return f"0/{entry}: {source + ' == ' + value:<60}  # return x * k  # t.py:11 in step"


def bias(entry, old, new):
    """The size of a parameter of one of torch's own modules."""
    return f"0/{entry}: tensor 'self._modules[a]._parameters[bias]' size mismatch at index 0. expected {old}, actual {new}. {GROWN}"


def fixes(run):
    (finding,) = find_recompiles(run).findings
    return {advice.slug: advice for advice in finding.fix}


def test_parameters_of_torchs_own_modules_need_two_options(builders):
    run = builders.recompiled(*([bias(entry, 8 + entry, 9 + entry)] for entry in range(3)))
    fix = fixes(run)["parameter-shapes"]
    assert fix.after is not None and "force_parameter_static_shapes = False" in fix.after
    assert "force_nn_module_property_static_shapes = False" in fix.after
    assert fix.words.endswith(" This ends 2 of these 3 recompiles, as far as torch names their causes.")


def test_an_option_that_helps_from_the_second_change_on_promises_no_more(builders):
    """Followed on a program (2.15): 8 -> 12 with the options was compiled again as without them."""
    assert fixes(builders.recompiled([bias(0, 8, 12)])) == {}
    assert fixes(builders.recompiled([bias(0, 8, 12)], [equals(1, "k", "4")], symbols=[(2, "L['k']", "8")])) == {}


def test_what_ends_nothing_by_itself_is_not_told(builders):
    """Followed on an optimizer's step: `lr` as a tensor ended nothing, the state had been filled in the same call."""
    rate = "self.param_groups[0]['lr']"
    run = builders.recompiled([equals(0, rate, "0.1")], symbols=[(1, f"L['{rate[:4]}']{rate[4:]}", "0.05")])
    assert list(fixes(builders.with_groups(run, 0))) == ["lr-as-tensor"]
    beside = builders.recompiled(["0/0: len(self.state) == 0"], symbols=[(1, f"L['{rate[:4]}']{rate[4:]}", "0.05")])
    assert fixes(beside) == {}


def test_a_state_that_is_filled_once_hides_no_rate_that_changes_with_each_step(builders):
    """SGD with momentum and a rate that the program sets: 8 recompiles were 1 with a tensor (2.15)."""
    rate = "self.param_groups[0]['lr']"
    rates = ([equals(entry, rate, f"0.{entry}")] for entry in (1, 2, 3))
    run = builders.recompiled(["0/0: len(self.state) == 0"], *rates)
    assert fixes(builders.with_groups(run, 0))["lr-as-tensor"].words.endswith(
        " This ends 3 of these 4 recompiles, as far as torch names their causes."
    )
    grows = builders.recompiled(["0/0: len(self.kept) == 0"], *([equals(entry, rate, f"0.{entry}")] for entry in (1, 2, 3)))
    assert fixes(builders.with_groups(grows, 0)) == {}


def test_a_change_for_another_cause_is_needed_too_and_one_for_the_same_cause_is_an_alternative():
    def row(number):
        return SimpleNamespace(steps=(SimpleNamespace(id=f"r{number}"),), kind="size", values=(), dynamic_since=None)

    def slugs(*given):
        group = [SimpleNamespace(rows=[row(number) for number in range(len(given))], advice=given)]
        return [(fix.slug, fix.follows) for fix in counted_fixes(group, 9, hit=False)]

    a, b = (Advice(slug=slug, text=slug) for slug in "ab")
    group = [SimpleNamespace(rows=[row(number) for number in range(2)], advice=((a,), (a,)))]
    assert [fix.words for fix in counted_fixes(group, 2, hit=False)] == [
        "a. This ends both recompiles, as far as torch names their causes."
    ]
    assert [fix.words for fix in counted_fixes(group, 3, hit=False)] == [
        "a. This ends 2 of these 3 recompiles, as far as torch names their causes."
    ]
    assert [fix.words for fix in counted_fixes(group, 2, hit=False, followed=3)] == [
        "a. This ends 2 of these 5 recompiles, as far as torch names their causes."
    ]
    once = [SimpleNamespace(rows=[row(0)], advice=((a,),))]
    assert [fix.words for fix in counted_fixes(once, 1, hit=False)] == ["a"]
    assert [fix.words for fix in counted_fixes(once, 1, hit=False, followed=2)] == [
        "a. This ends 1 of these 3 recompiles, as far as torch names their causes."
    ]
    assert slugs((a,), (b,)) == [("a", False), ("b", True)]
    assert slugs((a, b)) == [("a", False), ("b", False)]


def limited(builders, *events, **options):
    run = builders.recompiled(*events, **options)
    metrics = replace(run.frames[-1].metrics, fail_type="FailOnRecompileLimitHit", fail_reason="recompile limit exceeded")
    return replace(run, frames=(*run.frames[:-1], replace(run.frames[-1], metrics=metrics)))


FLAGS = ["L['a']", "L['b']", "L['c']", "L['d']"]


def flags(count):
    """Four flags, each of which is another one in a call of its own."""
    return [[equals(n, FLAGS[n % 4], ("True", "False")[n // 4 % 2])] for n in range(count)]


def test_the_limit_is_raised_where_all_that_changed_has_few_states(builders):
    found = fixes(limited(builders, *flags(8)))
    assert [(one.slug, one.after) for one in found.values()] == [("raise-limit", "torch._dynamo.config.recompile_limit = 16")]
    assert "16 versions are enough" in found["raise-limit"].text
    assert fixes(builders.recompiled(*flags(4))) == {}


def test_the_limit_of_a_container_in_another_one_is_not_raised(builders):
    """A tree of tuples (2.15): 11 of them reached the limit, and 300 random ones reach any."""

    def typed(entry, name):
        return f"0/{entry}: ___check_type_id(tree[0], 94), type=<class '{name}'>  # if isinstance(tree, int):  # t.py:11 in step"

    events = [equals(0, "tree[0]", "1")], [typed(1, "tuple")], [equals(2, "tree[0]", "1")], [typed(3, "tuple")]
    run = limited(builders, *events, symbols=[(4, "L['tree'][0]", "8")])
    assert fixes(run) == {} and "a tuple" in find_recompiles(run).findings[0].why


@pytest.mark.parametrize(
    "other", [[equals(n, "mode", f"'{n}'") for n in range(8)], [f"0/{n}: len(xs) == {n}" for n in range(8)], [equals(0, "CALLS", "1")]]
)
def test_the_limit_of_what_may_have_any_number_of_values_is_not_raised(builders, other):
    run = limited(builders, *flags(4), *([one] for one in other))
    assert fixes(run) == {}
    assert "othing is advised" in find_recompiles(run).findings[0].why


def test_at_the_limit_only_what_ends_most_recompiles_is_told(builders):
    """Followed on a graph network: each recompile that a mark ended made room for one that torch had refused."""
    hint = "(HINT: ... torch._dynamo.config.allow_unspec_int_on_nn_module = True ...)"
    counted = [[f"0/{n}: {f'self.calls == {n}':<60}  # self.calls += 1  # train.py:11 in step {hint}"] for n in range(8)]
    text = "def step(self, x):\n    self.calls += 1\n    return x"
    for events, slugs in ((counted, ["unspec-int-on-module"]), ([*counted[:4], *flags(4)], [])):
        run = replace(limited(builders, *events), blocks={(builders.SCRIPT, 10): text})
        assert list(fixes(run)) == slugs


@pytest.mark.parametrize(("source", "slugs"), [("scale", []), ("self.calls", ["unspec-int-on-module"])])
def test_a_condition_on_something_else_is_not_counted_to_what_an_integer_causes(builders, source, slugs):
    """Followed on a StyleGAN (2.15): "at least 1 of these 3 recompiles", and there were 3 with the option, too."""
    hint = "(HINT: ... torch._dynamo.config.allow_unspec_int_on_nn_module = True ...)"
    counted = [[f"0/{n}: {f'self.calls == {n}':<60}  # self.calls += 1  # train.py:11 in step {hint}"] for n in range(1)]
    other = [f"0/1: ___as_tensor({source}).item() <= 2.0  # if scale > 2:  # train.py:11 in step"]
    flag = [equals(2, "flag", "True")]
    text = "def step(self, x):\n    self.calls += 1\n    return x"
    run = replace(builders.recompiled(*counted, other, flag), blocks={(builders.SCRIPT, 10): text})
    assert list(fixes(run)) == slugs


def test_nothing_is_told_to_end_what_a_count_hides(builders):
    """Followed on an agent and an encoder: a mark ended nothing, since a counter had changed in the same calls unseen."""
    sizes = [[bias(entry, 8 + entry, 9 + entry)] for entry in range(3)]
    assert list(fixes(builders.recompiled(*sizes))) == ["parameter-shapes"]
    assert fixes(builders.recompiled(*sizes, [equals(3, "G['CALLS']", "3")])) == {}
    assert fixes(builders.recompiled(*sizes, ["0/3: len(self.seen) == 3"])) == {}
    assert list(fixes(builders.recompiled(*sizes, [equals(3, "flag", "True")]))) == ["parameter-shapes"]
    assert list(fixes(builders.recompiled(*sizes, [equals(3, "mode", "'train'")]))) == ["parameter-shapes"]
    assert fixes(builders.recompiled(*sizes, *([equals(3 + n, "text", f"'{'a' * n}'")] for n in range(3)))) == {}  # a text that grows
