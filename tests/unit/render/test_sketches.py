"""The frame map: what it shows, and how boxes and arrows become rows."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.render.frame_map import BREAKS_AT_MOST, FRAMES_AT_MOST, frame_map
from dynadiag.render.sketch import LOOKS, Arrow, Box, Sketch, picture_of


def test_the_frame_map_shows_the_chain_of_a_break(samples):
    sketch = frame_map(samples.sample_report())
    (site,) = [number for number, box in enumerate(sketch.boxes) if box.lines[0] == "b0 GB0123, 5 events"]
    assert sketch.boxes[site].lines[1:] == ("Unsupported Tensor.backward() call", "train.py:41", "loss.backward()")
    strong = [(arrow.tail, arrow.head) for arrow in sketch.arrows if arrow.strong]
    (tail,) = [tail for tail, head in strong if head == site]
    (head,) = [head for tail, head in strong if tail == site]
    assert sketch.boxes[tail].lines[0] == "train_step"
    assert sketch.boxes[head].lines[0] == "train_step, resumed at line 41"


def test_the_frame_map_colours_what_ran_eager_and_joins_recompilations(samples):
    looks = {box.lines[0]: (box.look, box.lines[-1]) for box in frame_map(samples.sample_report()).boxes}
    assert looks["log_metrics"] == ("eager", "f4: ran eagerly")
    assert looks["forward"] == ("compiled", "f2, f3: compiled, 2 compilations")
    assert looks["train_step"][0] == "broke"
    assert looks["b1, 1 event"] == ("break", "the whole frame runs eagerly")


def test_the_frame_map_of_a_huge_run_keeps_the_frames_that_matter(samples):
    report = samples.sample_report()
    quiet = tuple(replace(report.run.frames[2], id=f"f{index}", name=f"quiet{index}") for index in range(5, 1000))
    sketch = frame_map(replace(report, run=replace(report.run, frames=(*quiet, *report.run.frames))))
    names = [box.lines[0] for box in sketch.boxes]
    assert sum(name.startswith("quiet") for name in names) < FRAMES_AT_MOST
    assert {"train_step", "log_metrics"} <= set(names)
    assert any("not drawn" in line for line in sketch.title)


def test_the_frame_map_keeps_the_breaks_with_the_most_events(samples):
    report = samples.sample_report()
    first = report.graph_breaks[0]
    many = tuple(replace(first, id=f"b{index}", events=index) for index in range(BREAKS_AT_MOST + 7))
    sketch = frame_map(replace(report, graph_breaks=many))
    drawn = [box.lines[0].split()[0] for box in sketch.boxes if box.look == "break"]
    assert drawn == [f"b{index}" for index in range(7, BREAKS_AT_MOST + 7)]
    assert "not drawn: 7 break sites with the fewest events" in sketch.title


def test_the_frame_map_says_when_nothing_was_compiled(samples):
    sketch = frame_map(samples.empty_report())
    assert "nothing was compiled" in sketch.title
    assert sketch.boxes == ()


def test_frames_of_two_ranks_are_told_apart(samples):
    report = samples.sample_report()
    ranks = tuple(replace(report.run.processes[0], index=index, rank=index) for index in range(2))
    lines = [box.lines[-1] for box in frame_map(replace(report, run=replace(report.run, processes=ranks))).boxes]
    assert "f0: broke, rank 0" in lines


def test_each_box_follows_what_leads_to_it_and_a_cycle_is_cut():
    boxes = tuple(Box(lines=(name,), look="plain") for name in "abcd")
    arrows = (Arrow(tail=0, head=3), Arrow(tail=3, head=1, strong=True), Arrow(tail=1, head=0), Arrow(tail=2, head=2))
    picture = picture_of(Sketch(title=("t", "more"), boxes=boxes, arrows=arrows))
    assert (picture.title, picture.summary) == ("t", ("more",))
    assert sorted(row.name for row in picture.rows) == list("abcd")
    assert {(picture.rows[link.tail].name, picture.rows[link.head].name) for link in picture.links} == {("a", "d"), ("d", "b"), ("b", "a")}


@given(st.integers(0, 30).flatmap(lambda size: st.tuples(st.just(size), st.lists(st.tuples(*[st.integers(0, max(size - 1, 0))] * 2)))))
def test_every_box_and_arrow_is_kept(spec):
    size, pairs = spec
    look = list(LOOKS)
    boxes = tuple(Box(lines=(f"n{i}",), look=look[i % len(look)]) for i in range(size))
    arrows = tuple(Arrow(tail=tail, head=head) for tail, head in pairs if size)
    picture = picture_of(Sketch(title=(), boxes=boxes, arrows=arrows))
    assert sorted(row.name for row in picture.rows) == (sorted(f"n{i}" for i in range(size)) or ["nothing to draw"])
    found = {(picture.rows[link.tail].name, picture.rows[link.head].name) for link in picture.links}
    assert found == {(f"n{tail}", f"n{head}") for tail, head in pairs if tail != head}
