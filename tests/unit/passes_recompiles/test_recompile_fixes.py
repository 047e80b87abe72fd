"""What the fixes of a finding on recompiles promise: how many are theirs, and nothing that fails when it is followed."""

from dataclasses import replace

import pytest

from dynadiag.model.run import CompileCall, CompileMetrics, Location
from dynadiag.passes.find_recompiles import find_recompiles


def size(entry, index, old, new, name="x"):
    return f"0/{entry}: tensor '{name}' size mismatch at index {index}. expected {old}, actual {new}"


def equals(entry, source, value):
    return f"0/{entry}: {source + ' == ' + value:<60}  # return x * k  # t.py:11 in step"


def fixes(run):
    (finding,) = find_recompiles(run).findings
    return {advice.slug: advice for advice in finding.fix}


def test_every_change_says_how_many_recompiles_it_is_for(builders):
    stride = "0/0: tensor 'x' stride mismatch at index 1. expected 256, actual 1"
    run = builders.recompiled([stride], [equals(1, "mode", "'a'"), stride], [equals(2, "mode", "'b'"), stride])
    assert fixes(run)["contiguous"].text.endswith("the only recorded cause of 1 of these 3 recompiles.")


def test_an_older_version_may_fit_once_a_change_is_undone(builders):
    run = builders.recompiled(
        ["0/0: len(params) == 4"], ["0/1: len(params) == 2", equals(0, "weight", "1.0")], symbols=[(1, "L['weight']", "0.1")]
    )
    assert fixes(run)["compile-dynamic"].text.endswith("has another recorded cause too.")


def test_two_sizes_of_one_tensor_are_marked_together(builders):
    run = builders.recompiled([size(0, 2, 16, 8)], symbols=[(1, "L['x'].size()[2]", "8"), (1, "L['x'].size()[3]", "8")])
    marked = fixes(run)["mark-dynamic"].text
    assert "Alone it ends none" not in marked
    assert "`torch._dynamo.maybe_mark_dynamic(x, [2, 3])`" in marked and "dimension 2 of `x` and dimension 3 of `x` vary" in marked


@pytest.mark.parametrize(("outcome", "metrics", "advised"), [("failed", None, False), ("compiled", None, True)])
def test_symbols_that_did_not_compile_are_not_asked_for_earlier(builders, outcome, metrics, advised):
    run = builders.recompiled([equals(0, "k", "4")], symbols=[(1, "L['k']", "8")])
    last = replace(run.frames[-1], outcome=outcome, metrics=CompileMetrics(total_s=0.1, fail_type="TorchRuntimeError"))
    assert ("compile-dynamic" in fixes(replace(run, frames=(*run.frames[:-1], last)))) is advised


def test_everything_dynamic_is_not_advised_where_a_size_of_one_is_another_program(builders):
    """A decoder whose prompt and whose single tokens are two programs: `is_causal=t > 1` breaks the graph when `t` is symbolic."""
    run = builders.recompiled([size(0, 1, 5, 1, "ids")], [equals(1, "start", "0")], symbols=[(2, "L['start']", "6")])
    assert "compile-dynamic" not in fixes(run)
    run = builders.recompiled(
        [size(0, 1, 5, 7, "ids")], [equals(1, "start", "0")], symbols=[(1, "L['ids'].size()[1]", "7"), (2, "L['start']", "6")]
    )
    assert "compile-dynamic" in fixes(run)


def test_what_backward_saved_is_no_tensor_of_the_program(builders):
    run = builders.recompiled(
        [equals(0, "k", "0.1")], [equals(1, "k", "0.2")], symbols=[(1, "__meta_utils_unknown_tensor13.size()[0]", "5056")]
    )
    assert not any("__meta_utils" in advice.text for finding in find_recompiles(run).findings for advice in finding.fix)


def test_parameters_of_torchs_own_modules_need_two_options(builders):
    grown = "Guard failed on a parameter, consider using torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism"
    run = builders.recompiled([f"{size(0, 0, 4, 8, chr(39).join(('self._modules[', 'a', ']._parameters[', 'bias', ']')))}. {grown}"])
    after = fixes(run)["parameter-shapes"].after
    assert after is not None and "force_parameter_static_shapes = False" in after
    assert "force_nn_module_property_static_shapes = False" in after


def test_an_option_that_helps_from_the_second_change_on_promises_no_more(builders):
    """Followed on a program (2.15): 8 -> 12 with the options was compiled again as without them."""
    grown = "Guard failed on a parameter, consider using torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism"

    def bias(entry, old, new):
        return f"{size(entry, 0, old, new, 'self._modules[a]._parameters[bias]')}. {grown}"

    once = builders.recompiled([bias(0, 8, 12)])
    assert fixes(once)["parameter-shapes"].text.endswith("this helps from the second on.")
    beside = builders.recompiled([bias(0, 8, 12)], [equals(1, "k", "4")], symbols=[(2, "L['k']", "8")])
    assert list(fixes(beside)) == ["compile-dynamic"]
    thrice = builders.recompiled(*([bias(entry, 8 + entry, 9 + entry)] for entry in range(3)))
    assert fixes(thrice)["parameter-shapes"].text.endswith("is the only recorded cause of 2 of these 3 recompiles.")


def compiled_modules(builders, lines):
    return tuple(
        CompileCall(
            process=0,
            location=Location(builders.SCRIPT, line),
            target="Block._call_impl",
            backend="eager",
            definition=Location("/site-packages/torch/nn/modules/module.py", 1791),
        )
        for line in lines
    )


@pytest.mark.parametrize(
    ("sources", "lines", "advised"),
    [
        (("self.index", "self.kind"), (30, 30, 30), True),
        (("self.index", "self.index"), (30, 30, 30), False),  # it may be one module that counts
        (("self.index", "self.kind"), (30,), False),
        (("self.index", "self.kind"), (30, 30, 50), False),
    ],
)
def test_modules_that_are_set_up_differently_are_compiled_in_their_parent(builders, sources, lines, advised):
    run = builders.recompiled([equals(0, sources[0], "1")], [equals(1, sources[1], "2")], name="forward")
    run = replace(run, compile_calls=compiled_modules(builders, lines))
    assert ("compile-parent" in fixes(run)) is advised


def test_what_ends_nothing_even_together_is_not_told(builders):
    """Followed on an optimizer's step: `lr` as a tensor ended nothing, the state had been filled in the same call."""
    changed = "0/0: expected type of 'x' to be <class 'torch.Tensor'>, but found <class 'Sub'>"
    run = builders.recompiled([changed], symbols=[(1, "L['scale']", "0.1")])
    assert fixes(run) == {}


def limited(builders, *events, **options):
    run = builders.recompiled(*events, **options)
    metrics = replace(run.frames[-1].metrics, fail_type="FailOnRecompileLimitHit", fail_reason="recompile limit exceeded")
    return replace(run, frames=(*run.frames[:-1], replace(run.frames[-1], metrics=metrics)))


def test_at_the_limit_nothing_is_said_to_need_no_change(builders):
    modes = [[equals(n, "mode", f"'{n}'")] for n in range(8)]
    found = fixes(limited(builders, *modes))
    assert list(found) == ["split-by-value", "raise-limit"]
    assert not any("while there are fewer" in advice.text for advice in found.values())
    assert "No change is needed while there are fewer" in fixes(builders.recompiled(*modes[:3]))["split-by-value"].text


def test_the_limit_of_what_counts_up_is_not_raised(builders):
    counted = [[equals(n, "G['CALLS']", str(n))] for n in range(8)]
    assert "raise-limit" not in fixes(limited(builders, *counted))


def test_everything_dynamic_is_not_advised_where_a_version_was_left_to_eager(builders):
    """Followed on a decoder: its third version broke and ran eager; with `dynamic=True` three more breaks came."""
    run = builders.recompiled([equals(0, "k", "4")], [size(1, 0, 4, 8)], symbols=[(1, "L['k']", "8"), (2, "L['x'].size()[0]", "8")])
    assert "compile-dynamic" in fixes(run)
    skipped = replace(run.frames[-1], outcome="skipped")
    assert "compile-dynamic" not in fixes(replace(run, frames=(*run.frames[:-1], skipped)))
