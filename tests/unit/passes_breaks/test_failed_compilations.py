"""Compilations that failed: one finding each, at the user's line, with the words of the compiler that refused."""

import json
from dataclasses import replace

import pytest

from dynadiag.advice.uncaught import minify_command
from dynadiag.facts.user_frames import is_own_file
from dynadiag.model.location import Location, PayloadRef
from dynadiag.model.run import Problem, RunInfo, SourceFunction
from dynadiag.passes.break_sites import break_sites
from dynadiag.passes.failed_compilations import failure_message
from dynadiag.passes.find_fallbacks import find_fallbacks
from dynadiag.passes.find_uncaught import find_uncaught

TORCH = "/opt/venv/lib/python3.12/site-packages/torch"
CPP = """CppCompileError: C++ compile error

Command:
/usr/bin/g++ /tmp/torchinductor_me/6q/c6qcz.main.cpp -O3 -o /tmp/x.so

Output:
/tmp/torchinductor_me/6q/c6qcz.main.cpp: In function 'void kernel(const c10::Half*)':
/opt/torch/include/vec512_qint.h:233:7: warning: overflow in conversion from 'int' to 'char'
/tmp/torchinductor_me/6q/c6qcz.main.cpp:93:26: error: conflicting declaration 'auto tmp_acc1_vec'
   93 |                     auto tmp_acc1_vec = 1;
/tmp/torchinductor_me/6q/c6qcz.main.cpp:99:1: error: another
"""
SHORT = "CppCompileError: C++ compile error\n\nCommand:\n"
TRITON = """SubprocException: An exception occurred in a subprocess:

Name=triton_poi_fused_add_0
Traceback (most recent call last):
  File "/opt/triton/compiler.py", line 3, in compile
triton.compiler.errors.CompilationError: at 12:8:
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + x0, xmask)
    tmp1 = tmp0 @ tmp0
           ^
AssertionError('dot needs two dimensions')
"""
LOWERING = f"""LoweringException: NotImplementedError: as_strided needs 6 elements but buf0 holds only 3.
  target: aten.as_strided.default
Found from :{" "}
   File "/home/me/proj/train.py", line 4, in step
    return torch.as_strided(full, (3, 2), (2, 1))
  File "{TORCH}/functional.py", line 9, in as_strided
    pass
"""


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (CPP, "CppCompileError: g++: c6qcz.main.cpp:93:26: error: conflicting declaration 'auto tmp_acc1_vec'"),
        (TRITON, "Triton's CompilationError at 12:8: `tmp1 = tmp0 @ tmp0`: AssertionError('dot needs two dimensions')"),
        (LOWERING, "LoweringException: NotImplementedError: as_strided needs 6 elements but buf0 holds only 3."),
        (f"{SHORT}clang++ x.cpp\n\nOutput:\n/usr/bin/ld: cannot find -lgomp: No such file\ncollect2: error: ld returned 1 exit status",
         "CppCompileError: clang++: cannot find -lgomp: No such file"),
        (f"{SHORT}cl x.cpp\n\nOutput:\nC:\\tmp\\ab\\cab.cpp(12): error C2065: 'x': undeclared identifier",
         "CppCompileError: cl: cab.cpp:12: error C2065: 'x': undeclared identifier"),
        (f"{SHORT}g++ a.cpp\n\nOutput:\n<command-line>: fatal error: zork.h: No such file or directory\ncompilation terminated.",
         "CppCompileError: g++: <command-line>: fatal error: zork.h: No such file or directory"),
        (f"{SHORT}g++ a.cpp\n\nOutput:\n/tmp/a.cpp:7:1: internal compiler error: in cp_lexer, at cp/parser.cc:3",
         "CppCompileError: g++: a.cpp:7:1: internal compiler error: in cp_lexer, at cp/parser.cc:3"),
        (f"{SHORT}g++ a.cpp\n\nOutput:\n/tmp/c.s: Assembler messages:\n/tmp/c.s:12: Error: no such instruction: `vfoo'",
         "CppCompileError: g++: c.s:12: Error: no such instruction: `vfoo'"),
        ("NoValidChoicesError: No choices to select.", "NoValidChoicesError: No choices to select."),
        ("backend='picky' raised:\nNotImplementedError: no kernel", "backend='picky' raised: NotImplementedError: no kernel"),
        ("RuntimeError: An exception occurred in a subprocess:\n\n"
         "Traceback (most recent call last):\n  File \"x\", line 1, in f\nptxas.PTXASError: Internal Triton PTX codegen error\n",
         "PTXASError: Internal Triton PTX codegen error"),
        ("", "torch recorded no reason"),
    ],
)  # fmt: skip
def test_the_line_that_says_what_is_wrong(said, message):
    assert failure_message(said) == message


def failing_run(maker, failed, at, said, *stack, outcome="failed"):
    frame = maker.frame("step", line=1, outcome=outcome, metrics=failed("InductorError", said), callers=(at(90, "main"),))
    ended = Problem(kind="uncaught", process=0, text=f"InductorError: {said}", stack=stack)
    return maker.run(problems=(ended,)), frame


def test_an_error_that_ended_the_program_is_told_once_at_the_users_line(maker, failed, at):
    generated = Location("/tmp/torchinductor_me/7q/c7qabc.py", 376, "<module>", "async_compile.wait(globals())")
    run, _ = failing_run(
        maker, failed, at, LOWERING, at(90, "main"), generated, Location(f"{TORCH}/_inductor/lowering.py", 8, "as_strided")
    )
    (finding,) = find_fallbacks(run).findings
    assert (finding.code, finding.where.line, finding.where.function) == ("DF10", 4, "step")
    assert finding.why.endswith("This exception ended the program.")
    assert find_uncaught(run).findings == ()
    other = replace(run.problems[0], text="RuntimeError: something at run time")
    assert [finding.code for finding in find_uncaught(replace(run, problems=(other,))).findings] == ["DF11"]


BROKEN = "backend='picky' raised:\nNotImplementedError: no kernel for aten.cos"


@pytest.mark.parametrize(("outcome", "code", "entries"), [("failed", "DF10", []), ("skipped", "DF04", [("suppressed_error", ())])])
def test_an_error_in_the_graph_before_a_break_is_told_beside_the_break(maker, failed, at, outcome, code, entries):
    """Torch ends the graph at the break, and only then does the back end refuse it."""
    frame = maker.frame("step", line=1, outcome=outcome, metrics=failed("BackendCompilerFailed", BROKEN), callers=(at(90, "main"),))
    maker.breaks_at(frame, at(5))
    run = maker.run()
    result = find_fallbacks(run)
    (finding,) = result.findings
    assert (finding.code, finding.where.line) == (code, 1)
    assert "backend='picky' raised: NotImplementedError: no kernel for aten.cos" in finding.why
    function = SourceFunction(finding.where.file, 1, "step", "def step(x):\n    return x.cos()")
    (again,) = find_fallbacks(replace(run, functions=(function,))).findings
    assert again.where.code == ("def step(x):" if code == "DF10" else finding.where.code)
    assert [(entry.kind, entry.breaks) for entry in result.fallbacks] == entries
    (site,) = break_sites(run)
    assert site.skipped_frames == ()


@pytest.mark.parametrize("error", ["Unsupported", "UserError"])
def test_a_break_that_is_the_failure_is_not_told_twice(maker, failed, at, error):
    frame = maker.frame("step", line=1, outcome="failed", metrics=failed(error, "Data-dependent branching"))
    maker.breaks_at(frame, at(5), source="metrics")
    assert find_fallbacks(maker.run()).findings == ()


def test_the_rest_of_a_function_is_named_as_people_do(maker, failed):
    maker.frame("torch_dynamo_resume_in_step_at_5", line=5, outcome="failed", metrics=failed("InductorError", "no"))
    (finding,) = find_fallbacks(maker.run()).findings
    assert finding.why.startswith("step, resumed at line 5 (train.py:5)")


def test_the_rest_of_a_function_fails_where_its_graph_begins_not_at_the_break(maker, failed, tmp_path):
    """A back end refuses a graph as a whole."""
    frame = maker.frame("torch_dynamo_resume_in_step_at_5", line=5, outcome="failed", metrics=failed("BackendCompilerFailed", BROKEN))
    maker.graph(frame)
    stack = '  File "/home/me/proj/train.py", line 7, in torch_dynamo_resume_in_step_at_5\n    y = x.cos()\n'
    log = tmp_path / "log"
    log.write_text(json.dumps({"strings": [stack], "nodes": [["y", {}, 0]]}))
    details = PayloadRef(str(log), 0, log.stat().st_size)
    run = maker.run()
    (finding,) = find_fallbacks(replace(run, graphs=(replace(run.graphs[0], details=details),))).findings
    assert (finding.where.line, finding.where.function, finding.where.code) == (7, "step", None)
    assert finding.why.startswith("step, resumed at line 5") and "aten.cos (the graph begins at line 7). 1 comp" in finding.why
    assert find_fallbacks(run).findings[0].where.line == 5  # a log without the lines of its graphs


def test_a_backward_that_does_not_compile_leaves_its_forward_compiled(maker, at):
    frame = maker.frame("step", line=1)
    stack = (at(9, "main"), Location(f"{TORCH}/_functorch/_aot_autograd/runtime_wrappers.py", 7, "backward"), at(2, "my_backend"))
    problems = (
        Problem(kind="backward_error", process=0, text="NotImplementedError: no derivative", frame=frame),
        Problem(kind="uncaught", process=0, text="NotImplementedError: no derivative", stack=stack),
    )
    (finding,) = find_fallbacks(maker.run(problems=problems)).findings
    assert (finding.code, finding.where.line) == ("DF10", 9)
    assert finding.title == "Compilation of a backward failed with NotImplementedError"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("/opt/venv/bin/python3.12", "train.py", "--lr", "1 e"), "dynadiag minify train.py --lr '1 e'"),
        (("python", "-m", "pkg.train"), "dynadiag minify -m pkg.train"),
        (("C:\\Py\\python.exe", "train.py"), "dynadiag minify train.py"),
        (("python", "-X", "dev", "train.py"), "dynadiag minify '/runs/0001#g0'"),
        (("torchrun", "train.py"), "dynadiag minify '/runs/0001#g0'"),
        (None, "dynadiag minify '/runs/0001#g0'"),
    ],
)
def test_the_command_that_reduces_it(maker, command, told):
    frame = maker.frame("step", line=1)
    maker.graph(frame)
    run = replace(maker.run(), info=RunInfo(directory="/runs/0001", command=command))
    assert minify_command(run, run.frame(frame)) == told


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/tmp/torchinductor_me/7q/c7qeh.py", False),
        ("/scratch/cache/7q/c7qeh4qfz2n3n5ko25d4exglfda4x3rfhlzmxqtrd7xvp35pxa55s.py", False),
        ("/home/me/7q/c7qeh.py", True),
    ],
)
def test_inductors_generated_files_are_nobodys_own(maker, file, own):
    assert is_own_file(file, maker.run()) is own


def test_a_failure_inside_a_library_has_the_cure_of_the_atlas(maker, failed, at):
    """The versions are those that the run recorded: without them nothing is taken from the atlas."""
    frame = maker.frame("loss", line=1, outcome="failed", metrics=failed("TorchRuntimeError", "fake tensors"))
    inside = Location("/opt/venv/lib/python3.12/site-packages/torchcrf/__init__.py", 90, "forward")
    run = maker.run(problems=(Problem(kind="error", process=0, text="fake tensors", frame=frame, stack=(at(9, "loss"), inside)),))
    for libraries, entry in (({"torchcrf": "0.7.2"}, "torchcrf/mask-type"), ({}, None)):
        recorded = tuple(replace(process, torch="2.15.0", libraries=libraries) for process in run.processes)
        (finding,) = find_fallbacks(replace(run, processes=recorded)).findings
        assert finding.fix[0].entry == entry
