"""Break -> resume function -> graphs before and after."""

from dynadiag.passes.break_sites import break_sites
from dynadiag.passes.find_graph_breaks import find_graph_breaks


def test_the_resume_function_is_named_by_the_line_of_the_compiled_frame(maker, at):
    main = maker.frame("step", line=1)
    before = maker.graph(main)
    maker.breaks_at(main, at(5), at(20, "callee"))
    callee = maker.frame("callee", line=18)
    maker.breaks_at(callee, at(5), at(20, "callee"))
    resumed_callee = maker.frame("torch_dynamo_resume_in_callee_at_20", line=20)
    resumed = maker.frame("torch_dynamo_resume_in_step_at_5", line=5)
    after = maker.graph(resumed)
    (site,) = break_sites(maker.run())
    assert site.resume_frames == (resumed, resumed_callee)
    assert (site.graphs_before, site.graphs_after) == ((before,), (after,))


def test_a_resume_function_that_was_skipped_is_not_called_compiled(maker, at):
    """A back end that failed under `suppress_errors`: "goes on in 1 compiled resume frame" was said of it."""
    main = maker.frame("step", line=1)
    maker.graph(main)
    maker.breaks_at(main, at(5))
    maker.frame("torch_dynamo_resume_in_step_at_5", line=5, outcome="skipped")
    (finding,) = [one for one in find_graph_breaks(maker.run()).findings if one.code.startswith("GB")]
    assert "1 resume function not compiled" in finding.why and "compiled resume function" not in finding.why


def test_what_is_left_to_python_is_said_once(maker, at):
    main = maker.frame("step", line=1)
    maker.graph(main)
    maker.breaks_at(main, at(5))
    rest = maker.frame("torch_dynamo_resume_in_step_at_5", line=5, outcome="skipped")
    maker.breaks_at(rest, at(5))
    why = " ".join(one.why for one in find_graph_breaks(maker.run()).findings)
    assert "Because of this, the rest of step after line 5 is not compiled" in why and "resume function not compiled" not in why


def test_two_breaks_on_one_line_take_one_resume_function_each(maker, at):
    main = maker.frame("step", line=1)
    maker.breaks_at(main, at(5))
    first = maker.frame("torch_dynamo_resume_in_step_at_5", line=5)
    maker.breaks_at(first, at(5), gb_id="GB0124", gb_type="Unsupported Tensor.item()")
    second = maker.frame("torch_dynamo_resume_in_step_at_5", line=5)
    (site,) = break_sites(maker.run())
    assert site.resume_frames == (first, second)


def test_a_recompiled_frame_goes_on_in_the_same_resume_function(maker, at):
    from dynadiag.model import CompileKey

    maker.breaks_at(maker.frame("step", line=1, key=CompileKey(0, 0, 0, 0)), at(5))
    resumed = maker.frame("torch_dynamo_resume_in_step_at_5", line=5, key=CompileKey(0, 0, 1, 0))
    maker.breaks_at(maker.frame("step", line=1, key=CompileKey(0, 0, 0, 1)), at(5))
    again = maker.frame("torch_dynamo_resume_in_step_at_5", line=5, key=CompileKey(0, 0, 1, 1))
    (site,) = break_sites(maker.run())
    assert site.resume_frames == (resumed, again)


def test_a_recursive_frame_goes_on_at_the_line_of_its_own_call(maker, at):
    outer = maker.frame("recur", line=1, stack=(at(9, "main"),))
    maker.breaks_at(outer, at(9, "main"), at(4, "recur"), at(3, "recur"))
    wrong = maker.frame("torch_dynamo_resume_in_recur_at_3", line=3)
    right = maker.frame("torch_dynamo_resume_in_recur_at_4", line=4)
    (site,) = break_sites(maker.run())
    assert wrong not in site.resume_frames
    assert site.resume_frames == (right,)


def test_a_resume_function_of_another_process_or_a_skipped_frame_is_not_taken(maker, at):
    main = maker.frame("step", line=1)
    maker.breaks_at(main, at(5))
    maker.frame("torch_dynamo_resume_in_step_at_5", line=5, process=1)
    skipped = maker.frame("other", line=8, outcome="skipped")
    maker.breaks_at(skipped, at(10, "other"), skips_frame=True)
    maker.frame("torch_dynamo_resume_in_other_at_10", line=10)
    assert [site.resume_frames for site in break_sites(maker.run())] == [(), ()]


def test_graphs_of_frames_that_were_given_up_are_no_graphs_before(maker, at):
    skipped = maker.frame("step", line=1, outcome="skipped")
    maker.graph(skipped)
    maker.breaks_at(skipped, at(5), skips_frame=True)
    (site,) = break_sites(maker.run())
    assert site.graphs_before == ()
