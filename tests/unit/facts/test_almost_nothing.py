"""When next to nothing was compiled, and what is said to run in Python: only what the record establishes."""

from dataclasses import replace

from dynadiag.facts.almost_nothing import AlmostNothing, almost_nothing
from dynadiag.model import BreakEvent, CompileKey, Frame, Graph, Location, Problem, Run, RunInfo

FILE = "/home/me/proj/detect.py"
LIBRARY = "/opt/env/lib/python3.12/site-packages/torch/nn/parallel/distributed.py"
FORWARD = "def forward(self, images):\n" + "    x = self.layer(x)\n" * 14 + "\n\ndef other():\n" + "    pass\n" * 99


def frame(number, name, outcome, line=12, file=FILE, callers=()):
    key = CompileKey(0, 0, number, 0)
    return Frame(id=f"f{number}", key=key, attempts=1, name=name, file=file, line=line, outcome=outcome, callers=callers)


def graph(number, frame_id, operators):
    return Graph(id=f"g{number}", frame=frame_id, kind="dynamo", attempt=0, nodes=9, ops={"add": operators}, text=None)


def broke(frame_id, *stack):
    return BreakEvent(
        frame=frame_id, attempt=0, gb_id="GB0036", gb_type="t", explanation=None, hints=(), context=None, stack=stack, torch_frame=None
    )


CALL = Location(FILE, 51, "evaluate")
DETECTOR = Run(
    info=RunInfo(),
    frames=(frame(0, "evaluate", "broke", 49), frame(1, "forward", "skipped"), frame(2, "nms", "broke", 3, LIBRARY)),
    graphs=(graph(0, "f2", 1),),
    breaks=(broke("f0", CALL, Location(FILE, 19, "forward")), broke("f1", Location(FILE, 19, "forward"))),
    blocks={(FILE, 12): FORWARD},
)
CHOPPED = replace(DETECTOR, graphs=tuple(graph(number, "f2", 2) for number in range(4)))


def test_a_function_of_many_lines_in_python_beside_a_graph_of_one_operator():
    assert almost_nothing(DETECTOR) == AlmostNothing(1, 1, ("forward()",))
    assert almost_nothing(replace(DETECTOR, graphs=())) == AlmostNothing(0, 0, ("forward()",))


def test_it_is_not_said_of_a_short_function_nor_of_one_with_as_many_operators_as_lines():
    assert almost_nothing(CHOPPED) is None  # 8 operators, and forward has 15 lines
    short = replace(DETECTOR, blocks={(FILE, 12): "def forward(self, x):\n    log(x)\n    return x\n\nprint(1)\n"})
    assert almost_nothing(short) is None
    assert almost_nothing(replace(DETECTOR, blocks={})) is not None  # the break is 7 lines below its first
    assert almost_nothing(replace(DETECTOR, graphs=(graph(0, "f2", 3),))) is None


def test_it_is_not_said_where_the_record_is_incomplete():
    for unsure in (
        replace(DETECTOR, left_out={"graphs": 3}),
        replace(DETECTOR, problems=(Problem(kind="cached_code", process=0, text=""),)),
        replace(DETECTOR, graphs=(graph(0, "f2", 0),)),  # not counted
        replace(DETECTOR, frames=(*DETECTOR.frames, frame(3, "step", "failed"))),
    ):
        assert almost_nothing(unsure) is None


def test_a_function_that_was_compiled_in_another_call_or_skipped_without_a_break_is_not_named():
    again = replace(DETECTOR, frames=(*DETECTOR.frames, frame(3, "forward", "compiled")), graphs=(graph(0, "f3", 1),))
    assert almost_nothing(again) is None
    assert almost_nothing(replace(DETECTOR, breaks=DETECTOR.breaks[:1])) is None


def test_a_module_of_a_library_in_python_unless_something_under_its_call_has_a_graph():
    line = Location(FILE, 15, "step")
    run = Run(
        info=RunInfo(),
        frames=(
            frame(0, "step", "broke"),
            frame(1, "torch_dynamo_resume_in_step_at_15", "compiled", 15, callers=(line,)),
            frame(2, "helper", "compiled", 3, LIBRARY, callers=(line,)),
        ),
        graphs=(graph(0, "f1", 2),),
        breaks=(broke("f0", line, Location(LIBRARY, 1908, "forward"), Location(LIBRARY, 1779, "_pre_forward")),),
    )
    assert almost_nothing(run) == AlmostNothing(2, 1, ("the module called at detect.py:15",))
    assert almost_nothing(replace(run, graphs=(graph(0, "f2", 2),))) is None
    for callers in ((), (line,) * 100):
        unsure = replace(run.frames[1], callers=callers)
        assert almost_nothing(replace(run, frames=(run.frames[0], unsure, run.frames[2]))) is None
    assert almost_nothing(replace(run, breaks=(broke("f0", line, Location(LIBRARY, 9, "nms")),))) is None
