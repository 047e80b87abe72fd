"""CUDA graphs: skips, parts outside of them and recordings made again, from records of torch 2.11 on an H200."""

import pytest

from dynadiag.model.graph import TracedInput
from dynadiag.model.run import CompileMetrics, Problem
from dynadiag.passes.find_cuda_graphs import find_cuda_graphs

SCALAR = "partition 1 of 2 is no CUDA graph (1 are): cpu ops: prims.device_put.default (compiled); DeviceCopy ops: prims.device_put.default"
SIZES = "recorded 3 times: another size: (8, 11), before (8, 9), (8, 10)"
MANAGED = (
    "recorded 2 times: cudagraph managed tensor data pointer changed.\ninput name: arg0_1. "
    "data pointer changed from 140366539923456 to 140366911128576. input stack trace:   "
    'File "/home/me/proj/train.py", line 9, in second\n    return (y * 2).sum(0)\n'
)


def traced(frame, source, device):
    return TracedInput(
        frame=frame, source=source, shape=(), stride=(), dtype="torch.float32", device=f"device(type='{device}')",
        requires_grad=False, is_leaf=True, is_parameter=False, storage=None,
    )  # fmt: skip


def findings(maker, kind, text, *stack, frame=None, **fields):
    problem = Problem(kind=kind, process=0, text=text, frame=frame, stack=stack)
    return find_cuda_graphs(maker.run(problems=(problem,), **fields)).findings


def test_a_cpu_scalar_that_cuts_a_graph_is_named_with_its_cure(maker, at):
    frame = maker.frame("forward", line=1)
    inputs = (traced(frame, "L['x']", "cuda"), traced(frame, "L['self'].scale", "cpu"))
    (finding,) = findings(maker, "cudagraph_partition", SCALAR, at(5), frame=frame, traced_inputs=inputs)
    assert (finding.code, finding.where.line) == ("DC05", 5)
    assert "into 2 parts, of which 1 can be a CUDA graph" in finding.why
    assert "On the CPU: self.scale." in finding.why
    assert "Inductor generated C++ code" in finding.why
    assert "Make `self.scale` on the GPU" in finding.fix[0].text


def test_a_number_that_became_a_tensor_on_the_cpu_is_told_as_a_number(maker, at):
    frame = maker.frame("step", line=1)
    inputs = (traced(frame, "___as_tensor(L['self'].param_groups[0]['lr'])", "cpu"),)
    (finding,) = findings(maker, "cudagraph_partition", SCALAR, at(5), frame=frame, traced_inputs=inputs)
    assert "torch.tensor(..., device=...)" in finding.fix[0].text


@pytest.mark.parametrize(
    ("reason", "slug"),
    [
        ("unbacked binding ops: aten.nonzero.default", "no-data-shapes"),
        ("CUDAGraph-unsafe custom ops: lib.sync.default", "unsafe-tag"),
        ("Conditional ops: cond", "where-for-cond"),
        ("cpu ops: prims.device_put.default", "copy-outside"),
    ],
)
def test_each_reason_has_its_advice(maker, at, reason, slug):
    (finding,) = findings(maker, "cudagraph_partition", f"partition 2 of 3 is no CUDA graph (2 are): {reason}", at(5))
    assert [advice.slug for advice in finding.fix] == [slug]


def test_a_part_of_nothing_but_assertions_is_not_told(maker):
    assert findings(maker, "cudagraph_partition", "partition 3 of 3 is no CUDA graph (1 are): cpu ops: AssertScalar") == ()


RECORDED = Problem(kind="cudagraph_recorded", process=0, text="recorded")


def again(*texts, at, frame=None):
    return tuple(Problem(kind="cudagraph_rerecord", process=0, text=text, stack=(at(7),), frame=frame) for text in texts)


def met(*texts, frame):
    return tuple(Problem(kind="cudagraph_sizes", process=0, text=text, frame=frame) for text in texts)


def test_recordings_again_are_one_finding_a_line_without_addresses(maker, at):
    maker.frame("second", line=1)
    problems = (RECORDED, *again(SIZES, SIZES, MANAGED, at=at))
    sizes, managed = find_cuda_graphs(maker.run(problems=problems)).findings
    assert (sizes.code, sizes.where.line, sizes.cost.value) == ("DC06", 7, 2)
    assert (managed.where.line, managed.fix[0].slug) == (9, "one-source")
    assert "1403" not in managed.why
    assert sizes.title == "CUDA graphs were re-recorded: 2 times"


def test_sizes_of_a_log_that_does_not_tell_first_recordings_are_no_recordings(maker, at):
    """Dynadiag 0.x wrote a size when torch met it: torch only warms up then, and never records one that does not come again."""
    assert find_cuda_graphs(maker.run(problems=again(SIZES, SIZES, at=at))).findings == ()


def test_sizes_that_torch_never_recorded_are_a_note_and_not_recordings(maker):
    frame = maker.frame("f", line=4)
    texts = ("met 2 sizes: 10, before 9, 10", "met 11 sizes: 19, before 9, 10, 11, 12, 13")
    (finding,) = find_cuda_graphs(maker.run(problems=met(*texts, frame=frame))).findings
    assert (finding.code, finding.severity, finding.where.line) == ("DC07", "note", 4)
    assert finding.title == "No CUDA graph was recorded: 11 sizes met"
    assert (finding.cost.value, finding.cost.unit, finding.evidence) == (1, "graphs", (frame,))
    (fewer,) = find_cuda_graphs(maker.run(problems=met(texts[0], frame=frame))).findings
    assert fewer.fingerprint == finding.fingerprint, "it is the same finding in a run with fewer sizes"


@pytest.mark.parametrize(
    "other",
    [("cudagraph_recorded", "recorded"), ("cudagraph_skip", "skipping cudagraphs due to mutated inputs (1 instances)")],
    ids=["recorded", "skipped"],
)
def test_sizes_of_a_graph_that_was_recorded_or_skipped_are_not_told(maker, other):
    """The skip is a finding of its own: padding cures nothing there."""
    frame = maker.frame("f", line=4)
    problem = Problem(kind=other[0], process=0, text=other[1], frame=frame)
    problems = (*met("met 2 sizes: 10, before 9, 10", frame=frame), problem)
    assert find_cuda_graphs(maker.run(problems=problems)).findings == ()


def test_as_many_recordings_as_are_written_down_are_at_least_so_many(maker, at):
    frame = maker.frame("f", line=4)
    texts = [f"recorded {number} times: another size: {number}, before 1" for number in range(2, 201)]
    (finding,) = find_cuda_graphs(maker.run(problems=(RECORDED, *again(*texts, at=at, frame=frame)))).findings
    assert finding.title == "CUDA graphs were re-recorded: at least 199 times"


def test_a_number_read_from_a_tensor_is_not_a_copy_to_the_cpu(maker, at):
    (finding,) = findings(
        maker, "cudagraph_partition", "partition 1 of 2 is no CUDA graph (1 are): cpu ops: aten._local_scalar_dense.default", at(5)
    )
    assert [advice.slug for advice in finding.fix] == ["number-stays-tensor"]


def test_a_skip_for_a_write_is_left_to_the_mutations(maker):
    assert findings(maker, "cudagraph_skip", "skipping cudagraphs due to mutated inputs (1 instances). Found from : \n") == ()
    frame = maker.frame("cond", line=1, metrics=CompileMetrics(cudagraph_skip_reason="skipping cudagraphs due to cpu device (arg1_1)"))
    (finding,) = find_cuda_graphs(maker.run()).findings
    assert (finding.code, finding.title, finding.evidence) == ("DC04", "CUDA graphs were skipped: cpu device (arg1_1)", (frame,))
